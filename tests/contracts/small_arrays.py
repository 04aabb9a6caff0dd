"""Small arrays for examples of arguments."""

import jax.numpy as jnp
import numpy as np


# NumPy makes them, since a program for every shape takes most of the time.
def floats(*shape):
    return jnp.asarray(np.full(shape, 0.5, np.float32))


def integers(*shape):
    return jnp.asarray(np.zeros(shape, np.int32))


def booleans(*shape):
    return jnp.asarray(np.ones(shape, bool))


def host(values, dtype=int):
    return np.asarray(values, dtype)
