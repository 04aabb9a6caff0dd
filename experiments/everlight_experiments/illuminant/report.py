"""The report of every command: summary, tables of errors, illuminants, corrected examples."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Float

from everlight_experiments.illuminant import plots
from everlight_experiments.illuminant.comparison import Comparison
from everlight_experiments.illuminant.tables import (
    ABBREVIATIONS,
    BASELINES,
    error_table,
    shown_curves,
    summary,
)
from everlight_experiments.report.writer import Figure, FirstScreen, Section, Table


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
) -> tuple[FirstScreen, list[Section]]:
    """Return the summary and body of a report; figures are written into `folder`.

    Args:
      folder: the run's folder.
      question: question that the summary answers.
      data: name of the data.
      comparisons: comparisons of the summary by condition.
      curves: methods whose error curves are shown beside each condition's best one.
      illuminants: ground-truth illuminants by panel and camera.
      notes: paragraphs above the tables.
      tables: tables of the body; by default one per comparison.
      figures: further figures.
      headline: method reported in place of the best one.
      baselines: methods to compare with; the first available one is shown.
    """
    conditions = list(comparisons.values())
    picture = Figure(
        "Share of images at or below each angular error, for at most eight methods; the band, if "
        f"any, is the range over {conditions[0].runs} of the first method.",
        plots.plot_error_curves(folder / "error_curves.png", shown_curves(curves, conditions)),
    )
    truth = Figure(
        "Ground-truth illuminants in the raw colours of each camera (the paper's figure 5).",
        plots.plot_illuminants(folder / "illuminants.png", illuminants),
    )
    if tables is None:
        tables = [error_table(each) for each in conditions]
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


def corrections_figure(
    folder: Path, columns: Mapping[str, Sequence[tuple[Float[np.ndarray, "h w 3"], str]]]
) -> Figure:
    """Return the figure of images corrected by several methods."""
    rows = ("easy", "median", "hard")
    return Figure(
        "Images corrected by each method's estimate (the paper's figure 9), with its angular "
        "error; scenes at the quantiles 0.1, 0.5 and 0.9 of Gray World's errors. The camera's "
        "matrix is unknown: its own primaries are shown with a gamma, not in sRGB. One exposure "
        "per row; masked charts are black.",
        plots.plot_picture_grid(folder / "corrections.png", rows, columns),
    )
