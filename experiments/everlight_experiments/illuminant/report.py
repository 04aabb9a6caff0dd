"""The report of every command: summary, tables of errors, illuminants, corrected examples."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float

from everlight import plots
from everlight_experiments.illuminant.comparison import Comparison, Errors
from everlight_experiments.illuminant.tables import (
    ABBREVIATIONS,
    BASELINES,
    error_table,
    shown_curves,
    summary,
)
from everlight_experiments.report.plots import new_canvas, save
from everlight_experiments.report.writer import Figure, Section, Summary, Table

MIN_LIMIT = 12.0
"""Least end of the axis of angular errors, in degrees."""
Report = tuple[list[tuple[str, str]], Summary, list[Section]]
"""A report's facts, summary and body."""


def compared_sections(
    folder: Path,
    question: str,
    data: str,
    comparisons: Mapping[str, Comparison],
    curves: Sequence[str],
    illuminants: Mapping[str, Mapping[str, Float[np.ndarray, "n 3"]]],
    notes: Sequence[str] = (),
    tables: Sequence[Table] | None = None,
    figures: Sequence[Figure] = (),
    headline: str = "",
    baselines: Sequence[str] = BASELINES,
) -> tuple[Summary, list[Section]]:
    """Return the summary and body of a report; figures are written into `folder`.

    The summary is of the comparisons by condition. Error curves are those of the methods `curves`
    and of each condition's best one. Illuminants are by panel and camera. Notes stand above the
    tables, of which there is by default one per comparison.
    """
    conditions = list(comparisons.values())
    picture = Figure(
        "Share of images at or below each angular error, for at most eight methods; the band, if "
        f"any, is the range over {conditions[0].runs} of the first method.",
        _plot_error_curves(
            folder / "error_curves.png", shown_curves(curves, conditions, (headline, *baselines))
        ),
    )
    truth = Figure(
        "Ground-truth illuminants in the raw colours of each camera (the paper's figure 5).",
        _plot_illuminants(folder / "illuminants.png", illuminants),
    )
    if tables is None:
        tables = [error_table(condition) for condition in conditions]
    return summary(question, data, picture, conditions, headline, baselines), [
        Section(
            "Angular errors",
            (
                ABBREVIATIONS,
                "Statistics of the recovery angular error and of the reproduction error. Bold: "
                "lowest mean. Missing estimates count as invalid and are left out of means.",
                *notes,
            ),
            list(tables),
        ),
        Section("Illuminants and examples", (), [truth, *figures]),
    ]


def _plot_error_curves(path: Path, panels: Mapping[str, Mapping[str, Errors]]) -> Path:
    """Plot the share of images below each angular error: a panel per title, a curve per method."""
    rows = 2 if len(panels) > 3 else 1
    columns = -(-len(panels) // rows)
    legend = 3.2
    canvas, axes = new_canvas(columns, 5.0 + legend / columns, 4.0, rows)
    halves = [np.nanmedian(curve) for errors in panels.values() for curve in errors.values()]
    # The picture shows half of every method's images.
    limit = max(MIN_LIMIT, 1.2 * float(np.nanmax(halves)))
    for axis, (title, errors) in zip(axes, panels.items(), strict=False):
        plots.plot_error_curves(errors, axis, limit).set_title(title)
    for axis in axes[len(panels) :]:
        axis.set_axis_off()
    handles, names = axes[0].get_legend_handles_labels()
    canvas.legend(handles, names, loc="outside right center")
    return save(canvas, path)


def _plot_illuminants(
    path: Path, panels: Mapping[str, Mapping[str, Float[np.ndarray, "n 3"]]]
) -> Path:
    """Plot the cameras' ground-truth illuminants as chromaticities.

    Panels of the same cameras, main and second exchanged, are one. The names of more than two
    cameras stand in the legend alone.
    """
    distinct: dict[frozenset[str], tuple[str, Mapping[str, Float[np.ndarray, "n 3"]]]] = {}
    for title, cameras in panels.items():
        distinct.setdefault(frozenset(cameras), (title, cameras))
    canvas, axes = new_canvas(len(distinct), 6.6, 4.0)
    for axis, (title, cameras) in zip(axes, distinct.values(), strict=True):
        count = f"{len(cameras)} cameras"
        plots.plot_chromaticity(cameras, axes=axis).set_title(title if len(cameras) < 3 else count)
        axis.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return save(canvas, path)
