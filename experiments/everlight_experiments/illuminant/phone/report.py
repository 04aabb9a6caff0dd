"""The report of a calibration: expected errors, and the measurements of each pair."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from everlight.illuminant.charted_pairs import ChartedPairs
from everlight.illuminant.pair_inputs import MOMENTS, TRANSFORM, View
from everlight.illuminant.pair_model import PairModel
from everlight_data.color.charts.chart_pairs import PairCharts
from everlight_data.color.charts.pair_measurements import sensor_differences
from everlight_experiments.illuminant.core.cross_validation import HELD_OUT
from everlight_experiments.illuminant.core.experiment import (
    Comparison,
    IlluminantExperiment,
)
from everlight_experiments.illuminant.core.networks import DEPTH, NetworkTraining
from everlight_experiments.illuminant.core.report import coverage_table, error_table
from everlight_experiments.illuminant.phone.selection import NESTED, Candidate, ViewChoice
from everlight_experiments.report.writer import Column, Section, Table

FEW_SCENES = 20


class Calibration(NamedTuple):
    """Results of a calibration.

    Attributes:
      charted: transforms, illuminants and charts of the pairs.
      charts: charts of each pair.
      residuals: root mean square residual of each pair's charts, in pixels.
      scenes: scene number of each pair.
      choices: kept candidate and its selection by camera.
      comparisons: every method's estimates by camera.
      model: the kept estimators.
    """

    charted: ChartedPairs
    charts: Sequence[PairCharts]
    residuals: Float[np.ndarray, "n"]
    scenes: Int[np.ndarray, "n"]
    choices: Mapping[View, ViewChoice]
    comparisons: Mapping[View, Comparison]
    model: PairModel


def calibration_experiment(
    results: Calibration, training: NetworkTraining, command: str
) -> IlluminantExperiment:
    """Return the experiment of a calibration; the command is the one that uses its model."""
    model, scenes = results.model, results.scenes.max() + 1
    charted = results.charted
    main, second = model.cameras
    names = [choice.selected.name for choice in results.choices.values()]
    first = results.choices["main"]
    return IlluminantExperiment(
        title=f"Two-camera illuminant estimation: calibration of {main} + {second}",
        question="How well does the kept model estimate the illuminants of these two cameras?",
        data=model.trained_on,
        comparisons=results.comparisons,
        protocol={
            "Cameras": f"{main} + {second}",
            "Scenes": f"{len(results.scenes)} pairs in {scenes} scenes",
            "Protocol": f"scenes left out in turn, {len(first.without)} folds",
        },
        selection_rule=f"{HELD_OUT} of the training pairs "
        "(pairs of a scene may be divided); method and inputs by nested cross-validation over "
        "scenes, so that errors are on scenes outside the selection",
        seeds=f"{first.seeds} per fold, from {training.seeds[0]}; one for the nested trainings",
        illuminants={
            "charts": {
                main: charted.main.illuminants,
                f"{second} (second)": charted.second.illuminants,
            }
        },
        training=training.settings,
        curves=(NESTED, *names, *_rivals(first), "GW"),
        headline=NESTED,
        baselines=("SoG",),
        notes=_notes(results),
        tables=[*map(error_table, results.comparisons.values()), _coverage(results)],
        after=[Section("The pairs", (), [_pairs_table(results)])],
        command=command,
    )


def _coverage(results: Calibration) -> Table:
    """Return the coverage of the kept estimators' intervals."""
    model = results.model
    measured = {view: [choice.coverage()] for view, choice in results.choices.items()}
    return coverage_table(
        {"kept estimators": measured},
        "on each fold after selection and calibration on the others. Intervals are uninformative "
        f"from {model.main.uninformative:.1f} degrees on (main camera) and from "
        f"{model.second.uninformative:.1f} on (second); inf if the pairs are too few.",
    )


