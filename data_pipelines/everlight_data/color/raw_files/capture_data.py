"""Reader of a photograph's time and settings of capture, from the EXIF tags of a DNG or TIFF."""

import re
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from everlight_data.color.raw_files.dng_tags import opened_tiff
from everlight_data.color.raw_files.raw import MAX_BYTES
from everlight_data.formats.files import check_readable, refusing

EXIF = 34665
EXPOSURE_TIME, ISO, DATE, FLASH = 33434, 34855, 36867, 37385
"""Numbers of the tags ExposureTime, ISOSpeedRatings, DateTimeOriginal and Flash."""
ISO_BEYOND = 65535
"""Value of ISOSpeedRatings for this sensitivity and larger ones (EXIF 2.3)."""
LARGE_ISO = {
    34867: "ISOSpeed",
    34866: "RecommendedExposureIndex",
    34865: "StandardOutputSensitivity",
}
"""Tags of a larger sensitivity, by number; the first one that a file has counts."""
NAMES = {
    EXPOSURE_TIME: "ExposureTime",
    ISO: "ISOSpeedRatings",
    DATE: "DateTimeOriginal",
    FLASH: "Flash",
    **LARGE_ISO,
}
REMEDY = "Give a photograph with the EXIF tags ExposureTime, ISOSpeedRatings, DateTimeOriginal."


class Capture(NamedTuple):
    """Time and settings of a capture, as `everlight.color.capture_features` takes them."""

    time: float
    """Local time of day in seconds from midnight."""
    day: tuple[int, int, int]
    """Date as (year, month, day)."""
    iso: float
    """Sensitivity."""
    exposure: float
    """Exposure time in seconds."""
    flash: bool
    """True if the flash fired; False where the file does not say."""


def read_capture(path: Path) -> Capture:
    """Read the tags from the first image's directory or its EXIF directory; no pixel is read.

    Raises:
      MissingDataError: the file does not exist.
      MissingPackageError: tifffile is not installed.
      DataError: the file is damaged or no TIFF, or a tag is missing or damaged.
    """
    check_readable(path, MAX_BYTES, REMEDY)
    with refusing(path, REMEDY):
        with opened_tiff(path) as file:
            tags = file.pages[0].tags
            nested = tags.valueof(EXIF)
            known = nested if isinstance(nested, dict) else {}
            values = {code: tags.valueof(code, known.get(name)) for code, name in NAMES.items()}
        date = re.fullmatch(r"(\d{4}):(\d\d):(\d\d) (\d\d):(\d\d):(\d\d)", _text(values[DATE]))
        if date is None:
            raise ValueError(f"its DateTimeOriginal is {values[DATE]!a}")
        try:
            # A camera whose clock was never set writes year 0.
            taken = datetime(*map(int, date.groups()))
        except ValueError as error:
            raise ValueError(f"its DateTimeOriginal is {values[DATE]!a}") from error
        return Capture(
            3600.0 * taken.hour + 60.0 * taken.minute + taken.second,
            (taken.year, taken.month, taken.day),
            _sensitivity(values),
            _positive("ExposureTime", values[EXPOSURE_TIME]),
            # The lowest bit says whether the flash fired.
            bool(int(values[FLASH] or 0) & 1),
        )


def _sensitivity(values: dict[int, Any]) -> float:
    """Return the sensitivity; a value beyond 16 bits has a tag of its own."""
    if values[ISO] != ISO_BEYOND:
        return _positive(NAMES[ISO], values[ISO])
    for code in LARGE_ISO:
        if values[code] is not None:
            return _positive(NAMES[code], values[code])
    raise ValueError(f"its {NAMES[ISO]} is {ISO_BEYOND}, which stands for a larger value")


def _text(value: Any) -> str:
    text = value.decode("ascii", "replace") if isinstance(value, bytes) else str(value)
    return text.rstrip("\0").strip()


def _positive(name: str, value: Any) -> float:
    """Return a number or the quotient of a rational one."""
    if isinstance(value, tuple) and len(value) == 2 and value[1]:
        value = value[0] / value[1]
    if isinstance(value, tuple | list) or value is None or not 0 < float(value) < 1e9:
        raise ValueError(f"its {name} is {value!a}")
    return float(value)
