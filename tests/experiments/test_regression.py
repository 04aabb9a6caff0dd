"""The command of slowly changing regression: its files, its seeds and what it refuses."""

import numpy as np
import pytest

from everlight_data.errors import DataError
from everlight_experiments.cli import options_of
from everlight_experiments.commands.regression import run_regression

WORDS = ("--tasks", "12", "--samples", "20", "--seeds", "2", "--methods", "naive", "CBP")


def run(folder, *words):
    options = options_of("slowly-changing-regression", [*WORDS, *words, "--runs", str(folder)])
    return run_regression(options)


def test_every_value_is_a_row_and_without_replacement_cbp_is_backpropagation(tmp_path):
    report = run(tmp_path, "--hyperparameters", "CBP=0,1")
    results = np.load(report.parent / "results.npz")
    error = {name: results[f"{name}/online error"] for name in ("naive", "CBP 0", "CBP 1")}
    assert error["naive"].shape == (2, 12)
    assert np.isfinite(error["CBP 1"]).all()
    # Seeds differ in their target.
    assert abs(np.subtract(*error["naive"])).min() > 1e-3
    np.testing.assert_allclose(error["CBP 0"], error["naive"], rtol=1e-5)
    # Within six tasks of 20 samples no unit is older than a hundred steps.
    np.testing.assert_allclose(error["CBP 1"][:, :5], error["naive"][:, :5], rtol=1e-5)
    assert (abs(error["CBP 1"] - error["naive"])[:, 6:] > 1e-3).any()
    dead = results["naive/dead units"]
    assert ((5 * dead) % 1 < 1e-5).all()
    text = report.read_text()
    assert "CBP 1" in text
    assert "every value of a hyper-parameter is a row" in text


def test_methods_that_learn_classes_are_refused(tmp_path):
    with pytest.raises((DataError, SystemExit)):
        run(tmp_path, "--methods", "iCaRL")
