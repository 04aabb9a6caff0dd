"""Tags of DNG and other TIFF-based raw files: the directories that count, and values as numbers."""

import logging
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from jaxtyping import Float

from everlight_data.errors import DataError
from everlight_data.optional_packages import import_package

if TYPE_CHECKING:
    import tifffile

COLOR_FILTER_ARRAY = 32803
"""TIFF's photometric interpretation of a mosaic."""
LINEAR_RAW = 34892
"""DNG's photometric interpretation of pixels that are demosaiced."""
MAX_DIRECTORIES = 64
"""Limit on the directories that are searched for the mosaic."""
MAX_VALUES = 200_000
"""Limit on the numbers of a tag; the longest have one per row or column of a sensor."""
RATIONALS = (5, 10)
"""TIFF's types of fractions."""
_FORMS = (b"II*\0", b"MM\0*", b"II+\0", b"MM\0+")
PROFILE_HEADERS = {b"IIRC": "<", b"MMCR": ">"}
"""Byte order, as `struct` names it, by a camera profile's first four bytes."""


class RawDirectories(NamedTuple):
    """Directories of a raw file."""

    path: Path
    """Path of the file."""
    first: "tifffile.TiffTags"
    """Tags of the first directory, which has the colours, the names and the orientation."""
    mosaic: "tifffile.TiffTags | None"
    """Tags of the directory of the sensor's values; None without one."""
    photometrics: frozenset[int]
    """Photometric interpretations of all directories."""
    is_bigtiff: bool
    """True for a BigTIFF."""

    @property
    def is_dng(self) -> bool:
        """Return True if the file states a version of DNG."""
        return "DNGVersion" in self.first

    def color_tag(self, name: str) -> "tifffile.TiffTag | None":
        """Return a tag of the first directory, or else of the mosaic's."""
        return _first(name, self.first, self.mosaic)

    def mosaic_tag(self, name: str) -> "tifffile.TiffTag | None":
        """Return a tag of the mosaic's directory alone."""
        return _first(name, self.mosaic)

    def level_tag(self, name: str, names: Sequence[str]) -> "tifffile.TiffTag | None":
        """Return a tag of the mosaic's directory, or of the first one where that has all of them.

        Args:
          name: name of the tag.
          names: names of the tags that belong together.
        """
        stated = self.mosaic is not None and any(other in self.mosaic for other in names)
        return _first(name, self.mosaic if stated else self.first)

    def refusal(self, name: str, reason: str, remedy: str) -> DataError:
        """Return the error for a value that is not supported."""
        return DataError(f"{self.path}: {name} {reason}; {remedy}")

    def numbers(self, tag: "tifffile.TiffTag") -> Float[np.ndarray, "n"]:
        """Return a tag's numbers, fractions as quotients.

        Raises:
          DataError: the tag has no numbers, or one that is not finite.
        """
        if tag.count > MAX_VALUES:
            raise self.refusal(tag.name, f"has {tag.count:,} values", DAMAGED)
        try:
            values = list(tag.value) if isinstance(tag.value, bytes) else tag.value
            numbers = np.atleast_1d(np.asarray(values, float))
            if tag.dtype in RATIONALS:
                above, below = numbers.reshape(-1, 2).T
                with np.errstate(divide="ignore", invalid="ignore"):
                    numbers = above / below
        except (TypeError, ValueError):
            numbers = np.array([np.nan])
        if numbers.ndim != 1 or not np.isfinite(numbers).all():
            raise self.refusal(tag.name, "holds no finite numbers", DAMAGED)
        return numbers


DAMAGED = "the tag is damaged, copy the file again from the camera"


def _first(name: str, *directories: "tifffile.TiffTags | None") -> "tifffile.TiffTag | None":
    """Return the tag of the first directory that has it."""
    tags = (directory.get(name) for directory in directories if directory is not None)
    return next((tag for tag in tags if tag is not None), None)


def is_tiff(path: Path) -> bool:
    """Return True if a file begins as a TIFF does."""
    with path.open("rb") as stream:
        return stream.read(4) in _FORMS


def is_profile(path: Path) -> bool:
    """Return True if a file begins as a camera profile (.dcp) does."""
    with path.open("rb") as stream:
        return stream.read(4) in PROFILE_HEADERS


@contextmanager
def opened_tiff(path: Path) -> Iterator["tifffile.TiffFile"]:
    """Open a TIFF-based file; while it is open, this thread's reads are not logged by tifffile.

    Values outside tifffile's tables are refused by the readers instead.

    Raises:
      MissingPackageError: tifffile is not installed.
      Exception: any error of tifffile about content that is not a TIFF.
    """
    logger, thread = logging.getLogger("tifffile"), threading.get_ident()

    def is_of_another(record: logging.LogRecord) -> bool:
        return record.thread != thread

    logger.addFilter(is_of_another)
    try:
        with import_package("tifffile").TiffFile(path) as file:
            yield file
    finally:
        logger.removeFilter(is_of_another)


@contextmanager
def raw_directories(path: Path, shape: tuple[int, int] | None = None) -> Iterator[RawDirectories]:
    """Open the directories of a TIFF-based raw file, whose tags are read while it is open.

    Args:
      path: path of the file, which must be a TIFF.
      shape: height and width of the sensor as decoded, which choose between several mosaics.

    Raises:
      MissingPackageError: tifffile is not installed.
      DataError: the file holds several mosaics, or none of the shape.
    """
    with opened_tiff(path) as file:
        pages = list(_pages(file.pages))
        mosaics = [page for page in pages if page.photometric == COLOR_FILTER_ARRAY]
        # NewSubfileType is 0 for the raw image itself; others are smaller versions.
        mosaics = [page for page in mosaics if not page.subfiletype] or mosaics
        if len(mosaics) > 1 and shape is not None:
            count = len(mosaics)
            mosaics = [page for page in mosaics if (page.imagelength, page.imagewidth) == shape]
            if len(mosaics) != 1:
                sizes = "one size" if mosaics else "sizes that the decoded one does not have"
                raise DataError(
                    f"{path} holds {len(mosaics) or count} mosaics of {sizes}; give a file of one "
                    "photograph."
                )
        tags = mosaics[0].tags if mosaics else None
        photometrics = frozenset(page.photometric for page in pages)
        yield RawDirectories(path, file.pages[0].tags, tags, photometrics, file.is_bigtiff)


def _pages(pages: Sequence, budget: int = MAX_DIRECTORIES) -> Iterator["tifffile.TiffPage"]:
    """Yield pages, and the pages below them, up to a number."""
    for page in pages:
        if budget <= 0:
            return
        budget -= 1
        yield page
        for below in _pages(page.pages or (), budget):
            budget -= 1
            yield below
