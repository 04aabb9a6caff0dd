"""The grid at its smallest: its table, --set, what it refuses, and the networks that it keeps."""

import json
import shlex

import numpy as np
import pytest

from everlight_data.errors import DataError
from everlight_data.images.digits import load_digits
from everlight_experiments import load_net
from everlight_experiments.cli import options_of
from everlight_experiments.commands.columns import columns_table, score_cell
from everlight_experiments.commands.grid import ranks_of, run_grid, runs_of
from everlight_experiments.commands.options import GridOptions
from everlight_experiments.continual.methods import WHY_NOT

# What its module prepares is prepared once.
pytestmark = pytest.mark.xdist_group("grid")

SMALLEST = (
    "--benchmarks digits --methods 'nearest mean' HAT --seeds 1 --keep-nets --set tasks=2 "
    "digits.epochs=2 batch-size=64"
)
COLUMN = "digits, class-incremental"


def grid(runs, *words):
    return run_grid(options_of("grid", [*words, "--runs", str(runs)]))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    report = grid(tmp_path_factory.mktemp("runs"), *shlex.split(SMALLEST))
    with np.load(report.parent / "results.npz") as results:
        return report, dict(results)


def test_a_cell_has_mean_and_spread_or_the_number_of_diverged_runs():
    assert score_cell(np.array([0.4, 0.6]), " (1.5)") == "0.500 ± 0.141 (1.5)"
    assert score_cell(np.array([0.4, np.nan, np.nan]), " (7)") == "diverged in 2 of 3 (7)"
    assert columns_table("", "method", ["a"], []).rows == [["a"]]


def test_ranks_begin_at_the_greatest_and_end_with_what_diverged():
    found = ranks_of({"a": 0.5, "b": np.nan, "c": 0.9, "d": 0.5})
    assert found == {"a": 2.5, "b": 4, "c": 1, "d": 2.5}


def test_a_grid_has_every_method_everywhere_or_says_why(finished):
    report, results = finished
    assert results[f"{COLUMN}/naive/accuracy"].shape == (1, 2)
    assert {key.rsplit("/", 1)[0] for key in results} == {
        f"{COLUMN}/naive",
        f"{COLUMN}/nearest mean",
    }
    naive, mean = (results[f"{COLUMN}/{x}/accuracy"][0, -1] for x in ("naive", "nearest mean"))
    assert mean > naive
    config = json.loads((report.parent / "config.json").read_text())
    # Its default, which nobody gave.
    assert config["methods"] == {"digits-class-incremental-nearest mean": {"directions": False}}
    page = report.read_text()
    assert WHY_NOT["task-incremental"] in page
    assert f"{mean:.3f} (1)" in page
    assert "best mean rank over 1 benchmark?" in page


def test_a_grid_has_forgetting_and_seconds_beside_the_scores(finished):
    report, results = finished
    page = report.read_text()
    (table,) = (each for each in page.split("<table")[1:] if ">forgetting<" in each)
    for name in ("naive", "nearest mean"):
        row = table.split(f"<td>{name}</td>")[1].split("</tr>")[0]
        matrix = results[f"{COLUMN}/{name}/accuracy by task"][0]
        # Of two tasks only the first can be forgotten.
        assert f"<td>{matrix[0, 0] - matrix[1, 0]:.3f}</td>" in row
        assert f"<td>{results[f'{COLUMN}/{name}/seconds'][0]:,.1f}</td>" in row


def test_set_changes_every_benchmark_that_has_the_option_or_one():
    changes = ("epochs=3", "digits.learning-rate=0.5", "per-class=7 5", "icifar:small.tasks=4")
    options = GridOptions(benchmarks=("digits", "icifar:small"), set=changes)
    digits, icifar = (each.config for each in runs_of(options).values())
    assert (digits.protocol.epochs, icifar.protocol.epochs) == (3, 3)
    assert (digits.per_class, icifar.per_class) == ((7, 5), (7, 5))
    assert (digits.learning_rate, icifar.learning_rate) == (0.5, 1e-3)
    assert (digits.tasks, icifar.tasks) == ((5,), (4,))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--benchmarks", "digit"), "did you mean 'digits'"),
        (("--benchmarks", "digits:big"), "no preset 'big'"),
        (("--benchmarks", "images"), "images is for everlight run"),
        (("--benchmarks", "digits", "--set", "facts.tasks=2"), "no setting --set facts.tasks"),
        (("--benchmarks", "digits", "--set", "task=2"), "did you mean 'tasks'"),
        (("--benchmarks", "digits", "--set", "tasks"), "--set 'tasks'; give NAME=VALUE"),
        (("--benchmarks", "digits", "--set", "tasks=few"), "--set tasks few; give something like"),
        (
            ("--benchmarks", "digits", "--keep-nets", "--distributed", "0/2@localhost:1"),
            "--keep-nets is for runs of one",
        ),
    ],
)
def test_what_no_grid_has_is_refused(tmp_path, words, message):
    with pytest.raises(DataError, match=message):
        grid(tmp_path, *words)
    assert not list(tmp_path.iterdir())


def test_the_networks_that_a_grid_kept_predict_what_it_scored(finished):
    report, results = finished
    digits = load_digits()
    images, labels = digits.images[len(digits.train_labels) :], digits.test_labels
    for benchmark in (None, "digits"):
        net = load_net(report.parent, "nearest mean", seed=0, task=1, benchmark=benchmark)
        found = net.predict(images).argmax(axis=1) == labels
        of_task = net.task_classes.argmax(axis=0)[labels]
        matrix = results[f"{COLUMN}/nearest mean/accuracy by task"][0]
        for task in (0, 1):
            assert np.mean(found[of_task == task]) == pytest.approx(matrix[1, task], abs=1e-6)
    with pytest.raises(DataError, match=r"no benchmark 'digit'; did you mean 'digits'"):
        load_net(report.parent, "nearest mean", seed=0, task=1, benchmark="digit")


def test_networks_of_an_earlier_start_are_read_and_one_of_several_benchmarks_is_named(finished):
    report, _ = finished
    path = report.parent / "config.json"
    before = path.read_text()
    config = json.loads(before)
    config["settings"]["methods"] = ["joint"]
    path.write_text(json.dumps(config))
    assert load_net(report.parent, "nearest mean", seed=0, task=0).class_names[9] == "9"
    config["settings"]["benchmarks"] = ["digits", "procedural"]
    path.write_text(json.dumps(config))
    with pytest.raises(DataError, match="has several benchmarks; give one: digits, procedural"):
        load_net(report.parent, "nearest mean", seed=0, task=1)
    path.write_text(before)
