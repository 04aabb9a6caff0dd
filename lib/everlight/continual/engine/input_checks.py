"""Checks of a sequence and its data before training; traced values are not checked."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from everlight.base import Samples, TaskSequence
from everlight.checks import POSITIVE, check_finite, check_range, check_sizes
from everlight.continual.engine.protocol import Protocol
from everlight.continual.engine.sources import stored_images
from everlight.errors import ArgumentError


def refuse_unfit(protocol: Protocol, data: Any, sequence: TaskSequence) -> None:
    """Raise an error for a sequence that is inconsistent or does not fit the data or the protocol.

    Args:
      protocol: training protocol.
      data: data of the build; all `StoredImages` in it are checked. Indices must fit the largest.
      sequence: task sequence, optionally with leading axes over runs.

    Raises:
      ValueError: an error of `refuse_unfit_samples`, or the protocol needs validation samples and a
        task has none.
    """
    _refuse_validation_by_nothing(protocol, sequence)
    refuse_unfit_samples(data, sequence)


def refuse_unfit_samples(data: Any, sequence: TaskSequence) -> None:
    """Raise an error for a sequence that is inconsistent or does not fit the data.

    Args:
      data: data of the build; all `StoredImages` in it are checked. Indices must fit the largest.
      sequence: task sequence, optionally with leading axes over runs.

    Raises:
      ValueError: labels or test sets do not exist; a sample has no label; an index exceeds the
        images; images are not finite; or a test sample's label is not among its test set's classes.
    """
    classes, tests = sequence.class_task.shape[-1], sequence.test_member.shape[-2]
    check_sizes(test=(sequence.test.mask, -1), test_member=(sequence.test_member, -1))
    check_range("sequence.class_task", sequence.class_task, 0, tests - 1)
    stores = list(stored_images(data))
    last = max((len(store.pieces) * store.copies for store in stores), default=np.inf) - 1
    parts = {"tasks.train": sequence.tasks.train, "tasks.valid": sequence.tasks.valid}
    for name, samples in {**parts, "test": sequence.test}.items():
        check_range(f"sequence.{name}.labels", samples.labels, -1, classes - 1)
        _refuse_unlabelled(f"sequence.{name}", samples)
        check_range(f"sequence.{name}.index", samples.index, 0, last)
    _refuse_unscorable(sequence)
    for store in stores:
        check_range("deviation", store.deviation, *POSITIVE)
        if jnp.issubdtype(store.pieces.dtype, jnp.floating):
            check_finite("images", store.pieces, store.shape)


def _refuse_unlabelled(name: str, samples: Samples) -> None:
    if _is_traced(samples.mask, samples.labels) or not samples.labels.shape[-1]:
        return
    without = np.asarray(samples.mask) & (np.asarray(samples.labels)[..., 0] < 0)
    if without.any():
        position = np.asarray(samples.index)[without][0]
        raise ArgumentError(f"{name} holds the sample {position} without a label; leave it out")


def _refuse_unscorable(sequence: TaskSequence) -> None:
    masks, member, test = sequence.test_classes, sequence.test_member, sequence.test
    if masks is None or _is_traced(masks, member, test.mask, test.labels):
        return
    check_sizes(test_classes=(masks, -1), class_task=(sequence.class_task, -1))
    check_sizes(test_classes=(masks, -2), test_member=(member, -2))
    # Perhaps with leading axes over runs, each of which is looked at alone.
    runs = zip(
        np.asarray(masks).reshape(-1, *masks.shape[-2:]),
        (np.asarray(member) & np.asarray(test.mask)[..., None, :]).reshape(-1, *member.shape[-2:]),
        np.asarray(test.labels).reshape(-1, *test.labels.shape[-2:])[..., 0],
        strict=True,
    )
    for classes, held, label in runs:
        tested, first = held.any(axis=0), held.argmax(axis=0)
        kind = np.unique(classes, axis=0, return_inverse=True)[1].reshape(-1)
        if np.any(held & (kind[:, None] != kind[first])):
            raise ArgumentError(
                "sequence.test_classes differ between test sets that share a sample, whose "
                "task-masked score would depend on the set; give the sample once per set in "
                "sequence.test, or test_classes=None"
            )
        if np.any(tested & ~classes[first, np.maximum(label, 0)]):
            raise ArgumentError(
                "sequence.test_classes leave out the label of a sample in the test set; give each "
                "test set all classes that it holds"
            )


def _is_traced(*arrays: Any) -> bool:
    return any(isinstance(array, jax.core.Tracer | jax.ShapeDtypeStruct) for array in arrays)


def _refuse_validation_by_nothing(protocol: Protocol, sequence: TaskSequence) -> None:
    requests = {
        "select='best'": (protocol.select == "best", "select='last'"),
        f"plateau_factor={protocol.plateau_factor:g}": (
            protocol.plateau_factor != 1,
            "plateau_factor=1",
        ),
    }
    mask = sequence.tasks.valid.mask
    if _is_traced(mask):
        return
    validated = np.asarray(mask).any(axis=-1)
    for setting, (is_set, instead) in requests.items():
        if is_set and not validated.all():
            # Tasks are the last axis of several runs.
            raise ArgumentError(
                f"{setting}, and task {np.argwhere(~validated)[0][-1]} has no validation samples; "
                f"give the sequence some, or {instead}"
            )
