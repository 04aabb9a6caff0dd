"""The vision transformer against NumPy in float64, its published sizes and its grids."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import scipy.ndimage

from everlight.continual import StoredImages, flax_setup, softmax_objective
from everlight.models import (
    NetworkRequest,
    VisionTransformer,
    interpolate_positions,
    named_network,
    vit_layers,
    with_layers,
)
from everlight.models.vit import Prompts, attention
from tests.models.released_vit import features_in_numpy, released_arrays
from tests.refusals import refused

NET = VisionTransformer(5, 4, 12, 2, 3, 20)
SIDE = 8


@pytest.fixture
def arrays(rng):
    return released_arrays(NET, SIDE // NET.patch, rng)


def images_of(rng, side=SIDE, channels=3):
    return jnp.float32(rng.normal(size=(3, side, side, channels)))


def outputs_of(net, layers, images, train=False):
    params = net.init(jax.random.key(1), images, False)["params"]
    return params | layers, net.apply({"params": params | layers}, images, train)


def test_a_checkpoint_gives_the_features_of_numpy_in_float64(arrays, rng):
    images = images_of(rng)
    params, outputs = outputs_of(NET, vit_layers(NET, arrays, SIDE), images)
    expected = np.array([features_in_numpy(arrays, np.float64(image)) for image in images])
    assert np.abs(expected).max() > 1
    np.testing.assert_allclose(outputs.features, expected, rtol=1e-5, atol=1e-5)
    head = params["head"]
    logits = expected @ np.float64(head["kernel"]) + np.float64(head["bias"])
    np.testing.assert_allclose(outputs.logits, logits, rtol=1e-5, atol=1e-5)
    same = NET.apply({"params": params}, images, True)
    np.testing.assert_array_equal(same.features, outputs.features)


def test_without_a_class_token_the_features_are_a_mean(arrays, rng):
    net, images = NET.clone(class_token=False), images_of(rng)
    del arrays["cls"]
    name = "Transformer/posembed_input/pos_embedding"
    arrays[name] = arrays[name][:, 1:]
    _, outputs = outputs_of(net, vit_layers(net, arrays, SIDE), images)
    expected = [features_in_numpy(arrays, np.float64(image), False) for image in images]
    np.testing.assert_allclose(outputs.features, expected, rtol=1e-5, atol=1e-5)


def test_oblong_and_gray_images_have_patches_in_rows(arrays, rng):
    """A grid has 2 x 3 patches, whose positions are in the network and not in a checkpoint."""
    arrays = released_arrays(NET, 1, rng, channels=1)
    images = jnp.float32(rng.normal(size=(2, 8, 12, 1)))
    name = "Transformer/posembed_input/pos_embedding"
    layers = vit_layers(NET, arrays, 4)
    arrays[name] = rng.normal(size=(1, 7, NET.width)).astype(np.float32)
    layers["position"] = jnp.asarray(arrays[name][0])
    _, outputs = outputs_of(NET, layers, images)
    expected = [features_in_numpy(arrays, np.float64(image)) for image in images]
    np.testing.assert_allclose(outputs.features, expected, rtol=1e-5, atol=1e-5)


def test_the_default_has_the_sizes_of_vit_b_16():
    """The network has 85,798,656 parameters without a head, which adds 769 per class."""
    net = VisionTransformer(10)
    images = jnp.zeros((1, 224, 224, 3))
    shapes = jax.eval_shape(lambda key: net.init(key, images, False), jax.random.key(0))
    block = 4 * (768 * 768 + 768) + 2 * 768 * 3072 + 3072 + 768 + 4 * 768
    below = 16 * 16 * 3 * 768 + 768 + 768 + 197 * 768 + 12 * block + 2 * 768
    assert below == 85_798_656
    assert sum(leaf.size for leaf in jax.tree.leaves(shapes)) == below + 769 * 10


@pytest.mark.parametrize(("old", "new"), [(14, 24), (24, 14), (3, 1), (1, 4), (7, 7), (2, 5)])
def test_positions_are_interpolated_as_the_release_does(old, new, rng):
    """The release calls `scipy.ndimage.zoom` of order 1; the class token's embedding stays."""
    position = rng.normal(size=(1 + old**2, 6)).astype(np.float32)
    grid = np.float64(position[1:]).reshape(old, old, 6)
    zoomed = scipy.ndimage.zoom(grid, (new / old, new / old, 1), order=1)
    result = interpolate_positions(position, new)
    np.testing.assert_array_equal(result[0], position[0])
    np.testing.assert_allclose(result[1:], zoomed.reshape(new**2, 6), atol=2e-6)
    if old == 2:
        corners = result[1:].reshape(5, 5, 6)
        np.testing.assert_allclose(corners[2, 2], position[1:].mean(axis=0), atol=1e-6)


