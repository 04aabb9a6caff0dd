"""Contents of results.npz of two seeds and two tasks, with numbers that are checked by hand."""

import numpy as np

MATRICES = np.array([[[0.9, 0.1], [0.5, 0.8]], [[0.7, np.nan], [0.6, 0.75]]])
ARRAYS = {
    "draws": np.array([11, 12]),
    "measure": np.array("accuracy"),
    "class-incremental/ER/accuracy": np.array([[0.9, 0.65], [0.7, 0.675]]),
    "class-incremental/ER/accuracy by task": MATRICES,
    "class-incremental/ER/accuracy by class": np.zeros((2, 2, 3)),
    "class-incremental/ER/seconds": np.array([1.5, 2.5]),
    "class-incremental/ER/steps": np.array([[4, 8], [4, 8]]),
    "class-incremental/ER/parameters": np.array(7),
    "class-incremental/ER/tried": np.array([0.1, 0.2]),
    "class-incremental/joint/accuracy": np.array([[0.1, 0.9], [0.1, 0.8]]),
    "class-incremental/joint/accuracy by task": MATRICES,
    "class-incremental/joint/steps": np.array([[0, 8], [0, 8]]),
}
