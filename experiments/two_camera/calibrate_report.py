"""What a calibration shows: how good what it keeps will be, and what each pair measured."""

from collections import Counter
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
from experiments.two_camera.calibrate_choice import CANDIDATES, Choice, mean_error
from experiments.two_camera.intervals import Coverage
from experiments.two_camera.sensor_views import sensors_section
from experiments.two_camera.tables import Comparison, Resampled, error_table, mean_interval

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
            f"{camera}'s light ({light}) of {len(results.names)} pairs in {count} scenes, each by "
            f"what was trained without its scene. '{NESTED}': the method and its inputs too were "
            "chosen without it; the other rows' least is too good by chance.",
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
            "How good it will be",
            (*_verdict(results), _intervals(results)),
            [
                _choice_table(results),
                *tables,
                Figure(
                    "Lights of all pairs, from their charts; what lies outside of them has not "
                    "been learnt.",
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
        f"The {light} camera's light: {results.choices[light].kept.name} is kept. Chosen without "
        f"the scene, the estimate is {np.nanmean(errors[NESTED]):.2f} degrees off in the mean."
    ]
    for rival in RIVALS:
        better = errors[rival] - errors[NESTED]
        interval = mean_interval(jax.random.key(0), better, results.scenes, count=count)
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
    return " ".join(sentences)


def _warn_of_few(count: int) -> list[str]:
    if count >= FEW_SCENES:
        return []
    return [
        f"{count} scenes are few: an interval over so few is itself uncertain, and lights that "
        f"none of them shows are not learnt. {FEW_SCENES} or more, of all kinds of light that "
        "the phone will meet, are advised."
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
        columns += [Column(name, f"{light} light") for name in ("Mean", "Folds", "For estimate")]
    return Table(
        "What estimate gets. Mean: error of single trainings on scenes they left out, in degrees, "
        "the least of which is kept. Folds: in how many of them it errs least without the fold's "
        "scenes, which is what the row chosen without the scene is made of.",
        columns,
        rows,
    )


def _intervals(results: CalibrationResults) -> str:
    told = []
    for light, each in results.coverage.items():
        if not np.isfinite(each.degrees):
            told.append(f"{light} light: too few pairs for an interval.")
            continue
        loud = " THEY ARE TOO WIDE TO BE OF USE." if each.silent > 0.5 else ""
        told.append(
            f"{light} light: {each.share:.0%} hold, they reach {each.degrees:.1f} degrees in the "
            f"mean, and {each.silent:.0%} say nothing, as they reach no less than the interval "
            f"that the lights alone give ({results.uninformed[light]:.1f}).{loud}"
        )
    return (
        f"The intervals that estimate prints are made to hold in {COVERAGE:.0%} of pairs. Chosen "
        f"and calibrated on the other scenes and counted on each: {' '.join(told)} Estimate warns "
        "of each interval that says nothing."
    )


def _how_measured(results: CalibrationResults) -> list[str]:
    where = "fitted to all charts" if results.fitted else "the one that was given"
    return [
        "Greys: largest angle between a grey patch and the light; more than a degree or two is "
        "shade, glare or a second light on the chart. Off: root mean square distance, in pixels of "
        f"the second view, of the patches from where the homography puts them, which is {where}."
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
        "Lights by the charts, and how far the estimate is off that was trained and chosen without "
        "the pair's scene. Patches: of 24, unsaturated in both views."
    )
    return Table(caption, columns, rows)
