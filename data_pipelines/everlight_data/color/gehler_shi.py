"""Gehler-Shi (Gehler et al. 2008, re-processed by Shi and Funt): images by two Canon cameras."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path

import numpy as np
from jaxtyping import Bool, Float

from everlight_data.color.photographs.linear_pictures import (
    checked_illuminants,
    linear,
    read_picture,
)
from everlight_data.color.photographs.release_files import files_below, files_by_stem, only_file
from everlight_data.errors import DataError, MissingDataError
from everlight_data.formats.files import read_text, refusing
from everlight_data.formats.matlab import read_mat
from everlight_data.sets.constancy_set import ConstancySet, Photograph
from everlight_data.sets.data_set import DataSet

OWNER = "Shi and Funt's page of the re-processed Gehler set (568 images, 12-bit PNG)"
# Black level and the name's beginning, by camera; white is what 12 bits hold at most.
_GEHLER_CAMERAS = {"Canon1D": ("8D5U", 0), "Canon5D": ("IMG_", 129)}
_GEHLER_WHITE = 4095


def load_gehler_shi(folder: Path) -> dict[str, ConstancySet]:
    """Return the unpacked Gehler-Shi set, by camera.

    The folder holds, at any depth, `png/`, `coordinates/<name>_macbeth.txt` and
    `real_illum_568.mat`. The ground truth's rows follow the order of the images' names. The Canon
    5D's black level of 129 is subtracted. Values above `SATURATION` of 12 bits are saturated.

    Raises:
      MissingDataError: the ground truth or the images are missing.
      DataError: a file is damaged, the numbers of illuminants and images differ, or a name belongs
        to neither camera.
    """
    truth = only_file(folder, "real_illum_568*.mat", OWNER)
    (illuminants,) = read_mat(truth, ["real_rgb"])
    below_png = (
        path
        for path in files_below(folder, "*.png")
        if "png" in map(str.lower, path.relative_to(folder).parts[:-1])
    )
    paths = [path for _, path in sorted(files_by_stem(below_png).items())]
    charts = files_by_stem(files_below(folder, "*_macbeth.txt"))
    with refusing(truth, f"Download it again from {OWNER}."):
        illuminants = checked_illuminants(illuminants)
    if len(paths) != len(illuminants):
        raise DataError(
            f"{folder} has {len(paths)} images below png/, but {truth} has {len(illuminants)} "
            f"illuminants. Download both again from {OWNER}."
        )
    sets = {}
    for camera, (beginning, black) in _GEHLER_CAMERAS.items():
        rows = [i for i, path in enumerate(paths) if path.name.startswith(beginning)]
        photos = [paths[i] for i in rows]
        if photos:
            read = partial(_read_gehler_shi, photos, charts, black)
            sets[camera] = ConstancySet(
                names=tuple(p.stem for p in photos), illuminants=illuminants[rows], read_image=read
            )
    taken = {name for images in sets.values() for name in images.names}
    if other := [path for path in paths if path.stem not in taken]:
        raise DataError(
            f"{other[0]}: its name begins with neither 8D5U (1D) nor IMG_ (5D). Remove it, or "
            f"download the images again from {OWNER}."
        )
    return sets


def _read_gehler_shi(
    paths: list[Path], charts: Mapping[str, Path], black: int, index: int
) -> Photograph:
    # The library's colour functions import JAX, which takes seconds.
    from everlight.color.thumbnails import SATURATION

    path = paths[index]
    raw = read_picture(path, OWNER)
    name = f"{path.stem}_macbeth"
    chart = charts.get(name.lower())
    if chart is None:
        raise MissingDataError(f"{name}.txt for {path} is missing. Download it from {OWNER}.")
    text = read_text(chart, f"Download it again from {OWNER}.")
    with refusing(chart, "It should hold a size, then the chart's corners, one pair per line."):
        numbers = np.array([line.split() for line in text.split("\n")[:5]], float)
        if numbers.shape != (5, 2) or not np.isfinite(numbers).all() or (numbers[0] <= 0).any():
            raise ValueError("it does not hold the corners of a chart")
    corners = numbers[1:] * raw.shape[1::-1] / numbers[0]
    usable = (raw < SATURATION * _GEHLER_WHITE).all(axis=-1) & ~_corner_mask(corners, raw.shape[:2])
    return Photograph(linear(raw, black, _GEHLER_WHITE), usable)


def _corner_mask(
    corners: Float[np.ndarray, "4 2"], shape: tuple[int, int]
) -> Bool[np.ndarray, "h w"]:
    """Return the pixels inside the hull of four corners (x, y), given in any order."""
    middle = corners.mean(axis=0)
    around = corners[np.argsort(np.arctan2(*(corners - middle).T[::-1]))]
    y, x = np.mgrid[: shape[0], : shape[1]]
    inside = np.ones(shape, bool)
    for (x0, y0), (x1, y1) in zip(around, np.roll(around, -1, axis=0), strict=True):
        inside &= (x1 - x0) * (y - y0) - (y1 - y0) * (x - x0) >= 0
    return inside


DATA_SETS = {
    "gehler-shi": DataSet(
        "Gehler-Shi: 568 photographs by two Canon cameras, with illuminants",
        owner=OWNER,
        read_photographs=load_gehler_shi,
    )
}
