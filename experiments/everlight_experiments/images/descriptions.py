"""Descriptions of a benchmark of images: its network and training, and the sizes of its data."""

from pathlib import Path

import numpy as np

from everlight.continual import TaskSequence
from everlight.models import Network
from everlight_data.sets.image_set import ImageSet
from everlight_experiments.continual.benchmarks.parts import optimizer
from everlight_experiments.images.config import DIVIDING, Config
from everlight_experiments.images.normalization import normalization_words
from everlight_experiments.report.cells import counted
from everlight_experiments.report.plots import plot_samples
from everlight_experiments.report.writer import Figure, Section


def training_words(config: Config, net: Network, settings: tuple[str, ...]) -> str:
    """Return network, optimizer, length and memory in words, for the report."""
    held, per_class = config.buffer_size, ""
    if held is None:
        held = config.exemplars_per_class * net.classes
        per_class = f" ({config.exemplars_per_class} per class)"
    replay, protocol = config.replay_batch_size, config.protocol
    updates = optimizer(config.optimizer, config.learning_rate, config.weight_decay)
    begun = "" if config.pretrained is None else f", begun with the layers of {config.pretrained}"
    changed = "" if config.augmentation == "none" else f", images changed by {config.augmentation}"
    restarted = ", restarted at every task" * protocol.new_optimizer
    parts = [net.note + begun + changed, normalization_words(config), updates.note + restarted]
    if set(settings) - {"online"}:
        length = counted(protocol.epochs, "epoch")
        if config.compute_budget is not None:
            length = f"the operations of {counted(config.compute_budget, 'step')} of naive"
        parts.append(f"{length} per task in batches of {protocol.batch_size}")
        reached = [number for number in protocol.milestones if number < protocol.most_epochs]
        if reached and config.compute_budget is None:
            at = ", ".join(map(str, reached))
            parts.append(
                f"learning rate multiplied by {protocol.milestone_factor:g} after epochs {at} of a "
                "task"
            )
    if "online" in settings:
        parts.append(f"online one pass in batches of {config.online_batch}")
        if protocol.boundaries:
            parts.append(
                "online task boundaries given to methods that act at them, and to no other"
            )
    if not protocol.boundaries:
        parts.append("no task boundaries, a class counts as seen from its first sample")
    parts.append(f"replay memory of {held:,} samples in total{per_class}")
    return "; ".join(parts) + ("" if replay is None else f", replayed in batches of {replay}")


def data_counts(images: ImageSet, config: Config, sequence: TaskSequence, origin: str = "") -> str:
    """Return the sizes of the data in words, with those of a sequence of all training images.

    `origin` states what divides the samples among the tasks, such as "of the file"; empty is the
    configuration.
    """
    trained = np.asarray(sequence.tasks.train.mask).sum(axis=1)
    if origin:
        tasks = _given_tasks(sequence, origin)
    elif config.stream == "classes":
        tasks = _class_tasks(config, sequence)
    elif config.stream == "split-domains":
        tasks = _split_domains(len(trained), len(images.class_names))
    else:
        tasks = _shared_domains(len(trained), config)
    if config.shots is not None:
        tasks += f", {counted(config.shots, 'image')} per class after the first"
    # Tasks of all classes have the same images.
    learned = trained.sum() if origin or config.stream in DIVIDING else trained[0]
    held_out = len(images.train_labels) - learned
    selects = "epochs and hyper-parameters" if config.protocol.validates else "hyper-parameters"
    least, most = np.bincount(images.train_labels).min(), np.bincount(images.train_labels).max()
    per_class = f"{least:,}" if least == most else f"{least:,} to {most:,}"
    imbalance = config.unevenness.imbalance
    tail = "" if imbalance == 1 else f", a long tail of the imbalance {imbalance:g}"
    return (
        f"; {len(images.train_labels):,} training images ({per_class} per class{tail}), of which "
        f"{held_out:,} are for validation only (they select {selects}), and "
        f"{len(images.test_labels):,} test images; {tasks}"
    )


def _class_tasks(config: Config, sequence: TaskSequence) -> str:
    """Return the sizes of tasks that bring new classes, in words."""
    sizes = np.bincount(np.asarray(sequence.class_task)).tolist()
    several = " or ".join(map(str, sorted(set(sizes))))
    class_counts = several if config.task_sizes is None else ", ".join(map(str, sizes))
    tasks = f"{len(sequence.tasks.id)} tasks of {class_counts} classes"
    if config.cycles > 1:
        tasks += (
            f", each class in {config.cycles} of them with other training images and the same "
            "test images, which count once; forgetting and transfer are not defined where "
            "classes are learned again"
        )
    elif len(set(sizes)) > 1:
        tasks += ", with equal weights in the accuracy"
    return tasks + _shared_classes(config)


def _split_domains(tasks: int, classes: int) -> str:
    """Return the sizes of tasks that divide the classes and share the labels, in words."""
    return f"{tasks} tasks of {classes // tasks} classes, labelled by position in their task"


def _shared_domains(tasks: int, config: Config) -> str:
    """Return the number of tasks that all have all classes, in words."""
    drawn = ", drawn for every seed" if config.stream_draws == "seeded" else ""
    return f"{tasks} tasks of all classes ({config.stream}{drawn})"


def _given_tasks(sequence: TaskSequence, origin: str) -> str:
    """Return the sizes of tasks of any origin, in words."""
    train, tests = sequence.tasks.train, np.asarray(sequence.test_member & sequence.test.mask)
    labels, masks = np.asarray(train.labels[..., 0]), np.asarray(train.mask)
    classes = [len(set(row[mask].tolist())) for row, mask in zip(labels, masks, strict=True)]
    return (
        f"{len(masks)} tasks {origin}, with {', '.join(map(str, masks.sum(axis=1)))} training "
        f"images of {', '.join(map(str, classes))} classes and test sets of "
        f"{', '.join(map(str, tests.sum(axis=1)))} images; the accuracy on a task is that on its "
        "test set"
    )


def _shared_classes(config: Config) -> str:
    """Return how tasks train on each other's classes, in words; empty if they do not."""
    uneven = config.unevenness
    parts = []
    if uneven.recurring:
        parts.append(
            "a class of an earlier task comes again in each later task with the probability "
            f"{uneven.recurring:g}, with other training images"
        )
    if uneven.blurry:
        parts.append(f"the other tasks get {uneven.blurry:.3g} of the training images of each task")
    if not parts:
        return ""
    return (
        f", {' and '.join(parts)}; the accuracy on a task is that on the test images of the "
        "classes that it brings, and forgetting the fall of this accuracy, although later tasks "
        "train on these classes too"
    )


def data_sections(folder: Path, images: ImageSet) -> list[Section]:
    """Return the section of some samples; none of features without images."""
    if not images.images.size:
        return []
    picture = plot_samples(folder / "samples.png", images)
    caption = "Training images of some classes at the network's resolution."
    return [Section("The data", [], [Figure(caption, picture)])]
