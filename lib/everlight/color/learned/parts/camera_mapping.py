"""Images as another camera would have taken them, by both cameras' matrices from XYZ.

Afifi et al. 2021 (C5, section 4) map white-balanced images through XYZ to another camera and give
them an illuminant like those of that camera's images. Kim et al. 2025 (CCMNet) map the illuminant
too, and mix both cameras' images into one of an imaginary camera.

Differs from both codes (mahmoudnafifi/C5 at dca9236, `src/aug_ops.py`; DY112/CCMNet at 298275b,
`data_scripts/gen_imaginary_raw.py`) in:

- Matrices from XYZ to camera colours are scaled so that white stays white, in place of matrices
  from white-balanced colours to XYZ. C5 has a camera's matrix of daylight (D65) for all
  illuminants.
- CCMNet interpolates both matrices of a camera at the new illuminant's temperature, as the code
  does; white is then that illuminant. Where no camera has two matrices, white is D65.
- Mapped colours are not clipped at 1.

Differs from C5's code in:

- The neighbours of an illuminant are those of the mapped illuminant's chromaticity, in place of
  temperature, noise, exposure and aperture.
- Green is regressed on red over the neighbours by a line, in place of a polynomial over all images
  of a camera. No drawn channel falls below a share of 0.02.
- A view belongs to one other camera. The code maps an image to every target camera, which may be
  its own, and takes images of all temperatures equally often.
- Images are neither cropped nor rejected; the code rejects dark and clipped ones.
- The code's `apply_cst` overwrites red, and then green, before it computes the other channels from
  them. In everlight the colours are multiplied by the matrix.

CCMNet's code exchanges the weights of both matrices (see `camera_calibration`); with one matrix per
camera this makes no difference.
"""

from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from everlight.checks import Stacked, checked
from everlight.color.camera_calibration import (
    CameraCalibration,
    calibrated_matrix,
    planckian_chromaticity,
)
from everlight.color.transforms import inverse_transform
from everlight.precision import matrix_product
from everlight.trees import rows_of

WHITE = (0.3127 / 0.3290, 1.0, (1 - 0.3127 - 0.3290) / 0.3290)
"""XYZ of D65."""
NEIGHBORS = 15
SPREAD_RED, SPREAD_GREEN = 0.7, 1.2
"""Standard deviations of the noise on an illuminant's shares of red and green, as C5 has them,
relative to those of the neighbours."""
KELVIN = (1_667.0, 25_000.0)
"""Range of the temperatures of illuminants."""
STEPS = 1_024
"""Number of temperatures in that range, evenly spaced in inverse temperature."""
ITERATIONS = 20
"""Number of times that a temperature's matrix gives the next temperature, as in CCMNet's code."""
MIN_SHARE = 0.02
"""Smallest share of a channel in a drawn illuminant."""


class TakenImages(NamedTuple):
    """Illuminants and cameras of images; white-balanced colours are those under these illuminants.

    Attributes:
      illuminants: illuminants of any scale.
      cameras: number of the camera of each image, from 0.
    """

    illuminants: Float[Array, "n 3"]
    cameras: Int[Array, "n"]


class MappedView(NamedTuple):
    """An image as another camera sees it.

    Attributes:
      transform: matrix of the image's colours, as rows, `pixels @ transform`.
      illuminant: illuminant of the mapped image.
      camera: number of the other camera.
      share: share of the image's own camera; 0 is the other camera alone.
    """

    transform: Float[Array, "3 3"]
    illuminant: Float[Array, "3"]
    camera: Int[Array, ""]
    share: Float[Array, ""]


@checked
def balanced_transform(
    source: Float[Array, "3 3"],
    target: Float[Array, "3 3"],
    white: Float[Array, "3"] | None = None,
) -> Float[Array, "3 3"]:
    """Return the matrix from white-balanced colours of one camera to those of another, as rows.

    It keeps white, and so its columns add up to 1.

    Args:
      source: matrix from XYZ to the first camera's colours, as columns.
      target: matrix to the second camera's.
      white: XYZ of white, by default of D65.
    """
    white = jnp.array(WHITE) if white is None else white
    first, second = (matrix_product(matrix, white) for matrix in (source, target))
    between = matrix_product(inverse_transform(source).T * first[:, None], target.T)
    return between / second


