"""Benchmarks composed from the command line: data, tasks, network, optimizer, memory, metrics."""

import csv
from dataclasses import replace

import numpy as np
import pytest

from everlight.continual import Protocol
from everlight.continual.methods.registry import METHODS
from everlight_data.errors import DataError
from everlight_data.registry import IMAGE_SETS
from everlight_data.sets.data_set import DataSet
from everlight_data.sets.image_set import ImageSet
from everlight_experiments.cli import options_of
from everlight_experiments.continual.benchmarks.metric import Metric
from everlight_experiments.continual.benchmarks.run_data import SequenceId, TrainedRun
from everlight_experiments.images import metrics
from everlight_experiments.images.benchmark import compose
from everlight_experiments.images.config import DIGITS, Config
from everlight_experiments.images.data import sequences_of
from everlight_experiments.images.metrics import accuracy_by_class, final_confusion
from everlight_experiments.report.export import ExportOptions, export
from tests.experiments.command_runs import arrays_of, loaded, run
from tests.refusals import refused

TINY = Config(
    data="stripes",
    tasks=(2,),
    net="mlp:8",
    protocol=Protocol(epochs=2, batch_size=8, select="last"),
    exemplars_per_class=2,
)

BEST = replace(TINY.protocol, select="best")
PLATEAU = replace(TINY.protocol, plateau_factor=0.5)


def stripes(request):
    """Return four classes, each with its own bright column."""
    labels = np.repeat(np.arange(4), 20)
    images = np.random.default_rng(0).integers(0, 60, (80, 4, 4, 1), dtype=np.uint8)
    images[np.arange(80), :, labels, 0] += 150
    test = np.tile(np.arange(20) >= 16, 4)
    order = np.argsort(test, kind="stable")
    return ImageSet("stripes", images[order], labels[~test], labels[test], tuple("abcd"))


@pytest.fixture
def stored_stripes(monkeypatch):
    """Add a new data set: one function and one row."""
    monkeypatch.setitem(IMAGE_SETS, "stripes", DataSet("", load=stripes))


def test_a_new_data_set_and_a_new_metric_are_a_function_and_a_row_each(
    tmp_path, stored_stripes, monkeypatch
):
    def first_class(run: TrainedRun):
        return accuracy_by_class(run)[-1, 0]

    meaning = "Accuracy on the first class after the last task."
    row = Metric("first class", first_class, meaning=meaning)
    monkeypatch.setitem(metrics.EXTRA, "first class", row)
    report = run(
        tmp_path,
        *("images", "--data", "stripes", "--tasks", "2", "--net", "mlp:8", "--epochs", "2"),
        *("--methods", "naive", "ER", "--seeds", "2"),
        *("--evaluate-steps", "2", "--metrics", "first class", "accuracy by class"),
        *("confusion", "dead units", "weight norm"),
    )
    results = arrays_of(report)
    for name in ("naive", "ER"):
        of = f"class-incremental/{name}"
        by_class, confusion = results[f"{of}/accuracy by class"], results[f"{of}/confusion"]
        np.testing.assert_array_equal(results[f"{of}/first class"], by_class[:, -1, 0])
        assert confusion.sum(axis=2).tolist() == [[4] * 4] * 2
        # Test classes have equally many samples.
        final = results[f"{of}/accuracy"][:, -1]
        np.testing.assert_allclose(final, by_class[:, -1].mean(axis=1), rtol=1e-6)
        np.testing.assert_allclose(np.trace(confusion, axis1=1, axis2=2) / 16, final, rtol=1e-6)
        # The network has eight hidden units, and both tasks move the weights.
        dead, norm = results[f"{of}/dead units"], results[f"{of}/weight norm"]
        assert ((8 * dead) % 1 == 0).all()
        assert (np.diff(norm) != 0).all()
        by_step = results[f"{of}/accuracy by step"].reshape(2, 2, -1, 2)
        np.testing.assert_array_equal(by_step[:, :, -1], results[f"{of}/accuracy by task"])
    text = report.read_text()
    assert "Accuracy on the first class after the last task." in text
    assert "confusion" in text.lower()
    assert "Share of the hidden units that never respond" in text


