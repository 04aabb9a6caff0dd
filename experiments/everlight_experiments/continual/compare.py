"""Finished runs side by side, with paired differences over the draws that they share.

A draw is an order of classes, a task configuration, a split: which samples come when.

everlight compare runs/continual-run-digits-demo runs/continual-run-digits-demo-b
"""

import dataclasses
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np
import tyro
from jaxtyping import Float, Int

from everlight_data.errors import DataError
from everlight_data.files import read_json
from everlight_data.writing import read_sealed
from everlight_experiments.common.cells import spread
from everlight_experiments.common.plots import curves_left_out, plot_curves
from everlight_experiments.common.report import (
    Column,
    Figure,
    FirstScreen,
    Section,
    Table,
    write_report,
)
from everlight_experiments.common.run_folder import RunFolder
from everlight_experiments.common.settings import FolderSettings
from everlight_experiments.continual.intervals import LEVEL, interval_cell, paired_interval
from everlight_experiments.continual.own_images import printable
from everlight_experiments.continual.report import sentence

NO_DIFFERENCE = {"runs", "tag", "distributed", "chosen"}
"""Settings that change no number."""
LONGEST = 150
"""Characters of a comparison's name."""


@dataclasses.dataclass(frozen=True)
class CompareRun(FolderSettings):
    """Compare finished continual-learning runs with paired differences and intervals."""

    folders: tyro.conf.Positional[tuple[Path, ...]] = ()
    """Folders of two or more finished runs; differences are from the first."""


class Finished(NamedTuple):
    """What a run left."""

    name: str
    data: tuple[int, ...]
    """Checksums of images and of their labels."""
    draws: Int[np.ndarray, "seeds"]
    """Of each seed, which samples come when, as a checksum."""
    measure: str
    tested: str
    """On what it is taken over time."""
    over_time: dict[tuple[str, str], Float[np.ndarray, "seeds t"]]
    """By scenario and method."""
    settings: dict[str, Any]
    """By name, those of the plan too."""


def run_compare(settings: CompareRun) -> Path:
    """Writes the comparison; returns the report's path.

    Raises:
      DataError: fewer than two runs, a folder without results, runs on other data, or none of
        whose orders are the same.
    """
    folders = tuple(folder.resolve() for folder in settings.folders)
    if len(set(folders)) < max(2, len(folders)):
        raise DataError("give the folders of two runs or more, each once")
    runs = [_read(folder) for folder in settings.folders]
    first = runs[0]
    for other in runs[1:]:
        # Images of another size are others, and those that a seed makes.
        made = other.data[0] != first.data[0] and _seed(other) != _seed(first)
        if other.data[1:] != first.data[1:] or other.measure != first.measure or made:
            raise DataError(f"{other.name} is on other data than {first.name}; nothing is paired")
        if not len(np.intersect1d(other.draws, first.draws)):
            raise DataError(f"{other.name} shares no order of classes with {first.name}")
    settings = dataclasses.replace(settings, folders=folders)
    folder = RunFolder("compare", _name(folders), settings)
    summary = [
        ("Runs", "; ".join(f"{run.name} ({len(run.draws)} seeds)" for run in runs)),
        (
            "Differences",
            f"from {first.name}, paired over the seeds with equal class orders or configurations; "
            f"the interval is Student's at {LEVEL:.0%}; ± elsewhere is the standard deviation over "
            "all seeds of a run",
        ),
        ("Settings that differ", _differing(runs)),
        ("Selection rule", "each run's own, stated in its report"),
    ]
    scenarios = list(dict.fromkeys(key[0] for run in runs for key in run.over_time))
    table, figure = _compared(folder.path, scenarios[0], runs)
    screen = FirstScreen(_headline(scenarios[0], runs), figure, table)
    sections = [
        Section(sentence(scenario), items=_compared(folder.path, scenario, runs))
        for scenario in scenarios[1:]
    ]
    return write_report(folder.path, f"{len(runs)} runs side by side", summary, sections, screen)


def _headline(scenario: str, runs: Sequence[Finished]) -> tuple[str, ...]:
    """Return the question, the highest score with its interval, and the run compared with."""
    finals = {
        f"{name} of {run.name}": values[:, -1]
        for run in runs
        for (kind, name), values in run.over_time.items()
        if kind == scenario and not np.isnan(values[:, -1]).any()
    }
    best = max(finals, key=lambda name: finals[name].mean(), default=None)
    said = "none, all diverged" if best is None else f"{best}, {interval_cell(finals[best])}"
    return (
        f"How do the runs differ in final {runs[0].measure} ({scenario})?",
        f"Best, with {LEVEL:.0%} interval: {said}.",
        f"Baseline of all differences: {runs[0].name}.",
    )


