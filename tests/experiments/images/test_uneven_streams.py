"""Long-tailed, blurry and recurring classes as options: counts by hand, refusals, guide's runs."""

import re
from dataclasses import replace
from functools import cache
from pathlib import Path

import chex
import numpy as np
import pytest

from everlight.continual.methods.method import incompatibility
from everlight.continual.methods.registry import METHODS
from everlight_data.errors import DataError
from everlight_data.images.digits import load_digits
from everlight_data.sets.features import Features
from everlight_experiments import cli
from everlight_experiments.cli import options_of
from everlight_experiments.commands.load_and_train import load_suite
from everlight_experiments.continual.benchmarks.run_data import SequenceId
from everlight_experiments.images import data as image_data
from everlight_experiments.images.benchmark import compose
from everlight_experiments.images.config import DIGITS, Unevenness
from tests.experiments.command_runs import arrays_of, run
from tests.refusals import refused

GUIDE = Path(__file__).parents[3] / "docs" / "pages" / "guide" / "benchmarks.md"
DATA = load_digits()
COUNTS = np.bincount(DATA.train_labels)


def composed(setting="class-incremental", **uneven):
    config = replace(DIGITS, tasks=(5,), unevenness=Unevenness(**uneven))
    return compose(config, setting=setting)


def sequence_of(benchmark, use="evaluation", order=0):
    return benchmark.data.sequence(METHODS["naive"], SequenceId(use, 0, order))


def classes_in(sequence):
    """Return the number of training images of each class in each task."""
    train = sequence.tasks.train
    labels, masks = np.asarray(train.labels[..., 0]), np.asarray(train.mask)
    rows = zip(labels, masks, strict=True)
    return np.array([np.bincount(row[mask], minlength=10) for row, mask in rows])


@cache
def sharp_sequence():
    """Return the sequence of which every class is in one task."""
    return sequence_of(compose(replace(DIGITS, tasks=(5,))))


def task_classes():
    """Return for each task and class whether the task introduces the class."""
    return np.asarray(sharp_sequence().class_task) == np.arange(5)[:, None]


def test_a_long_tail_has_the_counts_of_the_closed_form_and_all_test_images():
    """The first class is as large as all classes allow: n · 20^(−k / 9) of class k."""
    benchmark = composed(imbalance=20.0)
    fall = 20.0 ** (-np.arange(10) / 9)
    expected = np.floor((COUNTS / fall).min() * fall + 1e-6).astype(int)
    images = benchmark.data.images
    np.testing.assert_array_equal(np.bincount(images.train_labels), expected)
    np.testing.assert_array_equal(images.test_labels, DATA.test_labels)
    np.testing.assert_array_equal(
        images.images[expected.sum() :], DATA.images[len(DATA.train_labels) :]
    )
    validated = np.asarray(sequence_of(benchmark, "validation").test.mask).sum()
    assert classes_in(sequence_of(benchmark)).sum() + validated == expected.sum()
    words = f"({expected[-1]} to {expected[0]} per class, a long tail of the imbalance 20)"
    assert words in benchmark.data.counts
    assert not any(
        incompatibility(METHODS[name], benchmark.setting.capabilities) for name in ("iCaRL", "BiC")
    )


def test_features_of_a_long_tail_are_those_of_its_images(monkeypatch):
    values = np.arange(len(DATA.images), dtype=float)[:, None] + [0.0, 1.0]
    monkeypatch.setattr(image_data, "load_features", lambda *_: Features(values, "numbers"))
    config = replace(DIGITS, features="efficientnet-lite0", unevenness=Unevenness(imbalance=5.0))
    benchmark = compose(config)
    rows = np.asarray(benchmark.data.shared(METHODS["naive"]).images)[:, 0].astype(int)
    np.testing.assert_array_equal(DATA.images[rows], benchmark.data.images.images)


@pytest.mark.parametrize("share", [0.1, 0.3])
def test_blurry_tasks_have_the_share_of_the_other_tasks(share):
    """The samples of every task are counted by the task that brings their class."""
    counts = classes_in(sequence_of(composed(blurry=share)))
    sizes = classes_in(sharp_sequence()).sum(axis=1)
    from_task = np.array(
        [[counts[to, task_classes()[task]].sum() for task in range(5)] for to in range(5)]
    )
    moved = (share * sizes).astype(int)
    np.testing.assert_array_equal(np.diag(from_task), sizes - moved)
    others = from_task[~np.eye(5, dtype=bool)].reshape(5, 4)
    assert (np.abs(others - np.delete(np.tile(moved / 4, (5, 1)), 0, axis=1).mean()) < 3).all()
    assert counts.sum() == sizes.sum()


def test_every_class_recurs_in_all_later_tasks_with_probability_1():
    """The images of a class are divided equally among its tasks."""
    counts = classes_in(sequence_of(composed(recurring=1.0)))
    total = classes_in(sharp_sequence()).sum(axis=0)
    for label, first in enumerate(np.asarray(sharp_sequence().class_task)):
        parts = [len(part) for part in np.array_split(np.arange(total[label]), 5 - first)]
        np.testing.assert_array_equal(counts[:, label], [0] * first + parts)


