"""Options of `everlight illuminant estimate`, and the estimate of a photo or pair."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple, get_args

import tyro

from everlight.checks import Between, check_fields
from everlight.illuminant.pair_estimate import PairEstimate
from everlight.illuminant.pair_model import Estimate
from everlight_data.color.profiles.sidecars import Sidecar, check_sidecar, sidecar_path
from everlight_data.color.raw_files.corrections import Format, Row
from everlight_data.color.raw_files.dng_mosaic import LevelArguments
from everlight_data.color.raw_files.photos import is_picture, list_photos
from everlight_data.errors import DataError
from everlight_data.texts import one_line
from everlight_experiments.report.cells import counted

Level = Annotated[int, Between(0, 2**32 - 1)]
"""Sensor value of a raw file, of 32 bits."""
PAIRS, PHOTOS, LUX_MODELS = "pairs", "single photos", "models that read it"
READERS = {
    "homography": PAIRS,
    "downsample": PAIRS,
    "second_black_level": PAIRS,
    "second_white_level": PAIRS,
    "matrices": PHOTOS,
    "lux": LUX_MODELS,
    "tuning": PHOTOS,
    "on_curve": PHOTOS,
}
"""Models, in words, by the options that only some of them read."""


class PhotoEstimate(NamedTuple):
    """The estimate of a photo, and the reasons to distrust it."""

    path: Path
    estimate: Estimate
    warnings: tuple[str, ...]
    saturated: float
    """Share of the pixels that are left out as saturated."""


class FileEstimate(NamedTuple):
    """The estimate of a photo or pair.

    Attributes:
      path: photo or main file.
      result: estimate with its `warnings`.
      row: row of the table of illuminants.
      lines: sentences to print.
    """

    path: Path
    result: PairEstimate | PhotoEstimate
    row: Row
    lines: Sequence[str]


@dataclass(frozen=True)
class EstimateOptions:
    """Estimate the illuminants of single photos, or of a phone's pairs, by a kept model."""

    files: tyro.conf.Positional[tuple[Path, ...]]
    """For a model of `train`: photos or folders of them, raw files or linear PNG and TIFF of 16
    bits. For a model of pairs: the main camera's raw file, whose illuminant is estimated, then the
    second camera's; more pairs of the same cameras may follow."""
    model: Path
    """Folder of the model that `train`, `calibrate` or another run wrote. Or, for a first estimate
    without an interval, the name of an estimator that needs no training: GW, SoG, GE-1, GE-2, WGE,
    PCA or WP. A C5 trained on several cameras reads six other photos by the camera too: give a
    folder of at least seven."""
    matrices: Path | None = None
    """Calibration of the camera that took the photos: a DNG by that camera, its profile (.dcp), or
    the cameras.xml of rawspeed or darktable; one of another camera is refused. It gives the
    temperature and the colours of corrected files, and a CCMNet trained on several cameras reads
    it. Without it each raw file's own matrices are taken; PNG and TIFF have none."""
    lux: float | Path | None = None
    """Brightness of the photos' scenes in lux, for a model that reads it (`train` on images with
    lux): a number, or a CSV file with the columns photo and lux."""
    tuning: Path | None = None
    """Tuning file of libcamera for Raspberry Pi, of the camera that took the photos. Each estimate
    gets the colour temperature of the nearest point of its CT curve, and the distance from it,
    positive on the magenta side. A file that is named after another module, as imx219.json for
    photos or a model of imx708, is refused."""
    on_curve: bool = False
    """True corrects photos by that nearest point in place of the model's own estimate. The white
    point (temperature, tint) and sidecars are then those of the nearest point, also by
    --matrices."""
    homography: Path | None = None
    """JSON file for pairs with {"matrix": [[...], [...], [...]]} from main to second pixels, or
    {"main": [[x, y], ...], "second": [[x, y], ...]}, at least four points seen by both. Without it
    the views are taken as aligned."""
    output: Path = Path("corrected")
    """Folder of the written files, which are named after the photos or main files. There
    illuminants.csv and files of equal names are replaced, others stay: give each model a folder."""
    formats: tuple[Format, ...] = get_args(Format)
    """File formats to write: png is the photo before and after; tiff is corrected, linear, 16 bits;
    dng, of raw files only, has their sensor values and the illuminant as AsShotNeutral."""
    sidecars: tuple[Sidecar, ...] = ()
    """Sidecars of raw files with the illuminant as white balance, for raw converters: adobe writes
    NAME.xmp, darktable NAME.EXTENSION.xmp and rawtherapee NAME.EXTENSION.pp3. No existing file is
    replaced. Give adobe and darktable one at a time: darktable reads both files. Adobe's programs
    read no sidecar of a DNG: give them the copy that --formats dng writes."""
    sidecar_folder: Path | None = None
    """Folder of the sidecars; without it they are written beside the raw files."""
    downsample: int = 6
    """Side in pixels of the blocks averaged before the fit of pairs."""
    main_black_level: Level | None = None
    """Black level that replaces that of the main file or photo, in sensor units; without it a PNG
    or TIFF has the one that it states, or 0."""
    main_white_level: Level | None = None
    """White level that replaces that of the main file or photo, in sensor units; without it a PNG
    or TIFF has the one that it states, else its maximum if several values are at it, or that of
    its bits."""
    second_black_level: Level | None = None
    """Black level that replaces the second file's, in sensor units."""
    second_white_level: Level | None = None
    """White level that replaces the second file's, in sensor units."""

    def __post_init__(self):
        check_fields(self)
        if self.on_curve and self.tuning is None:
            raise DataError("--on-curve needs the file with the CT curve; give --tuning")
        if self.sidecar_folder is not None and not self.sidecars:
            raise DataError("--sidecar-folder is the folder of sidecars; give --sidecars")
        if {"adobe", "darktable"} <= set(self.sidecars):
            raise DataError(
                "--sidecars adobe darktable: darktable would read Adobe's file too, which changes "
                "its colours; give one of both, and the other with another --sidecar-folder"
            )

    @property
    def main_levels(self) -> LevelArguments:
        """Return the levels of the main file or photo."""
        return LevelArguments(self.main_black_level, self.main_white_level)

    @property
    def second_levels(self) -> LevelArguments:
        """Return the levels of the second file."""
        return LevelArguments(self.second_black_level, self.second_white_level)

    def pairs(self) -> list[tuple[Path, Path]]:
        """Return main and second files.

        Raises:
          DataError: the files do not form complete pairs, two main files have the same name, or a
            written file would replace one of them.
        """
        if not self.files or len(self.files) % 2:
            raise DataError(
                f"{counted(len(self.files), 'raw file')} cannot be divided into pairs; give main "
                "and second of each in turn"
            )
        self._refuse_outputs("main files", self.files[::2])
        return list(zip(self.files[::2], self.files[1::2], strict=True))

    def photos(self) -> list[Path]:
        """Return the single photos, those of folders by name.

        Raises:
          DataError: there is none, two have the same name, or a written file would replace one of
            them.
        """
        if not self.files:
            raise DataError("give photos or a folder of photos")
        photos = list_photos(self.files)
        self._refuse_outputs("photos", photos)
        return photos

    def _refuse_outputs(self, what: str, mains: Sequence[Path]) -> None:
        """Refuse files whose outputs would replace each other, a given file, or a sidecar."""
        stems = [file.stem for file in mains]
        twice = sorted({stem for stem in stems if stems.count(stem) > 1})
        if twice:
            raise DataError(
                f"several {what} are named {one_line(twice[0])}, and their outputs would have one "
                "name; rename them, or give them one at a time, with different --output"
            )
        for file, kind in itertools.product(mains, self.sidecars):
            if not is_picture(file):
                check_sidecar(sidecar_path(file, kind, self.sidecar_folder), kind)
        inputs = {_identity(file) for file in (*mains, *self.files) if file.is_file()}
        for path in (self.output / f"{stem}.{kind}" for stem in stems for kind in self.formats):
            if path.exists() and _identity(path) in inputs:
                raise DataError(
                    f"{path} is a given photo and would be replaced by its correction; give "
                    "another folder as --output"
                )


def _identity(file: Path) -> tuple[int, int]:
    """Return what two names of one file have in common."""
    status = file.stat()
    return status.st_dev, status.st_ino