def _name(folders: Sequence[Path]) -> str:
    """Of the comparison's folder: those that are compared; of long names a checksum."""
    name = "+".join(folder.name for folder in folders)
    return name if len(name) <= LONGEST else f"{len(folders)}-runs-{crc32(os.fsencode(name)):08x}"


def _read(folder: Path) -> Finished:
    way_out = "Name the folder of a finished run of strategies, such as `continual run`."
    path = folder / "results.npz"
    arrays = read_sealed(path, way_out)
    if missing := {"draws", "data", "measure", "tested"} - set(arrays):
        raise DataError(f"{path} lacks {', '.join(sorted(missing))}. {way_out}")
    over_time = {
        (key.split("/")[0], key.split("/")[1]): value
        for key, value in arrays.items()
        if key.endswith("/over_time")
    }
    # After them comes what features are learnt from.
    data = tuple(arrays["data"].tolist()[:3])
    stored = read_json(folder / "config.json", way_out)
    settings = {**_flat("", stored.get("plan", {})), **_flat("", stored.get("settings", {}))}
    name = printable(folder.resolve().name)
    measure, tested = str(arrays["measure"]), str(arrays["tested"])
    return Finished(name, data, arrays["draws"], measure, tested, over_time, settings)


def _seed(run: Finished) -> Any:
    return run.settings.get("seed")


def _flat(name: str, part: Any) -> dict[str, Any]:
    """Settings by name, those of parts after a dot."""
    if not isinstance(part, dict):
        return {name: part}
    found: dict[str, Any] = {}
    for key, value in part.items():
        found |= _flat(f"{name}.{key}" if name else key, value)
    return found


def _differing(runs: Sequence[Finished]) -> str:
    """Each setting that is not the same in all runs, with its values in their order."""
    names = sorted({name for run in runs for name in run.settings} - NO_DIFFERENCE)
    said = []
    for name in names:
        values = [run.settings.get(name) for run in runs]
        if any(value != values[0] for value in values):
            said.append(f"{name}: {' | '.join(printable(str(value)) for value in values)}")
    return "; ".join(said) or "none"


def _compared(folder: Path, scenario: str, runs: Sequence[Finished]) -> tuple[Table, Figure]:
    """Return the final scores of all runs with paired differences, and the curves."""
    first, *others = runs
    final = f"final {first.measure}"
    names = dict.fromkeys(name for run in runs for kind, name in run.over_time if kind == scenario)
    columns = [Column("method"), *(Column(run.name, final) for run in runs)]
    for other in others:
        columns += [
            Column("difference", f"{other.name} − {first.name}"),
            Column("seeds above", f"{other.name} − {first.name}"),
        ]
    rows = []
    for name in names:
        found = [run.over_time.get((scenario, name)) for run in runs]
        row = [name, *("–" if each is None else spread(each[:, -1]) for each in found)]
        for other, theirs in zip(others, found[1:], strict=True):
            row += _difference(first, found[0], other, theirs)
        rows.append(row)
    curves = {
        f"{name}, {run.name}": run.over_time[scenario, name]
        for name in names
        for run in runs
        if (scenario, name) in run.over_time
    }
    path = folder / f"compared_{scenario.replace(' ', '_')}.png"
    over_time = f"{first.measure} on {first.tested}"
    picture = plot_curves(path, {scenario: curves}, over_time)
    caption = (
        f"{sentence(final)} of each run ({scenario}; mean ± standard deviation over seeds), and "
        f"paired differences with {LEVEL:.0%} intervals."
    )
    below = (
        f"{sentence(over_time)}; bands are one standard deviation."
        f"{curves_left_out({scenario: curves})}"
    )
    return Table(caption, columns, rows), Figure(below, picture)


def _difference(
    first: Finished,
    ours: Float[np.ndarray, "n t"] | None,
    other: Finished,
    theirs: Float[np.ndarray, "m t"] | None,
) -> list[str]:
    if ours is None or theirs is None:
        return ["–", "–"]
    # Of a paper's run a method may have fewer draws than the others.
    draws = first.draws[: len(ours)], other.draws[: len(theirs)]
    _, here, there = np.intersect1d(*draws, return_indices=True)
    if not len(here):
        return ["–", "–"]
    differences = theirs[there, -1] - ours[here, -1]
    mean, half = paired_interval(differences)
    interval = "" if np.isnan(half) else f" [{mean - half:+.3f}, {mean + half:+.3f}]"
    return [f"{mean:+.3f}{interval}", f"{np.sum(differences > 0)} of {len(differences)}"]
