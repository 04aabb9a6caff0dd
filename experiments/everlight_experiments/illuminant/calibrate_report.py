"""The report of a calibration: expected errors, and the measurements of each pair."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from everlight.color.rendering import white_balance
from everlight.models.illuminant_interval import COVERAGE
from everlight.models.pair_model import View
from everlight_data.color.quasi_real import QuasiReal
from everlight_experiments.illuminant.comparison import Comparison, angular_errors, mean_interval
from everlight_experiments.illuminant.report import compared_sections
from everlight_experiments.illuminant.selection import CANDIDATES, NESTED, Choice, mean_error
from everlight_experiments.illuminant.tables import error_table
from everlight_experiments.report.writer import Column, FirstScreen, Section, Table

RIVALS = (
    "SoG",
    "Linear regression on moments",
    "Net on moments, ensemble",
    "Net, 470 parameters, ensemble",
)
FEW_SCENES = 20


class Calibration(NamedTuple):
    """Results of a calibration.

    Attributes:
      names: names of the pairs.
      scenes: scene number of each pair.
      choices: kept candidate and its selection by camera.
      comparisons: every method's estimates by camera.
      uninformative: radius of the interval of the illuminants alone, in degrees, by camera.
      grey_spread: largest angle between a grey patch and the illuminant, in degrees.
      residuals: residuals of the alignment in pixels.
      fitted: whether the alignment was fitted to the charts.
      quasi: transforms and illuminants.
      cameras: names of the cameras.
    """

    names: Sequence[str]
    scenes: Int[np.ndarray, "n"]
    choices: Mapping[View, Choice]
    comparisons: Mapping[View, Comparison]
    uninformative: Mapping[View, float]
    grey_spread: Float[np.ndarray, "n 2"]
    residuals: Float[np.ndarray, "n"]
    fitted: bool
    quasi: QuasiReal
    cameras: tuple[str, str]


def calibration_sections(
    folder: Path, results: Calibration, note: str
) -> tuple[FirstScreen, list[Section]]:
    """Return the summary and body of the report."""
    illuminants = {
        results.cameras[0]: results.quasi.illuminants_main,
        f"{results.cameras[1]} (second)": results.quasi.illuminants_second,
    }
    apart = sensor_differences(results.quasi)
    notes = (
        *(_verdict(view, results) for view in results.choices),
        *_warn_of_few(int(results.scenes.max()) + 1),
        _interval_notes(results),
        "White-balanced chart colours of equal sensors are equal, and then the second camera adds "
        f"no information. Here they differ by {apart.mean():.1f} degrees per patch "
        f"({apart.min():.1f} to {apart.max():.1f} over {len(apart)} pairs).",
        "The model has not seen illuminants outside those of the figure below.",
    )
    first, sections = compared_sections(
        folder,
        "How well does the kept model estimate the illuminants of these two cameras?",
        note,
        results.comparisons,
        (NESTED, *RIVALS, "GW"),
        {"charts": illuminants},
        notes,
        [_choice_table(results), *map(error_table, results.comparisons.values())],
        headline=NESTED,
        baselines=("SoG",),
    )
    return first, [*sections, Section("The pairs", _pair_notes(results), [_pairs_table(results)])]


def sensor_differences(quasi: QuasiReal) -> Float[np.ndarray, "n"]:
    """Return the mean angle between a patch's white-balanced colours in the two cameras."""
    balanced: list[Float[Array, "n 24 3"]] = [
        jax.vmap(white_balance)(jnp.asarray(charts, jnp.float32), jnp.asarray(truth, jnp.float32))
        for charts, truth in (
            (quasi.charts_main, quasi.illuminants_main),
            (quasi.charts_second, quasi.illuminants_second),
        )
    ]
    return np.mean(angular_errors(*balanced), axis=1, where=quasi.usable)


