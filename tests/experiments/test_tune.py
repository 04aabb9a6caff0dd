"""Settings tried on unreported draws: what is compared, what is left out, what is refused."""

import json
import shutil

import numpy as np
import pytest
from everlight_experiments.continual.table import BENCHMARKS, ContinualRun
from everlight_experiments.continual.tune import (
    Place,
    Tried,
    TuneRun,
    _edges,
    ranked,
    read_variations,
    run_command,
    run_tune,
)

from everlight_data.errors import DataError
from everlight_data.images.digits import load_digits
from everlight_experiments.common.run_folder import RunFolder
from everlight_experiments.continual import table, tune
from everlight_experiments.continual.methods import METHODS
from everlight_experiments.continual.runner import Runner
from everlight_experiments.continual.selection import fixed_hyperparameter

# What its module prepares is prepared once.
pytestmark = pytest.mark.xdist_group("tune")

ASKED = {"benchmark": "digits", "methods": ("naive", "MAS")}
PLAN = {"tasks": "2", "batch_size": "64", "epochs": "1"}
VARY = ("learning_rate=.0001,.02",)
FILES = "*hyperparameter*.npz"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    runs = tmp_path_factory.mktemp("runs")
    report = run_tune(TuneRun(runs=runs, plan=PLAN, vary=VARY, **ASKED))
    with np.load(report.parent / "results.npz") as results:
        return report, dict(results)


def test_the_better_rate_is_named_and_the_command_given(finished):
    report, results = finished
    slow, fast = (
        results[f"learning_rate={rate}/class-incremental/naive"].mean()
        for rate in ("0.0001", "0.02")
    )
    assert slow < fast
    page = report.read_text()
    assert "Best, with 95% interval: learning_rate=0.02, " in page
    assert "statistically tied with the best: " not in page
    assert "At the edge of the grid: learning_rate." in page
    assert "--plan.batch-size 64 --plan.epochs 1 --plan.learning-rate 0.02 ..." in page
    config = json.loads((report.parent / "config.json").read_text())
    assert config["plan"]["batch_size"] == 64


def test_it_is_what_hyperparameters_are_chosen_by(finished, tmp_path):
    """Of a method with hyperparameters the best one's scores, as `continual run` finds it."""
    report, results = finished
    settings = ContinualRun(benchmark="digits", plan=PLAN | {"learning_rate": 0.02})
    benchmark = BENCHMARKS["digits"](settings)
    folder = RunFolder("test", "runner", ContinualRun(runs=tmp_path))
    chosen = Runner(folder, benchmark, 0, 2).choose("class-incremental", METHODS["MAS"])
    found = results["learning_rate=0.02/class-incremental/MAS"]
    assert found.shape == (2,)
    assert found.mean() == pytest.approx(max(chosen.tried))
    assert chosen.told in report.read_text()


def test_no_reported_test_sample_has_a_part_in_it(finished, tmp_path, monkeypatch):
    """With the test images' labels in another order the same comes out, to the bit."""
    _, results = finished
    images = load_digits()
    wrong = np.random.default_rng(0).permutation(images.test_labels)
    monkeypatch.setattr(table, "load_digits", lambda: images._replace(test_labels=wrong))
    asked = {**ASKED, "methods": ("naive",)}
    report = run_tune(TuneRun(runs=tmp_path, plan=PLAN, vary=("learning_rate=.02",), **asked))
    with np.load(report.parent / "results.npz") as again:
        name = "learning_rate=0.02/class-incremental/naive"
        np.testing.assert_array_equal(again[name], results[name])


def test_more_values_train_nothing_again(finished, tmp_path):
    report, results = finished
    folder = tmp_path / report.parent.name
    shutil.copytree(report.parent, folder)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob(FILES)}
    assert len(before) == 2 * 2 * (1 + len(METHODS["MAS"].hyperparameters))
    wider = {**ASKED, "vary": ("learning_rate=.05,.0001,.02",)}
    run_tune(TuneRun(runs=tmp_path, plan=PLAN, **wider))
    after = {path: path.stat().st_mtime_ns for path in folder.rglob(FILES)}
    assert len(after) == 3 * len(before) // 2
    assert before.items() <= after.items()
    with np.load(folder / "results.npz") as again:
        assert {key: again[key].tolist() for key in results} == {
            key: value.tolist() for key, value in results.items()
        }


@pytest.mark.slow
def test_nets_of_core50_are_pretrained_each(tmp_path):
    """What all its strategies begin with is a unit of its own for every net."""
    asked = {
        "pretraining.images": 20,
        "pretraining.epochs": 1,
        "tuned.NI.first": 6,
        "tuned.NI.later": 6,
    }
    settings = TuneRun(
        benchmark="core50-ni",
        vary=("hidden=8,16",),
        methods=("naive",),
        validation_seeds=1,
        plan=asked,
        runs=tmp_path,
    )
    report = run_tune(settings)
    assert len(list(report.parent.rglob("pretraining-*.npz"))) == 2


def tried(rate, values, other=(0.0, 0.0)):
    found = {
        Place("task-incremental", "a"): np.array(values),
        Place("task-incremental", "b"): np.array(other),
    }
    return Tried({"learning_rate": rate}, "", found, dict.fromkeys(found, fixed_hyperparameter()))


