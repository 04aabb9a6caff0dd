"""Location of the data sets: the folder in the environment variable EVERLIGHT_DATA."""

import os
from pathlib import Path

from everlight_data.errors import DataError, MissingDataError
from everlight_data.formats.files import refusing
from everlight_data.texts import one_line


def data_root() -> Path | None:
    """Return the folder named by EVERLIGHT_DATA, or None if the variable is not set.

    Raises:
      DataError: EVERLIGHT_DATA names something that is not a folder.
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
        raise DataError(f"EVERLIGHT_DATA={value} is not a folder; set it to the data folder.")
    return root


def locate(relative: str, remedy: str) -> Path:
    """Return the path of a data file or folder below the data root.

    Args:
      relative: path below EVERLIGHT_DATA, such as ``s20_two_camera/Metadata_Image_Pairs.zip``.
      remedy: sentence of the error message that says where to get it.

    Raises:
      MissingDataError: EVERLIGHT_DATA is not set, or the path does not exist.
    """
    root = data_root()
    if root is None:
        raise MissingDataError(
            f"{relative} is needed, but EVERLIGHT_DATA is not set: set it to the folder that has, "
            f"or will have, {relative}. {remedy}"
        )
    path = root / relative
    with refusing(path, remedy):
        exists = path.exists()
    if not exists:
        absent = path if root.exists() else f"EVERLIGHT_DATA={root}, and so {relative} in it,"
        raise MissingDataError(
            f"{absent} does not exist. {remedy} Put it there, or point EVERLIGHT_DATA at the "
            "folder that holds it."
        )
    return path
