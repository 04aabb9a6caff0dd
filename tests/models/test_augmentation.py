"""Crops and mirrors against windows cut by hand."""

import jax
import jax.numpy as jnp
import numpy as np

from everlight.models.augmentation import crop_and_flip


def test_every_result_is_a_window_or_its_mirror_and_all_occur_alike():
    image = np.arange(1, 19, dtype=np.uint8).reshape(3, 2, 3)
    padded = np.zeros((5, 4, 3), np.uint8)
    padded[1:4, 1:3] = image
    windows = [padded[r : r + 3, c : c + 2] for r in range(3) for c in range(3)]
    expected = np.stack([w[:, ::s] for w in windows for s in (1, -1)])
    keys = jax.random.split(jax.random.key(0), 9_000)
    found = jax.vmap(lambda key: crop_and_flip(jnp.asarray(image), key, 1))(keys)
    assert found.dtype == np.uint8
    same = (np.asarray(found)[:, None] == expected).all(axis=(2, 3, 4))
    np.testing.assert_array_equal(same.sum(axis=1), 1)
    # 9,000 draws over 18: a deviation of 22 around 500.
    np.testing.assert_allclose(same.sum(axis=0), 500, atol=110)
