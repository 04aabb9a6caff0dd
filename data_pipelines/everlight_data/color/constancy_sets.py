"""Readers of photographs with a measured illuminant each.

The sets are thumbnails, Gehler-Shi, Cube+, INTEL-TAU and NUS-8, as released. Images are linear, 0
at the black level and 1 at saturation. Masks exclude the chart or target and saturated pixels.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from everlight.color.thumbnails import SATURATION
from everlight_data.color.nus import CAMERAS, load_official
from everlight_data.color.photographs import (
    checked_illuminants,
    linear,
    read_picture,
    read_thumbnails,
)
from everlight_data.errors import DataError, MissingDataError
from everlight_data.formats.files import read_text, refusing
from everlight_data.formats.matlab import read_mat

Photograph = tuple[Float[np.ndarray, "h w 3"], Bool[np.ndarray, "h w"]]


class ConstancySet(NamedTuple):
    """Photographs of one camera; `read_image(i)` returns the linear image and its mask.

    `captures` are the features of their time and settings, where they are known. `file` is the file
    of thumbnails; a release has none.
    """

    names: tuple[str, ...]
    illuminants: Float[np.ndarray, "n 3"]
    read_image: Callable[[int], Photograph]
    captures: Float[np.ndarray, "n 15"] | None = None
    file: Path | None = None


def thumbnail_set(path: Path, camera: str = "") -> dict[str, ConstancySet]:
    """Return thumbnails of one or several cameras in an `.npz` file, by camera.

    Args:
      path: file as for `read_thumbnails`. Names such as "SonyA57_0001" assign images to cameras;
        other images belong to the camera after which the file is named.
      camera: camera of all images, whatever their names are.

    Raises:
      MissingDataError: the file does not exist.
      DataError: the file is damaged, lacks an array, or its arrays do not match.
    """
    stored = read_thumbnails(path, "docs/pages/guide/data.md describes its content.")
    images, illuminants, names, masks, captures = stored
    named = [re.fullmatch(r"(.*[A-Za-z].*)_\d+", name) for name in names]
    cameras = np.array([camera or (path.stem if match is None else match[1]) for match in named])
    # Folders are named after cameras, and .. is another folder.
    form = re.compile(r"(?=.*\w)[\w .+-]+")
    odd = [camera for camera in np.unique(cameras).tolist() if not form.fullmatch(camera)]
    if odd:
        raise DataError(
            f"{path}: {odd[0]!a} is not a camera's name; use letters or digits, and _ . + -"
        )
    return {
        str(camera): ConstancySet(
            tuple(np.array(names)[cameras == camera].tolist()),
            illuminants[cameras == camera],
            partial(_masked_thumbnail, images[cameras == camera], masks[cameras == camera]),
            None if captures is None else captures[cameras == camera],
            path,
        )
        for camera in np.unique(cameras)
    }


def _masked_thumbnail(
    images: Float[np.ndarray, "n h w 3"], masks: Bool[np.ndarray, "n h w"], index: int
) -> Photograph:
    """Return an image and its mask, without pixels of 0 or from `SATURATION` of its maximum on."""
    brightest = images[index].max(axis=-1)
    usable = (brightest > 0) & (brightest < SATURATION * brightest.max())
    return images[index], usable & masks[index]


GEHLER_SHI = "Shi and Funt's page of the re-processed Gehler set (568 images, 12-bit PNG)"
# Black level and the name's beginning, by camera; white is what 12 bits hold at most.
_GEHLER_CAMERAS = {"Canon1D": ("8D5U", 0), "Canon5D": ("IMG_", 129)}
_GEHLER_WHITE = 4095


def gehler_shi(folder: Path) -> dict[str, ConstancySet]:
    """Return the unpacked Gehler-Shi set, by camera.

    The folder holds, at any depth, `png/`, `coordinates/<name>_macbeth.txt` and
    `real_illum_568.mat`. The ground truth's rows follow the order of the images' names. The Canon
    5D's black level of 129 is subtracted. Values above `SATURATION` of 12 bits are saturated.

    Raises:
      MissingDataError: the ground truth or the images are missing.
      DataError: a file is damaged, the numbers of illuminants and images differ, or a name belongs
        to neither camera.
    """
    truth = _only_file(folder, "real_illum_568*.mat", GEHLER_SHI)
    (illuminants,) = read_mat(truth, ["real_rgb"])
    below_png = (
        path
        for path in _below(folder, "*.png")
        if "png" in map(str.lower, path.relative_to(folder).parts[:-1])
    )
    paths = [path for _, path in sorted(_by_stem(below_png).items())]
    charts = _by_stem(_below(folder, "*_macbeth.txt"))
    with refusing(truth, f"Download it again from {GEHLER_SHI}."):
        illuminants = checked_illuminants(illuminants)
    if len(paths) != len(illuminants):
        raise DataError(
            f"{folder} has {len(paths)} images below png/, but {truth} has {len(illuminants)} "
            f"illuminants. Download both again from {GEHLER_SHI}."
        )
    sets = {}
    for camera, (beginning, black) in _GEHLER_CAMERAS.items():
        rows = [i for i, path in enumerate(paths) if path.name.startswith(beginning)]
        photos = [paths[i] for i in rows]
        if photos:
            read = partial(_read_gehler_shi, photos, charts, black)
            sets[camera] = ConstancySet(tuple(p.stem for p in photos), illuminants[rows], read)
    if sum(len(images.names) for images in sets.values()) < len(paths):
        raise DataError(f"{folder}: an image's name begins with neither 8D5U (1D) nor IMG_ (5D).")
    return sets


def _read_gehler_shi(
    paths: list[Path], charts: Mapping[str, Path], black: int, index: int
) -> Photograph:
    path = paths[index]
    raw = read_picture(path, GEHLER_SHI)
    name = f"{path.stem}_macbeth"
    chart = charts.get(name.lower())
    if chart is None:
        raise MissingDataError(f"{name}.txt for {path} is missing. Download it from {GEHLER_SHI}.")
    text = read_text(chart, f"Download it again from {GEHLER_SHI}.")
    with refusing(chart, "It should hold a size, then the chart's corners, one pair per line."):
        numbers = np.array([line.split() for line in text.split("\n")[:5]], float)
        if numbers.shape != (5, 2) or not np.isfinite(numbers).all() or (numbers[0] <= 0).any():
            raise ValueError("it does not hold the corners of a chart")
    corners = numbers[1:] * raw.shape[1::-1] / numbers[0]
    usable = (raw < SATURATION * _GEHLER_WHITE).all(axis=-1) & ~_inside(corners, raw.shape[:2])
    return linear(raw, black, _GEHLER_WHITE), usable


def _inside(corners: Float[np.ndarray, "4 2"], shape: tuple[int, int]) -> Bool[np.ndarray, "h w"]:
    """Return the pixels inside the hull of four corners (x, y), given in any order."""
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
    """Return the unpacked Cube+ set: `cube+_gt.txt` and `<number>.PNG` at any depth of the folder.

    According to its authors, the black level is 2048, and pixels from two below the image's maximum
    are saturated. The lower right corner shows the target.

    Raises:
      MissingDataError: the ground truth or an image is missing.
      DataError: a file is damaged.
    """
    truth = _only_file(folder, "cube+_gt.txt", CUBE_PLUS)
    illuminants = _numbers(truth, CUBE_PLUS)
    paths = _by_stem(_below(folder, "*.png"))
    names = tuple(str(number) for number in range(1, len(illuminants) + 1))
    missing = [name for name in names if name not in paths]
    if missing:
        raise MissingDataError(
            f"{folder} lacks {missing[0]}.PNG and {len(missing) - 1} others of the {len(names)} "
            f"images listed in {truth.name}. Download them from {CUBE_PLUS}."
        )
    read = partial(_read_cube_plus, [paths[name] for name in names])
    return {"Canon550D": ConstancySet(names, illuminants, read)}


def _read_cube_plus(paths: list[Path], index: int) -> Photograph:
    raw = read_picture(paths[index], CUBE_PLUS)
    white = int(raw.max()) - 2
    if white <= _CUBE_BLACK:
        raise DataError(f"{paths[index]} is entirely black. Download it again from {CUBE_PLUS}.")
    usable = (raw < white).all(axis=-1)
    usable[_CUBE_TARGET[0] :, _CUBE_TARGET[1] :] = False
    return linear(raw, _CUBE_BLACK, white), usable


INTEL_TAU = "the INTEL-TAU set's page (processed images in 1080p: TIFF and .wp files)"


_TIFF = (".tif", ".tiff")


def intel_tau(folder: Path) -> dict[str, ConstancySet]:
    """Return the INTEL-TAU set's processed images, by camera.

    The files are `<camera>/<set>/<name>_<number>.tiff`. The illuminant (R G B) is in the `.wp` file
    of the same name, whose number may have leading zeros. The release has the black level
    subtracted. White is each image's maximum, and values above `SATURATION` of it are saturated.
    Charts are on separate images, so nothing else is masked.

    Raises:
      MissingDataError: there are no images, or one lacks its illuminant.
      DataError: a file is damaged.
    """
    sets = {}
    for camera in sorted(path for path in folder.glob("*") if path.is_dir()):
        paths = sorted(path for path in camera.glob("*/*") if path.suffix.lower() in _TIFF)
        if paths:
            illuminants = np.concatenate(
                [_numbers(_white_point(path), INTEL_TAU) for path in paths]
            )
            if len(illuminants) != len(paths):
                raise DataError(
                    f"{camera}: a .wp file does not hold one illuminant. Download it again."
                )
            names = tuple(str(path.relative_to(camera).with_suffix("")) for path in paths)
            sets[camera.name] = ConstancySet(names, illuminants, partial(_read_intel_tau, paths))
    if not sets:
        raise MissingDataError(
            f"{folder} has no <camera>/<set>/<name>.tiff. Download them from {INTEL_TAU}."
        )
    return sets


def _white_point(path: Path) -> Path:
    plain = path.with_suffix(".wp")
    match = re.fullmatch(r"(.*_)(\d{1,9})", path.stem)
    filled = path.with_name(f"{match[1]}{int(match[2]):03}.wp") if match else plain
    names = plain, filled, plain.with_suffix(".WP"), filled.with_suffix(".WP")
    white_point = next((candidate for candidate in names if candidate.exists()), None)
    if white_point is None:
        raise MissingDataError(
            f"{filled.name} for {path} is missing. Download it from {INTEL_TAU}."
        )
    return white_point


def _read_intel_tau(paths: list[Path], index: int) -> Photograph:
    raw = read_picture(paths[index], INTEL_TAU)
    if not raw.any():
        raise DataError(f"{paths[index]} is entirely black. Download it again from {INTEL_TAU}.")
    image = linear(raw, 0, int(raw.max()))
    return image, (image < SATURATION).all(axis=-1)


def nus8(folder: Path) -> dict[str, ConstancySet]:
    """Return the cameras of the NUS-8 release present in a folder (`load_official`).

    Raises:
      MissingDataError: no camera is present.
      DataError: a ground truth file is damaged.
    """
    there = [name for name in CAMERAS if (folder / name / f"{name}_gt.mat").exists()]
    if not there:
        # Raises an error that names the files and their source.
        load_official(folder, CAMERAS[0])
    official = {name: load_official(folder, name) for name in there}
    return {
        name: ConstancySet(release.names, release.illuminants, release.read_image)
        for name, release in official.items()
    }


RELEASES: dict[str, Callable[[Path], dict[str, ConstancySet]]] = {
    "gehler-shi": gehler_shi,
    "cube-plus": cube_plus,
    "intel-tau": intel_tau,
    "nus8": nus8,
}
"""Readers of the releases by name: from a release's folder to its cameras."""


