"""Finished runs side by side, with paired differences over the seeds that they share.

Seeds are shared where the same classes come at the same times, and the same samples are tested: the
same order of classes, task configuration or split.

    everlight compare runs/run-digits-demo runs/run-digits-demo-b
"""

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from zlib import crc32

import numpy as np
import tyro
from jaxtyping import Float

from everlight.metrics import student_interval
from everlight_data.errors import DataError
from everlight_data.runs.finished_runs import (
    FinishedRun,
    check_comparable,
    differences,
    name_other_options,
    read_finished_run,
)
from everlight_data.texts import printable
from everlight_experiments.commands.columns import score_figure, values_column
from everlight_experiments.continual.report.tables import seeds_above, table_of
from everlight_experiments.report.cells import LEVEL, dash, final_cell, interval_cell, sentence
from everlight_experiments.report.writer import (
    Figure,
    Report,
    Section,
    Summary,
    Table,
    file_names,
    write_report,
)
from everlight_experiments.run_folder.folder import RunFolder
from everlight_experiments.run_folder.options import FolderOptions
from everlight_experiments.terminal import aligned_rows

NO_DIFFERENCE = {"runs", "tag", "distributed", "chosen"}
"""Options that change no number."""
LONGEST = 150
"""Bytes of a comparison's name."""


@dataclasses.dataclass(frozen=True)
class CompareOptions(FolderOptions):
    """Compare finished continual-learning runs with paired differences and intervals."""

    folders: tyro.conf.Positional[tuple[Path, ...]] = ()
    """Folders of two or more finished runs; differences are from the first."""


def run_compare(options: CompareOptions) -> Path:
    """Write the comparison; returns the report's path.

    Raises:
      DataError: fewer than two runs, a folder without results, runs on other data, or runs without
        a common order of classes.
    """
    # `Path.resolve` fails at a loop of links, which the reader below refuses in one line.
    folders = tuple(Path(os.path.realpath(folder)) for folder in options.folders)
    if len(set(folders)) < max(2, len(folders)):
        raise DataError("give the folders of two runs or more, each once")
    runs = [
        read_finished_run(folder)._replace(name=name)
        for folder, name in zip(folders, _distinct_names(folders), strict=True)
    ]
    first = runs[0]
    check_comparable(runs, NO_DIFFERENCE)
    options = dataclasses.replace(options, folders=folders)
    folder = RunFolder("compare", _name(folders), options)
    summary_rows = [
        ("Runs", "; ".join(f"{run.name} ({len(run.draws)} seeds)" for run in runs)),
        (
            "Differences",
            f"from {first.name}, paired over the seeds with equal class orders or configurations; "
            f"the interval is Student's at {LEVEL:.0%}; ± elsewhere is the standard deviation over "
            "all seeds of a run",
        ),
        ("Settings that differ", name_other_options(runs, NO_DIFFERENCE)),
        ("Selection rule", "each run's own, stated in its report"),
    ]
    columns = list(dict.fromkeys(column for run in runs for column in run.finals))
    files = file_names(columns)
    items = {
        column: _comparison_items(folder.path / f"compared_{files[column]}.png", column, runs)
        for column in columns
    }
    for table, _ in items.values():
        _print_table(table)
    table, figure = items.pop(columns[0])
    summary = Summary(_headline(columns[0], runs), figure, table)
    sections = [Section(sentence(column), items=shown) for column, shown in items.items()]
    report = Report(summary_rows, sections, summary)
    return write_report(folder.path, f"{len(runs)} runs side by side", report)


def _print_table(table: Table) -> None:
    """Print the cells of a table under its caption."""
    header = [" ".join(filter(None, (column.group, column.name))) for column in table.columns]
    print("", table.caption, *aligned_rows([header, *table.rows]), sep="\n")


def _distinct_names(folders: Sequence[Path]) -> list[str]:
    """Return the folders' names, with as many parent folders as make them distinct."""
    length = next(
        length
        for length in range(1, max(len(folder.parts) for folder in folders) + 1)
        if len({folder.parts[-length:] for folder in folders}) == len(folders)
    )
    return [printable(str(Path(*folder.parts[-length:]))) for folder in folders]


def _headline(column: str, runs: Sequence[FinishedRun]) -> tuple[str, ...]:
    """Return the question, the highest score with its interval, and the run compared with."""
    finals = {
        f"{name} of {run.name}": values
        for run in runs
        for name, values in run.finals.get(column, {}).items()
        if not np.isnan(values).any()
    }
    best = max(finals, key=lambda name: finals[name].mean(), default=None)
    highest = "none, all diverged" if best is None else f"{best}, {interval_cell(finals[best])}"
    return (
        f"How do the runs differ in final {runs[0].score} ({column})?",
        f"Best, with {LEVEL:.0%} interval: {highest}.",
        f"Baseline of all differences: {runs[0].name}.",
    )


def _name(folders: Sequence[Path]) -> str:
    """Return the name of the comparison's folder: the compared ones, or a checksum of them."""
    name = "+".join(folder.name for folder in folders)
    content = os.fsencode(name)
    return name if len(content) <= LONGEST else f"{len(folders)}-runs-{crc32(content):08x}"


def _comparison_items(path: Path, column: str, runs: Sequence[FinishedRun]) -> list[Table | Figure]:
    """Return a table of the final scores of all runs with paired differences, and their picture."""
    first, *others = runs
    final = f"final {first.score}"
    scores = {run.name: run.finals.get(column, {}) for run in runs}
    names = list(dict.fromkeys(name for by_name in scores.values() for name in by_name))
    columns = [
        values_column(name, by_method, final_cell, final) for name, by_method in scores.items()
    ]
    for other in others:
        gaps, group = differences(first, other, column), f"{other.name} − {first.name}"
        columns.append(values_column("difference", gaps, _signed_interval, group))
        columns.append(values_column("seeds above", gaps, seeds_above, group))
    caption = (
        f"{sentence(final)} of each run ({column}; mean ± standard deviation over seeds), and "
        f"paired differences with {LEVEL:.0%} intervals."
    )
    marks = {"diverged": "Diverged runs have no score, and their seeds no difference."}
    return [
        table_of(caption, {name: name for name in names}, columns, marks),
        score_figure(path, names, scores, f"{final} ({column})"),
    ]


def _signed_interval(gaps: Float[np.ndarray, "seeds"]) -> str:
    """Return mean and interval of differences, with signs; – where a run diverged."""
    mean, half = student_interval(gaps)
    interval = "" if np.isnan(half) else f" [{mean - half:+.3f}, {mean + half:+.3f}]"
    return dash(f"{mean:+.3f}{interval}")
