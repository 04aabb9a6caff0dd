"""The heads against closed forms."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everlight.models.heads import (
    CosineHead,
    LocalSimilarityHead,
    cosines,
    local_similarities,
    make_head,
)


def parameters(scale, kernel):
    return {"params": {"scale": jnp.float32(scale), "kernel": jnp.float32(kernel)}}


def test_logits_are_scaled_cosines():
    """Features are at 0, 60 and 90 degrees, classes at 0, 60, 120 and 180."""
    angles = np.deg2rad([0, 60, 90])
    features = np.stack([np.cos(angles), np.sin(angles)], axis=1) * [[0.1], [1], [30]]
    angles = np.deg2rad([0, 60, 120, 180])
    kernel = np.stack([np.cos(angles), np.sin(angles)]) * [7, 0.2, 1, 1]
    logits = CosineHead(4).apply(parameters(3, kernel), jnp.float32(features))
    root = np.sqrt(0.75)
    expected = 3 * np.array([[1, 0.5, -0.5, -1], [0.5, 1, 0.5, -0.5], [0, root, root, 0]])
    np.testing.assert_allclose(logits, expected, atol=2e-6)


def test_local_similarities_by_angle():
    """Proxies are at 0, 60, 120 and 120 degrees: cosines with 0 degrees are 1, 0.5 and -0.5."""
    angles = np.deg2rad([[0, 120], [60, 120]])
    kernel = np.stack([np.cos(angles), np.sin(angles)]) * [[7, 0.2], [1, 3]]
    assert kernel.shape == (2, 2, 2), "features, proxies, classes"
    features = jnp.float32([[5, 0], [0, 0]])
    result = local_similarities(features, jnp.float32(kernel), "paper")
    first = (np.exp(1) + 0.5 * np.exp(0.5)) / (np.exp(1) + np.exp(0.5))
    np.testing.assert_allclose(result, [[first, -0.5], [0, 0]], atol=2e-6)
    # Squared distances are 0 and 1, and 3; a zero vector has cosine 0, so nearness -2.
    logits = LocalSimilarityHead(2, 2).apply(parameters(3, kernel), features)
    first = -np.exp(-1) / (1 + np.exp(-1))
    np.testing.assert_allclose(logits, [[3 * first, -9], [-6, -6]], atol=4e-6)


def test_one_proxy_per_class_is_its_nearness(rng):
    features, kernel = (jnp.float32(rng.normal(size=shape)) for shape in ((4, 5), (5, 3)))
    result = local_similarities(features, kernel[:, None], "paper")
    np.testing.assert_allclose(result, cosines(features, kernel), atol=1e-6)
    unit = [
        np.asarray(item / np.linalg.norm(item, axis=-1, keepdims=True))
        for item in (features, kernel.T)
    ]
    away = np.sum((unit[0][:, None] - unit[1]) ** 2, axis=2)
    np.testing.assert_allclose(local_similarities(features, kernel[:, None]), -away, atol=2e-6)


@given(st.integers(0, 2**32 - 1), st.floats(1e-6, 1e6))
def test_lengths_do_not_matter_and_scores_stay_within_the_scale(seed, length):
    rng = np.random.default_rng(seed)
    features, kernel = jnp.float32(rng.normal(size=(5, 8))), jnp.float32(rng.normal(size=(8, 6)))
    scores = cosines(features, kernel)
    assert np.abs(scores).max() <= 1 + 1e-6
    np.testing.assert_allclose(cosines(length * features, kernel / length), scores, atol=2e-6)


def test_gradients_by_hand(rng):
    """d cos / d f is (w^ - cos f^) / |f|, at a right angle to f; d logit / d scale is cos."""
    features, kernel = (np.float32(rng.normal(size=shape)) for shape in ((1, 5), (5, 1)))
    unit, weight = features[0] / np.linalg.norm(features), kernel[:, 0] / np.linalg.norm(kernel)
    cosine = unit @ weight

    def logit(variables, features):
        return CosineHead(1).apply(variables, features)[0, 0]

    variables = parameters(2.5, kernel)
    of_params, of_features = jax.grad(logit, (0, 1))(variables, jnp.asarray(features))
    expected = 2.5 * (weight - cosine * unit) / np.linalg.norm(features)
    np.testing.assert_allclose(of_features[0], expected, atol=1e-6)
    expected = 2.5 * (unit - cosine * weight) / np.linalg.norm(kernel)
    np.testing.assert_allclose(of_params["params"]["kernel"][:, 0], expected, atol=1e-6)
    assert float(of_params["params"]["scale"]) == pytest.approx(cosine, abs=1e-6)


def test_zero_features_have_zero_scores_and_finite_gradients():
    gradient = jax.grad(lambda f: jnp.sum(cosines(f, jnp.ones((3, 2)))))(jnp.zeros((1, 3)))
    assert np.all(np.isfinite(gradient))
    assert not np.any(cosines(jnp.zeros((1, 3)), jnp.ones((3, 2))))


def test_initial_values():
    """Cosine heads are uniform within 1/sqrt(64): deviation 1/sqrt(3 * 64); linear has gain 1."""
    features = jnp.zeros((1, 64))
    cosine = make_head("cosine", 900).init(jax.random.key(0), features)["params"]
    assert np.abs(cosine["kernel"]).max() == pytest.approx(0.125, rel=1e-3)
    assert np.std(cosine["kernel"]) == pytest.approx(0.125 / np.sqrt(3), rel=0.02)
    assert np.mean(cosine["kernel"]) == pytest.approx(0, abs=0.002)
    assert cosine["scale"] == 1
    proxies = make_head("local similarity", 90).init(jax.random.key(0), features)["params"]
    assert np.abs(proxies["kernel"]).max() == pytest.approx(0.125, rel=1e-3)
    assert np.std(proxies["kernel"]) == pytest.approx(0.125 / np.sqrt(3), rel=0.02)
    assert proxies["scale"] == 1
    linear = make_head("linear", 900).init(jax.random.key(0), features)["params"]
    assert np.std(linear["kernel"]) == pytest.approx(0.125, rel=0.02)
    assert not np.any(linear["bias"])


def test_sizes():
    features = jnp.zeros((1, 64))
    sizes = (("linear", 1, 115), ("cosine", 1, 1), ("local similarity", 10, 1))
    for kind, proxies, extra in sizes:
        params = jax.eval_shape(make_head(kind, 115).init, jax.random.key(0), features)
        assert sum(leaf.size for leaf in jax.tree.leaves(params)) == 64 * proxies * 115 + extra
