"""The report of plasticity: which method keeps the ability to learn, and on what evidence."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float

from everlight_experiments.continual.report.tables import ColumnSpec, table_of
from everlight_experiments.images.metrics import DIAGNOSTICS
from everlight_experiments.plasticity.config import PlasticityConfig
from everlight_experiments.plasticity.problems import ERROR, ONLINE, TESTED, Problem
from everlight_experiments.report.cells import spread
from everlight_experiments.report.plots import plot_curves
from everlight_experiments.report.writer import (
    Figure,
    Report,
    Section,
    Summary,
    Table,
    write_report,
)

POINTS = 50
"""Most points of a curve; each is a mean over equally many tasks."""
ROWS = 8
"""Most curves of a figure."""
MEANINGS = {
    ERROR: "Mean squared error of every sample before it is learned",
    ONLINE: "Accuracy of every batch before it is learned",
    TESTED: "Accuracy on the test images of each task after it",
}
DIFFERENCES = {"permuted": "the same orders of pixels, other samples and initial weights"}
"""Differences between seeds, by problem; in the others the tasks differ."""

Rows = Mapping[str, Mapping[str, Float[np.ndarray, "seeds t"]]]
"""Score and diagnostics by name, of every row by its name."""
BySeed = Mapping[str, Float[np.ndarray, "seeds"]]


def write_plasticity_report(
    folder: Path, name: str, config: PlasticityConfig, problem: Problem, rows: Rows
) -> Path:
    """Write the report of the problem of a name; returns its path."""
    score, sign = problem.score, -1 if problem.score == ERROR else 1
    part = max(1, next(iter(rows.values()))[score].shape[1] // 10)
    early = {name: scores[score][:, :part].mean(axis=1) for name, scores in rows.items()}
    late = {name: scores[score][:, -part:].mean(axis=1) for name, scores in rows.items()}
    # Rows without a finite score come last.
    means = {name: sign * values.mean() for name, values in late.items()}
    ordered = sorted(means, key=lambda name: -np.nan_to_num(means[name], nan=-np.inf))
    drawn = ordered[:ROWS]
    if "naive" in ordered[ROWS:]:
        drawn = [*drawn[:-1], "naive"]
    caption = f"{MEANINGS[score]}: mean over seeds, with one standard deviation"
    summary = Summary(
        answer(score, sign, early, late),
        _figure(folder, "score", score, caption, rows, drawn),
        _table(score, rows, part),
    )
    dead = "Share of the hidden units that never respond: mean over seeds, the same rows"
    figure = _figure(folder, "dead", "dead units", dead, rows, drawn)
    sections = [Section("Dead units", [], [figure])]
    summary_rows = _summary_rows(name, config, problem, seeds=len(late[ordered[0]]))
    return write_report(folder, f"Plasticity: {name}", Report(summary_rows, sections, summary))


def answer(score: str, sign: int, early: BySeed, late: BySeed) -> tuple[str, ...]:
    """Return the question, the best row and those level with it, diverged rows, and naive's loss.

    A diverged row has a score that is not finite; it is not compared.

    Args:
      score: name of the score.
      sign: 1 if greater scores are better, else −1.
      early, late: mean score of each row and seed in the first and in the last tenth of the tasks.
    """
    finite = {
        name: values
        for name, values in late.items()
        if np.isfinite(values).all() and np.isfinite(early[name]).all()
    }
    sentences = ["Which method keeps the ability to learn?"]
    if finite:
        sentences.append(_best_sentence(score, sign, early, finite))
    if diverged := [name for name in late if name not in finite]:
        sentences.append(
            f"Diverged, without a finite {score} in some seed: {_name_list(diverged)}."
        )
    if "naive" in finite:
        change = f"from {spread(early['naive'])} to {spread(late['naive'])}"
        if _is_above(sign * (early["naive"] - late["naive"])):
            sentences.append(f"Plain backpropagation (naive) loses it: it goes {change}.")
        else:
            sentences.append(
                f"No loss of plain backpropagation (naive) is shown: it goes {change}. More tasks, "
                "more --seeds or a larger --learning-rate may show one."
            )
    return tuple(sentences)


def _best_sentence(score: str, sign: int, early: BySeed, late: BySeed) -> str:
    """Return the best row, and the rows that the seeds do not separate from it."""
    best = max(late, key=lambda name: sign * late[name].mean())
    others = [name for name in late if name != best]
    level = [name for name in others if not _is_above(sign * (late[best] - late[name]))]
    remark = f"; the seeds do not separate it from {_name_list(level)}" if level else ""
    if others and len(late[best]) == 1:
        remark = "; one seed separates no methods"
    return (
        f"{best} has the {'highest' if sign > 0 else 'lowest'} {score} in the last tenth of the "
        f"tasks, {spread(late[best])}, and had {spread(early[best])} in the first tenth{remark}."
    )


def _is_above(differences: Float[np.ndarray, "seeds"]) -> bool:
    """Return True if paired differences are above 0 by more than two standard errors."""
    seeds = len(differences)
    error = differences.std(ddof=1) / np.sqrt(seeds) if seeds > 1 else np.inf
    return bool(differences.mean() > 2 * error)


def _name_list(names: Sequence[str], most: int = 4) -> str:
    shown = "; ".join(names[:most])
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"


def _table(score: str, rows: Rows, part: int) -> Table:
    def last(name: str) -> ColumnSpec:
        return ColumnSpec(
            name, lambda scores: spread(scores[name][:, -part:].mean(axis=1)), "last tenth"
        )

    first = ColumnSpec(
        score, lambda scores: spread(scores[score][:, :part].mean(axis=1)), "first tenth"
    )
    # On samples of the task, where `run` takes test samples.
    short = {
        name: diagnostic.meaning.partition(", on ")[0] for name, diagnostic in DIAGNOSTICS.items()
    }
    meanings = " ".join(f"{name.capitalize()}: {meaning}." for name, meaning in short.items())
    caption = (
        f"{MEANINGS[score]}, and diagnostics, in the first and in the last tenth of the tasks: "
        f"mean and standard deviation over seeds. {meanings}"
    )
    return table_of(caption, rows, [first, last(score), *map(last, DIAGNOSTICS)], first="row")


def _figure(
    folder: Path, file: str, score: str, caption: str, rows: Rows, drawn: Sequence[str]
) -> Figure:
    """Draw the same rows in the same colours for every score."""
    tasks = next(iter(rows.values()))[score].shape[1]
    curves = {name: _thin_curves(rows[name][score]) for name in drawn}
    width = -(-tasks // POINTS)
    axis = "task" if width == 1 else f"part of the tasks, about {width} each"
    where = plot_curves(folder / f"{file}.png", {"": curves}, score, axis, drawn, baseline="naive")
    left = "." if len(drawn) == len(rows) else f"; {len(drawn)} of {len(rows)} rows."
    return Figure(f"{caption}{left}", where)


def _summary_rows(
    name: str, config: PlasticityConfig, problem: Problem, seeds: int
) -> list[tuple[str, str]]:
    size = f"{config.tasks:,} tasks of {config.samples:,} samples"
    batches = f"SGD at {config.learning_rate:g} in batches of {config.batch_size}"
    return [
        ("Data", f"{problem.note}; {size}"),
        ("Training", f"{problem.net.note}, {batches}"),
        ("Seeds", f"{seeds}, with {DIFFERENCES.get(name, 'different tasks')}"),
        ("Selection rule", "none; every value of a hyper-parameter is a row"),
    ]


def _thin_curves(values: Float[np.ndarray, "seeds t"]) -> Float[np.ndarray, "seeds p"]:
    """Return means over neighbouring tasks, at most `POINTS` of them."""
    parts = np.array_split(values, min(POINTS, values.shape[1]), axis=1)
    return np.stack([part.mean(axis=1) for part in parts], axis=1)
