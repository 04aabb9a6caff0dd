"""Numbers printed in the paper on lifelong fact learning (Elhoseiny et al. 2018).

They are of 6DS (mid-scale) and Sherlock (large-scale), which are not public.
"""

from collections.abc import Mapping

OTHER_DATA = "6DS and Sherlock, other data"
TABLES = ("ExpertGate", "finetune", "IMM mode", "SI", "MAS", "joint")
"""Methods of the paper's tables."""
PRINTED: Mapping[str, Mapping[str, tuple[float, ...]]] = {
    "mid-scale, random": {
        "ExpertGate": (64.88, 43.69),
        "finetune": (66.11, 42.02),
        "IMM mode": (78.15, 58.77),
        "SI": (75.94, 50.95),
        "MAS": (79.68, 56.94),
        "joint": (82.57, 70.87),
    },
    "mid-scale, semantic": {
        "ExpertGate": (59.39, 51.83),
        "finetune": (21.3, 6.07),
        "IMM mode": (64.33, 37.31),
        "SI": (21.23, 5.77),
        "MAS": (30.96, 6.04),
        "joint": (74.75, 70.87),
    },
    "large-scale, random": {
        "ExpertGate": (20.95, 15.34, 1.46),
        "finetune": (26.59, 18.93, 3.16, -0.35, 0.22),
        "IMM mode": (27.53, 20.91, 1.88),
        "SI": (28.06, 19.92, 2.87, -0.25, 0.26),
        "MAS": (32.0, 22.48, 3.33, -0.22, 0.30),
        "joint": (float("nan"), float("nan"), 5.7),
    },
    "large-scale, semantic": {
        "ExpertGate": (20.15, 14.91, 1.05),
        "finetune": (17.91, 9.75, 1.86, -0.44, 0.06),
        "IMM mode": (14.81, 4.15, 0.5),
        "SI": (17.49, 8.7, 1.18, -0.37, 0.08),
        "MAS": (18.75, 8.54, 1.27, -0.20, 0.24),
        "joint": (23.41, 20.68, 5.7),
    },
}
"""Top-5 over examples, standard and generalised (tables 3 to 8); few-shot Top-5 over tasks (tables
11 and 12); BWT and FWT (table 10)."""
SPO_TOP5 = {
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
"""Top-5 by least examples of a part, in the order of `SPO_CASES` of
`everlight.metrics.ranking_groups` (tables 14 to 17)."""
SIMILARITY = {
    "mid-scale, semantic": (0.02, 0.25),
    "mid-scale, random": (0.22, 0.84),
    "large-scale, semantic": (0.07, 0.238),
    "large-scale, random": (0.96, 0.453),
}
"""Mean word2vec similarity and SPO overlap of tasks, each with itself counted (table 9, section 7).
The mid-scale random overlap is as printed; its own table's entries have the mean 0.38."""
