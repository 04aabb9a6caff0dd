"""What a calibration shows: how good what it keeps will be, and what each pair measured."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from everlight.models.illuminant_interval import COVERAGE
from everlight_data.color.quasi_real import QuasiReal
from everlight_experiments.common.report import Column, Figure, Section, Table
from everlight_experiments.illuminant import plots
from everlight_experiments.illuminant.calibrate_choice import CANDIDATES, Choice, mean_error
from everlight_experiments.illuminant.intervals import Coverage
from everlight_experiments.illuminant.sensor_views import sensors_section
from everlight_experiments.illuminant.tables import (
    Comparison,
    Resampled,
    error_table,
    mean_interval,
)

NESTED = "Chosen without the scene"
"""What `estimate` gets, as far as can be known: the choice itself is made without the scene."""
RIVALS = (
    "SoG",
    "Linear regression on moments",
    "Net on moments, ensemble",
    "Net, 470 parameters, ensemble",
)
FEW_SCENES = 20


class CalibrationResults(NamedTuple):
    """All that the report is made of.

    Attributes:
      names: of the pairs.
      scenes: a number for each pair.
      choices: what is kept and how it was chosen, by light.
      compared: every method's lights, one fold of all pairs, by light.
      coverage: how often intervals hold, by light.
      uninformed: how far the interval reaches that the lights alone give, in degrees, by light.
      grey_spread: largest angle between a grey patch and the light, in degrees.
      residuals: of the alignment, in pixels.
      fitted: whether the alignment was fitted to the charts.
      quasi: transforms and lights.
      images: each camera's small ones, "main" and "second".
      cameras: names.
    """

    names: Sequence[str]
    scenes: Int[np.ndarray, "n"]
    choices: Mapping[str, Choice]
    compared: Mapping[str, Comparison]
    coverage: Mapping[str, Coverage]
    uninformed: Mapping[str, float]
    grey_spread: Float[np.ndarray, "n 2"]
    residuals: Float[np.ndarray, "n"]
    fitted: bool
    quasi: QuasiReal
    images: Mapping[str, Float[np.ndarray, "n h w 3"]]
    cameras: tuple[str, str]


def report_sections(folder: Path, results: CalibrationResults) -> list[Section]:
    """The report's body; pictures are written into `folder`."""
    count = results.scenes.max() + 1
    tables = [
        error_table(
            f"Illuminant of {camera} ({light}) for {len(results.names)} pairs in {count} scenes, "
            f"each by models trained without its scene. '{NESTED}': the method and its inputs were "
            "selected without it too; the lowest of the other rows is optimistic.",
            compared,
            {},
            "seeds",
            Resampled("scenes", results.scenes[None]),
        )
        for camera, (light, compared) in zip(results.cameras, results.compared.items(), strict=True)
    ]
    lights = {
        results.cameras[0]: results.quasi.illuminants_main,
        f"{results.cameras[1]} (second)": results.quasi.illuminants_second,
    }
    return [
        Section(
            "Expected accuracy",
            (*_verdict(results), _intervals(results)),
            [
                _choice_table(results),
                *tables,
                Figure(
                    "Illuminants of all pairs, from their charts; the model has not seen "
                    "illuminants outside them.",
                    plots.plot_illuminants(folder / "lights.png", {"charts": lights}),
                ),
            ],
        ),
        sensors_section(folder, results.quasi, results.images, results.cameras),
        Section("The pairs", _how_measured(results), [_pairs_table(results)]),
    ]


def _verdict(results: CalibrationResults) -> list[str]:
    """What is kept beside its rivals, with the interval of the difference over scenes."""
    return [
        *(_verdict_of(light, results) for light in results.choices),
        *_warn_of_few(results.scenes.max() + 1),
    ]


