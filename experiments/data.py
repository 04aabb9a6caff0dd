"""Data sets: which are there, and those that loaders read made of what their owners publish.

    python -m experiments data list
    EVERLIGHT_DATA=data python -m experiments data prepare tiny-imagenet tiny-imagenet-200.zip

A preparation that was stopped goes on.
"""

from dataclasses import dataclass
from pathlib import Path

import tyro

from data_pipelines.data_sets import DATA_SETS, DataSet
from data_pipelines.errors import DataError, MissingDataError
from data_pipelines.locations import data_root
from data_pipelines.writing import amount
from experiments.common.settings import check_name


@dataclass(frozen=True)
class PrepareSettings:
    """Prepare a data set in EVERLIGHT_DATA from its owner's files."""

    name: tyro.conf.Positional[str]
    """Name of the data set, as `data list` shows it."""
    source: tyro.conf.Positional[Path]
    """Path of the owner's file, or of its folder."""
    partial: bool = False
    """Prepare an incomplete release too, which core50 alone allows."""


@dataclass(frozen=True)
class ListSettings:
    """List all data sets with state, source and size."""


def prepare(settings: PrepareSettings) -> Path:
    """Prepares a data set and prints what was found; returns its folder.

    Raises:
      DataError: no such data set, EVERLIGHT_DATA is not set, or the source is missing, incomplete
        or damaged; named.
    """
    check_name("data set", settings.name, list(DATA_SETS))
    data = DATA_SETS[settings.name]
    if data.prepare is None:
        raise DataError(
            f"{settings.name} is read as it is published: put {data.source} ({data.owner}) at "
            f"EVERLIGHT_DATA/{data.folder}"
        )
    root = data_root()
    if root is None:
        raise MissingDataError(
            "EVERLIGHT_DATA is not set. Set EVERLIGHT_DATA=<folder> to the folder of the data "
            f"sets; {settings.name} is prepared in <folder>/{data.folder}."
        )
    if not settings.source.exists():
        raise MissingDataError(
            f"{settings.source} does not exist. Get {data.source} from: {data.owner}."
        )
    folder = root / data.folder
    found = data.prepare(settings.source, folder, data, settings.partial)
    print(f"{settings.source}: {found}\nprepared: {folder}")
    return folder


def list_data(settings: ListSettings) -> None:
    """Prints a paragraph for every data set.

    Raises:
      DataError: EVERLIGHT_DATA names no folder, or a manifest is damaged.
    """
    root = data_root()
    print("EVERLIGHT_DATA is not set" if root is None else f"EVERLIGHT_DATA={root}")
    states = {name: state(data, root) for name, data in DATA_SETS.items()}
    for name, data in DATA_SETS.items():
        size = "size not known" if data.bytes is None else amount(data.bytes)
        how = (
            f"python -m experiments data prepare {name} SOURCE"
            if data.prepare
            else "read as it is published"
        )
        print(f"\n{name}: {states[name]}")
        print(f"  {data.what}; {size} in {data.folder}/; {how}")
        print(f"  from {data.owner}: {data.source}")
    missing = [name for name, found in states.items() if found != "there"]
    print(f"\nnot there: {', '.join(missing) or 'none'}")


def state(data: DataSet, root: Path | None) -> str:
    """Whether a data set is there, and what of it is not.

    Raises:
      DataError: its manifest is damaged.
    """
    missing = data.files if root is None else data.missing(root)
    if len(missing) == len(data.files):
        return "missing"
    if missing:
        return f"incomplete, without {', '.join(missing)}"
    altered = data.altered(root)
    if altered:
        return f"altered since it was prepared: {', '.join(altered)}; prepare it again"
    return "there"
