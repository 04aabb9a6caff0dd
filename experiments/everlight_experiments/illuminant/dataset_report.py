"""What the run on any set of photographs shows."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from everlight_data.color.nus import CAMERAS
from everlight_experiments.common.report import Column, Figure, FirstScreen, Section, Table
from everlight_experiments.illuminant import plots
from everlight_experiments.illuminant.image_methods import TUNED_HERE
from everlight_experiments.illuminant.image_sets import MAIN, ImageSet
from everlight_experiments.illuminant.nus_report import (
    METHODS,
    NusResults,
    absent,
    first_curves,
    look_section,
    paper_rows,
)
from everlight_experiments.illuminant.paper import CROSS_SENSOR_NUS, FFCC_THUMBNAILS
from everlight_experiments.illuminant.tables import (
    ABBREVIATIONS,
    Comparison,
    error_table,
    first_screen,
)

FIXED = (", none", ", re-illuminated")
"""Nets and regressions of one augmentation; each fold chooses between the two."""


class DatasetResults(NamedTuple):
    """Images and every method's lights, by the camera that is asked."""

    sets: Mapping[str, ImageSet]
    compared: Mapping[str, Comparison]
    split: str
    note: str
    """Which data these are."""

    def shown(self) -> dict[str, Comparison]:
        """Without the rows of one augmentation."""
        return {
            camera: Comparison(
                {
                    name: lights
                    for name, lights in each.estimates.items()
                    if not any(part in name for part in FIXED)
                },
                each.truth,
            )
            for camera, each in self.compared.items()
        }


def report_sections(folder: Path, results: DatasetResults) -> tuple[FirstScreen, list[Section]]:
    """The report's first screen and body; pictures are written into `folder`."""
    shown = results.shown()
    tables = []
    if len(shown) > 1:
        caption, published = f"All {len(shown)} cameras' images together.", cross_sensor(results)
        if published:
            caption += (
                " Published are the cross-sensor numbers of full photographs (Kim et al. 2025, "
                "table 1), not of this paper."
            )
        tables = [error_table(caption, pooled(shown), published, "seeds"), _camera_table(shown)]
    for camera, each in shown.items():
        # Table 2 is of the D5200 in folds; its two-camera rows need a second camera.
        paper = paper_rows() if (camera, results.split) == (MAIN, "folds") else {}
        caption = f"{results.sets[camera].note}. {_published(camera, results.split)}"
        tables.append(error_table(caption, each, paper, "seeds"))
    everything = pooled(shown).errors()
    name, (first, data) = "all images", next(iter(results.sets.items()))
    picture = Figure(
        "Share of images at or below each angular error; the band, if any, is the range "
        "over seeds of the first method.",
        plots.plot_error_curves(folder / "error_curves.png", first_curves({name: everything})),
    )
    # The paper's means are of one camera in folds.
    conditions = {results.split: everything}
    paper = paper_rows() if [*shown] == [MAIN] and results.split == "folds" else {}
    return first_screen(results.note, picture, conditions, paper), [
        Section(
            "Angular errors",
            (
                ABBREVIATIONS,
                "Statistics of the recovery angular error and of the reproduction error. Bold: "
                "lowest mean.",
                *METHODS,
                *absent({camera: (data, shown[camera]) for camera, data in results.sets.items()}),
                "Missing estimates count as invalid and are left out of means. The paper's "
                "quasi-unsupervised method was not run, as it needs a trunk of millions of "
                "parameters and several sets of full photographs; its own networks need a second "
                "camera.",
            ),
            tables,
        ),
        look_section(folder, NusResults(data, {"honest": shown[first]})),
    ]


def cross_sensor(results: DatasetResults) -> dict[str, tuple[float, ...]]:
    """What others have of all NUS-8 across cameras, where these results are that too."""
    if results.split != "cross-camera" or set(results.sets) != set(CAMERAS):
        return {}
    return {f"{name}, published": row for name, row in CROSS_SENSOR_NUS.items()}


def pooled(compared: Mapping[str, Comparison]) -> Comparison:
    """All cameras' images in one fold, of the methods that every camera has."""
    each = list(compared.values())
    common = [name for name in each[0].estimates if all(name in one.estimates for one in each)]

    def flat(lights: np.ndarray) -> np.ndarray:
        return lights.reshape(*lights.shape[:-3], 1, -1, 3)

    return Comparison(
        {
            name: np.concatenate([flat(one.estimates[name]) for one in each], axis=-2)
            for name in common
        },
        np.concatenate([flat(one.truth) for one in each], axis=-2),
    )


def _camera_table(compared: Mapping[str, Comparison]) -> Table:
    """Mean error by method and camera."""
    means = {
        camera: {name: np.nanmean(values) for name, values in each.errors().items()}
        for camera, each in compared.items()
    }
    names = list(dict.fromkeys(name for by_method in means.values() for name in by_method))
    rows = []
    for name in names:
        cells = [by_method.get(name, np.nan) for by_method in means.values()]
        shown = ["–" if np.isnan(cell) else f"{cell:.2f}" for cell in cells]
        whole = "–" if np.isnan(cells).any() else f"{np.mean(cells):.2f}"
        rows.append([name, *shown, whole])
    return Table(
        "Mean angular error by camera.",
        [Column("Method"), *[Column(camera) for camera in compared], Column("Mean of cameras")],
        rows,
    )


def _published(camera: str, split: str) -> str:
    if camera not in FFCC_THUMBNAILS or split != "folds":
        return ""
    return (
        f"FFCC's authors state {FFCC_THUMBNAILS[camera]:.2f} for '{TUNED_HERE}' on thumbnails of "
        "32x48 in folds of whole scenes."
    )