def _verdict_of(light: str, results: CalibrationResults) -> str:
    compared = results.compared[light].errors()
    errors = {name: each[:, 0].mean(axis=0) for name, each in compared.items()}
    count = int(results.scenes.max() + 1)
    sentences = [
        f"Illuminant of the {light} camera: {results.choices[light].kept.name} is kept. Selected "
        f"without the scene, its mean error is {np.nanmean(errors[NESTED]):.2f} degrees."
    ]
    for rival in RIVALS:
        better = errors[rival] - errors[NESTED]
        interval = mean_interval(jax.random.key(0), better, results.scenes, count=count)
        if interval.low > 0:
            said = "it is BETTER"
        elif interval.high < 0:
            said = "it is WORSE"
        else:
            said = "it is statistically tied"
        sentences.append(
            f"Compared with {rival} ({np.nanmean(errors[rival]):.2f}) {said}: the difference of "
            "errors "
            f"is {np.nanmean(better):.2f} degrees (95% over scenes: {interval.low:.2f} to "
            f"{interval.high:.2f})."
        )
    return " ".join(sentences)


def _warn_of_few(count: int) -> list[str]:
    if count >= FEW_SCENES:
        return []
    return [
        f"{count} scenes are few: an interval over so few is itself uncertain, and unseen "
        f"illuminants are not learned. {FEW_SCENES} or more, under all kinds of illuminants, are "
        "advised."
    ]


def _choice_table(results: CalibrationResults) -> Table:
    """Each candidate's error, and how often it was chosen."""
    rows = []
    for candidate in CANDIDATES:
        row = [candidate.name]
        for choice in results.choices.values():
            everything = np.arange(len(results.names))
            error = mean_error(choice.held_out(candidate), choice.data, everything)
            times = Counter(choice.without)[candidate]
            kept = "kept" if candidate == choice.kept else ""
            row += [f"{error:.2f}", f"{times} of {len(choice.without)}", kept]
        rows.append(row)
    columns = [Column("Candidate")]
    for light in results.choices:
        columns += [
            Column(name, f"{light} illuminant") for name in ("Mean", "Folds", "For estimate")
        ]
    return Table(
        "Candidates for estimate. Mean: error of single trainings on held-out scenes, in degrees, "
        "the lowest of which is kept. Folds: the number of folds that select the candidate "
        "without their scenes.",
        columns,
        rows,
    )


def _intervals(results: CalibrationResults) -> str:
    told = []
    for light, each in results.coverage.items():
        if not np.isfinite(each.degrees):
            told.append(f"{light} illuminant: too few pairs for an interval.")
            continue
        loud = " THEY ARE TOO WIDE TO BE OF USE." if each.silent > 0.5 else ""
        told.append(
            f"{light} illuminant: coverage {each.share:.0%}, mean radius {each.degrees:.1f} "
            f"degrees, {each.silent:.0%} uninformative, since no smaller than the interval of the "
            f"illuminants alone ({results.uninformed[light]:.1f}).{loud}"
        )
    return (
        f"The intervals of estimate have a nominal coverage of {COVERAGE:.0%}. Coverage on each "
        f"scene after selection and calibration on the others: {' '.join(told)} Estimate warns of "
        "uninformative intervals."
    )


def _how_measured(results: CalibrationResults) -> list[str]:
    where = "fitted to all charts" if results.fitted else "given"
    return [
        "Greys: largest angle between a grey patch and the illuminant; more than two degrees "
        "indicate shade, glare or a second illuminant on the chart. Off: root mean square "
        f"residual of the homography, in pixels of the second view; the homography is {where}."
    ]


def _pairs_table(results: CalibrationResults) -> Table:
    errors = [each.errors()[NESTED][0, 0] for each in results.compared.values()]
    rows = []
    for row, name in enumerate(results.names):
        cells = [name, str(results.scenes[row] + 1)]
        for place, view in enumerate(("main", "second")):
            red, green, blue = getattr(results.quasi, f"illuminants_{view}")[row]
            cells += [f"{red / green:.3f}", f"{blue / green:.3f}"]
            cells += [f"{results.grey_spread[row, place]:.2f}", f"{errors[place][row]:.2f}"]
        usable = int(results.quasi.usable[row].sum())
        rows.append([*cells, str(usable), f"{results.residuals[row]:.1f}"])
    columns = [Column("Pair"), Column("Scene")]
    for view, camera in zip(("main", "second"), results.cameras, strict=True):
        group = f"{camera} ({view}), degrees"
        columns += [Column(name, group) for name in ("R/G", "B/G", "Greys", "Error")]
    columns += [Column("Patches"), Column("Off")]
    caption = (
        "Illuminants of the charts, and error of the estimate trained and selected without the "
        "pair's scene. Patches: of 24, unsaturated in both views."
    )
    return Table(caption, columns, rows)