def test_layers_of_another_grid_stand_in_a_setup(arrays, rng):
    stored = StoredImages.of(images_of(rng, 16), jnp.zeros(3), jnp.ones(3))
    setup = flax_setup(NET, stored, softmax_objective(), optax.sgd(0.1))
    params, _ = with_layers(setup, vit_layers(NET, arrays, 16)).init(jax.random.key(0))
    assert params["position"].shape == (17, NET.width)
    inputs = arrays["Transformer/posembed_input/pos_embedding"][0]
    np.testing.assert_allclose(params["position"][jnp.array([0, 1, 4, 13, 16])], inputs, atol=1e-6)
    np.testing.assert_array_equal(params["cls"], arrays["cls"][0, 0])


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("cls", None, "^cls is missing; give all of a ViT's of this depth"),
        ("Transformer/encoderblock_2/x", np.zeros(2), "block_2/x is not an array of the network"),
        ("embedding/kernel", np.zeros((4, 4, 3, 13)), r"\(4, 4, 3, 13\), not \(4, 4, 3, 12\)"),
        (
            "Transformer/encoderblock_1/MultiHeadDotProductAttention_1/query/kernel",
            np.zeros((12, 2, 6)),
            r"shape \(12, 2, 6\), not \(12, 3, 4\)",
        ),
        (
            "Transformer/posembed_input/pos_embedding",
            np.zeros((1, 4, 12)),
            "^3 position embeddings do not form a square grid",
        ),
        (
            "Transformer/posembed_input/pos_embedding",
            np.zeros((1, 5, 13)),
            r"pos_embedding has the shape \(1, 5, 13\), not \(1, 5, 12\)",
        ),
    ],
)
def test_a_missing_or_wrong_array_is_named(arrays, name, change, message):
    arrays[name] = change
    if change is None:
        del arrays[name]
    refused(message, lambda: vit_layers(NET, arrays, SIDE))


def test_patches_and_heads_that_do_not_divide_are_refused():
    with pytest.raises(ValueError, match="patches of 4 pixels do not divide images of 8 x 6"):
        NET.init(jax.random.key(0), jnp.zeros((1, 8, 6, 3)), False)
    with pytest.raises(ValueError, match="5 heads do not divide the width 12"):
        NET.clone(heads=5).init(jax.random.key(0), jnp.zeros((1, 8, 8, 3)), False)
    with pytest.raises(ValueError, match="vit takes 0 or 4 or 5 whole numbers"):
        named_network("vit:4,12", NetworkRequest(5, 8))


def test_names_give_the_sizes():
    full = VisionTransformer(7, dtype="float32")
    assert named_network("vit", NetworkRequest(7, 224)).shape == full
    result = named_network("vit:4,12,2,3", NetworkRequest(5, 8, "bfloat16"))
    assert result.shape == VisionTransformer(5, 4, 12, 2, 3, 48, dtype="bfloat16")
    assert named_network("vit:4,12,2,3,20", NetworkRequest(5, 8)).make("cosine").head == "cosine"


def test_attention_to_one_token_that_matches_is_that_token_s_value(rng):
    value = jnp.float32(rng.normal(size=(3, 1, 3)))
    one_hot = 40 * jnp.eye(3)[:, None]
    np.testing.assert_allclose(attention(one_hot, one_hot, value), value, atol=1e-6)
    mean = np.tile(value.mean(axis=0), (3, 1, 1))
    np.testing.assert_allclose(attention(0 * one_hot, one_hot, value), mean, atol=1e-6)


def test_prompts_and_functions_of_blocks_that_do_not_exist_are_refused(rng):
    images = images_of(rng)
    params = NET.init(jax.random.key(1), images, False)
    prefixes = {f"block{number}": jnp.ones((3, 2, 4, 12)) for number in (1, 2, 3)}
    refused(
        "^prompts holds block2, block3, and the transformer has block0, block1; give these names",
        lambda: NET.apply(params, images, False, Prompts(prefixes=prefixes)),
    )
    refused(
        "^parallel holds block_0, and the transformer has block0, block1; give",
        lambda: NET.apply(params, images, False, parallel={"block_0": jnp.zeros_like}),
    )
