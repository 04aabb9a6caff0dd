"""Sets of photographs with a measured light each: thumbnails, Gehler-Shi, Cube+, INTEL-TAU, NUS-8.

Each is read as it was released. Images are linear, 0 at the black level and 1 at saturation, and
masked are the chart or target and what is saturated.
"""

import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from data_pipelines.color.nus import CAMERAS, load_official
from data_pipelines.color.photographs import (
    checked_illuminants,
    linear,
    read_picture,
    read_thumbnails,
)
from data_pipelines.errors import DataError, MissingDataError
from data_pipelines.files import read_text, refusing
from data_pipelines.matlab import read_mat

SATURATION = 0.95
"""Share of an image's largest value from which a channel counts as saturated, where a set states
no level. With no mask White Patch and Shades of Gray err two to three degrees more on NUS
thumbnails; from .9 to .98 no mean of the seven estimators without training moves by more than
.15."""

Photograph = tuple[Float[np.ndarray, "h w 3"], Bool[np.ndarray, "h w"]]


class ConstancySet(NamedTuple):
    """One camera's photographs; `read_image(i)` gives the linear image and what may be used."""

    names: tuple[str, ...]
    illuminants: Float[np.ndarray, "n 3"]
    read_image: Callable[[int], Photograph]


def thumbnail_set(path: Path) -> dict[str, ConstancySet]:
    """Thumbnails of one or several cameras in an `.npz` file, by camera.

    Args:
      path: as for `read_thumbnails`. Names such as "SonyA57_0001" part the images into cameras;
        others are all of the camera that the file is named after.

    Raises:
      MissingDataError: there is no such file.
      DataError: it is damaged, lacks an array, or its arrays do not go together.
    """
    images, illuminants, names = read_thumbnails(
        path, "docs/guide/data.md says what belongs in it."
    )
    named = [re.fullmatch(r"(.*[A-Za-z].*)_\d+", name) for name in names]
    own = np.array([path.stem if match is None else match[1] for match in named])
    # Folders are named after cameras.
    odd = [camera for camera in np.unique(own).tolist() if not re.fullmatch(r"[\w .+-]+", camera)]
    if odd:
        raise DataError(f"{path}: {odd[0]!a} is no camera's name; use letters, digits, _ . + -")
    return {
        str(camera): ConstancySet(
            tuple(np.array(names)[own == camera].tolist()),
            illuminants[own == camera],
            partial(_masked_thumbnail, images[own == camera]),
        )
        for camera in np.unique(own)
    }


def _masked_thumbnail(images: Float[np.ndarray, "n h w 3"], index: int) -> Photograph:
    """Masked where all channels are 0, and from `SATURATION` of the image's own maximum on."""
    brightest = images[index].max(axis=-1)
    return images[index], (brightest > 0) & (brightest < SATURATION * brightest.max())


GEHLER_SHI = "Shi and Funt's page of the re-processed Gehler set (568 images, 12-bit PNG)"
# Black level and the name's beginning, by camera; white is what 12 bits hold at most.
_GEHLER_CAMERAS = {"Canon1D": ("8D5U", 0), "Canon5D": ("IMG_", 129)}
_GEHLER_WHITE = 4095


def gehler_shi(folder: Path) -> dict[str, ConstancySet]:
    """The Gehler-Shi set, unpacked, by camera.

    `png/` with or without folders below it, `coordinates/<name>_macbeth.txt`, and
    `real_illum_568.mat`, anywhere below the folder; the ground truth's rows are in the order of the
    images' names. The Canon 5D's black level of 129 is taken away. Saturated is what lies above
    `SATURATION` of 12 bits.

    Raises:
      MissingDataError: no ground truth or no images.
      DataError: a damaged file, not as many lights as images, or a name of neither camera.
    """
    truth = _only_file(folder, "real_illum_568*.mat", GEHLER_SHI)
    (illuminants,) = read_mat(truth, ["real_rgb"])
    paths = sorted(folder.glob("**/png/**/*.png"), key=lambda path: path.name)
    charts = {path.name: path for path in folder.glob("**/*_macbeth.txt")}
    with refusing(truth, f"Get it again from {GEHLER_SHI}."):
        illuminants = checked_illuminants(illuminants)
    if len(paths) != len(illuminants):
        raise DataError(
            f"{folder} has {len(paths)} images below png/, {truth} has {len(illuminants)} lights. Get "
            f"both whole from {GEHLER_SHI}."
        )
    sets = {}
    for camera, (beginning, black) in _GEHLER_CAMERAS.items():
        rows = [i for i, path in enumerate(paths) if path.name.startswith(beginning)]
        own = [paths[i] for i in rows]
        if own:
            read = partial(_read_gehler_shi, own, charts, black)
            sets[camera] = ConstancySet(tuple(p.stem for p in own), illuminants[rows], read)
    if sum(len(each.names) for each in sets.values()) < len(paths):
        raise DataError(f"{folder}: an image's name begins with neither 8D5U (1D) nor IMG_ (5D).")
    return sets


