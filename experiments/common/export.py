"""`python -m experiments export RUN`: a run's numbers for other programs."""

import collections
import csv
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tyro

from data_pipelines.errors import DataError
from data_pipelines.files import read_text, refusing
from data_pipelines.writing import make_folder, read_sealed, written_whole


@dataclass(frozen=True)
class ExportSettings:
    """A run's numbers as CSV (all of results.npz) or for TensorBoard (metrics.jsonl)."""

    run: tyro.conf.Positional[Path]
    """The run's folder, where what is exported is written."""
    to: Literal["csv", "tensorboard"] = "csv"
    """csv: `scores.csv`; tensorboard: event files in `tensorboard/`, by tensorboardX."""


def export(settings: ExportSettings) -> Path:
    """Exports a run's numbers; returns where they are.

    Raises:
      DataError: the run has none, they are damaged, or tensorboardX is missing.
    """
    written = {"csv": _write_csv, "tensorboard": _write_events}[settings.to](settings.run)
    print(f"{settings.to}: {written}")
    return written


def _write_csv(run: Path) -> Path:
    """A line an entry: its array, its place in it, and its value."""
    arrays = read_sealed(run / "results.npz", "Wait for the run's end, or run it again.")
    path = run / "scores.csv"
    with written_whole(path) as unfinished, unfinished.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["array", "place", "value"])
        for name, array in arrays.items():
            for place, value in np.ndenumerate(array):
                writer.writerow([name, " ".join(map(str, place)), value])
    return path


def _write_events(run: Path) -> Path:
    """Scalars under the event's texts and the number's name, each a step after the last one."""
    try:
        from tensorboardX import SummaryWriter
    except ImportError as error:
        raise DataError("tensorboardX is missing: pip install '.[tensorboard]'") from error
    events = _read_events(run / "metrics.jsonl")
    folder = run / "tensorboard"
    make_folder(folder)
    for old in folder.glob("events.*"):
        old.unlink()
    steps: collections.Counter[str] = collections.Counter()
    with SummaryWriter(str(folder)) as writer:
        for tag, value in (each for event in events for each in _scalars(event)):
            if value is not None:
                writer.add_scalar(tag, value, steps[tag])
            steps[tag] += 1
    return folder


def _read_events(path: Path) -> list[dict[str, Any]]:
    way_out = "Only runs that follow their training have one that can be exported."
    lines = read_text(path, way_out).splitlines()
    with refusing(path, way_out):
        events = [json.loads(line) for line in lines]
        if not all(isinstance(event, dict) for event in events):
            raise ValueError("a line is no event")
    return events


def _scalars(event: dict[str, Any]) -> Iterator[tuple[str, float | None]]:
    """The event's numbers, a list's one by one; None is no number, and takes a step too."""
    label = [value for value in event.values() if isinstance(value, str)]
    for name, value in event.items():
        if isinstance(value, int | float | list):
            for number in np.ravel(np.array(value, dtype=object)):
                if isinstance(number, int | float | None):
                    yield "/".join([*label, name]), number
