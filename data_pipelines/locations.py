"""Where data sets lie: the folder named by the environment variable EVERLIGHT_DATA."""

import os
from pathlib import Path

from data_pipelines.errors import MissingDataError


def data_root() -> Path | None:
    """The folder that EVERLIGHT_DATA names, or None where the variable is not set."""
    value = os.environ.get("EVERLIGHT_DATA")
    return Path(value).expanduser() if value else None


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
    if not path.exists():
        raise MissingDataError(
            f"{path} does not exist. Get it ({size}) from {source} and put it there, "
            "or point EVERLIGHT_DATA at the folder that holds it."
        )
    return path
