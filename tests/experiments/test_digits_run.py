"""The digits benchmark in all settings, and that every strategy has a row of the table."""

import numpy as np
import pytest

import everlight.continual.strategies as strategies
from everlight.continual.registry import METHODS
from everlight_experiments.cli import options_of
from everlight_experiments.commands.options import SETTINGS
from everlight_experiments.commands.run import run_benchmark

# What its module prepares is prepared once.
pytestmark = pytest.mark.xdist_group("digits run")


def run(runs):
    words = ("digits", "--methods", "streaming LDA", "--seeds", "2", "--epochs", "2")
    every = ("--validation-seeds", "1", "--setting", *SETTINGS, "--runs", str(runs))
    return run_benchmark(options_of("run", [*words, *every]))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    runs = tmp_path_factory.mktemp("runs")
    return runs, run(runs)


@pytest.mark.slow
def test_it_leaves_every_number_and_a_report(finished):
    _, report = finished
    results = np.load(report.parent / "results.npz")
    for setting in SETTINGS:
        for name in ("naive", "streaming LDA"):
            matrices = results[f"{setting}/{name}/accuracy by task"]
            assert matrices.shape == (2, 5, 5)
            assert np.all((matrices >= 0) & (matrices <= 1))
    # LDA over pixels forgets nothing: scikit-learn's has .95 on such a split.
    last = {
        name: results[f"class-incremental/{name}/accuracy by task"][:, -1].mean()
        for name in ("naive", "streaming LDA")
    }
    assert last["streaming LDA"] > 0.85
    assert last["naive"] < 0.4
    tried, grid = (
        results[f"task-incremental/streaming LDA/{field}"] for field in ("tried", "hyperparameters")
    )
    assert results["task-incremental/streaming LDA/hyperparameter"] == grid[tried.argmax()]
    text = report.read_text(encoding="utf-8")
    for promised in ("handwritten digits", "Selection rule", "validation seeds"):
        assert promised in text


@pytest.mark.slow
def test_the_same_command_again_trains_nothing_and_gives_the_same(finished):
    runs, report = finished
    units = {path: path.stat().st_mtime_ns for path in report.parent.glob("units/*.npz")}
    # Two methods and a published value on two orders, and a grid of five on one; costs of two
    # methods in three settings.
    assert len(units) == 3 * (3 * 2 + 5) + 3 * 2
    before = dict(np.load(report.parent / "results.npz"))
    run(runs)
    assert units == {path: path.stat().st_mtime_ns for path in units}
    for name, value in np.load(report.parent / "results.npz").items():
        np.testing.assert_array_equal(value, before[name])


def test_every_strategy_of_the_library_has_a_row():
    used = {method.factory.__name__ for method in METHODS.values()}
    assert set(strategies.__all__) == used
