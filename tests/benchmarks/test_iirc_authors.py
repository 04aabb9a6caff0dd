"""The comparison with IIRC's authors: arithmetic, archive, and the steps with a checkout."""

import json
import os
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.iirc import inputs, steps
from benchmarks.iirc.__main__ import main
from benchmarks.iirc.cases import CASES
from benchmarks.iirc.comparison import rows_of, table
from benchmarks.iirc.equations import EQUATIONS
from benchmarks.iirc.runs import Authors, authors_python, compare_steps
from everlight_data.errors import DataError
from everlight_data.sets.image_set import ImageSet

CHECKOUT = "EVERLIGHT_IIRC_AUTHORS"
"""Environment variable with a checkout of the authors' code, for the slow test."""
WITHIN = 0.03
"""Greatest difference of weights, as a part of their change."""


@pytest.fixture
def images(rng, monkeypatch):
    """Replace Tiny-ImageNet by noise: 100 classes of 30 and 2 images."""
    pytest.importorskip("iirc")
    classes = np.arange(inputs.CLASSES, dtype=np.int32)
    labels, tested = np.tile(classes, 30), np.tile(classes, 2)
    pixels = rng.integers(0, 256, (len(labels) + len(tested), 32, 32, 3), np.uint8)
    names = tuple(map(str, classes))
    created = ImageSet("noise", pixels, labels, tested, names)
    monkeypatch.setattr(inputs, "load_tiny_imagenet_32", lambda classes: created)
    return created


def test_the_archive_holds_the_images_under_the_names_of_cifar_100(images, tmp_path):
    workload = inputs.Workload(train_images=30, test_images=2)
    inputs.write_inputs(workload, tmp_path)
    data = inputs.read_inputs(tmp_path)
    np.testing.assert_array_equal(data.images.images, images.images)
    np.testing.assert_array_equal(data.images.train_labels, images.train_labels)
    assert data.images.class_names[:3] == ("apple", "aquarium_fish", "baby")
    order = data.metadata.configurations[0].tasks
    assert list(map(list, order)) == inputs.task_order(workload)
    assert data.classes == workload.superclasses + 4 * workload.task_classes
    samples = inputs.labelled_samples(data)
    # A superclass has int(0.4 * 24) of 24 training images of a subclass, and one of 3 to validate.
    assert [len(samples[split][0]) for split in inputs.SPLITS] == [90, 10, 20]
    assert {label for _, (label,) in samples["train"][0]} == set(order[0])


def test_the_first_tasks_are_a_part_of_the_authors_configuration():
    pytest.importorskip("iirc")
    first, second, *_ = inputs.task_order(inputs.Workload(superclasses=4, task_classes=5))
    assert first == ["flowers", "small_mammals", "trees", "aquatic_mammals"]
    assert second == ["television", "spider", "shrew", "mountain", "hamster"]
    with pytest.raises(ValueError, match="needs more classes than the first configuration has"):
        inputs.task_order(inputs.Workload(tasks=30))
    beginning, *later = inputs.task_order(inputs.CIFAR)
    assert (beginning[:4], [len(task) for task in (beginning, *later)]) == (first, [10] + [5] * 7)


def test_means_differ_in_units_of_their_standard_error():
    reference = {("A-GEM", seed): [score, 0.5] for seed, score in enumerate((0.1, 0.2, 0.3))}
    actual = {("A-GEM", seed): [score, 0.5] for seed, score in enumerate((0.5, 0.6, 0.7, 0.6))}
    first, second = rows_of(reference, actual | {("LUCIR", 0): [1.0, 1.0]}, ["A-GEM", "LUCIR"])
    assert first.means == pytest.approx((0.2, 0.6))
    # The variances are 0.01 of three seeds and 0.02 / 3 of four.
    assert first.error == pytest.approx(np.sqrt(0.01 / 3 + 0.02 / 3 / 4))
    assert first.errors_apart == pytest.approx(0.4 / first.error)
    assert (second.task, second.errors_apart) == (2, 0)
    assert "| A-GEM | 1 | 0.200 ± 0.100 | 0.600 ± 0.082 | +0.400 | **+5.7** | 3, 4 |" in table(
        [first, second]
    )