@pytest.mark.parametrize(
    "uneven", [{"blurry": 0.2}, {"recurring": 0.5}, {"blurry": 0.2, "recurring": 0.5}]
)
@pytest.mark.parametrize("use", ["evaluation", "validation"])
def test_test_and_validation_sets_are_those_of_sharp_tasks(uneven, use):
    benchmark = composed(**uneven)
    sharp = compose(replace(DIGITS, tasks=(5,)))
    for order in (0, 3):
        result, expected = (sequence_of(item, use, order) for item in (benchmark, sharp))
        for sets in (result, expected):
            assert sets.test_member.shape[0] == 5
        tested = [
            [
                np.sort(np.asarray(item.test.index)[np.asarray(row & item.test.mask)])
                for row in item.test_member
            ]
            for item in (result, expected)
        ]
        chex.assert_trees_all_equal(*tested)
        chex.assert_trees_all_equal(result.class_task, expected.class_task)
    assert (
        "the accuracy on a task is that on the test images of the classes" in benchmark.data.counts
    )


def test_draws_of_a_seed_are_its_own():
    benchmark = compose(replace(DIGITS, order="natural", unevenness=Unevenness(recurring=0.5)))
    assert benchmark.setting.draws == "samples of each task"
    first, again, other = (classes_in(sequence_of(benchmark, order=order)) for order in (0, 0, 1))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--imbalance 1000", r"^error: --imbalance 1000\.0 leaves 0 of 144 .*; give 71 or less$"),
        (
            "--blurry 0.1 --setting task-incremental",
            r"--blurry 0\.1 with --setting task-inc.*; leave",
        ),
        (
            "--recurring 0.1 --cycles 2",
            r"--recurring 0\.1 with --cycles 2, .*; leave one of them out",
        ),
        ("--blurry 0.1 --stream rotated", r"--blurry 0\.1 with --stream rotated, .*; leave one"),
        (
            "--recurring 0.1 --tasks 1",
            r"--recurring 0\.1 with --tasks 1, which leaves no other task",
        ),
    ],
)
def test_options_that_exclude_uneven_tasks_are_refused_in_one_line(words, message, tmp_path):
    refused(
        message,
        lambda: cli.main(["run", "digits", *words.split(), "--runs", str(tmp_path / "runs")]),
        SystemExit,
    )
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--imbalance 0.01", "--imbalance 0.01; give 1 to 1,000,000"),
        ("--blurry 10", "--blurry 10.0; give 0 to 0.9"),
        ("--recurring 1.5", "--recurring 1.5; give 0 to 1"),
        ("--recurring nan", "--recurring nan; give 0 to 1"),
    ],
)
def test_values_out_of_bounds_name_the_option(words, message):
    with pytest.raises(DataError, match=re.escape(message)):
        options_of("run", ["digits", *words.split()])


def test_remedies_are_the_options_of_which_classes_recur():
    shared = ("--blurry 0", "--recurring 0")
    assert composed(blurry=0.1, recurring=0.2).setting.remedies == {
        "disjoint classes": shared,
        "task-incremental": ("--setting task-incremental", *shared),
    }
    cycles = compose(replace(DIGITS, tasks=(5,), cycles=2)).setting
    assert cycles.remedies == {"disjoint classes": ("--cycles 1",)}
    assert "disjoint classes" not in cycles.capabilities
    assert not composed().setting.remedies


def test_all_methods_are_those_that_take_recurring_classes():
    words = ["digits", "--methods", "all", "--no-published", "--recurring", "0.5"]
    loaded = load_suite(options_of("run", words))
    (benchmark,) = loaded.benchmarks.values()
    applied = {
        row.name
        for row in loaded.methods
        if incompatibility(row, benchmark.setting.capabilities) is None
    }
    assert not applied & {"iCaRL", "BiC", "LUCIR", "WA", "SS-IL", "X-DER-RPC", "HAT", "PackNet"}
    assert {"ER", "DER++", "EWC", "LwF", "GDumb", "streaming LDA", "joint"} <= applied


COMMANDS = re.findall(
    r"^everlight run (digits --(imbalance|blurry|recurring) (\S+) .*)$", GUIDE.read_text(), re.M
)


@pytest.mark.parametrize(("command", "option", "value"), COMMANDS)
def test_the_guide_s_commands_train_and_record_the_value(command, option, value, tmp_path):
    short = ("--seeds", "1", "--epochs", "1", "--net", "linear")
    report = run(tmp_path, *command.split(), *short)
    matrix = arrays_of(report)["class-incremental/ER/accuracy by task"][0]
    assert matrix.shape == (5, 5)
    assert np.isfinite(matrix).all()
    # In blurry tasks classes of later ones may be known.
    assert option == "blurry" or (np.triu(matrix, 1) == 0).all()
    assert f'"{option}": {float(value)}' in (report.parent / "config.json").read_text()
    other = "1.7" if option == "imbalance" else "0.7"
    changed = command.replace(value, other, 1).split()
    message = rf"config\.unevenness\.{option}: stored {float(value)}, now {other}"
    refused(message, lambda: run(tmp_path, *changed, *short), DataError)


def test_the_guide_has_an_example_of_each_option():
    assert [option for _, option, _ in COMMANDS] == ["imbalance", "blurry", "recurring"]
