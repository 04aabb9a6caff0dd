"""Values tried on validation seeds: what is compared, what is left out, what is refused."""

import shlex
import shutil

import numpy as np
import pytest

from everlight_data.errors import DataError
from everlight_data.images import registry
from everlight_experiments.cli import options_of
from everlight_experiments.commands import tune
from everlight_experiments.commands.benchmarks import load
from everlight_experiments.commands.tune import (
    Tried,
    edges_of,
    ranked,
    read_variations,
    run_command,
    run_tune,
)
from everlight_experiments.common.run_folder import RunFolder
from everlight_experiments.continual.methods import METHODS
from everlight_experiments.continual.runner import Runner

# What its module prepares is prepared once.
pytestmark = pytest.mark.xdist_group("tune")

TINY = ("digits", "--tasks", "2", "--batch-size", "64", "--epochs", "1")
VARY = ("--vary", "learning_rate=.0001,.02")
FILES = "*hyperparameter*.npz"


def options(runs, *words):
    return options_of("tune", [*words, "--runs", str(runs)])


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    runs = tmp_path_factory.mktemp("runs")
    report = run_tune(options(runs, *TINY, *VARY, "--methods", "naive", "MAS"))
    with np.load(report.parent / "results.npz") as results:
        return report, dict(results)


def test_the_better_rate_is_named_and_the_command_given(finished):
    report, results = finished
    slow, fast = (
        results[f"learning-rate={rate}/class-incremental/naive"].mean()
        for rate in ("0.0001", "0.02")
    )
    assert slow < fast
    page = report.read_text()
    assert "Best, with 95% interval: learning-rate=0.02, " in page
    assert "statistically tied with the best: " not in page
    assert "At the edge of the grid: learning-rate." in page
    assert "everlight run digits --preset demo --methods naive MAS --tasks 2 " in page


def test_a_method_has_the_scores_of_its_best_hyperparameter(finished, tmp_path):
    report, results = finished
    asked = options_of("run", [*TINY, "--learning-rate", "0.02", "--runs", str(tmp_path)])
    benchmark = load(asked)["class-incremental"]
    folder = RunFolder("test", "runner", asked)
    chosen = Runner(folder, benchmark, 0, 2).choose(METHODS["MAS"])
    found = results["learning-rate=0.02/class-incremental/MAS"]
    assert found.shape == (2,)
    assert found.mean() == pytest.approx(max(chosen.tried))
    assert chosen.told in report.read_text()


def test_test_samples_have_no_part_in_it(finished, tmp_path, monkeypatch):
    """With the test images' labels in another order the results are the same, to the bit."""
    _, results = finished
    images = registry.IMAGE_SETS["digits"]

    def shuffled(request):
        found = images(request)
        wrong = np.random.default_rng(0).permutation(found.test_labels)
        return found._replace(test_labels=wrong)

    monkeypatch.setitem(registry.IMAGE_SETS, "digits", shuffled)
    one = ("--vary", "learning-rate=.02", "--methods", "naive")
    report = run_tune(options(tmp_path, *TINY, *one))
    with np.load(report.parent / "results.npz") as again:
        name = "learning-rate=0.02/class-incremental/naive"
        np.testing.assert_array_equal(again[name], results[name])


def test_more_values_train_nothing_again(finished, tmp_path):
    report, results = finished
    folder = tmp_path / report.parent.name
    shutil.copytree(report.parent, folder)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob(FILES)}
    assert len(before) == 2 * 2 * (1 + len(METHODS["MAS"].hyperparameters))
    wider = ("--vary", "learning-rate=.05,.0001,.02", "--methods", "naive", "MAS")
    run_tune(options(tmp_path, *TINY, *wider))
    after = {path: path.stat().st_mtime_ns for path in folder.rglob(FILES)}
    assert len(after) == 3 * len(before) // 2
    assert before.items() <= after.items()
    with np.load(folder / "results.npz") as again:
        for key, value in results.items():
            np.testing.assert_array_equal(again[key], value)


def tried(rate, values, other=(0.0, 0.0)):
    found = {"task-incremental/a": np.array(values), "task-incremental/b": np.array(other)}
    return Tried({"learning-rate": rate}, None, "", found, {})