def _verdict(view: View, results: Calibration) -> str:
    """Compare the kept model with its rivals, with intervals of the differences over scenes."""
    errors = {
        name: each[:, 0].mean(axis=0) for name, each in results.comparisons[view].errors().items()
    }
    sentences = [
        f"Illuminant of the {view} camera: {results.choices[view].kept.name} is kept. Selected "
        f"without the scene, its mean error is {np.nanmean(errors[NESTED]):.2f} degrees."
    ]
    count = int(results.scenes.max() + 1)
    for rival in RIVALS:
        better = errors[rival] - errors[NESTED]
        interval = mean_interval(jax.random.key(0), better, results.scenes, count=count)
        verdict = "it is statistically tied"
        if interval.low > 0 or interval.high < 0:
            verdict = "it is BETTER" if interval.low > 0 else "it is WORSE"
        sentences.append(
            f"Compared with {rival} ({np.nanmean(errors[rival]):.2f}) {verdict}: the difference of "
            f"errors is {np.nanmean(better):.2f} degrees (95% over scenes: {interval.low:.2f} to "
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


def _interval_notes(results: Calibration) -> str:
    notes = []
    for view, choice in results.choices.items():
        each = choice.coverage()
        if not np.isfinite(each.degrees):
            notes.append(f"{view} illuminant: too few pairs for an interval.")
            continue
        loud = " THEY ARE TOO WIDE TO BE OF USE." if each.uninformative > 0.5 else ""
        notes.append(
            f"{view} illuminant: coverage {each.share:.0%}, mean radius {each.degrees:.1f} "
            f"degrees, {each.uninformative:.0%} uninformative, since no smaller than the interval "
            f"of the illuminants alone ({results.uninformative[view]:.1f}).{loud}"
        )
    return (
        f"The intervals of estimate have a nominal coverage of {COVERAGE:.0%}. Coverage on each "
        f"scene after selection and calibration on the others: {' '.join(notes)} Estimate warns of "
        "uninformative intervals."
    )


def _choice_table(results: Calibration) -> Table:
    """Return each candidate's error, and the number of folds that select it."""
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
    for view in results.choices:
        names = ("Mean", "Folds", "For estimate")
        columns += [Column(name, f"{view} illuminant") for name in names]
    return Table(
        "Candidates for estimate. Mean: error of single trainings on held-out scenes, in degrees, "
        "the lowest of which is kept. Folds: the number of folds that select the candidate "
        "without their scenes.",
        columns,
        rows,
    )


def _pair_notes(results: Calibration) -> list[str]:
    where = "fitted to all charts" if results.fitted else "given"
    return [
        "Greys: largest angle between a grey patch and the illuminant; more than two degrees "
        "indicate shade, glare or a second illuminant on the chart. Off: root mean square "
        f"residual of the homography, in pixels of the second view; the homography is {where}."
    ]


def _pairs_table(results: Calibration) -> Table:
    errors = [each.errors()[NESTED][0, 0] for each in results.comparisons.values()]
    rows = []
    for row, name in enumerate(results.names):
        cells = [name, str(results.scenes[row] + 1)]
        for place, view in enumerate(results.comparisons):
            red, green, blue = getattr(results.quasi, f"illuminants_{view}")[row]
            cells += [f"{red / green:.3f}", f"{blue / green:.3f}"]
            cells += [f"{results.grey_spread[row, place]:.2f}", f"{errors[place][row]:.2f}"]
        usable = int(results.quasi.usable[row].sum())
        rows.append([*cells, str(usable), f"{results.residuals[row]:.1f}"])
    columns = [Column("Pair"), Column("Scene")]
    for view, camera in zip(results.comparisons, results.cameras, strict=True):
        group = f"{camera} ({view}), degrees"
        columns += [Column(name, group) for name in ("R/G", "B/G", "Greys", "Error")]
    columns += [Column("Patches"), Column("Off")]
    caption = (
        "Illuminants of the charts, and error of the estimate trained and selected without the "
        "pair's scene. Patches: of 24, unsaturated in both views."
    )
    return Table(caption, columns, rows)
