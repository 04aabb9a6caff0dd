"""CORe50 (Lomonaco and Maltoni 2017): continuous object recognition in three scenarios."""

CITATION = (
    "Lomonaco and Maltoni 2017, "
    '"CORe50: a New Dataset and Benchmark for Continuous Object Recognition"'
)
