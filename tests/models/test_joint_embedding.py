"""The joint embedding against loops in float64, and who depends on what."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.models.joint_embedding import JointEmbedding

NET = JointEmbedding(size=3, trunk=(4,), branch=2, hidden=5)
IMAGES = np.random.default_rng(0).normal(size=(2, 8, 4, 3)).astype(np.float32)
BRANCHES = {"subject": ("S",), "relation": ("P", "O")}


@pytest.fixture(scope="module")
def variables():
    return jax.jit(lambda key: NET.init(key, jnp.asarray(IMAGES), False))(jax.random.key(0))


@jax.jit
def outputs_of(variables):
    return NET.apply(variables, jnp.asarray(IMAGES), False)


def block(images, layer):
    """Compute a 3x3 convolution padded by one, ReLU and the greatest of 2x2, pixel by pixel."""
    kernel, bias = (np.asarray(layer[name], np.float64) for name in ("kernel", "bias"))
    padded = np.pad(images, ((0, 0), (1, 1), (1, 1), (0, 0)))
    _, height, width, _ = images.shape
    convolved = np.zeros((*images.shape[:3], kernel.shape[-1]))
    for row in range(height):
        for column in range(width):
            patch = padded[:, row : row + 3, column : column + 3]
            convolved[:, row, column] = np.einsum("bijc,ijcf->bf", patch, kernel) + bias
    corners = [convolved[:, i::2, j::2] for i in (0, 1) for j in (0, 1)]
    return np.maximum(np.max(corners, axis=0), 0)


def dense(inputs, layer):
    return inputs @ np.asarray(layer["kernel"], np.float64) + np.asarray(layer["bias"])


def test_outputs_are_subject_predicate_and_object_of_two_branches(variables):
    params = variables["params"]
    shared = block(np.float64(IMAGES), params["trunk_0"])
    pieces, features = [], []
    for branch, names in BRANCHES.items():
        current = block(shared, params[f"{branch}_convolution"]).reshape(2, -1)
        features.append(np.maximum(dense(current, params[f"{branch}_dense"]), 0))
        pieces += [dense(features[-1], params[name]) for name in names]
    result = outputs_of(variables)
    np.testing.assert_allclose(result.logits, np.concatenate(pieces, axis=1), atol=1e-5)
    np.testing.assert_allclose(result.features, np.concatenate(features, axis=1), atol=1e-5)


def test_the_trunk_learns_from_all_pieces_and_a_branch_from_its_own(variables):
    slopes = jax.jit(jax.jacrev(lambda v: jnp.sum(outputs_of(v).logits.reshape(2, 3, 3), (0, 2))))
    result = jax.tree.map(
        lambda leaf: np.any(leaf != 0, axis=tuple(range(1, leaf.ndim))), slopes(variables)["params"]
    )
    np.testing.assert_array_equal(result["trunk_0"]["kernel"], [1, 1, 1])
    np.testing.assert_array_equal(result["subject_dense"]["kernel"], [1, 0, 0])
    np.testing.assert_array_equal(result["relation_dense"]["kernel"], [0, 1, 1])
    np.testing.assert_array_equal(result["P"]["kernel"], [0, 1, 0])


def test_size_by_hand():
    """Three halvings leave 8 x 8 of 64 x 64 pixels in the default net."""
    shapes = jax.eval_shape(
        lambda: JointEmbedding().init(jax.random.key(0), jnp.zeros((1, 64, 64, 3)), False)
    )
    trunk = (27 * 32 + 32) + (9 * 32 * 64 + 64)
    branch = (9 * 64 * 64 + 64) + (64 * 64 * 256 + 256)
    result = sum(leaf.size for leaf in jax.tree.leaves(shapes["params"]))
    assert result == trunk + 2 * branch + 3 * (256 * 300 + 300)


def test_sides_that_cannot_be_halved_are_refused():
    with pytest.raises(TypeError, match="reshape"):
        NET.init(jax.random.key(0), jnp.zeros((1, 6, 8, 3)), False)
