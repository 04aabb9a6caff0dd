"""Streams of a user's arrays: the guide's example in a run, its tasks, and what is refused."""

import json
import re
from pathlib import Path

import numpy as np
import pytest

from everlight.continual.methods.registry import METHODS
from everlight_data.errors import DataError
from everlight_experiments import load_net
from everlight_experiments.cli import options_of
from everlight_experiments.commands.load_and_train import load_suite
from everlight_experiments.commands.run import run_benchmark
from everlight_experiments.continual.benchmarks.run_data import SequenceId
from everlight_experiments.images.user_stream import OF_THE_FILE
from tests.experiments.command_runs import arrays_of, run
from tests.refusals import refused

GUIDE = Path(__file__).parents[3] / "docs" / "pages" / "guide" / "benchmarks.md"
EXAMPLE = next(
    snippet
    for snippet in re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    if "def halves" in snippet
)
FILE = (
    EXAMPLE
    + """
def tasks(*groups, first=0, last=300):
    return [part(first, last, list(group)) for group in groups]
def again(): return tasks([0, 1], [1, 2, 3]), tasks([0, 1, 2, 3], first=300, last=400)
def domains():
    return tasks(range(4), range(4)), tasks(range(4), range(4), first=300, last=400)
def rows():
    names = np.array(["a", "b", "c", "d"])
    return tuple([(x.reshape(len(x), -1) / 7, names[y]) for x, y in part] for part in halves())
few = tasks([0, 1]), tasks([2, 3], first=300, last=400)
x, y = images[:9], labels[:9]
uneven = [(x, y[:8])], [(x, y)]
same = [(x, y)], [(x, y)]
floats = [(x / 2, y)], [(images[9:18] / 2, y)]
unknown = [(x, y)], [(images[9:18], y + 1)]
two_of_three = [(x, y)] * 3, [(images[9:18], y)] * 2
bare = [x, y], [(images[9:18], y)]
empty = [], [(x, y)]
wide = [(x[:, :4], y)], [(images[9:18, :4], y)]
infinite = [(x.reshape(9, -1) + np.inf, y)], [(images[9:18].reshape(9, -1) * 1.0, y)]
half = [(np.where(np.eye(9, 64) > 0, np.inf, x.reshape(9, -1)).astype(np.float16), y)]
infinite_half = half, [(images[9:18].reshape(9, -1).astype(np.float16), y)]
signs = [(x, y.astype(np.int64)), (x, y.astype(np.uint64))], [(images[9:18], y)]
mixed = [(x, y), (x[:, :4], y)], [(images[9:18], y)]
single = [(images[:4], labels[:4])], [(images[9:18], y)]
"""
)


