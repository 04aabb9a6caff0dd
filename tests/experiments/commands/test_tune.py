"""Settings tried on validation seeds: what is compared, what is left out, what is refused."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from everlight.continual import fixed_hyperparameter
from everlight.continual.methods.registry import METHODS
from everlight_data.errors import DataError
from everlight_data.images.digits import load_digits
from everlight_data.registry import IMAGE_SETS
from everlight_data.sets.data_set import DataSet
from everlight_experiments.cli import options_of
from everlight_experiments.commands import tune
from everlight_experiments.commands.benchmark_registry import load_benchmarks
from everlight_experiments.commands.watched_run import WatchedRun
from everlight_experiments.continual.training.programs import MethodPrograms
from everlight_experiments.continual.training.runner import Runner
from everlight_experiments.run_folder.folder import RunFolder
from everlight_experiments.run_folder.options import ExperimentOptions
from tests.experiments.command_runs import arrays_of

# One worker runs the group, so that the module's fixtures are computed once.
pytestmark = pytest.mark.xdist_group("tune")

SMALL = ("--tasks", "2", "--batch-size", "64", "--epochs", "1")
REQUESTED = ("digits", *SMALL, "--methods", "naive", "MAS")
VARY = ("--vary", "learning-rate=.0001,.02")
FILES = "*hyperparameter*.npz"
LABEL = "learning-rate={}/class-incremental/{}"


def requested(runs, *words):
    return options_of("tune", [*words, "--runs", str(runs)])


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    report = tune.run_tune(requested(tmp_path_factory.mktemp("runs"), *REQUESTED, *VARY))
    return report, arrays_of(report)


def test_the_better_rate_is_named_and_the_command_given(finished):
    report, results = finished
    slow, fast = (results[LABEL.format(rate, "naive")].mean() for rate in ("0.0001", "0.02"))
    assert slow < fast
    page = report.read_text()
    assert "Best, with 95% interval: learning-rate=0.02, " in page
    assert "statistically tied with the best: " not in page
    assert "At the edge of the grid: learning-rate." in page
    config = json.loads((report.parent / "config.json").read_text())
    assert config["settings"]["config"]["protocol"]["batch_size"] == 64


def test_tune_scores_equal_the_selection_of_run(finished, tmp_path):
    """The score of a method is that of its best hyper-parameter, which `everlight run` selects."""
    report, results = finished
    options = options_of("run", ["digits", *SMALL, "--learning-rate", "0.02"])
    (benchmark,) = load_benchmarks(options).values()
    folder = RunFolder("test", "runner", ExperimentOptions(runs=tmp_path))
    chosen = Runner(folder, MethodPrograms(benchmark), 0, 2).choose(METHODS["MAS"])
    result = results[LABEL.format("0.02", "MAS")]
    assert result.shape == (2,)
    assert result.mean() == pytest.approx(max(chosen.tried))
    assert chosen.grid_summary in report.read_text()


def test_no_test_sample_of_an_evaluation_has_a_part_in_it(finished, tmp_path, monkeypatch):
    """Another order of the test images' labels gives the same results, to the bit."""
    _, results = finished
    images = load_digits()
    wrong = np.random.default_rng(0).permutation(images.test_labels)
    replaced = images._replace(test_labels=wrong)
    monkeypatch.setitem(IMAGE_SETS, "digits", DataSet("", load=lambda request: replaced))
    words = ("digits", *SMALL, "--methods", "naive", "--vary", "learning-rate=.02")
    report = tune.run_tune(requested(tmp_path, *words))
    with np.load(report.parent / "results.npz") as again:
        name = LABEL.format("0.02", "naive")
        np.testing.assert_array_equal(again[name], results[name])


def test_watching_counts_the_runs_of_all_combinations_together(finished):
    """Each of two learning rates has a run per validation seed and value of MAS."""
    watched = WatchedRun(finished[0].parent)
    watched.read()
    runs = {"naive": 4, "MAS": 4 * len(METHODS["MAS"].hyperparameters)}
    assert watched.methods.keys() == {f"class-incremental, {name}" for name in runs}
    for name, count in runs.items():
        method = watched.methods[f"class-incremental, {name}"]
        assert (method.planned, method.done, method.seconds_left) == (count, count, 0)


