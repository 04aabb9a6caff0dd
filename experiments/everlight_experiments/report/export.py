"""`everlight export RUN`: a run's numbers for other programs."""

import csv
import json
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import tyro

from everlight_data.errors import DataError
from everlight_data.optional_packages import import_package
from everlight_data.runs.configs import read_any_config
from everlight_data.runs.events import read_scalars
from everlight_data.runs.finished_runs import (
    OVER_TIME,
    PROVENANCE,
    Number,
    ResultKey,
    list_numbers,
    read_results,
    task_axes,
)
from everlight_data.writing import make_folder, written_whole
from everlight_experiments.report.run_tables import (
    WAIT,
    arrays_over_time,
    load_run,
    run_criteria,
)
from everlight_experiments.report.writer import file_names
from everlight_experiments.run_folder.folder import TENSORBOARD

NAME_A_RUN = "Name the folder of a run."
NO_EVENTS = "Only runs that follow their training have one that can be exported."
TAG_SIGNS = {"*": "-star", "+": "-plus"}
"""Words for signs of methods' names, in which CWR* and CWR+ differ, in TensorBoard's tags."""
Form = Literal["csv", "matrices", "latex", "pdf", "tensorboard", "wandb"]


@dataclass(frozen=True)
class ExportOptions:
    """Export a run's numbers as CSV or JSON, for a paper, or for TensorBoard or W&B."""

    run: tyro.conf.Positional[Path]
    """Folder of the run, where the exported files are written."""
    to: Form = "csv"
    """Format to write: csv is `scores.csv`, a line per number, nan where it is not defined,
    as average incremental accuracy of joint training, and `provenance.csv`, which has checksums and
    tried hyper-parameters; matrices is `matrices.json`, and a csv per method in `matrices/`; latex
    is `tables.tex`, which has final scores with 95% intervals and forgetting; pdf writes the
    report's curves and matrices into `figures/`; tensorboard writes event files by tensorboardX;
    wandb writes an offline run, which `wandb sync` uploads."""


def export(options: ExportOptions) -> Path:
    """Export a run's numbers; returns where they are.

    Raises:
      DataError: the run has none, they are damaged or edited, or tensorboardX or wandb is not
        installed.
    """
    writers = {
        "csv": _write_csv,
        "matrices": _write_matrices,
        "latex": _write_latex,
        "pdf": _write_figures,
        "tensorboard": _write_events,
        "wandb": _write_offline_run,
    }
    written = writers[options.to](options.run)
    print(f"{options.to}: {written}")
    return written


def _write_csv(run: Path) -> Path:
    """Write a line per number, as `list_numbers` gives them; what is no result stands apart."""
    arrays = _read_defined(run / "results.npz")
    first = read_any_config(run / "config.json", NAME_A_RUN)["settings"].get("seed", 0)
    columns = [field.replace("_", " ") for field in Number._fields]
    numbers: dict[bool, list[Number]] = {False: [], True: []}
    for number in list_numbers(arrays | run_criteria(arrays), first):
        numbers[number.metric.partition("[")[0] in PROVENANCE].append(number)
    _write_table(run / "provenance.csv", columns, numbers[True])
    return _write_table(run / "scores.csv", columns, numbers[False])


def _read_defined(path: Path) -> dict[str, np.ndarray]:
    """Return the arrays of a results.npz, with NaN before joint training's only task."""
    arrays = read_results(path, WAIT)
    return arrays | dict(arrays_over_time(arrays))


def _write_table(path: Path, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> Path:
    with written_whole(path) as unfinished, unfinished.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(columns)
        writer.writerows(rows)
    return path


def empty_folder(folder: Path, files: str) -> None:
    """Make a folder without the files of an earlier export; a link may lead to files of others."""
    if folder.is_symlink():
        raise DataError(f"{folder} is a link to another folder; remove it, and export again")
    make_folder(folder)
    for old in folder.glob(files):
        old.unlink()


def _is_by_task(name: str, arrays: Mapping[str, np.ndarray]) -> bool:
    """Return True for scores by run, task learned and task tested; confusions are by classes."""
    key, array = ResultKey.parse(name), arrays[name]
    steps = arrays.get(key.sibling("steps")) if key.method else None
    if steps is None or array.ndim != 3 or array.dtype.kind != "f":
        return False
    return task_axes(key.metric, array.shape, steps.shape[1], arrays.get(OVER_TIME)) == 2


def _write_matrices(run: Path) -> Path:
    """Write accuracy matrices as nested lists, null where there is none, and as tables.

    A matrix's table has a row per run and task learned, and a column per task tested.
    """
    path = run / "results.npz"
    arrays = _read_defined(path)
    matrices = {
        name: array
        for name, array in arrays.items()
        if _is_by_task(name, arrays) and array.shape[1] == array.shape[2] > 1
    }
    if not matrices:
        raise DataError(f"{path} has no accuracy matrices; --to csv writes all that it has")
    folder = run / "matrices"
    empty_folder(folder, "*.csv")
    files = file_names(list(matrices))
    for name, array in matrices.items():
        columns = ["run", "after task", *(f"task {task}" for task in range(len(array[0])))]
        rows = [
            (number, task, *row)
            for number, matrix in enumerate(array.tolist())
            for task, row in enumerate(matrix)
        ]
        _write_table(folder / f"{files[name]}.csv", columns, rows)
    plain = {
        name: np.where(np.isnan(array), None, array.astype(object)).tolist()
        for name, array in matrices.items()
    }
    written = run / "matrices.json"
    with written_whole(written) as unfinished:
        unfinished.write_text(json.dumps(plain))
    return written


def _write_latex(run: Path) -> Path:
    """Write the report's first table of every setting."""
    from everlight_experiments.report.run_documents import write_latex

    return write_latex(load_run(run))


def _write_figures(run: Path) -> Path:
    """Write the report's curves and matrices as PDF."""
    # Other formats do without matplotlib.
    from everlight_experiments.report.run_documents import draw_figures

    results, folder = load_run(run), run / "figures"
    empty_folder(folder, "*.pdf")
    draw_figures(results, folder)
    return folder


def _write_offline_run(run: Path) -> Path:
    """Write the scalars of `_write_events`, and the settings as the run's configuration."""
    wandb = import_package("wandb")
    scalars = list(read_scalars(run / "metrics.jsonl", NO_EVENTS))
    config = read_any_config(run / "config.json", NAME_A_RUN)["settings"]
    folder = run / "wandb"
    # Files of an earlier export are removed; the library numbers its folders by the time.
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
    tensorboard = import_package("tensorboardX")
    scalars = list(read_scalars(run / "metrics.jsonl", NO_EVENTS))
    folder = run / TENSORBOARD
    empty_folder(folder, "events.*")
    with tensorboard.SummaryWriter(str(folder)) as writer:
        for tag, step, value in scalars:
            writer.add_scalar(as_tag(tag), value, step)
    return folder


def as_tag(text: str) -> str:
    """Return a text with the signs that TensorBoard's tags may have, which it would all make _."""
    return re.sub(r"[^-/\w.]", lambda sign: TAG_SIGNS.get(sign[0], "_"), text)
