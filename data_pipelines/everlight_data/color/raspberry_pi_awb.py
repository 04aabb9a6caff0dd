"""Raspberry Pi's images for white balance (github.com/raspberrypi/awb_nn, BSD-3).

13 contributors took 708 images by 7 camera modules. The release has them as pictures of 32x32
pixels of 16 bits, which its converter rendered: lens shading corrected, divided by the white of
5,000 K of the module's tuning file, multiplied by its colour matrix of 5,000 K, and clipped. Here
the last two are undone, so that the thumbnails have raw colours as other sets do; pixels that were
clipped are masked.

The name of a picture, CONTRIBUTOR,MODULE,NUMBER,KELVIN,LUX,CAMERA_KELVIN.png, has the labelled
colour temperature and that of the camera's own white balance. Both stand for points of the tuning
file's locus: what a label or the camera's estimate had off the locus is not in the release.
"""

import csv
import io
from collections import Counter
from collections.abc import Iterable
from functools import partial
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, UInt16

from everlight_data.color.tuning_files.libcamera import parse_tuning, read_tuning
from everlight_data.errors import DataError, MissingDataError
from everlight_data.formats.archives import Archive, open_inner_archive
from everlight_data.formats.arrays import dtype_and_shape, read_npz
from everlight_data.formats.files import refusing
from everlight_data.formats.image_headers import png_size
from everlight_data.optional_packages import import_package
from everlight_data.sets.camera_tuning import TemperatureCurve, Tuning
from everlight_data.sets.constancy_set import ConstancySet, Photograph
from everlight_data.sets.data_set import DataSet, file_by_file
from everlight_data.sets.preparing import Files, Source, find, npz

OWNER = "github.com/raspberrypi/awb_nn"
FOLDER = "raspberry_pi_awb"
MODULES = ("imx219", "imx296", "imx477", "imx500", "imx708", "imx708_wide", "ov5647")
CONTRIBUTORS = "contributors.csv"
"""List of the contributors of the images, for `--groups` of `illuminant train`."""
LABELS = ("temperature", "camera_temperature", "lux")
_ARCHIVE = "dataset-pisp.zip"
"""Pictures for the Raspberry Pi 5; those for older ones show the same scenes on 16x12 pixels."""
_MAX_ARCHIVE_BYTES, _MAX_PICTURE_BYTES, _MAX_TUNING_BYTES = 100_000_000, 100_000, 1_000_000
_SIDE, _WHITE = 32, 65_535


class Picture(NamedTuple):
    """A picture of the release, with what its name states."""

    name: str
    contributor: str
    module: str
    labels: tuple[float, float, float]
    """`LABELS`: labelled and camera's own colour temperature in kelvin, and lux."""
    path: str


def recipe(source: Source) -> Files:
    """Return the recipe of thumbnails and tuning file per module, and of the contributors."""
    archive_path = find(source, _ARCHIVE)
    pictures = _opened(source, archive_path, _pictures)
    modules = sorted({picture.module for picture in pictures})
    if unknown := sorted({*modules} - {*MODULES}):
        raise ValueError(f"{archive_path} has images by {unknown[0]!a}, not by {MODULES}")
    files: dict = {}
    for module in modules:
        files[f"{module}.npz"] = partial(_module_npz, source, archive_path, module)
        files[f"{module}.json"] = partial(_read_tuning_bytes, source, module)
    return files | {CONTRIBUTORS: partial(_contributors_csv, pictures)}


def load_raspberry_pi(folder: Path) -> dict[str, ConstancySet]:
    """Return the prepared images by camera module, with tuning files and the cameras' estimates.

    Raises:
      MissingDataError: the folder has none of the files.
      DataError: a file is damaged.
    """
    modules = [module for module in MODULES if (folder / f"{module}.npz").exists()]
    if not modules:
        raise MissingDataError(
            f"{folder} has no {MODULES[0]}.npz. Make it by `everlight data prepare "
            f"raspberry-pi-awb` from a copy of {OWNER}."
        )
    return {module: _load_module(folder, module) for module in modules}


def release_curve(tuning: Tuning) -> TemperatureCurve:
    """Return a tuning file's locus as the release's converter reads it.

    The converter multiplies the curve by the sensitivities, where libcamera divides by them. Only
    the IMX500's file has others than 1.
    """
    curve = tuning.needed_curve()
    factors = np.array(next(iter(tuning.sensitivities.values()), (1.0, 1.0)))
    return curve._replace(chromaticities=curve.chromaticities * factors**2)


def _load_module(folder: Path, module: str) -> ConstancySet:
    # The library's colour functions import JAX, which takes seconds.
    from everlight_data.color.photographs.thumbnails import read_thumbnails
    from everlight_data.color.tuning_files.tuning_colors import illuminants_at

    path, remedy = folder / f"{module}.npz", f"Prepare it again from {OWNER}."
    stored, tuning = read_thumbnails(path, remedy), read_tuning(folder / f"{module}.json")
    arrays, count = read_npz(path, remedy), len(stored.names)
    temperatures = arrays.get("camera_temperature", np.zeros(0))
    with refusing(path, remedy):
        if temperatures.shape != (count,) or temperatures.dtype.kind not in "if":
            raise ValueError(f"camera_temperature has {dtype_and_shape(temperatures)}")
    curve = release_curve(tuning)
    return ConstancySet(
        names=stored.names,
        illuminants=stored.illuminants,
        read_image=lambda row: Photograph(stored.images[row], stored.masks[row]),
        captures=stored.captures,
        camera_estimates=illuminants_at(curve, temperatures),
        tuning=tuning._replace(curve=curve),
    )


