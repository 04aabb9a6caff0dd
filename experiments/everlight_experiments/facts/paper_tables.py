"""What the paper prints, on 6DS (mid-scale) and Sherlock (large-scale): other data than ours.

Its values by task are left out, as its tasks are others too. Accuracies are Top-5, in percent.
"""

from typing import NamedTuple

OTHER_DATA = "6DS/Sherlock, other data"
NAMES = {"IMM mode": "IMM", "SI": "Int.Synapses", "finetune": "Finetune", "joint": "Joint"}
"""As the paper calls them, where it differs."""


class PaperTop5(NamedTuple):
    """A row of tables 3 to 8."""

    standard_tasks: float
    standard_examples: float
    generalised_tasks: float
    generalised_examples: float


TOP5 = {
    ("mid-scale", "random"): {
        "ExpertGate": PaperTop5(65.13, 64.88, 43.9, 43.69),
        "finetune": PaperTop5(65.84, 66.11, 41.39, 42.02),
        "IMM mode": PaperTop5(78.32, 78.15, 59.04, 58.77),
        "SI": PaperTop5(75.81, 75.94, 50.57, 50.95),
        "MAS": PaperTop5(79.65, 79.68, 56.67, 56.94),
        "joint": PaperTop5(82.69, 82.57, 71.03, 70.87),
    },
    ("mid-scale", "semantic"): {
        "ExpertGate": PaperTop5(49.11, 59.39, 41.38, 51.83),
        "finetune": PaperTop5(24.69, 21.3, 5.86, 6.07),
        "IMM mode": PaperTop5(56.97, 64.33, 30.22, 37.31),
        "SI": PaperTop5(23.18, 21.23, 4.2, 5.77),
        "MAS": PaperTop5(30.97, 30.96, 5.36, 6.04),
        "joint": PaperTop5(58.98, 74.75, 53.77, 70.87),
    },
    ("large-scale", "random"): {
        "ExpertGate": PaperTop5(22.02, 20.95, 19.36, 15.34),
        "finetune": PaperTop5(26.83, 26.59, 22.74, 18.93),
        "IMM mode": PaperTop5(28.08, 27.53, 25.73, 20.91),
        "SI": PaperTop5(28.43, 28.06, 24.75, 19.92),
        "MAS": PaperTop5(32.5, 32.0, 27.92, 22.48),
    },
    ("large-scale", "semantic"): {
        "ExpertGate": PaperTop5(19.22, 20.15, 13.43, 14.91),
        "finetune": PaperTop5(17.09, 17.91, 7.96, 9.75),
        "IMM mode": PaperTop5(17.59, 14.81, 7.91, 4.15),
        "SI": PaperTop5(16.97, 17.49, 7.61, 8.7),
        "MAS": PaperTop5(17.99, 18.75, 7.71, 8.54),
        "joint": PaperTop5(20.35, 23.41, 15.98, 20.68),
    },
}
TRANSFER = {
    "semantic": {"MAS": (-0.20, 0.24), "SI": (-0.37, 0.08), "finetune": (-0.44, 0.06)},
    "random": {"MAS": (-0.22, 0.30), "SI": (-0.25, 0.26), "finetune": (-0.35, 0.22)},
}
"""BWT and FWT of table 10, large-scale."""
FEW_SHOT = {
    "semantic": {
        "ExpertGate": 1.05,
        "finetune": 1.86,
        "IMM mode": 0.5,
        "SI": 1.18,
        "MAS": 1.27,
        "joint": 5.7,
    },
    "random": {
        "ExpertGate": 1.46,
        "finetune": 3.16,
        "IMM mode": 1.88,
        "SI": 2.87,
        "MAS": 3.33,
        "joint": 5.7,
    },
}
"""Means over tasks, large-scale (tables 11 and 12)."""
SPO = {
    15: {
        "finetune": (10.11, 27.44, 12.35, 20.91, 29.37, 20.91, 33.8),
        "SI": (10.41, 21.11, 6.17, 10.52, 12.81, 11.21, 21.61),
        "MAS": (6.81, 9.5, 3.09, 14.42, 19.57, 14.15, 21.61),
    },
    50: {
        "finetune": (17.25, 31.56, 8.66, 23.31, 28.66, 22.98, 33.29),
        "SI": (12.58, 20.18, 7.65, 10.7, 13.9, 11.28, 19.49),
        "MAS": (10.02, 23.28, 5.61, 14.78, 18.56, 14.46, 21.9),
    },
}
"""By least examples of a part, in the order of `ranking_groups.SPO_CASES` (tables 14 to 17)."""
SIMILARITY = {
    ("mid-scale", "semantic"): (0.02, 0.25),
    ("mid-scale", "random"): (0.22, 0.84),
    ("large-scale", "semantic"): (0.07, 0.238),
    ("large-scale", "random"): (0.96, 0.453),
}
"""Mean word2vec similarity and SPO overlap of tasks, each with itself counted (table 9, section 7).
The mid-scale random overlap is as printed; its own table's entries have the mean .38."""
