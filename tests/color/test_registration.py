"""Registration against known affine maps of scenes that are functions of the place."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.color.registration import register_images, registered_blocks
from everlight.color.transforms import fit_color_transform

CAMERA_CHANGE = np.array([[0.85, 0.15, 0.05], [0.2, 0.8, 0.2], [0.03, 0.2, 0.9]])
SIDE = 64
register = jax.jit(register_images)


def scene(seed):
    """Return a function from places (x, y) in pixels to positive colours of three channels."""
    rng = np.random.default_rng(seed)
    waves = rng.normal(0, 0.25, (24, 2))
    phases, amplitudes = rng.uniform(0, 6.3, (24, 3)), rng.normal(0, 0.25, (24, 1))
    # Channels share most of their waves, as surfaces of one brightness do.
    phases[:16] = phases[:16, :1]

    def colors(places):
        angles = places @ waves.T
        return np.exp(np.einsum("...kc,ko->...c", np.sin(angles[..., None] + phases), amplitudes))

    return colors


def grid(height, width):
    y, x = np.meshgrid(np.arange(height), np.arange(width), indexing="ij")
    return np.stack([x, y], axis=-1).astype(float)


def views(seed, affine, shape=(SIDE, SIDE)):
    """Return both images; the second shows main place p at `affine` of p, by other sensors."""
    colors = scene(seed)
    inverse = np.linalg.inv(affine)
    places = grid(*shape) @ inverse[:2, :2].T + inverse[:2, 2]
    return colors(grid(SIDE, SIDE)), 0.3 * colors(places) @ CAMERA_CHANGE


def about_center(turn, zoom, right, down, shape=(SIDE, SIDE)):
    """Return an affine map of pixels that takes the centre to the centre and a shift."""
    angle = np.radians(turn)
    linear = zoom * np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    height, width = shape
    shift = np.array([(width - 1) / 2 + right, (height - 1) / 2 + down])
    return np.block(
        [
            [linear, (shift - linear @ np.full(2, (SIDE - 1) / 2))[:, None]],
            [np.zeros(2), np.ones(1)],
        ]
    )


def registered(main, second):
    masks = (jnp.ones(image.shape[:2]) for image in (main, second))
    parts = zip(map(jnp.float32, (main, second)), masks, strict=True)
    return register(*(part for pair in parts for part in pair))


CORNERS = np.array([[8, 8, 1], [55, 8, 1], [8, 55, 1], [55, 55, 1]])


@pytest.mark.parametrize(
    ("turn", "zoom", "right", "down"),
    [(0, 1, 0, 0), (2, 1.1, 5, -3), (-3, 0.85, -7, 4), (180, 1, 2, 1), (178, 1.15, -4, 5)],
)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_map_between_the_cameras_is_recovered(turn, zoom, right, down, seed):
    affine = about_center(turn, zoom, right, down)
    main, second = views(seed, affine)
    result = registered(main, second)
    np.testing.assert_allclose(
        CORNERS @ np.asarray(result.homography).T, CORNERS @ affine.T, atol=0.5
    )
    assert result.correlation > 0.98
    inside = grid(SIDE, SIDE) @ affine[:2, :2].T + affine[:2, 2]
    share = np.all((inside >= 0) & (inside <= SIDE - 1), axis=-1).mean()
    np.testing.assert_allclose(result.overlap, share, atol=0.08)


def test_a_second_camera_of_another_size_is_registered():
    shape = (48, 80)
    affine = about_center(1, 0.9, 3, -2, shape)
    result = registered(*views(2, affine, shape))
    np.testing.assert_allclose(
        CORNERS @ np.asarray(result.homography).T, CORNERS @ affine.T, atol=0.5
    )


def test_masked_pixels_have_no_part():
    affine = about_center(1, 1.05, 2, 2)
    main, second = views(3, affine)
    masks = np.ones((2, SIDE, SIDE), np.float32)
    masks[0, 20:30, 20:30] = masks[1, 5:15, 40:50] = 0
    main[20:30, 20:30], second[5:15, 40:50] = 50, 50
    result = register(*(jnp.float32(x) for x in (main, masks[0], second, masks[1])))
    np.testing.assert_allclose(
        CORNERS @ np.asarray(result.homography).T, CORNERS @ affine.T, atol=0.5
    )


@pytest.mark.parametrize("seed", [10, 20, 30])
def test_different_scenes_do_not_correlate(seed):
    main, _ = views(seed, np.eye(3))
    _, second = views(seed + 1, np.eye(3))
    assert registered(main, second).correlation < 0.75


def test_black_images_do_not_correlate():
    main, _ = views(0, np.eye(3))
    assert not registered(main, np.zeros_like(main)).correlation > 0.8


def test_blocks_of_both_cameras_have_the_transform_between_their_sensors():
    affine = about_center(180, 1.05, 3, 2)
    main, second = (jnp.float32(image) for image in views(4, affine))
    blocks = registered_blocks(main, jnp.ones((SIDE, SIDE)), second, jnp.ones((SIDE, SIDE)))
    assert blocks.main.shape == (8, 8, 3)
    assert 30 < blocks.mask.sum() < 64
    colors = blocks.main[blocks.mask], blocks.second[blocks.mask]
    fit = fit_color_transform(*colors)
    np.testing.assert_allclose(fit.transform, 0.3 * CAMERA_CHANGE, atol=0.02)
