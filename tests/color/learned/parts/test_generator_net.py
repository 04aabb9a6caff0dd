"""C5's network against the authors' layers, written in float64 NumPy."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.color.chroma_histogram import ChromaWindow
from everlight.color.learned.cross_camera import AUTHORS_SIZE
from everlight.color.learned.parts.generator_net import Block, GeneratorNet, GeneratorSettings
from everlight.color.learned.parts.generator_training import (
    initial_variables,
)
from tests.color import references

COUNT = 3
SMALL = GeneratorSettings(ChromaWindow(16, -1, 2), (4, 6, 8))
SHARED = SMALL._replace(separate=False)
CALIBRATED = SMALL._replace(fingerprint=(4, 6), fingerprint_window=ChromaWindow(8, -0.5, 1.5))


convolution = partial(references.convolution, mode="edge")


def leaky(maps):
    return np.where(maps > 0, maps, 0.01 * maps)


def block(maps, layer, stats, norm):
    maps = convolution(leaky(convolution(maps, layer["first"])), layer["second"])
    if norm == "batch":
        stored = stats["norm"]
        maps = (maps - stored["mean"]) / np.sqrt(stored["var"] + 1e-5)
        maps = maps * layer["norm"]["scale"] + layer["norm"]["bias"]
    if norm == "instance":
        maps = (maps - maps.mean((0, 1))) / np.sqrt(maps.var((0, 1)) + 1e-5)
    return leaky(maps)


def half(maps):
    corners = [maps[down::2, right::2] for down in (0, 1) for right in (0, 1)]
    return np.max(corners, axis=0)


def double(maps):
    """Interpolate bilinearly with aligned corners, point by point."""
    side = maps.shape[0]
    places = np.arange(2 * side) * (side - 1) / (2 * side - 1)
    first = np.minimum(places.astype(int), side - 1)
    second, part = np.minimum(first + 1, side - 1), places - first
    maps = maps[first] * (1 - part)[:, None, None] + maps[second] * part[:, None, None]
    return maps[:, first] * (1 - part)[:, None] + maps[:, second] * part[:, None]


def generate(variables, settings, images, embedded=None):
    """Run one image and its others, [1 + k, b, b, 2], as the authors' `Encoder.forward`."""
    params, stats = variables["params"], variables["batch_stats"]
    line = np.linspace(0, 1, images.shape[1])
    places = np.stack(np.meshgrid(line, line[::-1]), axis=-1)
    maps = [np.concatenate([image, places], axis=-1) for image in images]
    if embedded is not None:
        maps = [
            np.concatenate([item, np.broadcast_to(embedded, (*item.shape[:2], len(embedded)))], -1)
            for item in maps
        ]
    names = ["own"] + [
        f"other{place}" if settings.separate else "others" for place in range(len(maps) - 1)
    ]
    skipped = []
    for level in range(len(settings.channels)):
        for place, name in enumerate(names):
            layer = f"encoder{level}_{name}"
            norm = "batch" if level % 2 == 0 else ""
            full = block(maps[place], params[layer], stats.get(layer), norm)
            if place == 0:
                skipped.append(full)
            maps[place] = half(full)
        pooled = np.max(maps, axis=0)
        if len(maps) > 1 and level + 1 < len(settings.channels):
            for place, name in enumerate(names):
                layer = params[f"merge{level}_{name}"]["mixed"]
                both = np.concatenate([maps[place], pooled], axis=-1)
                maps[place] = leaky(both @ layer["kernel"] + layer["bias"])
    latent = block(pooled, params["bottleneck"], None, "")
    outputs = {}
    for name in ("filters", "bias"):
        decoded = latent
        for level in reversed(range(len(settings.channels))):
            decoded = np.concatenate([skipped[level], double(decoded)], axis=-1)
            decoded = block(decoded, params[f"{name}{level}"], None, "instance")
        outputs[name] = convolution(decoded, params[f"{name}_last"])
    return outputs["filters"], outputs["bias"][..., 0]


def drawn(rng, settings, count, fingerprint=None):
    """Draw variables that are not initial ones, so that every one has an effect."""
    bins = settings.window.bins
    image_histogram = jnp.float32(rng.uniform(0, 0.3, (2, bins, bins, 2)))
    others = jnp.float32(rng.uniform(0, 0.3, (2, count, bins, bins, 2))) if count else None
    net = GeneratorNet(settings)
    variables = initial_variables(jax.random.key(0), net, image_histogram, others, fingerprint)
    moved = jax.tree.map(
        lambda leaf: leaf + jnp.float32(rng.uniform(0, 0.2, leaf.shape)), variables
    )
    return net, moved, image_histogram, others


