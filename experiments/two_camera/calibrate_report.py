"""What a calibration shows: how good its nets will be, and what each pair measured."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from data_pipelines.color.quasi_real import QuasiReal
from everlight.models.illuminant_interval import COVERAGE
from experiments.common.report import Column, Figure, Section, Table
from experiments.two_camera import plots
from experiments.two_camera.intervals import Coverage
from experiments.two_camera.tables import Comparison, Resampled, error_table, mean_interval

NET = "Net, 470 parameters, ensemble"
RIVALS = ("SoG", "Linear regression", "Net on moments, ensemble")
FEW_SCENES = 20


class CalibrationResults(NamedTuple):
    """All that the report is made of.

    Attributes:
      names: of the pairs.
      scenes: a number for each pair.
      compared: every method's lights of the main views, one fold of all pairs.
      coverage: how often intervals hold, by camera.
      errors: of the ensembles on pairs that were left out, in degrees, by camera.
      grey_spread: largest angle between a grey patch and the light, in degrees.
      residuals: of the alignment, in pixels.
      fitted: whether the alignment was fitted to the charts.
      quasi: transforms and lights.
      cameras: names.
    """

    names: Sequence[str]
    scenes: Int[np.ndarray, "n"]
    compared: Comparison
    coverage: Mapping[str, Coverage]
    errors: Mapping[str, Float[np.ndarray, "n"]]
    grey_spread: Float[np.ndarray, "n 2"]
    residuals: Float[np.ndarray, "n"]
    fitted: bool
    quasi: QuasiReal
    cameras: tuple[str, str]


def report_sections(folder: Path, results: CalibrationResults) -> list[Section]:
    """The report's body; pictures are written into `folder`."""
    count = results.scenes.max() + 1
    table = error_table(
        f"Main camera's light of {len(results.names)} pairs in {count} scenes, each by what was "
        "trained without its scene.",
        results.compared,
        {},
        "seeds",
        Resampled("scenes", results.scenes[None]),
    )
    lights = {
        results.cameras[0]: results.quasi.illuminants_main,
        f"{results.cameras[1]} (second)": results.quasi.illuminants_second,
    }
    return [
        Section(
            "How good it will be",
            (*_verdict(results), _intervals(results)),
            [
                table,
                Figure(
                    "Lights of all pairs, from their charts; what lies outside of them the nets "
                    "have not learnt.",
                    plots.plot_illuminants(folder / "lights.png", {"charts": lights}),
                ),
            ],
        ),
        Section("The pairs", _how_measured(results), [_pairs_table(results)]),
    ]


def _verdict(results: CalibrationResults) -> list[str]:
    """The ensemble beside its rivals, with the interval of the difference over scenes."""
    errors = {name: each[:, 0].mean(axis=0) for name, each in results.compared.errors().items()}
    count = results.scenes.max() + 1
    sentences = [f"The ensemble of nets is {np.mean(errors[NET]):.2f} degrees off in the mean."]
    for rival in RIVALS:
        better = errors[rival] - errors[NET]
        interval = mean_interval(jax.random.key(0), better, results.scenes, count=int(count))
        if interval.low > 0:
            said = "it is BETTER"
        elif interval.high < 0:
            said = "it is WORSE"
        else:
            said = "the two are not told apart"
        sentences.append(
            f"Beside {rival} ({np.nanmean(errors[rival]):.2f}) {said}: the error of {rival} less "
            f"its own is {np.nanmean(better):.2f} degrees (95% over scenes: {interval.low:.2f} to "
            f"{interval.high:.2f})."
        )
    if count < FEW_SCENES:
        sentences.append(
            f"{count} scenes are few: an interval over so few is itself uncertain, and lights that "
            f"none of them shows are not learnt. {FEW_SCENES} or more, of all kinds of light that "
            "the phone will meet, are advised."
        )
    return [" ".join(sentences)]


def _intervals(results: CalibrationResults) -> str:
    told = []
    for view, each in results.coverage.items():
        if np.isfinite(each.degrees):
            told.append(
                f"{view} light {each.share:.0%}, up to {each.degrees:.1f} degrees off in the mean"
            )
        else:
            told.append(f"{view} light: too few pairs for an interval")
    return (
        f"The intervals that estimate prints are made to hold in {COVERAGE:.0%} of pairs. "
        f"Calibrated on the other scenes and counted on each: {'; '.join(told)}."
    )


def _how_measured(results: CalibrationResults) -> list[str]:
    where = "fitted to all charts" if results.fitted else "the one that was given"
    return [
        "Greys: largest angle between a grey patch and the light; more than a degree or two is "
        "shade, glare or a second light on the chart. Off: root mean square distance, in pixels of "
        f"the second view, of the patches from where the homography puts them, which is {where}."
    ]


def _pairs_table(results: CalibrationResults) -> Table:
    rows = []
    for row, name in enumerate(results.names):
        cells = [name, str(results.scenes[row] + 1)]
        for place, view in enumerate(("main", "second")):
            red, green, blue = getattr(results.quasi, f"illuminants_{view}")[row]
            cells += [f"{red / green:.3f}", f"{blue / green:.3f}"]
            cells += [f"{results.grey_spread[row, place]:.2f}", f"{results.errors[view][row]:.2f}"]
        usable = int(results.quasi.usable[row].sum())
        rows.append([*cells, str(usable), f"{results.residuals[row]:.1f}"])
    columns = [Column("Pair"), Column("Scene")]
    for view, camera in zip(("main", "second"), results.cameras, strict=True):
        group = f"{camera} ({view}), degrees"
        columns += [Column(name, group) for name in ("R/G", "B/G", "Greys", "Error")]
    columns += [Column("Patches"), Column("Off")]
    caption = (
        "Lights by the charts, and how far the ensemble is off that was trained without the pair's "
        "scene. Patches: of 24, unsaturated in both views."
    )
    return Table(caption, columns, rows)
