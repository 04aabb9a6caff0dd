"""The digits benchmark at its smallest: what it leaves, what it refuses, that it goes on."""

import numpy as np
import pytest
from everlight_experiments.continual.digits import DigitsRun, run_digits
from everlight_experiments.continual.plan import OPTIONS

from everlight.continual.registry import METHODS
from everlight_data.errors import DataError

# What its module prepares is prepared once.
pytestmark = pytest.mark.xdist_group("digits run")

SMALLEST = {"methods": ("streaming LDA",), "seeds": 2, "epochs": 2, "validation_seeds": 1}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    runs = tmp_path_factory.mktemp("runs")
    return runs, run_digits(DigitsRun(runs=runs, **SMALLEST))


@pytest.mark.slow
def test_it_leaves_every_number_and_a_report(finished):
    _, report = finished
    results = np.load(report.parent / "results.npz")
    for scenario in OPTIONS.values():
        for name in ("naive", "streaming LDA"):
            matrices = results[f"{scenario}/{name}/matrices"]
            assert matrices.shape == (2, 5, 5)
            assert np.all((matrices >= 0) & (matrices <= 1))
    # LDA over pixels forgets nothing: scikit-learn's has .95 on such a split.
    assert results["class-incremental/streaming LDA/matrices"][:, -1].mean() > 0.85
    assert results["class-incremental/naive/matrices"][:, -1].mean() < 0.4
    tried, hyperparameters = (
        results[f"task-incremental/streaming LDA/{field}"] for field in ("tried", "hyperparameters")
    )
    assert (
        results["task-incremental/streaming LDA/hyperparameter"] == hyperparameters[tried.argmax()]
    )
    text = report.read_text(encoding="utf-8")
    for promised in ("handwritten digits", "Selection rule", "that are not reported"):
        assert promised in text


@pytest.mark.slow
def test_asked_again_it_trains_nothing_and_gives_the_same(finished):
    runs, report = finished
    units = {path: path.stat().st_mtime_ns for path in report.parent.glob("units/*.npz")}
    # Two methods and a published value on two orders, and a grid of five on one; costs of two
    # methods by batches of two sizes.
    assert len(units) == 3 * (3 * 2 + 5) + 2 * 2
    before = dict(np.load(report.parent / "results.npz"))
    run_digits(DigitsRun(runs=runs, **SMALLEST))
    assert units == {path: path.stat().st_mtime_ns for path in units}
    for name, value in np.load(report.parent / "results.npz").items():
        np.testing.assert_array_equal(value, before[name])


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"methods": ("ewc",)}, "no method"),
        ({"methods": ()}, "--methods without a name"),
        ({"seeds": 0}, "--seeds 0; give 1 or more"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is_written(asked, message, tmp_path):
    with pytest.raises(DataError, match=message):
        run_digits(DigitsRun(runs=tmp_path / "runs", **asked))
    assert not (tmp_path / "runs").exists()


def test_every_strategy_of_the_library_has_a_row():
    import everlight.continual.strategies as strategies

    used = {method.factory.__name__ for method in METHODS.values()}
    assert set(strategies.__all__) == used
