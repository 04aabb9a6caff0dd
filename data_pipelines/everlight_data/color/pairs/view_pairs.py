"""Two raw views of one scene: their homography, and both averaged on the main view's grid."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from everlight.color.alignment import area_downsample, fit_homography, warp_image
from everlight.illuminant.pair_inputs import View
from everlight_data.color.raw_files.raw import RawImage, black_text
from everlight_data.errors import DataError
from everlight_data.formats.tables import read_json
from everlight_data.texts import one_line
from everlight_data.writing import written_whole


class AlignedViews(NamedTuple):
    """Both views on the main camera's grid, averaged; `mask` is where both are usable."""

    main: Float[np.ndarray, "h w 3"]
    second: Float[np.ndarray, "h w 3"]
    mask: Bool[np.ndarray, "h w"]


def choose_homography(
    path: Path | None, main: RawImage, second: RawImage
) -> Float[np.ndarray, "3 3"]:
    """Return the file's homography, or the identity without a file for views of equal size.

    Raises:
      DataError: the file is for other views, or there is none and the sizes differ.
    """
    if path is not None:
        stored = _read_file(path)
        _refuse_other_views(path, stored.views, main, second)
        return stored.matrix
    if main.image.shape != second.image.shape:
        (height, width), (other_height, other_width) = main.image.shape[:2], second.image.shape[:2]
        raise DataError(
            f"{main.path} has {width}×{height} pixels and {second.path} {other_width}×"
            f"{other_height}, so they are not aligned; give their alignment by --homography."
        )
    return np.eye(3, dtype=np.float32)


def described_view(height: int, width: int, flip: int) -> dict[str, int]:
    """Return the entry of a homography file for an upright view."""
    return {"width": int(width), "height": int(height), "flip": int(flip)}


def write_homography(
    path: Path, homography: Float[np.ndarray, "3 3"], views: Mapping[View, Mapping[str, int]]
) -> None:
    """Write a file for `choose_homography`, for views as `described_view` describes them."""
    with written_whole(path) as unfinished:
        unfinished.write_text(json.dumps({"matrix": homography.tolist(), "views": views}))


def _refuse_other_views(path: Path, views: Any, main: RawImage, second: RawImage) -> None:
    if not isinstance(views, dict):
        return
    for name, view in (("main", main), ("second", second)):
        taken = described_view(*view.image.shape[:2], view.flip)
        if views.get(name, taken) != taken:
            raise DataError(
                f"{view.path} has {_describe_view(taken)}, and the homography of {path} is for "
                f"{_describe_view(views[name])}; use the same orientation, or align again."
            )


def _describe_view(view: Any) -> str:
    """Return the entry of a homography file in words; a damaged one as it is."""
    if not isinstance(view, dict) or view.keys() != described_view(0, 0, 0).keys():
        return one_line(view)
    return one_line(f"{view['width']}x{view['height']} pixels in orientation {view['flip']}")


def read_homography(path: Path) -> Float[np.ndarray, "3 3"]:
    """Read the homography from main to second pixels, a matrix or point pairs, from a JSON file.

    Raises:
      DataError: the file is missing or damaged, or its points determine no homography.
    """
    return _read_file(path).matrix


class _HomographyFile(NamedTuple):
    """Content of a homography file; `views` states the views that it is for."""

    matrix: Float[np.ndarray, "3 3"]
    views: Any


def _read_file(path: Path) -> _HomographyFile:
    layout = '{"matrix": 3×3} or {"main": [[x, y], ...], "second": [[x, y], ...]}'
    content = read_json(path, f"Give --homography a JSON file, written as {layout}.", 1_000_000)
    views = content.pop("views", {}) if isinstance(content, dict) else {}
    try:
        arrays = {key: np.array(value, np.float64) for key, value in content.items()}
    except (ValueError, TypeError, AttributeError, OverflowError) as error:
        raise DataError(f"{path} does not hold a homography; write it as {layout}.") from error
    if not all(np.all(np.isfinite(array)) for array in arrays.values()):
        raise DataError(f"{path} holds a number that is not finite; write it as {layout}.")
    if arrays.keys() == {"matrix"}:
        return _HomographyFile(_scaled_homography(arrays["matrix"], path), views)
    if arrays.keys() == {"main", "second"}:
        matrix = _homography_of_points(arrays["main"], arrays["second"], path)
        return _HomographyFile(matrix, views)
    raise DataError(f"{path} has the keys {one_line(sorted(arrays))}; write it as {layout}.")


def _scaled_homography(matrix: Float[np.ndarray, "..."], path: Path) -> Float[np.ndarray, "3 3"]:
    if matrix.shape != (3, 3) or matrix[2, 2] == 0 or np.linalg.matrix_rank(matrix) < 3:
        raise DataError(
            f"{path}: the matrix must be an invertible 3×3 one with its lower right not 0."
        )
    return (matrix / matrix[2, 2]).astype(np.float32)


def _homography_of_points(
    main: Float[np.ndarray, "..."], second: Float[np.ndarray, "..."], path: Path
) -> Float[np.ndarray, "3 3"]:
    if main.shape != second.shape or main.ndim != 2 or main.shape[1] != 2 or len(main) < 4:
        raise DataError(f"{path}: main and second must hold the same number of [x, y], at least 4.")
    fit = fit_homography(jnp.asarray(main, jnp.float32), jnp.asarray(second, jnp.float32))
    if not fit.valid:
        raise DataError(
            f"{path}: the points give no homography; take at least four, paired in the same order, "
            "of which no three lie on one line."
        )
    return np.asarray(fit.homography)


def align_thumbnails(
    main: RawImage, second: RawImage, homography: Float[np.ndarray, "3 3"], factor: int
) -> AlignedViews:
    """Return both views on the main camera's grid, averaged over `factor` × `factor` pixels.

    Raises:
      DataError: the views are black, damaged, do not overlap, or share no unsaturated block.
    """
    for view in (main, second):
        _check_pixels(view)
    shape = main.image.shape[:2]
    if not 1 <= factor <= min(shape):
        raise DataError(
            f"--downsample {factor} does not suit {main.path}; take 1 to {min(shape)} pixels."
        )

    layers = np.concatenate([second.image, second.saturated[..., None]], axis=-1)
    # Compiled, 12 megapixels take one second, otherwise four.
    warp = jax.jit(warp_image, static_argnames="shape")
    warped = warp(jnp.asarray(layers, jnp.float32), jnp.asarray(homography), shape)
    if not jnp.any(warped.mask):
        raise DataError(
            f"{second.path} does not overlap {main.path} under this homography; --homography must "
            "map main pixels (x, y) to second pixels, not the other way round."
        )
    usable = warped.mask & (warped.image[..., 3] == 0) & ~main.saturated
    small_main = area_downsample(jnp.asarray(main.image), factor, usable)
    small_second = area_downsample(warped.image[..., :3], factor, usable)
    if not jnp.any(small_main.mask):
        raise DataError(
            f"{main.path} and {second.path} share no block of {factor}×{factor} pixels that "
            "neither saturates; check their white levels, or expose less."
        )
    return AlignedViews(*map(np.asarray, (small_main.image, small_second.image, small_main.mask)))


def _check_pixels(view: RawImage) -> None:
    unfit = int(np.sum(~np.isfinite(view.image)))
    if unfit:
        raise DataError(
            f"{view.path} has {unfit} values that are NaN or infinite; give another file."
        )
    if not np.mean(view.image) > 0:
        raise DataError(
            f"{view.path} is all black above its black level {black_text(view)}; give "
            "another file, or the true level by --main-black-level or --second-black-level."
        )
