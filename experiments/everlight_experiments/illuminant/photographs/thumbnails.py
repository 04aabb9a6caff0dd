"""Thumbnails for `train` and `dataset`, from raw photographs with the classic chart of 24 patches.

    everlight illuminant thumbnails FOLDER --out mine.npz
    everlight illuminant train --thumbnails mine.npz --out model

The chart is found automatically; otherwise FOLDER/charts.json places it: by file, such as
"IMG_1.dng", the [x, y] of the centres of dark skin, bluish green, black and white.
"""

import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
from tqdm import tqdm

from everlight.checks import Between
from everlight_data.color.charts.chart_colors import reference_colors
from everlight_data.color.charts.chart_thumbnails import (
    measure_thumbnail,
    write_contact_sheet,
    write_thumbnails,
)
from everlight_data.color.charts.measured_chart import read_chart_corners
from everlight_data.color.raw_files.photos import is_picture, list_photos
from everlight_data.errors import DataError
from everlight_data.names import name_first
from everlight_data.progress import progress
from everlight_data.writing import make_folder
from everlight_experiments.illuminant.config import MIN_IMAGES
from everlight_experiments.run_folder.options import check_options

MIN_PHOTOS = 6
"""Minimum number of photographs whose chart is found."""


@dataclass(frozen=True)
class ThumbnailsOptions:
    """Make thumbnails with known illuminants from raw photographs that show a colour chart."""

    folder: tyro.conf.Positional[Path]
    """Folder with raw files of one or more cameras, and an optional charts.json of chart
    corners."""
    out: Path
    """File to write, .npz, for --thumbnails of `train` and `dataset`. A picture next to it,
    .charts.png, shows each photograph with its chart and the colour of its illuminant."""
    side: Annotated[int, Between(32, 2_000)] = 64
    """Longest side of the thumbnails in pixels."""

    def __post_init__(self):
        check_options(self)


def make_thumbnails(options: ThumbnailsOptions) -> Path:
    """Write the thumbnails and the contact sheet, and return the file of the thumbnails.

    Raises:
      DataError: the folder holds no raw files, the chart is found in too few, charts.json is
        damaged, or a file cannot be written.
    """
    folder, out = options.folder, options.out
    if out.suffix != ".npz":
        raise DataError(f"--out {out}: give the name of a file that ends in .npz")
    if not folder.is_dir():
        raise DataError(f"{folder} is not a folder; give the one that holds the raw files")
    charts, reference = read_chart_corners(folder), reference_colors()
    paths = _raw_files(folder)
    photos = []
    for path in progress("photographs", unit="photo", values=paths):
        try:
            photo = measure_thumbnail(path, charts.get(path.name), reference, options.side)
        except DataError as error:
            tqdm.write(f"LEFT OUT: {error}", file=sys.stderr)
        else:
            photos.append(photo)
    if len(photos) < MIN_PHOTOS:
        raise DataError(
            f"{folder}: the chart is usable in {len(photos)} of {len(paths)} raw files; at least "
            f"{MIN_PHOTOS} are needed"
        )
    make_folder(out.parent)
    # No name that a photograph of the user has.
    sheet = out.with_suffix(".charts.png")
    write_thumbnails(out, photos)
    write_contact_sheet(sheet, photos)
    counts = Counter(photo.camera for photo in photos)
    cameras = ", ".join(f"{camera} ({count})" for camera, count in counts.items())
    print(f"illuminants of {len(photos)} of {len(paths)} raw files: {cameras}")
    print(f"thumbnails: {out}\nlook at the charts that were found: {sheet}")
    if min(counts.values()) < MIN_IMAGES:
        print(f"train and dataset need {MIN_IMAGES} images or more of each camera; add some")
    else:
        print(f"use them: everlight illuminant train --thumbnails {out} --out model")
    return out


def _raw_files(folder: Path) -> list[Path]:
    """Return the raw files of a folder, and name its PNG and TIFF files, which are left out."""
    photos = list_photos([folder])
    pictures = [path.name for path in photos if is_picture(path)]
    if len(pictures) == len(photos):
        raise DataError(
            f"{folder} has no raw file, only {name_first(pictures)}; a PNG or TIFF does not state "
            "its camera and where the sensor saturates. Give raw files"
        )
    if pictures:
        print(f"LEFT OUT: {name_first(pictures)}: not raw files", file=sys.stderr)
    return [path for path in photos if not is_picture(path)]
