"""Ranges of scores: shares in [0, 1], or NaN where a run diverged."""

import numpy as np
import pytest

from everlight_data.errors import DataError
from everlight_experiments.continual.benchmarks.metric import Metric, Metrics

MATRIX = "time", "task"
METRICS = Metrics(
    Metric("recall", print, ("time",)),
    Metric("recall by task", print, MATRIX),
    (
        Metric("drawn", print, MATRIX, "A picture of the report."),
        Metric("stored", print, MATRIX),
        Metric("norm", print, ("time",), "A curve on its own scale."),
        Metric("second", print, ("time",)),
    ),
    second_score="second",
)
SHARES = {
    **{name: np.array([[0.0, np.nan, 1.0 + 1e-7]]) for name in ("recall", "second")},
    **{name: np.array([[[0.0, 1.0], [np.nan, 0.5]]]) for name in ("recall by task", "drawn")},
    "stored": np.array([[[-3.0]]]),
    "norm": np.array([[40.0]]),
}


def test_scores_and_drawn_matrices_are_shares():
    METRICS.refuse_other_than_shares(SHARES)
    for name, value in (("recall", 97.5), ("recall by task", -0.25), ("second", 1.01)):
        values = SHARES[name].copy()
        values.flat[0] = value
        with pytest.raises(DataError, match=f"the score '{name}' has {value}; give shares in"):
            METRICS.refuse_other_than_shares(SHARES | {name: values})
    with pytest.raises(DataError, match=r"the metric 'drawn' has inf; .* without a meaning"):
        METRICS.refuse_other_than_shares(SHARES | {"drawn": np.full((1, 2, 2), np.inf)})
