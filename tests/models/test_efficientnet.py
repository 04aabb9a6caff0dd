"""EfficientNet-Lite0 against NumPy in float64, by its published size, and on two photographs."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_sample_images

from everlight.models.efficientnet import (
    DEVIATION,
    MEAN,
    EfficientNetLite0,
    InvertedResidual,
    Stage,
    efficientnet_variables,
)
from everlight_data.errors import MissingDataError
from everlight_data.pretrained.efficientnet_weights import load_efficientnet_lite0
from tests.models.port_arrays import STAGES, drawn_arrays

PALACE, DAISY = 698, 985
"""Two of the 1,000 classes in the order of WordNet numbers; dahlias are not among them."""


def in_numpy(arrays, image):
    """Return logits and features of one image, channels first, in float64."""
    arrays = {name: np.float64(array) for name, array in arrays.items()}

    def convolve(maps, name, stride=1):
        """Convolve with TensorFlow's SAME: an odd zero is below and on the right."""
        kernel = arrays[f"{name}.weight"]
        out, inputs, side, _ = kernel.shape
        outputs = [-(-length // stride) for length in maps.shape[1:]]
        missing = [
            max((count - 1) * stride + side - length, 0)
            for count, length in zip(outputs, maps.shape[1:], strict=True)
        ]
        padded = np.pad(maps, [(0, 0), *((zeros // 2, -(-zeros // 2)) for zeros in missing)])
        windows = np.lib.stride_tricks.sliding_window_view(padded, (side, side), (1, 2))
        windows = windows[:, ::stride, ::stride]
        if inputs == 1 and out == len(maps):
            return np.einsum("chwij,cij->chw", windows, kernel[:, 0])
        return np.einsum("chwij,ocij->ohw", windows, kernel, optimize=True)

    def norm(maps, name):
        scale, bias, mean, variance = (
            arrays[f"{name}.{part}"][:, None, None]
            for part in ("weight", "bias", "running_mean", "running_var")
        )
        return (maps - mean) / np.sqrt(variance + 1e-3) * scale + bias

    def relu6(maps):
        return np.clip(maps, 0, 6)

    maps = relu6(norm(convolve(image.transpose(2, 0, 1), "_conv_stem", 2), "_bn0"))
    block = 0
    for blocks, _, stride, expansion, _ in STAGES:
        for place in range(blocks):
            name, before = f"_blocks.{block}", maps
            if expansion > 1:
                maps = relu6(norm(convolve(maps, f"{name}._expand_conv"), f"{name}._bn0"))
            step = stride if place == 0 else 1
            maps = relu6(norm(convolve(maps, f"{name}._depthwise_conv", step), f"{name}._bn1"))
            maps = norm(convolve(maps, f"{name}._project_conv"), f"{name}._bn2")
            if maps.shape == before.shape:
                maps = maps + before
            block += 1
    features = relu6(norm(convolve(maps, "_conv_head"), "_bn1")).mean(axis=(1, 2))
    return arrays["_fc.weight"] @ features + arrays["_fc.bias"], features


@jax.jit
def outputs_of(variables, images):
    return EfficientNetLite0().apply(variables, images, False)


@pytest.fixture(scope="module")
def published():
    try:
        return load_efficientnet_lite0()
    except MissingDataError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def arrays():
    """Return the published weights; drawn ones where they are not installed."""
    try:
        return load_efficientnet_lite0()
    except MissingDataError:
        return drawn_arrays(np.random.default_rng(0))


def test_efficientnet_equals_numpy(arrays):
    """No stride divides the crop's sides, where two ways to pad an odd number differ."""
    crop = load_sample_images().images[1][200:245, 250:288]
    image = (crop - np.float64(MEAN)) / DEVIATION
    result = outputs_of(efficientnet_variables(arrays), jnp.asarray(image[None], jnp.float32))
    logits, features = in_numpy(arrays, image)
    assert 0.1 < features.mean() < 3
    np.testing.assert_allclose(result.features[0], features, atol=1e-4)
    np.testing.assert_allclose(result.logits[0], logits, atol=1e-4)


def test_efficientnet_has_the_published_number_of_parameters():
    """The authors' table has 4.65 million."""
    shapes = jax.eval_shape(
        lambda: EfficientNetLite0().init(jax.random.key(0), jnp.zeros((1, 32, 32, 3)), False)
    )
    sizes = {
        name: sum(leaf.size for leaf in jax.tree.leaves(part))
        for name, part in shapes["params"].items()
    }
    assert sum(sizes.values()) == 4_652_008
    assert sum(sizes.values()) - sizes["head"] == 3_371_008


def test_a_block_trains(rng):
    """Its batch's statistics move, and every gradient is finite and somewhere above 0."""
    block, maps = (
        InvertedResidual(Stage(1, 5, 2, 6, 4), 2),
        jnp.asarray(rng.normal(size=(2, 6, 6, 2)), jnp.float32),
    )
    variables = jax.jit(lambda key: block.init(key, maps, False))(jax.random.key(0))

    @jax.jit
    @jax.grad
    def gradient(params):
        variables_now = {**variables, "params": params}
        outputs, changed = block.apply(variables_now, maps, True, mutable=["batch_stats"])
        moved = changed["batch_stats"]["depthwise_norm"]["mean"]
        return jnp.sum(outputs**3) + jax.lax.stop_gradient(jnp.where(jnp.any(moved), 0, jnp.nan))

    for leaf in jax.tree.leaves(gradient(variables["params"])):
        assert np.all(np.isfinite(leaf))
        assert np.any(leaf != 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"_blocks.3._bn2.bias": None}, r"_blocks\.3\._bn2\.bias is missing"),
        ({"extra": np.zeros(1)}, r"extra is not an array of the network"),
        ({"_conv_stem.weight": np.zeros((32, 3, 5, 5))}, r"weight has the shape \(32, 3, 5, 5\), "),
    ],
)
def test_arrays_that_do_not_fit_are_refused(rng, change, message):
    arrays = drawn_arrays(rng) | change
    arrays = {name: array for name, array in arrays.items() if array is not None}
    with pytest.raises(ValueError, match=message):
        efficientnet_variables(arrays)


def test_the_published_weights_name_two_photographs(published):
    """A palace in China and a dahlia are named, of which a daisy is the nearest class."""
    squares = [
        Image.fromarray(image[:427, 106:533]).resize((224, 224), Image.Resampling.BICUBIC)
        for image in load_sample_images().images
    ]
    images = (jnp.asarray(np.stack(squares), jnp.float32) - MEAN) / DEVIATION
    variables = efficientnet_variables(published)
    full = outputs_of(variables, images)
    half = EfficientNetLite0(dtype=jnp.bfloat16).apply(variables, images, False)
    for actual in (full, half):
        np.testing.assert_array_equal(jnp.argmax(actual.logits, axis=1), [PALACE, DAISY])
    away = np.linalg.norm(half.features - full.features) / np.linalg.norm(full.features)
    assert 1e-3 < away < 0.1
