"""IIRC (Abdelsalam et al. 2021): incremental implicitly-refined classification."""