@checked
def mapped_illuminant(
    illuminant: Float[Array, "3"], source: Float[Array, "3 3"], target: Float[Array, "3 3"]
) -> Float[Array, "3"]:
    """Return an illuminant in another camera's colours, of sum 1.

    Args:
      illuminant: illuminant of any scale in the first camera's colours.
      source: matrix from XYZ to the first camera's colours, as columns.
      target: matrix to the second camera's.
    """
    xyz = matrix_product(inverse_transform(source), illuminant)
    return drawable(matrix_product(target, xyz))


@checked
def neighboring_illuminant(
    key: PRNGKeyArray, center: Float[Array, "3"], taken: TakenImages, camera: Int[Array, ""]
) -> Float[Array, "3"]:
    """Draw an illuminant, of sum 1, like the camera's own ones next to `center`.

    The nearest ones by shares of red and green are weighted by the softmax of 1 - d / sum(d).

    Args:
      key: key of the noise.
      center: illuminant of sum 1.
      taken: images whose illuminants are drawn from.
      camera: camera of the illuminants; it has one image or more.
    """
    shares = taken.illuminants / jnp.sum(taken.illuminants, axis=1, keepdims=True)
    squares = jnp.sum((shares - center)[:, :2] ** 2, axis=1)
    away = jnp.where(taken.cameras == camera, jnp.sqrt(squares), jnp.inf)
    negative_distances, rows = jax.lax.top_k(-away, min(NEIGHBORS, len(away)))
    known = jnp.isfinite(negative_distances)
    distances = jnp.where(known, -negative_distances, 0)
    total = jnp.sum(distances)
    scores = 1 - distances / jnp.where(total > 0, total, 1)
    weights = jax.nn.softmax(jnp.where(known, scores, -jnp.inf))
    red, green, _ = shares[rows].T
    count = jnp.sum(known)
    means = [jnp.sum(jnp.where(known, share, 0)) / count for share in (red, green)]
    off_red, off_green = (
        jnp.where(known, share - mean, 0) for share, mean in zip((red, green), means, strict=True)
    )
    spread, noise = jnp.sum(off_red**2), jax.random.normal(key, (2,))
    slope = jnp.sum(off_red * off_green) / jnp.where(spread > 0, spread, 1)
    drawn = jnp.sum(weights * red) + SPREAD_RED * noise[0] * jnp.sqrt(spread / count)
    line = means[1] + slope * (drawn - means[0])
    across = line + SPREAD_GREEN * noise[1] * jnp.sqrt(jnp.sum(off_green**2) / count)
    return drawable(jnp.stack([drawn, across, 1 - drawn - across]))


def drawable(illuminant: Float[Array, "3"]) -> Float[Array, "3"]:
    """Return an illuminant of sum 1 with every channel positive."""
    shares = jnp.maximum(illuminant / jnp.sum(illuminant), MIN_SHARE)
    return shares / jnp.sum(shares)


def draw_camera(
    key: PRNGKeyArray, cameras: Int[Array, "n"], camera: Int[Array, ""]
) -> Int[Array, ""]:
    """Draw another camera, each with equal probability; the same one if there is no other."""
    count = jnp.sum(cameras[:, None] == cameras[None, :], axis=1)
    other = (cameras != camera) | jnp.all(cameras == camera)
    logits = jnp.where(other, -jnp.log(count), -jnp.inf)
    return cameras[jax.random.categorical(key, logits)]


@checked
def draw_view(
    key: PRNGKeyArray,
    row: Int[Array, ""],
    taken: TakenImages,
    matrices: Float[Array, "cameras 3 3"],
) -> MappedView:
    """Draw how an image looks to another camera under one of that camera's illuminants (C5).

    Args:
      key: key of the camera and the illuminant.
      row: number of the image.
      taken: all images.
      matrices: matrix from XYZ to each camera's colours; a single one serves all cameras, which
        then differ by von Kries factors alone.
    """
    which, noise = jax.random.split(key)
    source_camera = taken.cameras[row]
    camera = draw_camera(which, taken.cameras, source_camera)
    source, target = matrix_of(matrices, source_camera), matrix_of(matrices, camera)
    center = mapped_illuminant(taken.illuminants[row], source, target)
    illuminant = neighboring_illuminant(noise, center, taken, camera)
    balanced = balanced_transform(source, target) / taken.illuminants[row][:, None]
    return MappedView(balanced * illuminant, illuminant, camera, jnp.zeros(()))


