"""Finished runs that learn on: equal to one run of all tasks, killed and continued, refused."""

import shutil
from pathlib import Path

import jax
import numpy as np
import pytest

from everlight.continual.methods.registry import METHODS as ROWS
from everlight_data.errors import DataError, MissingDataError
from everlight_data.images.digits import load_digits
from everlight_data.runs.checkpoints import Checkpoints
from everlight_experiments import load_net
from everlight_experiments.cli import options_of
from everlight_experiments.commands.update import OBSTACLES, load_update, obstacle, run_update
from everlight_experiments.continual.training.progress_lines import GroupLines
from tests.experiments.command_runs import arrays_of, run
from tests.experiments.continual.report.outcomes import BENCHMARK

# One worker runs the group, so that the module's fixtures are computed once.
pytestmark = pytest.mark.xdist_group("update")

FILE = """
import flax.linen as nn
import numpy as np
from everlight_data.images.digits import load_digits

digits = load_digits()
numbers = len(digits.train_labels)

def part(classes, start, count):
    labels = digits.train_labels
    rows = [np.flatnonzero(labels == c)[start:start + count] for c in classes]
    rows = np.concatenate(rows)
    return digits.images[rows, ..., 0], labels[rows]

def stream(*groups):
    return [part(g, 0, 20) for g in groups], [part(g, 20, 10) for g in groups]

def old(): return stream([0, 1], [2, 3])
def whole(): return stream([0, 1], [2, 3], [4])

class Net(nn.Module):
    classes: int

    @nn.compact
    def __call__(self, images, train):
        x = nn.relu(nn.Dense(12, name="first")(images.reshape(len(images), -1)))
        # Heads of other numbers of classes begin alike.
        return nn.Dense(self.classes, name="head", kernel_init=nn.initializers.zeros)(x)
"""
METHODS = "ER", "EWC"
OPTIONS = (
    *("--net", "NET", "--normalization", "first-task", "--methods", *METHODS),
    *("--hyperparameters", "EWC=10", "--no-published", "--buffer-size", "20", "--epochs", "2"),
    *("--seeds", "1", "--validation-fraction", "0.2", "--keep-nets"),
)


def save_images(path, classes, start=0, count=20):
    """Save digits of the training set as an .npz of a user."""
    digits = load_digits()
    rows = [np.flatnonzero(digits.train_labels == c)[start : start + count] for c in classes]
    rows = np.concatenate(rows)
    np.savez(path, images=digits.images[rows, ..., 0], labels=digits.train_labels[rows])
    return str(path)


def update(path, *words):
    options = options_of("update", [str(path), *words, "--runs", str(path.parent)])
    return run_update(options)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Return the folder of the runs `old` and `whole`, and of new images."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "mine.py").write_text(FILE)
    options = [word.replace("NET", f"{folder / 'mine.py'}:Net") for word in OPTIONS]
    for name in ("old", "whole"):
        run(folder, f"{folder / 'mine.py'}:{name}", *options)
    save_images(folder / "four.npz", [4])
    save_images(folder / "four_test.npz", [4], 20, 10)
    save_images(folder / "both.npz", [2, 5], 30, 12)
    return folder


@pytest.fixture(scope="module")
def updated(runs):
    """Return the report of the update by the class of the last task of `whole`."""
    words = "--data", str(runs / "four.npz"), "--test-data", str(runs / "four_test.npz")
    return update(runs / "run-old-demo", *words, "--methods", *METHODS)


@pytest.mark.parametrize("method", METHODS)
def test_update_by_one_class_equals_the_run_that_had_it_as_its_last_task(runs, updated, method):
    expected, actual = arrays_of(runs / "run-whole-demo" / "report.html"), arrays_of(updated)
    matrix = f"class-incremental/{method}/accuracy by task"
    # Before the update there was no test set of the new class.
    np.testing.assert_allclose(actual[matrix][:, :2, :2], expected[matrix][:, :2, :2], atol=1e-6)
    np.testing.assert_allclose(actual[matrix][:, 1:], expected[matrix][:, 1:], atol=1e-6)
    assert np.isnan(actual[matrix][:, 0, 2]).all()
    for name in ("accuracy", "steps", "stored_samples", "samples"):
        name = f"class-incremental/{method}/{name}"
        np.testing.assert_allclose(actual[name], expected[name], atol=1e-6)
    nets = [load_net(path, method, 0, 2) for path in (updated.parent, runs / "run-whole-demo")]
    assert nets[0].class_names == nets[1].class_names == ("0", "1", "2", "3", "4")
    for a, b in zip(*map(jax.tree.leaves, [(n.learner, n.memory) for n in nets]), strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), atol=1e-4)


def test_an_update_s_scores_before_it_are_those_of_the_earlier_run(runs, updated, capsys):
    """The classes that were not learned yet have score 0."""
    old, actual = arrays_of(runs / "run-old-demo" / "report.html"), arrays_of(updated)
    name = "class-incremental/ER/accuracy by task"
    np.testing.assert_allclose(actual[name][:, 1, :2], old[name][:, 1], atol=1e-6)
    assert (actual[name][:, 1, 2] == 0).all()
    assert "Before and after the update" in updated.read_text()


