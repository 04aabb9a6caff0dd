"""Sequences from the experiences of any other library's benchmark: arrays of places and labels.

Avalanche calls them experiences, Continuum and Mammoth tasks: parts of a data set that come one
after the other. Classes may come again, and a sample may stand in several.
"""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Int

from everlight.checks import Count, checked
from everlight.continual.base import Samples, Task, TaskSequence
from everlight.scenarios.shapes import stack_samples

Places = Sequence[Int[np.ndarray, "_"]]
"""One array an experience."""


@checked
def from_experiences(
    train: Places,
    train_labels: Places,
    test: Places,
    test_labels: Places,
    classes: Count,
    valid: Places | None = None,
    valid_labels: Places | None = None,
) -> TaskSequence:
    """A sequence whose task t trains on the places `train[t]` of a data set.

    A task introduces the classes that no task before it trains on; a class that no task trains on,
    but a test set shows, counts as of the last one.

    Args:
      train: of each experience, places of its training samples in the data set.
      train_labels: their classes, in 0..classes-1.
      test: of each experience, places of its test samples; or of one alone, for a test set that
        serves them all. A place in several sets is evaluated once.
      test_labels: their classes.
      classes: outputs of the head.
      valid: of each experience, places of samples that validate; None is none.
      valid_labels: their classes.

    Raises:
      ValueError: arrays of unequal length, a place below 0, a label out of range or two labels of
        one test sample, an experience without a training sample, or a test set without one.
    """
    if valid is None or valid_labels is None:
        nothing = [np.zeros(0, int)] * len(train)
        valid, valid_labels = nothing, nothing
    for name, places, labels, counts in (
        ("train", train, train_labels, (len(train),)),
        ("test", test, test_labels, (1, len(train))),
        ("valid", valid, valid_labels, (len(train),)),
    ):
        _check_all(name, places, labels, classes, counts)
    tasks = len(train)
    known = [
        np.isin(np.arange(classes), np.concatenate(train_labels[: t + 1])) for t in range(tasks)
    ]
    introduced = np.diff(np.stack([np.zeros(classes, bool), *known]).astype(int), axis=0) > 0
    first = np.where(known[-1], introduced.argmax(axis=0), tasks - 1)
    union, tested = np.unique(np.concatenate(test), return_inverse=True)
    given = np.concatenate(test_labels)
    labels = np.zeros(len(union), int)
    labels[tested] = given
    if np.any(labels[tested] != given):
        place = union[tested[labels[tested] != given][0]]
        raise ValueError(f"test_labels gives two labels of place {place}; give each sample one")
    member = np.stack([np.isin(union, places) for places in test])
    return TaskSequence(
        Task(
            _stacked(train, train_labels),
            _stacked(valid, valid_labels),
            jnp.asarray(introduced),
            jnp.arange(tasks),
        ),
        Samples(jnp.asarray(union), jnp.asarray(labels)[:, None], jnp.ones(len(union), bool)),
        jnp.asarray(member),
        jnp.asarray(np.minimum(first, len(test) - 1)),
    )


def _stacked(places: Places, labels: Places) -> Samples:
    return stack_samples(list(places), [np.asarray(own)[:, None] for own in labels])


def _check_all(
    name: str, places: Places, labels: Places, classes: int, counts: tuple[int, ...]
) -> None:
    if len(places) not in counts or len(labels) != len(places):
        raise ValueError(
            f"{name} has {len(places)} experiences and {name}_labels {len(labels)}; give "
            f"{' or '.join(map(str, counts))}"
        )
    for number, (own, own_labels) in enumerate(zip(places, labels, strict=True)):
        if len(own) != len(own_labels):
            raise ValueError(
                f"{name}[{number}] has {len(own)} places and {name}_labels[{number}] "
                f"{len(own_labels)}; give as many"
            )
        if not len(own) and name != "valid":
            raise ValueError(f"{name}[{number}] has no sample; leave the experience out")
        for what, values, most in ((name, own, np.inf), (f"{name}_labels", own_labels, classes)):
            wrong = values[(values < 0) | (values >= most)]
            if len(wrong):
                limit = "0 or more" if most == np.inf else f"0 to {classes - 1}"
                raise ValueError(f"{what}[{number}] holds {wrong[0]}; give {limit}")