def _read_gehler_shi(
    paths: list[Path], charts: Mapping[str, Path], black: int, index: int
) -> Photograph:
    path = paths[index]
    raw = read_picture(path, GEHLER_SHI)
    name = f"{path.stem}_macbeth.txt"
    if name not in charts:
        raise MissingDataError(f"There is no {name} for {path}. Get it from {GEHLER_SHI}.")
    text = read_text(charts[name], f"Get it again from {GEHLER_SHI}.")
    with refusing(charts[name], "It has a size, then the chart's corners, a pair a line."):
        numbers = np.array([line.split() for line in text.split("\n")[:5]], float)
        if numbers.shape != (5, 2) or not np.isfinite(numbers).all() or (numbers[0] <= 0).any():
            raise ValueError("no corners of a chart")
    corners = numbers[1:] * raw.shape[1::-1] / numbers[0]
    usable = (raw < SATURATION * _GEHLER_WHITE).all(axis=-1) & ~_inside(corners, raw.shape[:2])
    return linear(raw, black, _GEHLER_WHITE), usable


def _inside(corners: Float[np.ndarray, "4 2"], shape: tuple[int, int]) -> Bool[np.ndarray, "h w"]:
    """Pixels (x, y) in the hull of four corners in any order."""
    middle = corners.mean(axis=0)
    around = corners[np.argsort(np.arctan2(*(corners - middle).T[::-1]))]
    y, x = np.mgrid[: shape[0], : shape[1]]
    inside = np.ones(shape, bool)
    for (x0, y0), (x1, y1) in zip(around, np.roll(around, -1, axis=0), strict=True):
        inside &= (x1 - x0) * (y - y0) - (y1 - y0) * (x - x0) >= 0
    return inside


CUBE_PLUS = "the page of the Cube+ set of the University of Zagreb's Image Processing Group"
_CUBE_BLACK = 2048
# From here on, to the lower right corner, the SpyderCube hangs in the image.
_CUBE_TARGET = 1049, 2049


def cube_plus(folder: Path) -> dict[str, ConstancySet]:
    """The Cube+ set, unpacked: `cube+_gt.txt` and `<number>.PNG` anywhere below the folder.

    As its makers say, 2048 is black, a pixel is saturated from two below the image's largest value
    on, and the lower right corner holds the target.

    Raises:
      MissingDataError: no ground truth, or an image is missing.
      DataError: a damaged file.
    """
    truth = _only_file(folder, "cube+_gt.txt", CUBE_PLUS)
    illuminants = _numbers(truth, CUBE_PLUS)
    paths = {path.stem: path for path in folder.glob("**/*.[pP][nN][gG]")}
    names = tuple(str(number) for number in range(1, len(illuminants) + 1))
    missing = [name for name in names if name not in paths]
    if missing:
        raise MissingDataError(
            f"{folder} has no {missing[0]}.PNG, nor {len(missing) - 1} others of the "
            f"{len(names)} that {truth.name} has lights of. Get them from {CUBE_PLUS}."
        )
    read = partial(_read_cube_plus, [paths[name] for name in names])
    return {"Canon550D": ConstancySet(names, illuminants, read)}


