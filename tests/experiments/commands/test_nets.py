"""Kept networks: what they predict is what the run scored; what is not there is named."""

import shutil
from dataclasses import replace

import numpy as np
import pytest

from everlight_data.errors import DataError, MissingDataError
from everlight_data.images.digits import load_digits
from everlight_experiments import load_net
from everlight_experiments.cli import options_of
from everlight_experiments.commands.run import run_benchmark
from everlight_experiments.continual.training.runner import CHECKPOINT_OVERHEAD_BYTES
from tests.experiments.command_runs import arrays_of

# One worker runs the group, so that the module's fixtures are computed once.
pytestmark = pytest.mark.xdist_group("kept nets")

TINY = ("digits", "--seed", "3", "--epochs", "1", "--batch-size", "64", "--tasks", "2")


def run(runs, *words):
    return run_benchmark(options_of("run", [*TINY, *words, "--keep-nets", "--runs", str(runs)]))


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    runs = tmp_path_factory.mktemp("runs")
    both = ("--setting", "task-incremental", "class-incremental")
    masked = ("--metrics", "task-masked accuracy")
    report = run(runs, "--methods", "nearest mean", "--seeds", "2", *both, *masked)
    return report.parent, arrays_of(report)


@pytest.fixture(scope="module")
def digits_tests():
    digits = load_digits()
    return digits.images[len(digits.train_labels) :], digits.test_labels


@pytest.mark.parametrize("method", ["naive", "nearest mean"])
def test_task_masked_accuracy_is_that_of_saved_scores_among_the_classes_of_the_task(
    finished, digits_tests, method
):
    """All scores are read, unseen classes' too, and the greatest is taken in NumPy."""
    run, results = finished
    images, labels = digits_tests
    matrices = np.full((2, 2, 2), np.nan)
    for seed, after in np.ndindex(2, 2):
        net = load_net(run, method, 3 + seed, after, "class-incremental")
        scores = replace(net, masked=False).predict(images)
        for tested, is_of_task in enumerate(net.task_classes):
            classes, samples = np.flatnonzero(is_of_task), is_of_task[labels]
            among = scores[samples][:, classes]
            # Nearest mean has no mean of a class to come.
            right = np.isfinite(among.max(axis=1)) & (
                classes[among.argmax(axis=1)] == labels[samples]
            )
            matrices[seed, after, tested] = right.mean()
    stored = f"class-incremental/{method}/task-masked accuracy"
    np.testing.assert_allclose(results[f"{stored} by task"], matrices, atol=1e-6)
    np.testing.assert_allclose(results[stored][:, 0], matrices[:, 0, 0], atol=1e-6)
    np.testing.assert_allclose(results[stored][:, 1], matrices[:, 1].mean(axis=1), atol=1e-6)
    assert (results[stored] >= results[f"class-incremental/{method}/accuracy"]).all()
    # The task identity makes both the same number.
    identified = f"task-incremental/{method}"
    for name in ("accuracy", "accuracy by task"):
        masked = results[f"{identified}/task-masked {name}"]
        np.testing.assert_array_equal(masked, results[f"{identified}/{name}"])


@pytest.mark.parametrize("setting", ["task-incremental", "class-incremental"])
@pytest.mark.parametrize("method", ["naive", "nearest mean"])
def test_a_network_predicts_what_the_run_scored(finished, digits_tests, setting, method):
    """Every seed has its own network."""
    run, results = finished
    images, labels = digits_tests
    for seed, after in ((3, 0), (3, 1), (4, 1)):
        net = load_net(run, method, seed, after, setting)
        assert net.class_names == tuple("0123456789")
        of_task = net.task_classes.argmax(axis=0)[labels]
        collected = []
        for task in (0, 1):
            inputs = task if setting == "task-incremental" else None
            selected = of_task == task
            collected.append(
                np.mean(net.predict(images[selected], inputs).argmax(axis=1) == labels[selected])
            )
        matrix = results[f"{setting}/{method}/accuracy by task"][seed - 3]
        # No class of the task to come is seen, and where the task is given none is left.
        np.testing.assert_allclose(collected[: after + 1], matrix[after, : after + 1], atol=1e-6)
    net = load_net(run, method, 3, 0, setting)
    scores = net.predict(images[:5])
    np.testing.assert_array_equal(np.isneginf(scores), np.tile(net.task_classes[1], (5, 1)))


