"""INTEL-TAU (Laakom et al. 2021): photographs by three cameras with their illuminants."""

import re
from functools import partial
from pathlib import Path

import numpy as np
from jaxtyping import Float

from everlight_data.color.photographs.linear_pictures import linear, read_picture
from everlight_data.color.photographs.release_files import files_by_stem, read_illuminants
from everlight_data.errors import DataError, MissingDataError
from everlight_data.sets.constancy_set import ConstancySet, Photograph
from everlight_data.sets.data_set import DataSet

OWNER = "the INTEL-TAU set's page (processed images in 1080p: TIFF and .wp files)"


_TIFF = (".tif", ".tiff")


def load_intel_tau(folder: Path) -> dict[str, ConstancySet]:
    """Return the INTEL-TAU set's processed images, by camera.

    The files are `<camera>/<set>/<name>_<number>.tiff`. The illuminant (R G B) is in the `.wp` file
    of the same name, whose number may have leading zeros. The release has the black level
    subtracted. White is each image's maximum, and values above `SATURATION` of it are saturated.
    Charts are on separate images, so nothing else is masked.

    Raises:
      MissingDataError: there are no images, or one lacks its illuminant.
      DataError: a file is damaged, or two images have one name or one illuminant's file.
    """
    sets = {}
    for camera in sorted(path for path in folder.glob("*") if path.is_dir()):
        paths = sorted(path for path in camera.glob("*/*") if path.suffix.lower() in _TIFF)
        for part in sorted({path.parent for path in paths}):
            files_by_stem(path for path in paths if path.parent == part)
        if paths:
            white_points = [_white_point(path) for path in paths]
            _refuse_shared(paths, white_points)
            illuminants = np.concatenate([_read_white_point(path) for path in white_points])
            names = tuple(str(path.relative_to(camera).with_suffix("")) for path in paths)
            sets[camera.name] = ConstancySet(
                names=names, illuminants=illuminants, read_image=partial(_read_intel_tau, paths)
            )
    if not sets:
        raise MissingDataError(
            f"{folder} has no <camera>/<set>/<name>.tiff. Download them from {OWNER}."
        )
    return sets


def _read_white_point(path: Path) -> Float[np.ndarray, "1 3"]:
    illuminants = read_illuminants(path, OWNER)
    if len(illuminants) != 1:
        raise DataError(f"{path} has {len(illuminants)} illuminants, not one. Download it again.")
    return illuminants


def _refuse_shared(paths: list[Path], white_points: list[Path]) -> None:
    first_image: dict[Path, Path] = {}
    for path, white_point in zip(paths, white_points, strict=True):
        first = first_image.setdefault(white_point, path)
        if first != path:
            raise DataError(
                f"{white_point} belongs to two images, {first} and {path}; remove one of them."
            )


def _white_point(path: Path) -> Path:
    plain = path.with_suffix(".wp")
    match = re.fullmatch(r"(.*_)(\d{1,9})", path.stem)
    filled = path.with_name(f"{match[1]}{int(match[2]):03}.wp") if match else plain
    names = plain, filled, plain.with_suffix(".WP"), filled.with_suffix(".WP")
    white_point = next((candidate for candidate in names if candidate.exists()), None)
    if white_point is None:
        raise MissingDataError(f"{filled.name} for {path} is missing. Download it from {OWNER}.")
    if plain != filled and plain.exists() and filled.exists():
        raise DataError(f"{path} has two illuminants, {plain} and {filled}; remove one of them.")
    return white_point


def _read_intel_tau(paths: list[Path], index: int) -> Photograph:
    # The library's colour functions import JAX, which takes seconds.
    from everlight.color.thumbnails import SATURATION

    raw = read_picture(paths[index], OWNER)
    if not raw.any():
        raise DataError(f"{paths[index]} is entirely black. Download it again from {OWNER}.")
    image = linear(raw, 0, int(raw.max()))
    return Photograph(image, (image < SATURATION).all(axis=-1))


DATA_SETS = {
    "intel-tau": DataSet(
        "INTEL-TAU: processed photographs by three cameras, with illuminants",
        owner=OWNER,
        read_photographs=load_intel_tau,
    )
}