def test_one_training_has_the_accuracy_among_all_classes_and_among_those_of_the_task(
    tmp_path, stored_stripes
):
    """Finetuning calls images of the first task classes of the second; the task rules these out.

    The training and its other numbers are those of a run without the metric.
    """
    words = (
        *("images", "--data", "stripes", "--tasks", "2", "--net", "mlp:16", "--epochs", "20"),
        *("--learning-rate", "0.05", "--methods", "naive", "--seeds", "2"),
    )
    report = run(tmp_path, *words, "--metrics", "task-masked accuracy")
    results = arrays_of(report)
    among_all = results["class-incremental/naive/accuracy"][:, -1]
    masked = results["class-incremental/naive/task-masked accuracy"][:, -1]
    assert (among_all < 0.9).all()
    assert (masked > 0.95).all()
    text = report.read_text()
    assert text.count("final task-masked accuracy</th>") == 1
    assert "forgetting of task-masked accuracy</th>" in text
    assert "final accuracy, 95% interval</th>" in text
    without = arrays_of(run(tmp_path / "without", *words))
    assert set(results) - set(without) == {
        "second_measure",
        "class-incremental/naive/task-masked accuracy",
        "class-incremental/naive/task-masked accuracy by task",
    }
    for name in without.keys() - {"class-incremental/naive/seconds", "over_time"}:
        np.testing.assert_array_equal(results[name], without[name], name)
    with export(ExportOptions(report.parent)).open(newline="") as stream:
        lines = list(csv.DictReader(stream))
    by_task = results["class-incremental/naive/task-masked accuracy by task"]
    for metric, expected in (
        ("final task-masked accuracy", masked),
        ("forgetting of task-masked accuracy", by_task[:, 0, 0] - by_task[:, 1, 0]),
    ):
        exported = [float(line["value"]) for line in lines if line["metric"] == metric]
        np.testing.assert_allclose(exported, expected, rtol=1e-6)


def test_class_accuracies_and_confusion_are_counts_of_predictions():
    images = stripes(None)
    sequence = sequences_of(images, replace(TINY, order="natural"))(0, "evaluation")
    labels = np.asarray(sequence.test.labels[:, 0])
    # After the first task everything of it is right, after the second all is called class 2.
    predicted = np.stack([np.where(labels < 2, labels, -1), np.full(len(labels), 2)])
    result = TrainedRun({"predicted": predicted}, sequence, None, 2)
    np.testing.assert_array_equal(accuracy_by_class(result), [[1, 1, np.nan, np.nan], [0, 0, 1, 0]])
    np.testing.assert_array_equal(final_confusion(result), [[0, 0, 4, 0]] * 4)


def test_natural_order_is_the_same_for_every_seed_and_seeded_orders_differ():
    images = stripes(None)
    for order, alike in (("natural", True), ("seeded", False)):
        sequences = sequences_of(images, replace(TINY, order=order, tasks=(4,)))
        tasks = [np.asarray(sequences(seed, "evaluation").class_task) for seed in range(4)]
        assert all(np.array_equal(tasks[0], item) for item in tasks) == alike
    assert np.asarray(
        sequences_of(images, replace(TINY, order="natural"))(7, "evaluation").class_task
    ).tolist() == [0, 0, 1, 1]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tasks": (7,)}, "--tasks 7 of 4 classes; give 4 or fewer"),
        ({"tasks": (3, 2)}, "--tasks 3 2 are 5 classes of 4"),
        ({"buffer_size": 3}, "--buffer-size 3 for 4 classes; give 4 or more"),
        ({"metrics": ("confusio",)}, "did you mean 'confusion'"),
        ({"data": ""}, "give --data"),
        ({"tasks": ()}, "--tasks without a number; give how many tasks there are"),
        ({"protocol": BEST, "validation_fraction": 0.0}, "leaves none; .*, or --select last"),
        ({"protocol": PLATEAU, "validation_fraction": 0.0}, "fraction, or --plateau-factor 1"),
    ],
)
def test_incompatible_options_are_refused_in_one_line(change, message, tmp_path, stored_stripes):
    refused(message, lambda: compose(replace(TINY, **change), runs=tmp_path), DataError)


def test_without_validation_samples_nothing_is_selected(tmp_path, stored_stripes):
    words = ("images", "--data", "stripes", "--tasks", "2", "--net", "mlp:8", "--epochs", "1")
    words += ("--validation-fraction", "0", "--seeds", "1", "--methods", "EWC")
    refused("--hyperparameters EWC=100", lambda: run(tmp_path, *words), DataError)
    train = (
        loaded(*words).data.sequence(METHODS["naive"], SequenceId("evaluation", 0, 0)).tasks.train
    )
    assert train.mask.sum() == 64


def test_defaults_of_a_command_are_the_configuration():
    assert options_of("run", ["digits"]).config == DIGITS
    assert options_of("run", ["digits", "--net", "mlp:3"]).config == replace(DIGITS, net="mlp:3")


def test_a_setting_that_does_not_exist_is_refused(stored_stripes):
    """Otherwise the benchmark would be class-incremental under that name."""
    with pytest.raises(DataError, match=r"task_incremental.*task-incremental"):
        compose(TINY, setting="task_incremental")
