"""Weights by layer name: what is read, and what is refused with which words."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.models.caffe_nets import LinearClassifier, with_weights
from everlight_data.errors import DataError, MissingDataError
from everlight_data.pretrained.caffe_weights import load_caffe_weights


def test_a_head_as_caffe_shapes_it_scores_as_caffe_does(tmp_path, rng):
    weight, bias, features = rng.normal(size=(3, 5)), rng.normal(size=3), rng.normal(size=(2, 5))
    np.savez(tmp_path / "net.npz", **{"head/weight": weight, "head/bias": bias})
    arrays = load_caffe_weights(tmp_path / "net.npz")
    assert {array.dtype for array in arrays.values()} == {np.dtype(np.float32)}
    net, inputs = LinearClassifier(3), jnp.asarray(features, jnp.float32)
    params = with_weights(net.init(jax.random.key(0), inputs, False)["params"], arrays)
    logits = net.apply({"params": params}, inputs, False).logits
    np.testing.assert_allclose(logits, features @ weight.T + bias, rtol=1e-5, atol=1e-6)


def test_missing_and_other_files_are_named(tmp_path):
    with pytest.raises(MissingDataError, match=r"net\.npz does not exist.*LAYER/weight"):
        load_caffe_weights(tmp_path / "net.npz")
    (tmp_path / "net.npz").write_bytes(b"PK\x03\x04 no zip")
    with pytest.raises(DataError, match=r"net\.npz is damaged or not the expected file"):
        load_caffe_weights(tmp_path / "net.npz")
    np.save(tmp_path / "one.npy", np.zeros(3))
    with pytest.raises(DataError, match=r"one\.npy is damaged or not the expected file"):
        load_caffe_weights(tmp_path / "one.npy")
    np.savez(tmp_path / "empty.npz")
    with pytest.raises(DataError, match="holds no array"):
        load_caffe_weights(tmp_path / "empty.npz")


@pytest.mark.parametrize("array", [np.array(["a"]), np.array([1.0, np.nan]), np.array([True])])
def test_arrays_of_anything_but_finite_numbers_are_named(tmp_path, array):
    np.savez(tmp_path / "net.npz", **{"conv1/weight": array})
    with pytest.raises(DataError, match=r"conv1/weight is .* all are finite numbers"):
        load_caffe_weights(tmp_path / "net.npz")