@pytest.fixture
def mine(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(FILE)
    return path


def loaded(mine, name, *words):
    options = options_of("run", [f"{mine}:{name}", *words])
    (benchmark,) = load_suite(options).benchmarks.values()
    return benchmark


def sequence_of(benchmark, use="evaluation"):
    return benchmark.data.sequence(METHODS["naive"], SequenceId(use, 0, 0))


def samples_of(samples):
    """Return indices and labels of every row of samples."""
    parts = zip(samples.index, samples.labels, samples.mask, strict=True)
    return [
        (np.asarray(index)[mask], np.asarray(labels)[mask, 0])
        for index, labels, mask in ((a, b, np.asarray(c)) for a, b, c in parts)
    ]


def test_the_guide_s_example_is_trained_reported_and_read_back(tmp_path, mine):
    command = re.search(r"^everlight run (mine\.py:halves .*)$", GUIDE.read_text(), re.M)[1]
    words = command.replace("mine.py", str(mine)).replace("--seeds 3", "--seeds 1").split()
    report = run(tmp_path / "runs", *words, "--keep-nets")
    assert report.parent.name == "run-halves-demo"
    matrix = arrays_of(report)["class-incremental/ER/accuracy by task"][0]
    # A column of the image is bright by its class.
    assert matrix[0, 0] == 1
    assert matrix[-1].mean() > 0.9
    page = report.read_text()
    assert "2 tasks of the file, with 136, 136 training images of 2, 2 classes" in page
    stored = json.loads((report.parent / "config.json").read_text())["settings"]
    assert stored["config"]["net"] == "mlp:100"
    assert load_net(report.parent, "ER", seed=0, task=1).class_names == ("0", "1", "2", "3")
    with pytest.raises(DataError, match=r"config\.net: stored 'mlp:100', now 'mlp:50'"):
        run(tmp_path / "runs", *[word.replace("100", "50") for word in words])
    mine.write_text(FILE.replace("+= 150", "+= 100"))
    with pytest.raises(DataError, match=r"belongs to another configuration \(data: "):
        run(tmp_path / "runs", *words, "--keep-nets")


def test_tasks_have_the_arrays_that_the_file_gives_them(mine):
    """A tenth of the 75 images of each class, its first ones, are for validation."""
    benchmark = loaded(mine, "halves")
    sequence, images = sequence_of(benchmark), benchmark.data.images
    assert images.images.shape == (400, 8, 8, 1)
    selecting = sequence_of(benchmark, "validation")
    for number, classes in enumerate(([0, 1], [2, 3])):
        rows, trained = samples_of(sequence.tasks.train)[number]
        validates = np.asarray(selecting.test_member[number] & selecting.test.mask)
        held_out = np.asarray(selecting.test.index)[validates]
        np.testing.assert_array_equal(np.bincount(trained)[classes], [68, 68])
        np.testing.assert_array_equal(
            np.bincount(np.asarray(selecting.test.labels)[validates, 0])[classes], [7, 7]
        )
        rows_of_task = np.arange(150) + 150 * number
        np.testing.assert_array_equal(np.sort(np.append(rows, held_out)), rows_of_task)
        # Images of a class are bright in the column of its number.
        bright = images.images[rows, ..., 0].sum(axis=1).argmax(axis=1)
        np.testing.assert_array_equal(bright, trained)
    assert selecting.test.mask.sum() == 28
    np.testing.assert_array_equal(
        (selecting.test_member & selecting.test.mask).sum(axis=1), [14, 14]
    )
    for leaf, other in zip(selecting.tasks.train, sequence.tasks.train, strict=True):
        np.testing.assert_array_equal(leaf, other)


def test_classes_may_come_again_and_one_test_set_tests_all_tasks(mine):
    benchmark = loaded(mine, "again")
    sequence = sequence_of(benchmark)
    assert benchmark.setting.name == "class-incremental"
    assert "disjoint classes" not in benchmark.setting.capabilities
    np.testing.assert_array_equal(
        sequence.tasks.classes, [[True, True, False, False], [False, False, True, True]]
    )
    assert sequence.test_member.all()
    assert sequence.test_member.shape == (2, 100)
    assert "test sets of 100, 100 images" in benchmark.data.counts


def test_a_stream_without_new_classes_is_domain_incremental(mine):
    benchmark = loaded(mine, "domains")
    assert benchmark.setting.name == "domain-incremental"
    assert not benchmark.setting.capabilities & {"disjoint classes", "chosen classes"}
    assert (
        loaded(mine, "halves", "--setting", "task-incremental").setting.name == "task-incremental"
    )


def test_rows_of_numbers_are_learned_by_a_linear_head(tmp_path, mine):
    words = ("--methods", "streaming LDA", "--seeds", "1", "--epochs", "1", "--no-published")
    report = run(
        tmp_path / "runs", f"{mine}:rows", *words, "--hyperparameters", "streaming LDA=0.1"
    )
    matrix = arrays_of(report)["class-incremental/streaming LDA/accuracy by task"][0]
    assert (matrix[-1] == 1).all()
    assert "a linear head on 64 features of rows" in report.read_text()


def test_other_arrays_of_the_same_file_train_again(tmp_path):
    """The file reads them; its text stays."""
    path, arrays = tmp_path / "mine.py", tmp_path / "cut.npy"
    path.write_text(EXAMPLE.replace("[0, 1], [2, 3]", f"np.load({str(arrays)!r}).tolist()", 1))
    fingerprints = []
    for cut in ([[0, 1], [2, 3]], [[0, 2], [1, 3]], [[0, 1], [2, 3]]):
        np.save(arrays, cut)
        fingerprints.append(loaded(path, "halves").fingerprint(METHODS["naive"]))
    assert fingerprints[0] == fingerprints[2] != fingerprints[1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("few", "test labels holds 2, which is not among labels"),
        ("uneven", "training tasks: number 0 has images .* a whole number or a text per image"),
        ("same", "test images holds the same samples as images"),
        ("floats", "images have dtype float64 .*; give squares of uint8"),
        ("wide", r"images have dtype uint8 and shape \(18, 4, 8\); give squares"),
        ("unknown", "test labels holds 4, which is not among labels"),
        ("two_of_three", "3 training and 2 test tasks; give a pair per task"),
        ("bare", r"training tasks: number 0 is ndarray; give \(images, labels\)"),
        ("empty", r"training tasks are empty; give a list of \(images, labels\)"),
        ("infinite", "features of row 0 of pair 0, training tasks first, are not all"),
        ("infinite_half", r"row 0 of pair 0, .* are not all numbers of at most 1e\+30; leave"),
        ("signs", "labels have the types int64, uint64, which .*; give all tasks one type$"),
        ("mixed", "number 1 has dtype uint8 and shape .*; give all tasks one type and shape"),
        ("single", "a class has one training image, which validation would take"),
        ("halves --tasks 2", "--tasks is not for halves, whose file has the tasks; leave it out"),
        ("halves --blurry 0.1", "--blurry is not for halves, whose file has the tasks"),
        ("rows --net linear", "^--net is not read with rows of numbers; leave it out$"),
        ("again --setting task-incremental", "classes recur in again, so they have no task"),
        ("domains --setting online", "domains is domain-incremental; leave out --setting"),
    ],
)
def test_invalid_files_and_options_of_a_file_are_refused_in_one_line(
    tmp_path, mine, words, message
):
    name, *options = words.split()
    options = options or ["--methods", "naive"]
    refused(
        message,
        lambda: run_benchmark(
            options_of("run", [f"{mine}:{name}", *options, "--runs", str(tmp_path / "runs")])
        ),
        DataError,
    )
    assert not (tmp_path / "runs").exists()


def test_help_leaves_out_the_options_that_a_file_has(capsys):
    """The file need not exist: its name is enough."""
    with pytest.raises(SystemExit):
        options_of("run", ["mine.py:halves", "--help"])
    printed = capsys.readouterr().out
    assert "--epochs 5" in printed
    assert "--preset" not in printed
    words = re.findall(r"--[a-z-]+", printed)
    assert not {f"--{name}" for name in OF_THE_FILE} & set(words)
    with pytest.raises(SystemExit):
        options_of("run", ["digits", "--help"])
    assert "--tasks 5" in capsys.readouterr().out
