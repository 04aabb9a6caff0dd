"""Lists of the brightness of photos' scenes."""

from collections.abc import Sequence
from pathlib import Path

from everlight_data.color.photographs.thumbnails import LUX, LUX_RANGE
from everlight_data.errors import DataError
from everlight_data.formats.tables import read_columns
from everlight_data.names import repeated_names
from everlight_data.texts import one_line

REMEDY = "Give a CSV file with a header and the columns photo and lux."


def lux_of_photos(lux: float | Path, photos: Sequence[Path]) -> dict[Path, float]:
    """Return the brightness of each photo's scene.

    Args:
      lux: one brightness in lux for all photos, or a CSV file with the columns photo, the photo's
        file name with or without its folder, and lux.
      photos: files of the photos.

    Raises:
      MissingDataError: the file does not exist.
      DataError: a photo is missing, shares its name or has two numbers, or a number is damaged or
        out of range.
    """
    if not isinstance(lux, Path):
        return dict.fromkeys(photos, _checked(lux, "--lux"))
    listed: dict[str, float] = {}
    for photo, text in read_columns(lux, ("photo", LUX), REMEDY):
        value = _checked(text, f"{lux}: {one_line(photo)}")
        if listed.setdefault(photo, value) != value:
            raise DataError(f"{lux} states two numbers for {one_line(photo)}. {REMEDY}")
    shared = repeated_names([photo.name for photo in {*photos}])
    return {photo: _listed(listed, photo, lux, shared) for photo in photos}


def _listed(listed: dict[str, float], photo: Path, path: Path, shared: Sequence[str]) -> float:
    """Return a photo's number by its path, or else by its name, if no other photo shares it."""
    name = str(photo) if str(photo) in listed else photo.name
    if name in listed and name != str(photo) and name in shared:
        raise DataError(
            f"{path} has {one_line(name)}, the name of several photos; list each with its folder, "
            f"as {one_line(str(photo))}"
        )
    if name not in listed:
        raise DataError(f"{path} does not list {photo}. {REMEDY}")
    return listed[name]


def _checked(value: float | str, what: str) -> float:
    low, high = LUX_RANGE
    try:
        number = float(value)
    except ValueError:
        number = float("nan")
    if not low <= number <= high:
        raise DataError(
            f"{what} has {one_line(str(value))}, not a number of {low:g} to {high:g} lux"
        )
    return number