def test_what_two_draws_do_not_tell_from_the_best_is_said():
    """Means over both methods .3 and .4, .25 and .43, .2 and .2: the second is behind by .05 and
    -.03, so by .01 ± .04."""
    every = [tried(0.1, (0.6, 0.8)), tried(0.2, (0.5, 0.86)), tried(0.3, (0.4, 0.4))]
    np.testing.assert_allclose(every[1].by_draw, [0.25, 0.43])
    assert ranked(every) == (0, [1])


def test_the_edge_of_what_was_tried_is_a_number_s():
    changes = [
        {"learning_rate": rate, "remat": switch} for rate, switch in ((0.1, False), (0.2, True))
    ]
    every = [tried(0.1, (0.5, 0.5))._replace(changes=each) for each in changes]
    assert _edges(every, 1) == ["learning_rate"]


def test_a_run_that_diverged_counts_as_nothing_right():
    """Without it .9 would be the greatest mean."""
    every = [tried(0.1, (0.5, 0.5)), tried(0.2, (0.9, np.nan))]
    assert ranked(every)[0] == 0
    with pytest.raises(DataError, match="every run diverged"):
        ranked([tried(0.1, (np.nan, np.nan), (np.nan, np.nan))])


def test_variations_are_all_combinations():
    found = list(read_variations(["learning_rate=.1,.2", "protocol.first-epochs=(1,2),None"], {}))
    assert [each["learning_rate"] for each in found] == [0.1, 0.1, 0.2, 0.2]
    assert [each["protocol.first_epochs"] for each in found] == [(1, 2), None] * 2
    words = list(read_variations(["dtype=float32,bfloat16"], {}))
    assert [each["dtype"] for each in words] == ["float32", "bfloat16"]


def test_the_command_has_all_that_was_given():
    settings = TuneRun(benchmark="icifar", plan={"per_class": (9, 5)}, preset="small")
    found = run_command(settings, {"learning_rate": 0.01, "protocol.epochs": 3})
    assert found == (
        "continual run icifar --preset small --plan.per-class 9,5 --plan.learning-rate 0.01 "
        "--plan.protocol.epochs 3 ..."
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vary": ()}, "--vary without a setting; give NAME=VALUE"),
        ({"vary": ("learning_rate",)}, "--vary 'learning_rate'; give NAME=VALUE"),
        ({"vary": ("learning_rate=",)}, "--vary 'learning_rate='; give NAME=VALUE,... with commas"),
        ({"vary": ("learning_rate=fast",)}, "--vary learning_rate fast; give something like"),
        (
            {"vary": ("learning_rate=.1", "learning_rate=.2")},
            "--vary has learning_rate, and it already is given",
        ),
        ({"vary": ("learning_rate=.1,.1",)}, "--vary 'learning_rate=.1,.1' has a value twice"),
        ({"vary": ("batch-size=8,16",)}, "--vary has batch_size, and --plan.batch_size is given"),
        ({"vary": ("learning_rate=.1,-1",)}, "--vary learning_rate -1.0; give 1e-09 or more"),
        ({"vary": ("learning_rate=.1,1e999",)}, "--vary learning_rate inf; give 100 or less"),
        ({"vary": ("dtype=float32,float33",)}, "no value --vary dtype 'float33'; did you mean"),
        ({"vary": ("speed=.1",)}, "no setting --vary speed, at 'speed'"),
        (
            {"vary": ("exemplars_per_class=.5",)},
            "--vary exemplars_per_class 0.5; give something like 10",
        ),
        ({"vary": ("blocks=0,1",)}, "blocks is for networks that learn from pixels"),
        ({"vary": ("tasks=2,5",), "plan": {}}, "tasks=5 changes the data .*5 tasks"),
        ({"methods": ("HAT",)}, "HAT .*; give --setting task-incremental"),
        ({"benchmark": "digit"}, "no benchmark 'digit'; did you mean 'digits'"),
    ],
)
def test_what_cannot_be_tried_is_refused(changes, message, tmp_path, monkeypatch):
    """Before anything is trained."""
    monkeypatch.setattr(tune, "_try_all", lambda runner, changes, rows: tried(0.1, (0.5, 0.5)))
    with pytest.raises(DataError, match=message):
        run_tune(TuneRun(**{**ASKED, "plan": PLAN, "runs": tmp_path, "vary": VARY, **changes}))


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        (
            "procedural",
            {"vary": ("blocks=0,1",), "setting": ("task-incremental",)},
            "which methods apply",
        ),
        ("icifar", {"vary": ("seeds=1,2",)}, "seeds=2 trains what seeds=1 does"),
        ("icifar", {"vary": ("dropout=0,.25",)}, "--vary dropout .*; give something like|3 values"),
        ("iirc", {"vary": ("learning_rate=.1",), "validation_seeds": 9}, "--seeds 3; iirc has 10"),
    ],
)
def test_what_other_benchmarks_refuse(name, changes, message, tmp_path, monkeypatch):
    monkeypatch.setattr(tune, "_try_all", lambda runner, changes, rows: tried(0.1, (0.5, 0.5)))
    with pytest.raises(DataError, match=message):
        run_tune(TuneRun(benchmark=name, methods=("naive",), runs=tmp_path, **changes))