def _read_cube_plus(paths: list[Path], index: int) -> Photograph:
    raw = read_picture(paths[index], CUBE_PLUS)
    white = int(raw.max()) - 2
    if white <= _CUBE_BLACK:
        raise DataError(f"{paths[index]} is black throughout. Get it again from {CUBE_PLUS}.")
    usable = (raw < white).all(axis=-1)
    usable[_CUBE_TARGET[0] :, _CUBE_TARGET[1] :] = False
    return linear(raw, _CUBE_BLACK, white), usable


INTEL_TAU = "the INTEL-TAU set's page (processed images in 1080p: TIFF and .wp files)"


def intel_tau(folder: Path) -> dict[str, ConstancySet]:
    """The INTEL-TAU set's processed images, by camera: `<camera>/<set>/<name>_<number>.tiff`.

    The light (R G B) stands in the `.wp` file of the same name, whose number may be filled up with
    zeros. Black is taken away in the release already; white is each image's largest value, and
    saturated what lies above `SATURATION` of it. The charts are on images of their own, so that
    nothing else is masked.

    Raises:
      MissingDataError: no images, or one without its light.
      DataError: a damaged file.
    """
    sets = {}
    for camera in sorted(path for path in folder.glob("*") if path.is_dir()):
        paths = sorted(camera.glob("*/*.tif*"))
        if paths:
            illuminants = np.concatenate(
                [_numbers(_white_point(path), INTEL_TAU) for path in paths]
            )
            if len(illuminants) != len(paths):
                raise DataError(f"{camera}: a .wp file has not one light. Get it again.")
            names = tuple(str(path.relative_to(camera).with_suffix("")) for path in paths)
            sets[camera.name] = ConstancySet(names, illuminants, partial(_read_intel_tau, paths))
    if not sets:
        raise MissingDataError(
            f"{folder} has no <camera>/<set>/<name>.tiff. Get them from {INTEL_TAU}."
        )
    return sets


def _white_point(path: Path) -> Path:
    plain = path.with_suffix(".wp")
    match = re.fullmatch(r"(.*_)(\d{1,9})", path.stem)
    filled = path.with_name(f"{match[1]}{int(match[2]):03}.wp") if match else plain
    if not (plain.exists() or filled.exists()):
        raise MissingDataError(f"There is no {filled.name} for {path}. Get it from {INTEL_TAU}.")
    return plain if plain.exists() else filled


def _read_intel_tau(paths: list[Path], index: int) -> Photograph:
    raw = read_picture(paths[index], INTEL_TAU)
    if not raw.any():
        raise DataError(f"{paths[index]} is black throughout. Get it again from {INTEL_TAU}.")
    image = linear(raw, 0, int(raw.max()))
    return image, (image < SATURATION).all(axis=-1)


def nus8(folder: Path) -> dict[str, ConstancySet]:
    """The cameras of the NUS-8 release that lie in a folder (`load_official`).

    Raises:
      MissingDataError: none.
      DataError: a damaged ground truth.
    """
    there = [name for name in CAMERAS if (folder / name / f"{name}_gt.mat").exists()]
    if not there:
        # Says which files, and where they come from.
        load_official(folder, CAMERAS[0])
    official = {name: load_official(folder, name) for name in there}
    return {
        name: ConstancySet(each.names, each.illuminants, each.read_image)
        for name, each in official.items()
    }


RELEASES: dict[str, Callable[[Path], dict[str, ConstancySet]]] = {
    "gehler-shi": gehler_shi,
    "cube-plus": cube_plus,
    "intel-tau": intel_tau,
    "nus8": nus8,
}
"""By name: a release's reader, from its folder to its cameras."""


def _only_file(folder: Path, pattern: str, source: str) -> Path:
    found = sorted(folder.glob(f"**/{pattern}"))
    if not found:
        raise MissingDataError(f"{folder} has no {pattern} below it. Get it from {source}.")
    return found[0]


def _numbers(path: Path, source: str) -> Float[np.ndarray, "n 3"]:
    """Lights, one a line, their channels apart by spaces or commas."""
    way_out = f"It has R G B a line. Get it again from {source}."
    text = read_text(path, way_out).replace(",", " ")
    with refusing(path, way_out):
        return checked_illuminants(
            np.array([line.split() for line in text.splitlines() if line], float)
        )