@pytest.mark.parametrize(
    ("settings", "count"), [(SMALL, COUNT), (SHARED, COUNT), (SMALL, 0)], ids=str
)
def test_the_network_is_the_authors(rng, settings, count):
    net, variables, image_histogram, others = drawn(rng, settings, count)
    result = net.apply(variables, image_histogram, others)
    exact = jax.tree.map(lambda leaf: np.asarray(leaf, float), variables)
    for row in range(2):
        images = np.asarray(image_histogram[row : row + 1], float)
        if others is not None:
            images = np.concatenate([images, np.asarray(others[row], float)])
        filters, bias = generate(exact, settings, images)
        for actual, expected in ((result.filters[row], filters), (result.bias[row], bias)):
            np.testing.assert_allclose(actual, expected, rtol=1e-3, atol=1e-3 * expected.std())


def test_in_training_the_batchs_statistics_normalize_and_are_kept(rng):
    """PyTorch's momentum of 0.1 is the new statistics' weight."""
    maps = rng.normal(0.3, 1, (3, 6, 6, 2))
    module = Block(4, 5, "batch")
    variables = module.init(jax.random.key(0), jnp.float32(maps), False)
    variables = jax.tree.map(
        lambda leaf: leaf + jnp.float32(rng.uniform(0, 0.5, leaf.shape)), variables
    )
    result, changed = module.apply(variables, jnp.float32(maps), True, mutable=["batch_stats"])
    exact = jax.tree.map(lambda leaf: np.asarray(leaf, float), variables)
    layer, stored = exact["params"], exact["batch_stats"]["norm"]
    second = [
        convolution(leaky(convolution(item, layer["first"])), layer["second"]) for item in maps
    ]
    mean, variance = np.mean(second, axis=(0, 1, 2)), np.var(second, axis=(0, 1, 2))
    scaled = (second - mean) / np.sqrt(variance + 1e-5) * layer["norm"]["scale"]
    expected = leaky(scaled + layer["norm"]["bias"])
    np.testing.assert_allclose(result, expected, rtol=1e-3, atol=1e-3)
    for name, value in (("mean", mean), ("var", variance)):
        expected = 0.9 * stored[name] + 0.1 * value
        np.testing.assert_allclose(changed["batch_stats"]["norm"][name], expected, rtol=1e-4)


def test_a_fingerprints_features_are_channels_beside_the_histogram(rng):
    prints = jnp.float32(rng.uniform(0, 0.5, (2, 8, 8, 2)))
    net, variables, image_histogram, _ = drawn(rng, CALIBRATED, 0, prints)
    result = net.apply(variables, image_histogram, None, prints)
    exact = jax.tree.map(lambda leaf: np.asarray(leaf, float), variables)
    params, stats = exact["params"], exact["batch_stats"]
    maps = np.asarray(prints[0], float)
    for level in range(2):
        name = f"fingerprint{level}"
        maps = half(block(maps, params[name], stats[name], "batch"))
    hidden = maps.ravel() @ params["fingerprint_hidden"]["kernel"]
    hidden = leaky(hidden + params["fingerprint_hidden"]["bias"])
    last = params["fingerprint_features"]
    embedded = hidden @ last["kernel"] + last["bias"]
    filters, _ = generate(exact, CALIBRATED, np.asarray(image_histogram[:1], float), embedded)
    np.testing.assert_allclose(result.filters[0], filters, rtol=1e-3, atol=1e-3 * filters.std())


def test_the_authors_size_has_the_authors_layers():
    """The numbers of weights are those of the authors' constructor, counted by hand per layer."""
    image_histogram = jax.ShapeDtypeStruct((1, 64, 64, 2), jnp.float32)
    others = jax.ShapeDtypeStruct((1, 6, 64, 64, 2), jnp.float32)
    init = partial(GeneratorNet(AUTHORS_SIZE).init, jax.random.key(0))
    params = jax.eval_shape(init, image_histogram, others)["params"]

    def conv(inputs, outputs, size=3):
        return size * size * inputs * outputs + outputs

    encoder = conv(4, 8) + conv(8, 8) + conv(8, 16) + conv(16, 16)
    encoder += conv(16, 32) + conv(32, 32) + 2 * conv(32, 32) + 2 * 8 + 2 * 32
    encoder += conv(16, 8, 1) + conv(32, 16, 1) + conv(64, 32, 1)
    decoder = conv(64, 32) + conv(32, 32) + conv(64, 32) + conv(32, 16)
    decoder += conv(32, 16) + conv(16, 8) + conv(16, 8) + conv(8, 4)
    expected = 7 * encoder + 2 * conv(32, 32) + 2 * decoder + conv(4, 1) + conv(4, 2)
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) == expected
