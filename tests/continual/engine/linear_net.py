"""A linear network on Gaussian samples of six classes, and builds of its setup."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from everlight.base import Outputs, Setup
from everlight.continual.objectives.softmax import softmax_objective
from everlight.continual.strategies import naive

CLASSES = 6
TRAIN, TEST = np.arange(60) % CLASSES, np.arange(30) % CLASSES
_rng = np.random.default_rng(5)
CENTERS = _rng.normal(size=(CLASSES, 4)) * 3
DATA = jnp.asarray(CENTERS[np.append(TRAIN, TEST)] + _rng.normal(size=(90, 4)) * 0.3, jnp.float32)
KEY = jax.random.key(2)


def linear_setup(data):
    return Setup(
        init=lambda key: ({"kernel": 0.1 * jax.random.normal(key, (4, CLASSES))}, {}),
        apply=lambda params, stats, inputs, train, key: (
            Outputs(inputs @ params["kernel"], inputs),
            stats,
        ),
        objective=softmax_objective(),
        optimizer=optax.sgd(0.05, momentum=0.9),
        gather=lambda index, key: data[index],
    )


def built(strategy):
    def build(data):
        setup = linear_setup(data)
        return setup, strategy(setup)

    return build


build_naive = built(naive)
