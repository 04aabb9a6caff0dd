"""Data sets: list what is present, and prepare what their publishers release.

    everlight data list
    EVERLIGHT_DATA=data everlight data prepare tiny-imagenet tiny-imagenet-200.zip

After an interruption, give the same command again.
"""

import shlex
from dataclasses import dataclass
from pathlib import Path

import tyro

from everlight_data.errors import DataError, MissingDataError
from everlight_data.locations import data_root
from everlight_data.names import check_name
from everlight_data.registry import STORED_SETS
from everlight_data.sets.data_set import PreparationRequest


@dataclass(frozen=True)
class PrepareOptions:
    """Prepare a data set in EVERLIGHT_DATA from its publisher's files."""

    name: tyro.conf.Positional[str]
    """Name of the data set; `data list` shows all names."""
    source: tyro.conf.Positional[Path]
    """Path of the publisher's file or folder, or of another form that `data list` names."""
    partial: bool = False
    """Prepare an incomplete release too; core50 only."""


@dataclass(frozen=True)
class DataListOptions:
    """List all data sets with their state, source and size."""


def prepare(options: PrepareOptions) -> Path:
    """Prepare a data set, print the result and return its folder.

    Raises:
      MissingDataError: EVERLIGHT_DATA is not set, or the source does not exist.
      DataError: the data set is unknown or needs no preparation, `partial` is not for it, or the
        source is incomplete or damaged; the message names it.
    """
    name, source = options.name, options.source
    check_name("data set", name, list(STORED_SETS))
    data, root = STORED_SETS[name], data_root()
    if data.prepare is None:
        raise DataError(
            f"{name} needs no preparation: put {data.source} ({data.owner}) at "
            f"EVERLIGHT_DATA/{data.folder}"
        )
    if root is None:
        raise MissingDataError(
            "EVERLIGHT_DATA is not set. Set EVERLIGHT_DATA=<folder> to the folder of the data "
            f"sets; {name} is prepared in <folder>/{data.folder}."
        )
    if not source.exists():
        raise MissingDataError(
            f"{source} does not exist. Download {data.source} from: {data.owner}."
        )
    if options.partial and not data.accepts_partial:
        accepting = ", ".join(name for name, row in STORED_SETS.items() if row.accepts_partial)
        raise DataError(
            f"--partial works for {accepting} only; every other data set must be complete"
        )
    folder = root / data.folder
    result = data.prepare(data, PreparationRequest(source, folder, options.partial))
    print(f"{source}: {result}\nprepared: {folder}")
    return folder


def list_data(options: DataListOptions) -> None:
    """Print a paragraph for every data set.

    Raises:
      DataError: EVERLIGHT_DATA is not a folder, or a manifest is damaged.
    """
    root = data_root()
    print("EVERLIGHT_DATA is not set" if root is None else f"EVERLIGHT_DATA={root}")
    states = {name: data.state(root) for name, data in STORED_SETS.items()}
    for name, data in STORED_SETS.items():
        release = data.release(root) if root is not None and states[name] == "missing" else None
        source = "SOURCE" if release is None else shlex.quote(str(release))
        preparation = (
            f"everlight data prepare {name} {source}" if data.prepare else "no preparation needed"
        )
        print(f"\n{name}: {states[name]}")
        print(f"  content: {data.description}")
        print(f"  location: {data.folder}/, {data.size}")
        print(f"  source: {data.source}, from {data.owner}")
        print(f"  preparation: {preparation}")
    missing = [name for name, state in states.items() if state != "present"]
    print(f"\nnot present: {', '.join(missing) or 'none'}")