def _notes(results: Calibration) -> list[str]:
    """Return paragraphs on the kept models, on the sensors, and on too few scenes."""
    apart, scenes = sensor_differences(results.charted), results.scenes.max() + 1
    notes = [
        *(_verdict(view, results) for view in results.choices),
        "White-balanced chart colours of equal sensors are equal, and then the second camera adds "
        f"no information. Here they differ by {apart.mean():.1f} degrees per patch "
        f"({apart.min():.1f} to {apart.max():.1f} over {len(apart)} pairs).",
        "The model has not seen illuminants outside those of the figure below.",
    ]
    if scenes < FEW_SCENES:
        notes.append(
            f"{scenes} scenes are few: an interval over so few is itself uncertain, and unseen "
            f"illuminants are not learned. {FEW_SCENES} or more, under all kinds of illuminants, "
            "are advised."
        )
    return notes


def _rivals(choice: ViewChoice) -> list[str]:
    """Return the names of the rivals: ensembles, or single trainings if there is one seed."""
    networks = [Candidate(input_name, DEPTH) for input_name in (MOMENTS, TRANSFORM)]
    names = [net.ensemble_name if choice.seeds > 1 else net.name for net in networks]
    return ["SoG", Candidate(MOMENTS, None).name, *names]


def _verdict(view: View, results: Calibration) -> str:
    """Compare the kept model with its rivals, with intervals of the differences over scenes."""
    choice = results.choices[view]
    selected = Counter(candidate.name for candidate in choice.without).most_common()
    gains = results.comparisons[view].gains((NESTED, rival) for rival in _rivals(choice))
    sentences = [
        f"Illuminant of the {view} camera: {choice.selected.name} is kept for `estimate`, as "
        "single trainings have the lowest error on held-out scenes. Selections without the scenes "
        f"of each of {len(choice.without)} folds: "
        f"{', '.join(f'{name} ({n})' for name, n in selected)}. "
        f"Their mean error on the fold is {gains[0].errors[0]:.2f} degrees."
    ]
    for gain in gains:
        verdict = "it is statistically tied"
        if gain.low > 0 or gain.high < 0:
            verdict = "it is BETTER" if gain.low > 0 else "it is WORSE"
        sentences.append(
            f"Compared with {gain.reference} ({gain.errors[1]:.2f}) {verdict}: the difference of "
            f"errors is {gain.degrees:.2f} degrees (95% over scenes: {gain.low:.2f} to "
            f"{gain.high:.2f})."
        )
    return " ".join(sentences)


def _pairs_table(results: Calibration) -> Table:
    errors = {view: tested.errors()[NESTED][0, 0] for view, tested in results.comparisons.items()}
    charted, rows = results.charted, []
    for row, (name, _) in enumerate(charted.names):
        cells = [name, str(results.scenes[row] + 1)]
        for view in results.comparisons:
            red, green, blue = getattr(charted, view).illuminants[row]
            spread = getattr(results.charts[row], view).gray_spread
            cells += [f"{red / green:.3f}", f"{blue / green:.3f}"]
            cells += [f"{spread:.2f}", f"{errors[view][row]:.2f}"]
        usable = int(charted.usable[row].sum())
        rows.append([*cells, str(usable), f"{results.residuals[row]:.1f}"])
    columns = [Column("Pair"), Column("Scene")]
    for view, camera in zip(results.comparisons, results.model.cameras, strict=True):
        group = f"{camera} ({view}), degrees"
        columns += [Column(name, group) for name in ("R/G", "B/G", "Greys", "Error")]
    columns += [Column("Patches"), Column("Off")]
    caption = (
        "Illuminants of the charts, and error of the estimate trained and selected without the "
        "pair's scene. Greys: largest angle between a grey patch and the illuminant; more than two "
        "degrees indicate shade, glare or a second illuminant on the chart. Patches: of 24, "
        "unsaturated in both views. Off: root mean square residual of the homography, in pixels of "
        "the second view."
    )
    return Table(caption, columns, rows)
