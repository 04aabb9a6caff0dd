"""Crops and mirrors against windows cut by hand."""

import jax
import jax.numpy as jnp
import numpy as np

from everlight.models.augmentation import crop_and_flip, resized_crop_and_flip


def test_every_result_is_a_window_or_its_mirror_and_all_occur_alike():
    image = np.arange(1, 19, dtype=np.uint8).reshape(3, 2, 3)
    padded = np.zeros((5, 4, 3), np.uint8)
    padded[1:4, 1:3] = image
    windows = [padded[r : r + 3, c : c + 2] for r in range(3) for c in range(3)]
    expected = np.stack([w[:, ::s] for w in windows for s in (1, -1)])
    keys = jax.random.split(jax.random.key(0), 9_000)
    result = jax.vmap(lambda key: crop_and_flip(jnp.asarray(image), key, 1))(keys)
    assert result.dtype == np.uint8
    same = (np.asarray(result)[:, None] == expected).all(axis=(2, 3, 4))
    np.testing.assert_array_equal(same.sum(axis=1), 1)
    # 9,000 draws over 18 places are 500 each, with a deviation of 22.
    np.testing.assert_allclose(same.sum(axis=0), 500, atol=110)


def test_a_resized_crop_is_bilinear_and_has_the_sides_and_places_of_its_law():
    """The picture shows its own coordinates: a bilinear crop is a ramp, cut at the border."""
    rows, columns = np.mgrid[:12, :16]
    image = np.stack([rows, columns], axis=-1).astype(np.float32)
    keys = jax.random.split(jax.random.key(0), 2000)
    result = jax.jit(jax.vmap(lambda key: resized_crop_and_flip(jnp.asarray(image), key)))(keys)
    result = np.asarray(result, float)
    flipped = result[:, 6, 8, 1] < result[:, 6, 7, 1]
    np.testing.assert_allclose(flipped.mean(), 0.5, atol=0.045)
    result[flipped] = result[flipped, :, ::-1]
    parts, firsts = [], []
    for side, ramp in ((12, result[:, :, 8, 0]), (16, result[:, 6, :, 1])):
        slope = ramp[:, side // 2] - ramp[:, side // 2 - 1]
        first = ramp[:, side // 2] - slope * (side / 2 + 0.5) + 0.5
        expected = first[:, None] + (np.arange(side) + 0.5) * slope[:, None] - 0.5
        np.testing.assert_allclose(ramp, np.clip(expected, 0, side - 1), atol=2e-4)
        parts.append(slope * side)
        firsts.append(first)
        assert first.min() > -1e-3
        assert (first + parts[-1]).max() < side + 1e-3
    height, width = parts
    area, ratio = height * width / 192, width / height
    assert 0.199 < area.min() < 0.21
    assert 0.749 < ratio.min() < 0.76
    # Areas up to 0.5 cut no side: uniform, as are the logarithm of the ratio and the place.
    full = area < 0.5
    np.testing.assert_allclose(area[full].mean(), 0.35, atol=0.02)
    np.testing.assert_allclose(np.log(ratio[full]).std(), np.log(4 / 3) / 3**0.5, atol=0.015)
    place = firsts[0][full] / (12 - height[full])
    np.testing.assert_allclose([place.mean(), place.std()], [0.5, 12**-0.5], atol=0.04)


def test_the_shift_is_drawn_before_the_images_are_read():
    """A barrier stands between: without it a GPU hashes the key again for every value."""
    keys = jax.eval_shape(lambda: jax.random.split(jax.random.key(0), (4, 8)))
    images = jax.ShapeDtypeStruct((4, 8, 16, 12, 3), jnp.uint8)
    program = jax.jit(jax.vmap(jax.vmap(crop_and_flip)))
    text = jax.export.export(program, platforms=["cuda"])(images, keys).mlir_module()
    barriers = [line for line in text.splitlines() if "stablehlo.optimization_barrier" in line]
    assert len(barriers) == 1
    assert "tensor<4x8x2xi32>, tensor<4x8xi1>" in barriers[0]
