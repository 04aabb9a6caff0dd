"""A small frozen transformer with prompts, as a `Setup` and in float64 NumPy.

Gradients of the latter are central differences.
"""

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.traverse_util import flatten_dict, unflatten_dict

from everlight.continual import StoredImages, flax_setup, softmax_objective
from everlight.continual.engine import train_step
from everlight.models import VisionTransformer, vit_layers, with_prompts
from tests.continual.small_net import batch_of, task_of, unit
from tests.models.released_vit import features_in_numpy, released_arrays

CLASSES, WIDTH, SIDE, RATE = 4, 6, 8, 0.1
NET = VisionTransformer(CLASSES, 4, WIDTH, 2, 2, 8)
_RNG = np.random.default_rng(5)
ARRAYS = released_arrays(NET, SIDE // NET.patch, _RNG)
IMAGES = _RNG.normal(size=(12, SIDE, SIDE, 3))
LABELS = np.arange(12) % CLASSES
LAYERS = vit_layers(NET, ARRAYS, SIDE)
STORED = StoredImages.of(jnp.float32(IMAGES), jnp.zeros(3), jnp.ones(3))
QUERIES = np.array([features_in_numpy(ARRAYS, image) for image in IMAGES])


def plain_setup(optimizer=None, head="linear"):
    rule = optax.sgd(RATE) if optimizer is None else optimizer
    return flax_setup(NET.clone(head=head), STORED, softmax_objective(), rule)


def prompted_setup(prompting, optimizer=None):
    return with_prompts(plain_setup(optimizer), NET, LAYERS, prompting)


def in_float64(params):
    """Return parameters by their path, as float64."""
    return {path: np.float64(leaf) for path, leaf in flatten_dict(params).items()}


def as_params(flat):
    return unflatten_dict({path: jnp.float32(leaf) for path, leaf in flat.items()})


def cross_entropy(params, features, index, classes):
    """Return the loss of one image over some classes; a head with a scale is one of cosines."""
    kernel = params["head", "kernel"]
    if ("head", "scale") in params:
        logits = params["head", "scale"] * (
            unit(features) @ (kernel / np.linalg.norm(kernel, axis=0))
        )
    else:
        logits = features @ kernel + params["head", "bias"]
    return np.log(np.exp(logits[classes]).sum()) - logits[LABELS[index]]


def own_task(number, classes):
    """Return a task of these classes alone."""
    selected = jnp.asarray(np.isin(np.arange(CLASSES), classes))
    return task_of(number, classes, [0])._replace(classes=selected)


def step_on(index, setup, strategy, memory, learner, task):
    """Run the engine's step on these images."""
    batch = batch_of(index)._replace(labels=jnp.asarray(LABELS[index])[:, None])
    return train_step(setup, strategy, memory, learner, batch, task, jax.random.key(2))


def assert_close(result, expected, rtol=2e-4, atol=2e-6):
    result = in_float64(jax.device_get(result))
    assert result.keys() == expected.keys()
    for path, leaf in expected.items():
        np.testing.assert_allclose(result[path], leaf, rtol=rtol, atol=atol, err_msg=str(path))