def test_more_values_train_nothing_again(finished, tmp_path):
    report, results = finished
    folder = tmp_path / report.parent.name
    shutil.copytree(report.parent, folder)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob(FILES)}
    assert len(before) == 2 * 2 * (1 + len(METHODS["MAS"].hyperparameters))
    tune.run_tune(requested(tmp_path, *REQUESTED, "--vary", "learning-rate=.05,.0001,.02"))
    after = {path: path.stat().st_mtime_ns for path in folder.rglob(FILES)}
    assert len(after) == 3 * len(before) // 2
    assert before.items() <= after.items()
    with np.load(folder / "results.npz") as again:
        assert {key: again[key].tolist() for key in results} == {
            key: value.tolist() for key, value in results.items()
        }


@pytest.mark.slow
def test_nets_of_core50_are_pretrained_each(tmp_path):
    """The run's folder has a file for the pretraining of every network."""
    words = ["core50-ni", "--methods", "naive", "--validation-seeds", "1", "--vary", "hidden=8,16"]
    short = "--pretraining.images 20 --pretraining.epochs 1 --ni.first 6 --ni.later 6"
    report = tune.run_tune(requested(tmp_path, *words, *short.split()))
    assert len(list(report.parent.rglob("pretraining-*.npz"))) == 2


def tried(rate, values, other=(0.0, 0.0)):
    names = [tune.MethodInColumn("task-incremental", method) for method in ("a", "b")]
    result = dict(zip(names, map(np.array, (values, other)), strict=True))
    choices = dict.fromkeys(names, fixed_hyperparameter())
    return tune.Trial(tune.Candidate({"learning-rate": rate}, None), "", result, choices)


def test_values_tied_with_the_best_by_two_seeds_are_stated():
    """The means over both methods are 0.3 and 0.4, 0.25 and 0.43, 0.2 and 0.2.

    The second is behind by 0.05 and -0.03, so by 0.01 ± 0.04.
    """
    complete = [tried(0.1, (0.6, 0.8)), tried(0.2, (0.5, 0.86)), tried(0.3, (0.4, 0.4))]
    np.testing.assert_allclose(complete[1].scores_by_seed, [0.25, 0.43])
    assert tune.rank_trials(complete) == (0, [1])


def test_a_run_that_diverged_counts_as_nothing_right():
    """Without this rule 0.9 would be the greatest mean."""
    complete = [tried(0.1, (0.5, 0.5)), tried(0.2, (0.9, np.nan))]
    assert tune.rank_trials(complete)[0] == 0
    with pytest.raises(DataError, match="every run diverged"):
        tune.rank_trials([tried(0.1, (np.nan, np.nan), (np.nan, np.nan))])


def test_the_command_has_all_that_was_given():
    options = options_of("tune", ["icifar:small", "--methods", "naive", "--per-class", "9", "5"])
    config = replace(options.config, learning_rate=0.01)
    command = tune.run_command(options, config)
    assert command.startswith("everlight run icifar --preset small --methods naive")
    assert "--per-class 9 5" in command
    assert "--learning-rate 0.01" in command
    again = options_of("run", command.split()[2:])
    assert again.config == config


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "--vary without a setting; give NAME=VALUE"),
        (
            ("learning-rate=.1,-1",),
            "--vary learning-rate=-1: --learning-rate -1.0; give 1e-09 to 100",
        ),
        (("normalization=all",), "no --normalization 'all'.* first-task"),
        (("speed=.1",), "no setting of --vary 'speed'"),
        (
            [f"{name}={','.join(map(str, range(1, 102)))}" for name in ("epochs", "batch-size")],
            "10,201 combinations; give at most 10,000",
        ),
        (("net='resnt:1'",), "did you mean 'resnet'"),
        (("net='cnn','linear'",), "which methods apply"),
        (("tasks=2,5",), "tasks=5 changes the data .*5 tasks"),
    ],
)
def test_invalid_candidates_are_refused(words, message, tmp_path, monkeypatch):
    """They are refused before anything is trained."""
    monkeypatch.setattr(tune, "_try_all", lambda *parts: tried(0.1, (0.5, 0.5)))
    with pytest.raises(DataError, match=message):
        tune.run_tune(requested(tmp_path, *REQUESTED, *(("--vary", *words) if words else ())))


@pytest.mark.parametrize(
    "varied", ["net=mlp:8,foo", "optimizer=sgd,lbfgs", "per-class=(9,5),(8,5)", "select=last,best"]
)
def test_a_later_value_is_refused_before_the_first_is_trained(varied, tmp_path):
    with pytest.raises(ValueError, match=r"foo|lbfgs|changes the data or their use"):
        tune.run_tune(requested(tmp_path / "runs", *REQUESTED, "--vary", varied))
    assert not (tmp_path / "runs").exists()