def _opened(source: Source, path: str, read, *arguments):
    """Return what a function reads of the release's archive."""
    content = io.BytesIO(source.read(path, _MAX_ARCHIVE_BYTES))
    with open_inner_archive(content, source.path / path, source.remedy) as archive:
        return read(archive, *arguments)


def _pictures(archive: Archive) -> list[Picture]:
    """Return the pictures of the archive in the order of their names."""
    paths = [member.name for member in archive.files() if member.name.endswith(".png")]
    pictures = [_parse(path) for path in paths if "__MACOSX/" not in path]
    if not pictures:
        raise ValueError(f"{archive.path} has no .png")
    counts = Counter(picture.name for picture in pictures)
    if twice := next((name for name, count in counts.items() if count > 1), ""):
        raise ValueError(f"{archive.path} has two pictures {twice!a}")
    return sorted(pictures)


def _parse(path: str) -> Picture:
    parts = PurePosixPath(path).stem.split(",")
    if len(parts) != 6:
        raise ValueError(f"{path!a} is not CONTRIBUTOR,MODULE,NUMBER,KELVIN,LUX,CAMERA_KELVIN.png")
    labelled, lux, camera = map(float, parts[3:])
    if not (1e3 <= labelled <= 1e5 and 1e3 <= camera <= 1e5 and 0 <= lux <= 1e9):
        raise ValueError(f"{path!a} states a temperature or brightness that cannot be")
    return Picture(" ".join(parts), parts[0], parts[1], (labelled, camera, lux), path)


def _module_npz(source: Source, archive_path: str, module: str) -> bytes:
    """Return a module's thumbnails, with labels, as bytes of an `.npz`."""
    from everlight_data.color.tuning_files.tuning_colors import illuminants_at, rendering_at

    tuning = parse_tuning(source.path / module, _read_tuning_bytes(source, module).decode("utf-8"))
    pictures = [p for p in _opened(source, archive_path, _pictures) if p.module == module]
    pixels = _opened(source, archive_path, _read_pixels, pictures)
    curve = release_curve(tuning)
    images, masks = raw_colors(pixels, rendering_at(curve, tuning.needed_matrices()))
    labels = np.array([picture.labels for picture in pictures])
    return npz(
        images_u16=images,
        masks=masks,
        illuminant_rgb=illuminants_at(curve, labels[:, 0]),
        names=np.array([picture.name for picture in pictures]),
        **dict(zip(LABELS, labels.T, strict=True)),
    )


def raw_colors(
    pixels: UInt16[np.ndarray, "n 32 32 3"], transform: Float[np.ndarray, "3 3"]
) -> tuple[UInt16[np.ndarray, "n 32 32 3"], Bool[np.ndarray, "n 32 32"]]:
    """Return raw colours of 16 bits, and where no channel of a rendered pixel was clipped."""
    raw = pixels.astype(float) @ np.linalg.inv(transform)
    inside = ((pixels > 0) & (pixels < _WHITE)).all(axis=-1)
    usable = inside & ((raw > 0) & (raw < _WHITE)).all(axis=-1)
    return np.rint(np.clip(raw, 0, _WHITE)).astype(np.uint16), usable


def _read_pixels(archive: Archive, pictures: Iterable[Picture]) -> UInt16[np.ndarray, "n 32 32 3"]:
    decode = import_package("imagecodecs").png_decode
    images = []
    for picture in pictures:
        content = archive.read(picture.path, _MAX_PICTURE_BYTES)
        size = png_size(content)
        pixels = decode(content) if size == (_SIDE, _SIDE) else np.zeros(0)
        if pixels.shape != (_SIDE, _SIDE, 3) or pixels.dtype != np.uint16:
            raise DataError(
                f"{archive.path}/{picture.path} is not a picture of 32x32 pixels with three "
                f"channels of 16 bits. {archive.remedy}"
            )
        images.append(pixels)
    return np.stack(images)


def _read_tuning_bytes(source: Source, module: str) -> bytes:
    return source.read(find(source, f"tunings/pisp/{module}.json"), _MAX_TUNING_BYTES)


def _contributors_csv(pictures: Iterable[Picture]) -> bytes:
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["camera", "image", "group"])
    table.writerows((p.module, p.name, p.contributor) for p in pictures)
    return text.getvalue().encode()


DATA_SETS = {
    "raspberry-pi-awb": DataSet(
        "Raspberry Pi: 708 raw 32x32 thumbnails by 7 camera modules, with colour temperatures",
        files=tuple(
            f"{FOLDER}/{file}"
            for file in (
                *(f"{module}.npz" for module in MODULES),
                *(f"{module}.json" for module in MODULES),
                CONTRIBUTORS,
            )
        ),
        owner=OWNER,
        source="the repository (BSD-3), with Datasets/dataset-pisp.zip and tunings/pisp",
        size_bytes=6_000_000,
        prepare=file_by_file(recipe),
        read_photographs=load_raspberry_pi,
    )
}
