"""Loss, optimizer and initial weights of C5 and CCMNet, against the authors' in float64 NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from everlight.color.chroma_histogram import ChromaWindow
from everlight.color.learned.parts.generator_net import GeneratorNet, GeneratorSettings
from everlight.color.learned.parts.generator_training import (
    Sample,
    generator_loss,
    generator_optimizer,
    initial_variables,
)

SETTINGS = GeneratorSettings(ChromaWindow(16, -1, 2), (4, 8), separate=False)
SOBEL = np.array([[1, 0, -1], [2, 0, -2], [1, 0, -1]])


def rough(maps):
    """Return mean squares of the authors' two `conv2d` over whole maps, without padding."""
    result = 0
    for kernel in (SOBEL, SOBEL.T):
        responses = sum(
            kernel[down, right] * maps[:, down : down + 14, right : right + 14]
            for down in range(3)
            for right in range(3)
        )
        result += np.mean(responses**2)
    return result


def illuminant(histograms, filters, bias):
    """Return the softmax's mean of the circular convolution, a sum of shifted histograms."""
    scores = np.array(bias)
    for row in range(16):
        for column in range(16):
            moved = np.roll(histograms, (row, column), axis=(0, 1))
            scores += (moved * filters[row, column]).sum(axis=-1)
    shares = np.exp(scores - scores.max())
    shares /= shares.sum()
    line = (np.arange(16) - 7.5) * 3 / 16
    u, v = 0.5 + (shares * line).sum(), 0.5 - (shares.T * line).sum()
    return np.array([np.exp(-u), 1, np.exp(-v)])


def test_the_loss_is_the_angle_in_degrees_and_the_weighted_roughness(rng):
    image_histograms = rng.uniform(0, 0.2, (3, 16, 16, 2))
    illuminants = rng.uniform(0.4, 1, (3, 3))
    net = GeneratorNet(SETTINGS)
    variables = initial_variables(jax.random.key(0), net, jnp.float32(image_histograms))
    samples = Sample(jnp.float32(image_histograms), jnp.float32(illuminants), jnp.ones(3, bool))
    result, _ = generator_loss(net, variables, samples)
    generated, _ = net.apply(
        variables, samples.histograms, None, None, True, mutable=["batch_stats"]
    )
    filters, bias = (np.asarray(item, float) for item in generated)
    cosines = []
    for place in range(3):
        guess = illuminant(image_histograms[place], filters[place], bias[place])
        norms = np.linalg.norm(guess) * np.linalg.norm(illuminants[place])
        cosines.append(guess @ illuminants[place] / norms)
    angle = np.degrees(np.arccos(cosines)).mean()
    smooth = 0.15 * (rough(filters[..., 0]) + rough(filters[..., 1])) + 0.02 * rough(bias)
    assert angle > 1
    assert smooth > 0.1
    np.testing.assert_allclose(result, angle + smooth, rtol=1e-4)


def test_the_optimizer_is_adam_with_decay_in_the_gradient_and_a_cosine(rng):
    steps = 4
    optimizer = generator_optimizer(steps)
    weights = rng.normal(0, 2, 5)
    params = jnp.float32(weights)
    state = optimizer.init(params)
    first = second = np.zeros(5)
    for step in range(steps):
        gradient = rng.normal(0, 1e-3, 5)
        updates, state = optimizer.update(jnp.float32(gradient), state, params)
        params = optax.apply_updates(params, updates)
        decayed = gradient + 5e-4 * weights
        first = 0.9 * first + 0.1 * decayed
        second = 0.999 * second + 0.001 * decayed**2
        rate = 2e-3 * (1 + np.cos(np.pi * step / steps)) / 2
        scale = np.sqrt(second / (1 - 0.999 ** (step + 1))) + 1e-8
        weights = weights - rate * first / (1 - 0.9 ** (step + 1)) / scale
        np.testing.assert_allclose(params, weights, rtol=1e-5)


def test_initial_weights_are_those_of_he_et_al():
    """Kernels are normal with variance 2 / inputs, not cut off; biases are 0."""
    net = GeneratorNet(SETTINGS._replace(channels=(16, 32)))
    variables = initial_variables(jax.random.key(0), net, jnp.zeros((1, 16, 16, 2)))
    flat, _ = jax.tree_util.tree_flatten_with_path(variables)
    kernels = []
    for path, leaf in flat:
        name = path[-1].key
        if name == "kernel":
            kernels.append(np.ravel(leaf) / np.sqrt(2 / (leaf.size / leaf.shape[-1])))
        else:
            np.testing.assert_array_equal(leaf, name in ("scale", "var"))
    complete = np.concatenate(kernels)
    assert len(complete) > 30_000
    np.testing.assert_allclose([complete.mean(), complete.std()], [0, 1], atol=0.03)
    np.testing.assert_allclose(np.mean(complete**4), 3, atol=0.15)
