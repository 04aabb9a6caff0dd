"""Where data sets lie: the folder named by the environment variable EVERLIGHT_DATA."""

import os
from pathlib import Path

from data_pipelines.errors import DataError, MissingDataError
from data_pipelines.files import one_line, refusing


def data_root() -> Path | None:
    """The folder that EVERLIGHT_DATA names, or None where the variable is not set.

    Raises:
      DataError: it names something that is no folder.
    """
    value = os.environ.get("EVERLIGHT_DATA")
    if not value:
        return None
    try:
        root = Path(value).expanduser()
        usable = root.is_dir() or not root.exists()
    except (OSError, RuntimeError) as error:
        raise DataError(f"EVERLIGHT_DATA={value} cannot be read ({one_line(error)}).") from error
    if not usable:
        raise DataError(f"EVERLIGHT_DATA={value} is no folder; name that of the data sets.")
    return root


def locate(relative: str, source: str, size: str) -> Path:
    """The path of a data file or folder below the data root.

    Args:
      relative: path below EVERLIGHT_DATA, such as ``s20_two_camera/Metadata_Image_Pairs.zip``.
      source: where a user gets it, for the message.
      size: its rough size, for the message.

    Raises:
      MissingDataError: EVERLIGHT_DATA is not set, or nothing lies at that path.
    """
    root = data_root()
    if root is None:
        raise MissingDataError(
            f"{relative} is needed, but EVERLIGHT_DATA is not set. Get it ({size}) from {source}, "
            f"put it at <folder>/{relative} and set EVERLIGHT_DATA=<folder>."
        )
    path = root / relative
    with refusing(path, f"Get it ({size}) from {source}."):
        there = path.exists()
    if not there:
        lost = path if root.exists() else f"EVERLIGHT_DATA={root}, and so {relative} in it,"
        raise MissingDataError(
            f"{lost} does not exist. Get it ({size}) from {source} and put it there, "
            "or point EVERLIGHT_DATA at the folder that holds it."
        )
    return path
