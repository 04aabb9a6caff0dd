"""Settings tried on unreported draws: what is compared, what is left out, what is refused."""

import json

import numpy as np
import pytest

from data_pipelines.errors import DataError
from experiments.common.run_folder import RunFolder
from experiments.continual.methods import METHODS
from experiments.continual.runner import Runner
from experiments.continual.table import BENCHMARKS, ContinualRun
from experiments.continual.tune import Tried, TuneRun, read_variations, run_tune

# What its module prepares is prepared once.
pytestmark = pytest.mark.xdist_group("tune")

ASKED = {"benchmark": "digits", "methods": ("naive", "MAS"), "tuning_orders": 1}
PLAN = {"tasks": "2", "batch_size": "64", "epochs": "1"}
VARY = ("rate=.0001,.02",)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    runs = tmp_path_factory.mktemp("runs")
    report = run_tune(TuneRun(runs=runs, plan=PLAN, vary=VARY, **ASKED))
    with np.load(report.parent / "results.npz") as results:
        return report, dict(results)


def test_the_better_rate_is_named_and_marked(finished):
    report, results = finished
    slow, fast = (results[f"rate {rate}/not told/naive"].mean() for rate in ("0.0001", "0.02"))
    assert slow < fast
    page = report.read_text()
    assert "Best is rate 0.02: " in page
    assert "draws (order of classes) that no report shows" in page


def test_it_is_what_strengths_are_chosen_by(finished, tmp_path):
    """Of a method with strengths the best one's score, as `continual run` finds it."""
    _, results = finished
    settings = ContinualRun(benchmark="digits", plan=PLAN | {"rate": 0.02})
    benchmark = BENCHMARKS["digits"](settings)
    folder = RunFolder("test", "runner", ContinualRun(runs=tmp_path))
    chosen = Runner(folder, benchmark, 0).choose("not told", METHODS["MAS"])
    assert len(chosen.tried) > 1
    assert results["rate 0.02/not told/MAS"].mean() == max(chosen.tried)


def test_nothing_of_what_is_reported_is_trained(finished):
    report, _ = finished
    units = [path.name for path in report.parent.rglob("*.npz") if path.name != "results.npz"]
    assert len(units) == 2 * (1 + len(METHODS["MAS"].strengths))
    # The first of the orders that are never reported.
    assert all("-1000-" in name for name in units)


def test_more_values_train_nothing_again(finished, capsys):
    report, results = finished
    before = {path: path.stat().st_mtime_ns for path in report.parent.rglob("*strength*.npz")}
    wider = TuneRun(runs=report.parent.parent, plan=PLAN, vary=("rate=.0001,.02,.05",), **ASKED)
    run_tune(wider)
    after = {path: path.stat().st_mtime_ns for path in report.parent.rglob("*strength*.npz")}
    assert len(after) == 3 * len(before) // 2
    assert before.items() <= after.items()
    with np.load(report.parent / "results.npz") as again:
        np.testing.assert_array_equal(
            again["rate 0.02/not told/naive"], results["rate 0.02/not told/naive"]
        )
    assert json.loads((report.parent / "config.json").read_text())["settings"]["vary"] == [
        "rate=.0001,.02,.05"
    ]


def test_a_mean_is_over_methods_scenarios_and_draws():
    tried = Tried(
        {"rate": 0.1},
        {("told", "a"): np.array([0.2, 0.4]), ("told", "b"): np.array([0.9, 0.0])},
    )
    assert tried.mean == pytest.approx(0.375)
    assert tried.label == "rate 0.1"


def test_variations_are_all_combinations():
    found = list(read_variations(["rate=.1,.2", "protocol.first-epochs=(1,2),None"]))
    assert [each["rate"] for each in found] == [0.1, 0.1, 0.2, 0.2]
    assert [each["protocol.first_epochs"] for each in found] == [(1, 2), None] * 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vary": ()}, "--vary without a setting; give NAME=VALUE"),
        ({"vary": ("rate",)}, "--vary 'rate'; give NAME=VALUE"),
        ({"vary": ("rate=fast",)}, "--vary 'rate=fast'; give NAME=VALUE"),
        ({"vary": ("rate=.1", "rate=.2")}, "--vary has rate twice"),
        ({"vary": ("speed=.1",)}, r"no setting --plan.speed, at 'speed'"),
        ({"vary": ("epochs=.5",)}, r"--plan.epochs 0.5; give something like 10"),
        ({"methods": ("HAT",)}, "HAT .*; give --scenario told"),
        ({"benchmark": "digit"}, "no benchmark 'digit'; did you mean 'digits'"),
    ],
)
def test_what_cannot_be_tried_is_refused(changes, message, tmp_path):
    with pytest.raises(DataError, match=message):
        run_tune(TuneRun(**{**ASKED, "runs": tmp_path, "vary": VARY, **changes}))
    assert not list(tmp_path.iterdir())
