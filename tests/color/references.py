"""References in float64 NumPy that several tests of colours share, and the NUS thumbnails."""

import jax.numpy as jnp
import numpy as np


def unit(vector):
    return np.asarray(vector, np.float64) / np.linalg.norm(vector)


def least_squares(source, target, weights=None):
    """Return the least-squares solution by LAPACK's SVD; the library uses Gram-Schmidt."""
    root = np.ones(len(source)) if weights is None else np.sqrt(np.float64(weights))
    source, target = np.float64(source) * root[:, None], np.float64(target) * root[:, None]
    return np.linalg.lstsq(source, target, rcond=None)[0]


def relative_error(estimate, truth):
    estimate, truth = np.asarray(estimate, np.float64), np.asarray(truth, np.float64)
    return np.linalg.norm(estimate - truth) / np.linalg.norm(truth)


def convolution(maps, layer, mode="constant"):
    """Sum over the 3x3 neighbours; `mode` is NumPy's padding of the border."""
    height, width, _ = maps.shape
    padded = np.pad(maps, ((1, 1), (1, 1), (0, 0)), mode=mode)
    result = np.zeros((height, width, layer["kernel"].shape[-1])) + layer["bias"]
    for down, right in np.ndindex(3, 3):
        part = padded[down : down + height, right : right + width]
        result += part @ layer["kernel"][down, right]
    return result


def nus_thumbnails(real_data, saturation):
    """Return images, masks and illuminants of the D5200's 200; its file has 117 of the D40 too."""
    with np.load(real_data("nus8_64x64/NikonD5200.npz")) as data:
        selected = np.char.startswith(data["names"], "NikonD5200_")
        images = jnp.asarray(data["images_u16"][selected] / 65535, jnp.float32)
        illuminants = jnp.asarray(data["illuminant_rgb"][selected], jnp.float32)
    assert len(images) == 200
    brightest = jnp.max(images, axis=-1)
    masks = ((brightest > 0) & (brightest < saturation)).astype(jnp.float32)
    return images, masks, illuminants


def degrees(estimate, truth):
    cosine = (estimate * truth).sum(-1)
    cosine /= np.linalg.norm(estimate, axis=-1) * np.linalg.norm(truth, axis=-1)
    return np.degrees(np.arccos(np.clip(cosine, -1, 1)))


def mapped(homography, points):
    """Return the points under a homography."""
    lifted = np.column_stack([points, np.ones(len(points))]) @ np.asarray(homography, float).T
    return lifted[:, :2] / lifted[:, 2:]
