"""What nets know of pairs of cameras that they never saw."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from everlight_data.color.radiometric import Split
from everlight_experiments.common.report import Column, Figure, Section, Table
from everlight_experiments.illuminant import plots
from everlight_experiments.illuminant.tables import (
    ABBREVIATIONS,
    Comparison,
    Resampled,
    error_table,
)

TITLES: dict[Split, str] = {"random": "seen illuminants", "illuminant": "unseen illuminants"}
DESCRIBED = "Net on T and known lights, other pairs"
BESIDE = (
    "Net on T, the very pair",
    "Interpolated between the known lights",
    "Net on T, other pairs",
    "Net on T and sensitivities, other pairs",
    "Net on moments, other cameras",
    "Net on moments and known lights, other cameras",
    "Net on T, moments and known lights, other pairs",
    "SoG",
)
CURVES = (DESCRIBED, "Net on T, the very pair", "Net on moments and known lights, other cameras")


class UnseenResults(NamedTuple):
    """All that the report is made of.

    Attributes:
      pairs: names of the unseen pairs, main camera first.
      distances: of the second camera's sensitivities from what a matrix makes of the main one's.
      compared: lights by method, a run a pair, by split.
      clusters: of the test scenes' lights, by split.
    """

    pairs: Sequence[tuple[str, str]]
    distances: Sequence[float]
    compared: Mapping[Split, Comparison]
    clusters: Mapping[Split, Int[np.ndarray, "n"]]


def report_sections(folder: Path, results: UnseenResults) -> list[Section]:
    """The report's body; the picture is written into `folder`."""
    errors = {TITLES[split]: each.errors() for split, each in results.compared.items()}
    tables = [
        error_table(
            f"Test scenes of {len(results.pairs)} unseen camera pairs, {TITLES[split]}.",
            compared,
            {},
            "camera pairs",
            Resampled("illuminants", results.clusters[split][None]),
        )
        for split, compared in results.compared.items()
    ]
    shown = {
        title: {name: by_method[name] for name in (*CURVES, "SoG")}
        for title, by_method in errors.items()
    }
    curves = Figure(
        "Share of test scenes at or below each angular error, mean over camera pairs; the band "
        "is the range over pairs of the first method.",
        plots.plot_error_curves(folder / "error_curves.png", shown),
    )
    return [
        Section(
            "Unseen cameras",
            [ABBREVIATIONS, *(_verdict(title, by_method) for title, by_method in errors.items())],
            [curves, *tables, _pairs_table(results)],
        )
    ]


def _verdict(title: str, errors: Mapping[str, np.ndarray]) -> str:
    """Means over pairs, and in how many pairs the described net errs less."""
    by_pair = {name: np.nanmean(each, axis=(1, 2)) for name, each in errors.items()}
    ours = by_pair[DESCRIBED]
    others = "; ".join(
        f"{name} {by_pair[name].mean():.2f}, worse in {np.sum(ours < by_pair[name])} of "
        f"{len(ours)} pairs"
        for name in BESIDE
    )
    return (
        f"{title.capitalize()}: {DESCRIBED} has a mean error of {ours.mean():.2f} degrees. "
        f"Others: {others}."
    )


def _pairs_table(results: UnseenResults) -> Table:
    names = (DESCRIBED, *BESIDE)
    errors = {split: each.errors() for split, each in results.compared.items()}
    columns = [Column("Main"), Column("Second"), Column("Distance")]
    for split in errors:
        columns += [Column(name, TITLES[split]) for name in names]
    rows = []
    for index, (main, second) in enumerate(results.pairs):
        row = [main, second, f"{results.distances[index]:.3f}"]
        for by_method in errors.values():
            row += [f"{np.nanmean(by_method[name][index]):.2f}" for name in names]
        rows.append(row)
    return Table(
        "Mean angular error in degrees per pair. Distance: residual of the second camera's "
        "sensitivities from the best 3x3 transform of the main camera's, as a share of the norm.",
        columns,
        rows,
    )
