"""`everlight export RUN`: a run's numbers for other programs."""

import csv
import itertools
import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tyro

from everlight_data.errors import DataError
from everlight_data.events import read_scalars
from everlight_data.files import read_json
from everlight_data.writing import make_folder, read_sealed, written_whole

WAIT = "Wait for the run's end, or run it again."
NAME_A_RUN = "Name the folder of a run."
NO_EVENTS = "Only runs that follow their training have one that can be exported."
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


def _write_csv(run: Path) -> Path:
    """Write a line per number: method, setting, seed, task, task tested on, metric, value.

    Places along other axes stand in brackets behind the metric, as in `tried[2]`.
    """
    arrays = read_sealed(run / "results.npz", WAIT)
    first = read_json(run / "config.json", NAME_A_RUN)["settings"].get("seed", 0)
    lines = (line for name in arrays for line in _lines(name, arrays, first))
    return _write_table(run / "scores.csv", COLUMNS, lines)


def _write_table(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Path:
    with written_whole(path) as unfinished, unfinished.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(columns)
        writer.writerows(rows)
    return path


def _empty(folder: Path, files: str) -> None:
    """Make a folder without the files that an earlier export left there."""
    make_folder(folder)
    for old in folder.glob(files):
        old.unlink()


def _lines(name: str, arrays: Mapping[str, np.ndarray], first: int) -> Iterator[tuple]:
    """Yield the columns of every number of an array; texts are empty where it is of no method."""
    before, _, metric = name.rpartition("/")
    setting, _, method = before.partition("/")
    steps, shape = arrays.get(f"{before}/steps"), arrays[name].shape
    if not method or steps is None:
        setting, method, metric, of_seeds = "", "", name, False
    else:
        # The grid of a hyper-parameter has no seeds.
        of_seeds = shape[:1] == steps.shape[:1] and metric not in ("hyperparameters", "tried")
    of_tasks = itertools.takewhile(lambda size: size == steps.shape[1], shape[1:3])
    count = len(list(of_tasks)) if of_seeds else 0
    for place, value in np.ndenumerate(arrays[name]):
        seed = first + place[0] if of_seeds else ""
        task, tested = [*place[1 : 1 + count], "", ""][:2]
        left = ",".join(map(str, place[of_seeds + count :]))
        yield method, setting, seed, task, tested, metric + (f"[{left}]" if left else ""), value


def _write_matrices(run: Path) -> Path:
    """Write accuracy matrices as nested lists, null where there is none, and as tables.

    A matrix's table has a row per run and task learned, and a column per task tested.
    """
    path = run / "results.npz"
    matrices = {
        name: array for name, array in read_sealed(path, WAIT).items() if _is_matrices(array)
    }
    if not matrices:
        raise DataError(f"{path} has no accuracy matrices; --to csv writes all that it has")
    folder = run / "matrices"
    _empty(folder, "*.csv")
    for name, array in matrices.items():
        columns = ["run", "after task", *(f"task {task}" for task in range(len(array[0])))]
        rows = [
            (number, task, *row)
            for number, matrix in enumerate(array.tolist())
            for task, row in enumerate(matrix)
        ]
        file = folder / f"{name.replace('/', '_').replace(' ', '_')}.csv"
        _write_table(file, columns, rows)
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
    scalars = list(read_scalars(run / "metrics.jsonl", NO_EVENTS))
    config = read_json(run / "config.json", NAME_A_RUN)
    folder = run / "wandb"
    # What an earlier export left; the library numbers its folders by the time.
    shutil.rmtree(folder, ignore_errors=True)
    settings = wandb.Settings(mode="offline", silent=True, disable_git=True, console="off")
    with wandb.init(
        dir=str(run), project="everlight", name=run.resolve().name, config=config, settings=settings
    ) as logged:
        for tag, step, value in scalars:
            # A number has steps of its own, where the library has one for all.
            logged.define_metric(tag, step_metric=f"{tag}/step")
            logged.log({tag: value, f"{tag}/step": step})
    return folder


def _write_events(run: Path) -> Path:
    """Write scalars under the event's texts and the number's name, each a step after the last."""
    try:
        from tensorboardX import SummaryWriter
    except ImportError as error:
        raise DataError("tensorboardX is missing: pip install '.[tensorboard]'") from error
    scalars = list(read_scalars(run / "metrics.jsonl", NO_EVENTS))
    folder = run / "tensorboard"
    _empty(folder, "events.*")
    with SummaryWriter(str(folder)) as writer:
        for tag, step, value in scalars:
            writer.add_scalar(tag, value, step)
    return folder