@checked
def illuminant_temperature(
    calibration: CameraCalibration, illuminant: Float[Array, "3"]
) -> Float[Array, ""]:
    """Return the correlated colour temperature in kelvin of an illuminant in a camera's colours.

    The matrix depends on the temperature, and the temperature on the matrix: both are found in
    turn (DNG specification 1.4, chapter 6). The temperature is that of the nearest Planckian
    chromaticity, beginning with the matrix of the higher temperature.

    Args:
      calibration: the camera's matrices.
      illuminant: illuminant of any scale.
    """
    low, high = KELVIN
    temperatures = 1 / jnp.linspace(1 / high, 1 / low, STEPS)
    locus = jax.vmap(planckian_chromaticity)(temperatures)

    def nearest(_: Int[Array, ""], kelvin: Float[Array, ""]) -> Float[Array, ""]:
        matrix = calibrated_matrix(calibration, kelvin)
        xyz = matrix_product(inverse_transform(matrix), illuminant)
        away = jnp.sum((locus - xyz[:2] / jnp.sum(xyz)) ** 2, axis=1)
        return temperatures[jnp.argmin(away)]

    return jax.lax.fori_loop(0, ITERATIONS, nearest, calibration.temperatures[-1])


def interpolated_matrix(
    calibration: CameraCalibration, temperature: Float[Array, ""]
) -> Float[Array, "3 3"]:
    """Return the matrix at a temperature, the stated one without rounding where it is single."""
    first, last = calibration.matrices[0], calibration.matrices[-1]
    return jnp.where(first == last, last, calibrated_matrix(calibration, temperature))


@checked
def draw_imaginary_view(
    key: PRNGKeyArray,
    row: Int[Array, ""],
    taken: TakenImages,
    calibrations: Annotated[CameraCalibration, Stacked],
) -> MappedView:
    """Draw how an image looks to a camera between its own and another (CCMNet).

    The illuminant is that of another image by the same camera. Its temperature selects the matrices
    of both cameras.

    Args:
      key: key of the cameras and the illuminant.
      row: number of the image.
      taken: all images.
      calibrations: calibration of each camera, with a leading axis.
    """
    which, illuminant, mixed = jax.random.split(key, 3)
    source_camera = taken.cameras[row]
    camera = draw_camera(which, taken.cameras, source_camera)
    same = jnp.where(taken.cameras == source_camera, 0.0, -jnp.inf)
    first = drawable(taken.illuminants[jax.random.categorical(illuminant, same)])
    ends = rows_of(calibrations, source_camera), rows_of(calibrations, camera)
    kelvin = illuminant_temperature(ends[0], first)
    source, target = (interpolated_matrix(end, kelvin) for end in ends)
    second = mapped_illuminant(first, source, target)
    by_temperature = jnp.any(calibrations.matrices[:, 0] != calibrations.matrices[:, -1])
    seen = matrix_product(inverse_transform(source), first)
    white = jnp.where(by_temperature, seen, jnp.array(WHITE))
    first, second = first / first[1], second / second[1]
    share = jax.random.uniform(mixed)
    balanced = balanced_transform(source, target, white)
    both = share * jnp.eye(3) * first + (1 - share) * balanced * second
    illuminant = share * first + (1 - share) * second
    return MappedView(both / taken.illuminants[row][:, None], illuminant, camera, share)


def matrix_of(matrices: Float[Array, "cameras 3 3"], camera: Int[Array, ""]) -> Float[Array, "3 3"]:
    """Return a camera's matrix; a single one serves all cameras.

    `fit_cross_camera` refuses numbers beyond several matrices.
    """
    return jnp.asarray(matrices).at[camera].get(mode="clip")
