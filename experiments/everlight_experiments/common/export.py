"""`everlight export RUN`: a run's numbers for other programs."""

import collections
import csv
import json
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import tyro

from everlight_data.errors import DataError
from everlight_data.events import whole_events
from everlight_data.files import read_json, read_text, refusing
from everlight_data.writing import make_folder, read_sealed, written_whole

Form = Literal["csv", "matrices", "tensorboard", "wandb"]


@dataclass(frozen=True)
class ExportSettings:
    """Export a run's numbers as CSV or JSON, or for TensorBoard or W&B."""

    run: tyro.conf.Positional[Path]
    """Folder of the run, where the exported files are written."""
    to: Form = "csv"
    """Format to write: csv is `scores.csv`, a line per number; matrices is `matrices.json` and a
    csv per method; tensorboard writes event files by tensorboardX; wandb writes an offline run,
    which `wandb sync` uploads."""


def export(settings: ExportSettings) -> Path:
    """Export a run's numbers; returns where they are.

    Raises:
      DataError: the run has none, they are damaged, or tensorboardX or wandb is missing.
    """
    writers = {
        "csv": _write_csv,
        "matrices": _write_matrices,
        "tensorboard": _write_events,
        "wandb": _write_offline_run,
    }
    written = writers[settings.to](settings.run)
    print(f"{settings.to}: {written}")
    return written


COLUMNS = ("method", "setting", "seed", "task", "tested on", "metric", "value")


class Named(NamedTuple):
    """Where an array of results.npz belongs; empty texts where it is of no method."""

    setting: str
    method: str
    metric: str
    seeds: int
    """Number of evaluation seeds, the length of the first axis; 0 where it has none."""
    tasks: int


def _write_csv(run: Path) -> Path:
    """Write a line per number: method, setting, seed, task, task tested on, metric, value.

    Places along other axes stand in brackets behind the metric, as in `tried[2]`.
    """
    arrays = read_sealed(run / "results.npz", "Wait for the run's end, or run it again.")
    first = read_json(run / "config.json", "Name the folder of a run.")["settings"].get("seed", 0)
    path = run / "scores.csv"
    with written_whole(path) as unfinished, unfinished.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(COLUMNS)
        for name, array in arrays.items():
            named = _named(name, arrays)
            for place, value in np.ndenumerate(array):
                writer.writerow([*_place(named, array.shape, place, first), value])
    return path


def _named(name: str, arrays: Mapping[str, np.ndarray]) -> Named:
    before, _, metric = name.rpartition("/")
    setting, _, method = before.partition("/")
    steps = arrays.get(f"{before}/steps")
    if not method or steps is None:
        return Named("", "", name, 0, 0)
    seeds, tasks = steps.shape
    # The grid of a hyper-parameter has no seeds.
    of_seeds = arrays[name].shape[:1] == (seeds,) and metric not in ("hyperparameters", "tried")
    return Named(setting, method, metric, seeds if of_seeds else 0, tasks)


def _place(
    named: Named, shape: tuple[int, ...], place: tuple[int, ...], first: int
) -> tuple[str | int, ...]:
    """Return all columns but for the value."""
    left, seed = list(zip(shape, place, strict=True)), ""
    if named.seeds:
        seed = first + left.pop(0)[1]
    tasks: list[str | int] = []
    while named.seeds and left and left[0][0] == named.tasks and len(tasks) < 2:
        tasks.append(left.pop(0)[1])
    task, tested = [*tasks, "", ""][:2]
    behind = f"[{','.join(str(number) for _, number in left)}]" if left else ""
    return named.method, named.setting, seed, task, tested, f"{named.metric}{behind}"


def _write_matrices(run: Path) -> Path:
    """Write accuracy matrices as nested lists, null where there is none, and as tables.

    A matrix's table has a row per run and task learned, and a column per task tested.
    """
    path = run / "results.npz"
    arrays = read_sealed(path, "Wait for the run's end, or run it again.")
    matrices = {name: array for name, array in arrays.items() if _is_matrices(array)}
    if not matrices:
        raise DataError(f"{path} has no accuracy matrices; --to csv writes all that it has")
    folder = run / "matrices"
    make_folder(folder)
    for old in folder.glob("*.csv"):
        old.unlink()
    for name, array in matrices.items():
        file = folder / f"{name.replace('/', '_').replace(' ', '_')}.csv"
        with written_whole(file) as unfinished, unfinished.open("w", newline="") as stream:
            writer = csv.writer(stream)
            writer.writerow(
                ["run", "after task", *(f"task {task}" for task in range(len(array[0])))]
            )
            for number, matrix in enumerate(array):
                for task, row in enumerate(matrix.tolist()):
                    writer.writerow([number, task, *row])
    plain = {
        name: np.where(np.isnan(array), None, array.astype(object)).tolist()
        for name, array in matrices.items()
    }
    written = run / "matrices.json"
    with written_whole(written) as unfinished:
        unfinished.write_text(json.dumps(plain))
    return written


def _is_matrices(array: np.ndarray) -> bool:
    """Return whether an array is a square matrix of numbers per run."""
    return array.ndim == 3 and array.shape[1] == array.shape[2] > 1 and array.dtype.kind == "f"


def _write_offline_run(run: Path) -> Path:
    """Write the scalars of `_write_events`, and the settings as the run's configuration."""
    try:
        import wandb
    except ImportError as error:
        raise DataError("wandb is missing: pip install '.[wandb]'") from error
    events = _read_events(run / "metrics.jsonl")
    config = read_json(run / "config.json", "Name the folder of a run.")
    folder = run / "wandb"
    # What an earlier export left; the library numbers its folders by the time.
    shutil.rmtree(folder, ignore_errors=True)
    settings = wandb.Settings(mode="offline", silent=True, disable_git=True, console="off")
    with wandb.init(
        dir=str(run), project="everlight", name=run.resolve().name, config=config, settings=settings
    ) as logged:
        steps: collections.Counter[str] = collections.Counter()
        for tag, value in (each for event in events for each in _scalars(event)):
            if value is not None:
                # A number has steps of its own, where the library has one for all.
                logged.define_metric(tag, step_metric=f"{tag}/step")
                logged.log({tag: value, f"{tag}/step": steps[tag]})
            steps[tag] += 1
    return folder


def _write_events(run: Path) -> Path:
    """Write scalars under the event's texts and the number's name, each a step after the last."""
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
    text = read_text(path, way_out)
    events = whole_events(text)
    with refusing(path, way_out):
        if not all(isinstance(event, dict) for event in events):
            raise ValueError("a line is no event")
        if text and not events:
            raise ValueError("no line is an event")
    return events


def _scalars(event: dict[str, Any]) -> Iterator[tuple[str, float | None]]:
    """Yield the event's numbers, a list's one by one; None is no number, and takes a step too."""
    label = [value for value in event.values() if isinstance(value, str)]
    for name, value in event.items():
        if isinstance(value, int | float | list):
            for number in np.ravel(np.array(value, dtype=object)):
                if isinstance(number, int | float | None):
                    yield "/".join([*label, name]), number
