"""Numbers printed in the paper on metrics beyond forgetting (Díaz-Rodríguez et al. 2018, tables).

They are of iCIFAR-100, task-incrementally; criteria and scores are fractions in [0, 1].
"""

from everlight.metrics import CRITERIA as CRITERIA_ORDER
from everlight.metrics import WEIGHTINGS

COLUMNS = ("A", "REM", "BWT+", "FWT", "MS", "SSS", "CE")
CRITERIA = {
    "Naive": (0.3825, 0.6664, 0.0000, 0.1000, 1.0000, 1.0000, 0.4492),
    "Cumulative": (0.7225, 1.0000, 0.0673, 0.1000, 1.0000, 0.5500, 0.1496),
    "EWC": (0.5940, 0.9821, 0.0000, 0.1000, 0.4000, 1.0000, 0.3495),
    "LwF": (0.5278, 0.9667, 0.0000, 0.1000, 1.0000, 1.0000, 0.4429),
    "SI": (0.5795, 0.9620, 0.0000, 0.1000, 0.4000, 1.0000, 0.3613),
}
SCORES = {
    "Naive": {"W1": 0.5140, "W2": 0.5529, "W3": 0.5312},
    "Cumulative": {"W1": 0.5128, "W2": 0.6223, "W3": 0.5373},
    "EWC": {"W1": 0.4894, "W2": 0.6449, "W3": 0.5816},
    "LwF": {"W1": 0.5768, "W2": 0.6554, "W3": 0.6030},
    "SI": {"W1": 0.4861, "W2": 0.6372, "W3": 0.5772},
}
STABILITIES = {
    "Naive": {"W1": 0.9986, "W2": 0.9969, "W3": 0.9973},
    "Cumulative": {"W1": 0.9979, "W2": 0.9976, "W3": 0.9964},
    "EWC": {"W1": 0.9972, "W2": 0.9976, "W3": 0.9940},
    "LwF": {"W1": 0.9986, "W2": 0.9990, "W3": 0.9972},
    "SI": {"W1": 0.9970, "W2": 0.9945, "W3": 0.9927},
}
"""The deviations that they are made of are not printed; those of EWC, LwF and SI are of no
deviations at all (tests/experiments/cl_metrics/test_cl_metrics_paper.py)."""
PRINTED = {
    name: (
        *(dict(zip(COLUMNS, row, strict=True))[criterion] for criterion in CRITERIA_ORDER),
        *(printed[name][weights] for printed in (SCORES, STABILITIES) for weights in WEIGHTINGS),
    )
    for name, row in CRITERIA.items()
}
"""Criteria in the order of `everlight.metrics.CRITERIA`, then CL scores and CL stabilities."""
