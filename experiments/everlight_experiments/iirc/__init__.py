"""IIRC (Abdelsalam et al. 2021): incremental implicitly-refined classification."""

CITATION = 'Abdelsalam et al. 2021, "IIRC: Incremental Implicitly-Refined Classification"'