def test_both_sides_have_the_same_options():
    workload = inputs.Workload(learning_rate=0.25, exemplars_per_class=7)
    options = {case.name: case.options(workload, 3) for case in CASES}
    arguments = dict(zip(options["LUCIR"][:-1:2], options["LUCIR"][1::2], strict=False))
    assert (arguments["--lr"], arguments["--n_memories_per_class"], arguments["--seed"]) == (
        "0.25",
        "7",
        "3",
    )
    assert arguments["--n_layers"] == "20"
    assert {name for name, item in options.items() if "--use_best_model" in item} == {
        "finetune",
        "ER-balanced",
    }


@pytest.mark.parametrize("name", EQUATIONS)
def test_what_the_authors_equations_replace_exists(name):
    with EQUATIONS[name]():
        pass


def test_a_method_that_does_not_exist_is_named(capsys):
    with pytest.raises(SystemExit):
        main(["--authors", "nowhere", "BiC"])
    assert "no method 'BiC'; there are finetune, ER-balanced" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--seeds", "1"], "--seeds 1 has no spread; give 2 or more"),
        ([], "EVERLIGHT_IIRC names nowhere/python, which does not exist"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_anything_is_trained(
    words, message, monkeypatch, capsys
):
    monkeypatch.setenv("EVERLIGHT_IIRC", "nowhere/python")
    with pytest.raises(SystemExit):
        main(["--authors", "nowhere", *words])
    assert message in capsys.readouterr().err


def test_kept_runs_of_other_data_are_refused(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("EVERLIGHT_IIRC", "false")
    (tmp_path / "workload.json").write_text(json.dumps(asdict(inputs.CIFAR)))
    with pytest.raises(SystemExit):
        main(["--authors", "nowhere", "--keep", str(tmp_path)])
    assert "has runs of other data or settings; give another folder" in capsys.readouterr().err


def test_a_python_that_fails_is_named_with_the_remedy(tmp_path):
    with pytest.raises(DataError, match=r"false could not run nowhere.*EVERLIGHT_IIRC"):
        Authors("false", Path("nowhere")).run(tmp_path, {"runs": []}, "answer.jsonl")


def test_a_trace_has_the_samples_of_every_epoch_and_the_exemplars(images, tmp_path):
    """The first task has two epochs; the second one has the stored samples among its own."""
    workload = replace(steps.STEPS, train_images=30, test_images=2, tasks=2, blocks=1)
    inputs.write_inputs(workload, tmp_path)
    data = inputs.read_inputs(tmp_path)
    (balanced,) = (case for case in CASES if case.name == "ER-balanced")
    traced = steps.trace(data, workload, tmp_path, balanced)
    first, again, second = traced.orders
    assert sorted(first) == sorted(again) != first
    assert not any(stored for stored, *_ in first)
    stored = sorted(key for old, *key in second if old)
    assert stored == sorted(map(list, traced.exemplars[0]))
    assert len(stored) == workload.exemplars_per_class * len(data.order(0)[: workload.superclasses])
    assert len(traced.scores) == len(traced.tasks) == 2


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_with_the_same_choices_the_weights_are_the_authors(case, tmp_path):
    if CHECKOUT not in os.environ or authors_python() is None:
        pytest.skip(f"name a checkout of chandar-lab/IIRC in {CHECKOUT}, and a Python with torch")
    authors = Authors(authors_python(), Path(os.environ[CHECKOUT]))
    equation = case.name in EQUATIONS
    for row in compare_steps(authors, tmp_path, case, equation):
        assert row.weights < WITHIN * row.moved