def _only_file(folder: Path, pattern: str, source: str) -> Path:
    paths = _below(folder, pattern)
    if not paths:
        raise MissingDataError(f"{folder} has no {pattern} below it. Download it from {source}.")
    return paths[0]


def _below(folder: Path, pattern: str) -> list[Path]:
    """Return the files at any depth whose name fits a pattern in lower case, in any case."""
    return sorted(path for path in folder.rglob("*") if fnmatchcase(path.name.lower(), pattern))


def _by_stem(paths: Iterable[Path]) -> dict[str, Path]:
    """Return files by their names in lower case without the ending; folders are not looked at.

    Raises:
      DataError: two files have one name.
    """
    files: dict[str, Path] = {}
    for path in sorted(paths):
        first = files.setdefault(path.stem.lower(), path)
        if first != path:
            raise DataError(f"{path} and {first} have one name; remove one of them.")
    return files


def _numbers(path: Path, source: str) -> Float[np.ndarray, "n 3"]:
    """Return the illuminants of a text file, one per line, separated by spaces or commas."""
    remedy = f"It should hold R G B on each line. Download it again from {source}."
    text = read_text(path, remedy).replace(",", " ")
    with refusing(path, remedy):
        return checked_illuminants(
            np.array([line.split() for line in text.splitlines() if line], float)
        )
