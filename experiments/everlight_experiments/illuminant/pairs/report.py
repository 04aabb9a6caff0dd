"""The answer to "does the second camera help here?" in sentences, one figure and one table."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from everlight_experiments.illuminant.core.camera_means import camera_mean_name
from everlight_experiments.illuminant.core.experiment import Comparison, Gain
from everlight_experiments.illuminant.pairs.methods import (
    FFCC,
    MOMENTS_ALONE,
    ONE_CAMERA,
    ORACLE,
    TRANSFORM_ALONE,
    TWO_CAMERAS,
    TWO_TRAININGS,
)
from everlight_experiments.report.plots import new_canvas, save
from everlight_experiments.report.writer import Column, Figure, Table

QUESTION = "Does the second camera help here?"
COMPARED = (
    (TWO_CAMERAS, ONE_CAMERA),
    (TWO_CAMERAS, FFCC),
    (TWO_CAMERAS, camera_mean_name(FFCC)),
    (camera_mean_name(FFCC), FFCC),
    (camera_mean_name(ONE_CAMERA), TWO_TRAININGS),
    (TRANSFORM_ALONE, MOMENTS_ALONE),
    (ORACLE, ONE_CAMERA),
)
"""Methods with two cameras, each with the method that it is compared with."""


def pair_gains(compared: Comparison) -> list[Gain]:
    """Return the gains of `COMPARED`, but over no mean of two trainings if there is one seed."""
    has_two = TWO_TRAININGS in compared.estimates
    return compared.gains(names for names in COMPARED if has_two or TWO_TRAININGS not in names)


def answer(gains: Sequence[Gain]) -> tuple[str, ...]:
    """Return the answer to gains of `COMPARED`, its reason, and averaging and the oracle."""
    by_methods = {(gain.method, gain.reference): gain for gain in gains}
    equal, ffcc = by_methods[TWO_CAMERAS, ONE_CAMERA], by_methods[TWO_CAMERAS, FFCC]
    averaged, oracle = by_methods[camera_mean_name(FFCC), FFCC], by_methods[ORACLE, ONE_CAMERA]
    if equal.low > 0 and ffcc.low > 0:
        verdict = (
            "Yes: the network on T and moments errs less than one camera at equal size and FFCC."
        )
    elif equal.high < 0 or ffcc.high < 0:
        rival = "one camera at equal size" if equal.high < 0 else "FFCC on one camera"
        verdict = f"No: the network on T and moments errs more than {rival}."
    else:
        verdict = "Not shown: an interval of the gain contains 0."
    return (
        f"{verdict} Gain in degrees against one camera at equal size: {equal.text}; against FFCC: "
        f"{ffcc.text}.",
        f"The mean of both cameras' FFCC gains {averaged.text} over one. With the true ratios of "
        f"both whites, which no photograph shows, a network errs by {oracle.errors[0]:.2f}; "
        f"one camera at equal size errs by {oracle.errors[1]:.2f}.",
    )


def gain_table(gains: Sequence[Gain]) -> Table:
    """Return a row per comparison."""
    rows = [
        [
            gain.method,
            gain.reference,
            *(f"{error:.2f}" for error in gain.errors),
            f"{gain.degrees:+z.2f}",
            f"{gain.low:+z.2f} to {gain.high:+z.2f}",
        ]
        for gain in gains
    ]
    columns = [Column("Method"), Column("Compared with")]
    columns += [Column(name, "mean error, degrees") for name in ("Method's", "Other's")]
    columns += [Column("Gain"), Column("95% interval of the gain")]
    caption = (
        f"{QUESTION} Paired differences in degrees, positive where the second camera helps. The "
        "interval is a bootstrap over groups, of errors averaged over seeds. T and moments, and "
        "moments and edge moments of one camera, are 18 numbers each, for networks of 551 "
        "parameters. The last row is the pair's oracle: the ratios of both true whites."
    )
    if all(gain.reference != TWO_TRAININGS for gain in gains):
        caption += (
            " With one seed the mean of both cameras' networks is not compared: it averages two "
            "trainings, and one camera has one. Give --seeds 2 or more."
        )
    return Table(caption, columns, rows, frozenset({0}))


def gain_figure(path: Path, gains: Sequence[Gain]) -> Figure:
    """Return the figure of all gains with their intervals."""
    canvas, (axis,) = new_canvas(1, 7.5, 0.6 + 0.5 * len(gains))
    places = np.arange(len(gains))[::-1]
    degrees = np.array([gain.degrees for gain in gains])
    ends = np.array([[gain.degrees - gain.low, gain.high - gain.degrees] for gain in gains]).T
    axis.errorbar(degrees, places, xerr=np.maximum(ends, 0), fmt="o", capsize=3)
    axis.axvline(0, color="0.35", lw=1)
    labels = [f"{gain.method}\nagainst {gain.reference}" for gain in gains]
    axis.set_yticks(places, labels, fontsize="small")
    axis.set(xlabel="gain (degrees)\nright of 0 the second camera helps")
    return Figure(
        "Gain of methods with two cameras, with 95% intervals over groups.", save(canvas, path)
    )