@pytest.mark.parametrize(
    ("requested", "message"),
    [
        (
            ("nearest men", 3, 0, "task-incremental"),
            r"no net of method 'nearest men'; did you mean 'nearest m",
        ),
        (("naive", 0, 0, "task-incremental"), r"no seed '0'.* There are '3', '4'"),
        (("naive", 3, 2, "task-incremental"), r"no task '2'\. There are '0', '1'"),
        (("naive", 3, 0), r"has several settings; give one: class-incremental, task-incremental"),
        (
            ("naive", 3, 0, "class-increment"),
            r"no setting 'class-increment'; did you mean 'class-incremental'",
        ),
    ],
)
def test_networks_that_were_not_kept_are_named(finished, requested, message):
    with pytest.raises(DataError, match=message):
        load_net(finished[0], *requested)


def test_networks_of_earlier_starts_are_read(finished, digits_tests, tmp_path):
    """The last start has one of the settings, one of the methods and no variant."""
    images, labels = digits_tests
    folder = tmp_path / finished[0].name
    shutil.copytree(finished[0], folder)
    options = "--seeds", "1", "--no-published", "--metrics", "task-masked accuracy"
    report = run(tmp_path, "--methods", "ER", "--variants", "nearest-mean", *options)
    accuracy = arrays_of(report)["class-incremental/ER, nearest-mean/accuracy by task"][0, 1]
    run(tmp_path, "--methods", "nearest mean", *options)
    net = load_net(folder, "ER, nearest-mean", 3, 1, "class-incremental")
    right = net.predict(images).argmax(axis=1) == labels
    of_task = net.task_classes.argmax(axis=0)[labels]
    np.testing.assert_allclose([right[of_task == task].mean() for task in (0, 1)], accuracy, 1e-6)
    scores, expected = (
        load_net(path, "nearest mean", 3, 1, "task-incremental").predict(images[:5], 0)
        for path in (folder, finished[0])
    )
    np.testing.assert_array_equal(scores, expected)
    (folder / "models" / "class-incremental" / "mine@1f").mkdir()
    with pytest.raises(DataError, match="last start of its command lacked the strategy mine; give"):
        load_net(folder, "mine", 3, 0, "class-incremental")


def test_images_of_another_kind_are_refused(finished, digits_tests):
    net = load_net(finished[0], "naive", 3, 1, "task-incremental")
    images = digits_tests[0]
    for wrong, message in (
        (
            images[..., 0],
            r"images have dtype uint8 and shape \(\d+, 8, 8\); this network takes uint8 and \(n, 8",
        ),
        (images / 16, r"images have dtype float64"),
        (images[:0], r"images have dtype uint8 and shape \(0, 8, 8, 1\)"),
    ):
        with pytest.raises(ValueError, match=message):
            net.predict(wrong)
    with pytest.raises(ValueError, match="task 2; give 0 to 1"):
        net.predict(images, task=2)


def test_a_run_without_networks_is_named(finished, tmp_path):
    with pytest.raises(MissingDataError, match=r"config.json does not exist\. Name the folder of"):
        load_net(tmp_path, "naive", 0, 0)
    (tmp_path / "config.json").write_bytes((finished[0] / "config.json").read_bytes())
    with pytest.raises(MissingDataError, match="holds no nets; give its command --keep-nets"):
        load_net(tmp_path, "naive", 0, 0)


def test_the_size_of_networks_is_printed_and_joined_processes_are_refused(tmp_path, capsys):
    """The network has 8·8 inputs, 100 and 100 units and 10 classes; ten are seen."""
    report = run(tmp_path, "--methods", "naive", "--seeds", "1")
    floats = 64 * 100 + 100 * 100 + 100 * 10 + 210 + 4
    size = 2 * (4 * floats + 10 + CHECKPOINT_OVERHEAD_BYTES) / 1e6
    assert f"--keep-nets: about {size:.1f} MB in all" in capsys.readouterr().out
    complete = (report.parent / "models").rglob("*")
    on_disk = sum(path.stat().st_blocks * 512 for path in complete) / 1e6
    assert 0.5 < size / on_disk < 2
    stored = sorted((report.parent / "models" / "class-incremental" / "naive" / "3").iterdir())
    assert [path.name for path in stored] == ["0", "1"]
    with pytest.raises(DataError, match="--keep-nets is for runs of one process"):
        run(tmp_path, "--distributed", "0/2@localhost:1")