def test_an_update_of_an_update_learns_new_images_of_an_old_class(runs, updated, capsys):
    """Class 2 of the run keeps its number, and class 5 comes last."""
    words = "--data", str(runs / "both.npz"), "--methods", "ER"
    report = update(updated.parent, *words)
    assert report.parent.name == "update-update-run-old-demo"
    matrix = arrays_of(report)["class-incremental/ER/accuracy by task"]
    assert matrix.shape == (1, 4, 4)
    net = load_net(report.parent, "ER", 0, 3)
    assert net.class_names == ("0", "1", "2", "3", "4", "5")
    assert np.flatnonzero(net.task_classes[3]).tolist() == [2, 5]
    images = np.load(runs / "both.npz")["images"][..., None]
    predicted = net.predict(images).argmax(axis=1)
    assert set(predicted.tolist()) <= {0, 1, 2, 3, 4, 5}
    printed = capsys.readouterr().out
    assert "test set of the new images" in printed
    assert f"{matrix[0, 3, 3]:6.3f}" in printed


def test_a_killed_update_continues_to_the_same_bits(runs, updated, monkeypatch):
    words = "--data", str(runs / "four.npz"), "--test-data", str(runs / "four_test.npz")
    words = (*words, "--methods", "ER", "--tag", "killed")
    write, epochs = GroupLines.write, []

    def write_or_crash(lines, state, diverged):
        epochs.append((int(state.task), int(state.epoch)))
        if len(epochs) == 2:
            raise OSError("killed")
        return write(lines, state, diverged)

    monkeypatch.setattr(Checkpoints, "due", lambda checkpoints: True)
    monkeypatch.setattr(GroupLines, "write", write_or_crash)
    with pytest.raises(OSError, match="killed"):
        update(runs / "run-old-demo", *words)
    report = update(runs / "run-old-demo", *words)
    # The first epoch is not repeated.
    assert epochs == [(2, 1), (3, 0), (3, 0)]
    again, expected = arrays_of(report), arrays_of(updated)
    for name in ("accuracy by task", "steps"):
        name = f"class-incremental/ER/{name}"
        np.testing.assert_array_equal(again[name], expected[name])
    nets = [load_net(path.parent, "ER", 0, 2).learner for path in (report, updated)]
    for a, b in zip(*map(jax.tree.leaves, nets), strict=True):
        np.testing.assert_array_equal(np.asarray(a), np.asarray(b))


def test_an_update_resumes_by_another_spelling_of_its_paths(runs, updated, monkeypatch, capsys):
    monkeypatch.chdir(runs)
    words = "--data", "four.npz", "--test-data", "./four_test.npz", "--methods", *METHODS
    report = update(Path("run-old-demo"), *words)
    assert report.samefile(updated)
    assert "resuming in" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--methods", "nope"), "nope"),
        (("--methods", "SI"), "net of method"),
        (("--seed", "7"), "no network of naive, class-incremental, seed 7"),
        (("--seeds", "3"), "seed 1, after its last task"),
    ],
)
def test_methods_and_seeds_that_were_not_kept_are_refused(runs, words, message):
    with pytest.raises(DataError, match=message):
        update(runs / "run-old-demo", "--data", str(runs / "four.npz"), *words)


def test_a_run_without_networks_is_refused_with_the_option_that_keeps_them(runs, tmp_path):
    shutil.copy(runs / "run-old-demo" / "config.json", tmp_path)
    with pytest.raises(MissingDataError, match="give its command --keep-nets"):
        update(tmp_path, "--data", str(runs / "four.npz"))


def test_a_strategy_that_the_last_start_lacked_is_left_out_by_name(runs, tmp_path):
    folder = shutil.copytree(runs / "run-old-demo", tmp_path / "run-old-demo")
    (folder / "models" / "class-incremental" / "mine@1f").mkdir()
    options = options_of("update", [str(folder), "--data", str(runs / "four.npz")])
    update = load_update(options)
    assert {job.method.name for job in update.jobs} == {"naive", "EWC", "ER"}
    assert "leaves out mine, whose --strategy the last start of the run's comm" in update.lines[0]


def test_color_images_are_refused_where_gray_ones_were_learned(runs, tmp_path):
    path = tmp_path / "colour.npz"
    np.savez(path, images=np.zeros((6, 8, 8, 3), np.uint8), labels=["a"] * 6)
    with pytest.raises(DataError, match="grey"):
        update(runs / "run-old-demo", "--data", str(path))


def test_methods_that_depend_on_the_number_of_tasks_or_classes_are_left_out():
    reasons = {name: obstacle(ROWS[name], BENCHMARK) for name in ("GEM", "X-DER-RPC", "ER")}
    assert reasons == {"GEM": OBSTACLES["tasks"], "X-DER-RPC": OBSTACLES["classes"], "ER": None}


def test_images_that_the_run_tests_are_not_trained(runs, tmp_path):
    """Rows 20 to 29 of a class are test images of the run; of ten, two stay test images."""
    path = save_images(tmp_path / "tested.npz", [0], start=20, count=10)
    message = r"--data .*tested.npz would train 8 test images of the run, and would test 0 images "
    with pytest.raises(DataError, match=message):
        update(runs / "run-old-demo", "--data", path)


def test_images_that_the_run_was_trained_on_are_not_tested(runs, tmp_path):
    """Rows 0 to 9 of a class were trained; two of them would be test images."""
    path = save_images(tmp_path / "trained.npz", [0], start=0, count=10)
    message = "would train 0 test images of the run, and would test 2 images that the run was tra"
    with pytest.raises(DataError, match=message):
        update(runs / "run-old-demo", "--data", path)
