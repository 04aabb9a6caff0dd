"""Herding: everlight's choice of exemplars against the loop that one would write in NumPy."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from everlight.continual.base import Samples
from everlight.continual.strategies.exemplars import add_herded_exemplars, empty_exemplars
from everlight_experiments.bench.timing import median_ratio, seconds_in_turns


class HerdingSpeed(NamedTuple):
    """Median seconds of choosing all exemplars."""

    classes: int
    samples: int
    """Of every class."""
    features: int
    exemplars: int
    everlight_s: float
    numpy_s: float
    ratio: float
    same_classes: int
    """Those for which both chose the same exemplars in the same order."""


def herding_speed(
    classes: int, samples: int, features: int, exemplars: int, rounds: int
) -> HerdingSpeed:
    """Times iCaRL's choice for all classes at once, against a loop over them in NumPy.

    Args:
      classes, samples, features: of the made-up features, as many samples a class.
      exemplars: chosen of every class.
      rounds: turns of each.
    """
    rng = np.random.default_rng(0)
    values = np.float32(rng.normal(size=(classes * samples, features)) + 0.5)
    labels = rng.permutation(np.repeat(np.arange(classes), samples))
    on_device = (
        empty_exemplars(classes * exemplars, 1),
        Samples(jnp.arange(len(labels)), jnp.asarray(labels[:, None]), jnp.ones(len(labels), bool)),
        jnp.ones(classes, bool),
        jnp.asarray(values),
    )
    herd = jax.jit(add_herded_exemplars)
    seconds = seconds_in_turns(
        {
            "everlight": lambda: herd(*on_device),
            "NumPy": lambda: _numpy_herding(values, labels, exemplars),
        },
        rounds,
    )
    ours = np.asarray(herd(*on_device).samples.index).reshape(classes, exemplars)
    theirs = _numpy_herding(values, labels, exemplars)
    return HerdingSpeed(
        classes,
        samples,
        features,
        exemplars,
        *(float(np.median(each)) for each in seconds.values()),
        median_ratio(seconds["NumPy"], seconds["everlight"]),
        int(np.all(ours == theirs, axis=1).sum()),
    )


def _numpy_herding(values: np.ndarray, labels: np.ndarray, exemplars: int) -> np.ndarray:
    """iCaRL's algorithm 4, class by class: places of the chosen samples, `[c, exemplars]`."""
    unit = values / np.linalg.norm(values, axis=1, keepdims=True)
    chosen = np.empty((labels.max() + 1, exemplars), int)
    for label in range(len(chosen)):
        members = np.flatnonzero(labels == label)
        rows, free = unit[members], np.ones(len(members), bool)
        mean, total = rows.mean(axis=0), np.zeros(rows.shape[1], rows.dtype)
        for number in range(exemplars):
            distance = np.linalg.norm(mean - (total + rows) / (number + 1), axis=1)
            best = np.argmin(np.where(free, distance, np.inf))
            free[best], total = False, total + rows[best]
            chosen[label, number] = members[best]
    return chosen