def test_what_two_seeds_do_not_distinguish_from_the_best_is_tied():
    """Means over both methods .3 and .4, .25 and .43, .2 and .2: the second is behind by .05 and
    -.03, so by .01 ± .04."""
    every = [tried(0.1, (0.6, 0.8)), tried(0.2, (0.5, 0.86)), tried(0.3, (0.4, 0.4))]
    np.testing.assert_allclose(every[1].by_draw, [0.25, 0.43])
    assert ranked(every) == (0, [1])


def test_a_run_that_diverged_counts_as_nothing_right():
    """Without it .9 would be the greatest mean."""
    every = [tried(0.1, (0.5, 0.5)), tried(0.2, (0.9, np.nan))]
    assert ranked(every)[0] == 0
    with pytest.raises(DataError, match="every run diverged"):
        ranked([tried(0.1, (np.nan, np.nan), (np.nan, np.nan))])


def test_the_edge_of_the_grid_is_that_of_numbers():
    changes = [{"rate": rate, "remat": switch} for rate, switch in ((0.1, False), (0.2, True))]
    assert edges_of(changes, 1) == ["rate"]


def test_variations_are_all_combinations():
    found = list(read_variations(["learning_rate=.1,.2", "first-epochs=(1,2),None"]))
    assert [each["learning-rate"] for each in found] == [0.1, 0.1, 0.2, 0.2]
    assert [each["first-epochs"] for each in found] == [(1, 2), None] * 2
    words = list(read_variations(["net='mlp:8,8',cnn".replace("cnn", "'cnn'")]))
    assert [each["net"] for each in words] == ["mlp:8,8", "cnn"]
    assert [each["dtype"] for each in read_variations(["dtype=a,b"])] == ["a", "b"]


def test_the_command_gives_the_configuration_again(tmp_path):
    words = ("icifar:small", "--vary", "epochs=1", "--seed", "4", "--setting", "online")
    asked = options(tmp_path, *words, "--no-new-optimizer", "--per-class", "9", "5")
    everlight, run, *rest = shlex.split(run_command(asked, asked.config))
    again = options_of("run", rest)
    assert (everlight, run) == ("everlight", "run")
    assert again.config == asked.config
    assert again.config.per_class == (9, 5)
    assert (again.benchmark, again.preset, again.seed) == ("icifar", "small", 4)
    assert (again.methods, again.setting) == (asked.methods, ("online",))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--epochs", "2"), "--vary without a setting; give NAME=VALUE"),
        (("--vary", "learning_rate"), "--vary 'learning_rate'; give NAME=VALUE"),
        (("--vary", "learning_rate="), "--vary 'learning_rate='; give NAME=VALUE,... with commas"),
        (("--vary", "learning_rate=fast"), "--vary learning-rate fast; give something like"),
        (("--vary", "epochs=1", "epochs=2"), "--vary has epochs twice"),
        (("--vary", "learning_rate=.1,.1"), "--vary 'learning_rate=.1,.1' has a value twice"),
        (("--vary", "learning_rate=.1,-1"), "learning-rate -1.0; give 1e-09 or more"),
        (("--vary", "learning_rate=.1,1e999"), "learning-rate inf; give 100 or less"),
        (("--vary", "speed=.1"), "no setting --vary speed"),
        (("--vary", "chosen=well"), "no setting --vary chosen"),
        (("--vary", "exemplars_per_class=.5"), "exemplars-per-class 0.5; give something like 10"),
        (("--vary", "tasks=2,5"), "tasks=5 changes the data .*5 tasks"),
        (("--vary", "net='mlp:8','cnn'", "--setting", "task-incremental"), "which methods apply"),
        (("--vary", "criterion='final accuracy','accuracy over all times (A)'"), "trains what"),
        ((*VARY, "--methods", "HAT"), "HAT .*; give --setting task-incremental"),
    ],
)
def test_what_cannot_be_tried_is_refused(words, message, tmp_path, monkeypatch):
    monkeypatch.setattr(tune, "_try_all", lambda runners, changes, *rest: tried(0.1, (0.5, 0.5)))
    if "net=" in words[1]:
        words = ("procedural", "--vary", "net='cnn','resnet:1'", *words[2:])
        monkeypatch.setattr(tune, "release_programs", lambda: None)
    else:
        words = ("digits", *words)
    with pytest.raises(DataError, match=message):
        run_tune(options(tmp_path, *words))
