"""The two-camera paper's experiment on a phone's transforms (section 4.3, tables 3 and 4)."""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from everlight.color.chromaticity import from_chromaticity
from everlight.illuminant.illuminant_interval import cross_coverage
from everlight.illuminant.illuminant_training import TrainingSettings
from everlight.illuminant.out_of_distribution import cross_calibrate_distances
from everlight.illuminant.pair_model import PairModel, View, calibrated_view
from everlight_data.color.models.pair_model_files import save_pair_model
from everlight_data.color.pairs.camera_pairs import (
    MOMENTS,
    TRANSFORM,
    TRANSFORM_AND_MOMENTS,
    TRANSFORM_AND_WHITE_BALANCE,
    WHITE_BALANCE,
    CameraPairs,
    released_pairs,
)
from everlight_data.color.pairs.pair_augmentations import PHONE_AUGMENTATIONS
from everlight_data.color.photographs.published_folds import FOLDS
from everlight_data.color.rendered.rendered_pairs import rehearsal_pairs
from everlight_data.color.s20 import AugmentedS20, load_augmented_s20
from everlight_data.runs.checkpoints import Checkpoints
from everlight_experiments.illuminant.comparison import Comparison, record_errors
from everlight_experiments.illuminant.config import RATES, Plan
from everlight_experiments.illuminant.cross_validation import (
    CHOSEN,
    RULES,
    CrossValidation,
    compare_rules,
    cross_validate,
    method_name,
)
from everlight_experiments.illuminant.ensembles import coverage_table
from everlight_experiments.illuminant.networks import PARAMETERS
from everlight_experiments.illuminant.paper import PHONE_NOTES, phone_rows
from everlight_experiments.illuminant.report import compared_sections
from everlight_experiments.illuminant.tables import error_table
from everlight_experiments.report.cells import spread
from everlight_experiments.report.writer import Column, Section, Summary, Table
from everlight_experiments.run_folder.folder import RunFolder

SECOND_VIEW = "second illuminant"
ONE_AND_BOTH = WHITE_BALANCE, TRANSFORM_AND_WHITE_BALANCE
"""Inputs of one camera, and of both."""

Compared = tuple[str, tuple[Summary, list[Section]]]
"""Note on the data, and the report's summary and body."""


def run_phone(folder: RunFolder, plan: Plan, seeds: Sequence[int]) -> Compared:
    """Compare networks and regressions on a phone's transforms, for both cameras' illuminants."""

    def pairs(view: View) -> CameraPairs:
        return released_pairs(view) if plan.measured else rehearsal_pairs(seeds[0], view)

    data, second, training = pairs("main"), pairs("second"), plan.training
    augmented = load_augmented_s20(len(data.main)) if plan.measured else None
    comparisons, held_out = compare_rules(
        folder,
        data,
        PHONE_AUGMENTATIONS,
        seeds,
        training,
        phone_estimates(data),
        phone_rows(),
        RATES,
    )
    coverage = save_ensembles(folder, held_out, data)
    if augmented is not None:
        comparisons["test-set"].estimates.update(
            as_released(folder, data, augmented, seeds, training)
        )
    outcome = cross_validate(
        second,
        PHONE_AUGMENTATIONS,
        "held-out",
        seeds,
        training,
        Checkpoints(folder.checkpoints / "second"),
        {TRANSFORM: (5,)},
        RATES,
    )
    other = Comparison(
        phone_estimates(second) | outcome.illuminants(),
        second.illuminants[second.folds],
        SECOND_VIEW,
        f"The illuminant of {data.cameras[1]} from the same transforms; {RULES['held-out']}",
    )
    folder.save_results(**record_errors(folder, comparisons | {SECOND_VIEW: other}))
    chosen = [f"Net, {count} parameters, {CHOSEN}" for count in (470, 200, 1460)]
    illuminants = dict(zip(data.cameras, (data.main, data.second), strict=True))
    rates = " or ".join(f"{rate:g}" for rate in RATES)
    sections = compared_sections(
        folder.path,
        "How well do networks estimate a phone's illuminants from its two cameras?",
        data.note,
        comparisons,
        (*chosen, f"{chosen[0]}, ensemble", f"Linear regression, {CHOSEN}"),
        {" + ".join(data.cameras): illuminants},
        (*PHONE_NOTES, f"With held-out selection each fold selects the learning rate, {rates}."),
        [
            gain_table(comparisons["held-out"]),
            *map(error_table, (*comparisons.values(), other)),
            coverage,
        ],
    )
    return data.note, sections


def gain_table(compared: Comparison) -> Table:
    """Return the gain of the second camera over one camera's input, paired by image and seed."""
    errors, (one, both) = compared.errors(), ONE_AND_BOTH
    if f"Net on {one}, {CHOSEN}" not in errors:
        one, both = MOMENTS, TRANSFORM_AND_MOMENTS
    rows = []
    for method in ("Net", "Linear regression"):
        for suffix in ("", ", ensemble"):
            if f"{method} on {one}, {CHOSEN}{suffix}" not in errors:
                continue
            pair = [errors[f"{method} on {inputs}, {CHOSEN}{suffix}"] for inputs in (one, both)]
            # A mean over folds, not over images, as in the other tables.
            means = [np.nanmean(error, axis=2).mean(axis=1) for error in pair]
            low, high = compared.interval(pair[0] - pair[1])
            cells = [spread(mean, digits=2) for mean in means]
            gain = spread(means[0] - means[1], "+", 2)
            rows.append([f"{method}{suffix}", *cells, gain, f"{low:+.2f} to {high:+.2f}"])
    columns = [Column("Method"), Column(f"on {one}"), Column(f"on {both}")]
    columns += [Column("Gain"), Column("95% interval of the gain")]
    caption = (
        "Does the second camera help? Mean errors in degrees with held-out selection, augmentation "
        "chosen in the fold; T is what the second camera adds. ± is the standard deviation over "
        "seeds; the interval is a bootstrap over images, of errors averaged over seeds."
    )
    return Table(caption, columns, rows)


def phone_estimates(data: CameraPairs) -> dict[str, Float[np.ndarray, "1 folds k 3"]]:
    """Return the phone's own white balance as a method, where it is known."""
    if WHITE_BALANCE not in data.inputs:
        return {}
    estimates = from_chromaticity(jnp.asarray(data.inputs[WHITE_BALANCE][data.folds]))
    return {"The phone's white balance": np.asarray(estimates)[None]}


def as_released(
    folder: RunFolder,
    data: CameraPairs,
    augmented: AugmentedS20,
    seeds: Sequence[int],
    training: TrainingSettings,
) -> dict[str, Float[np.ndarray, "runs 3 k 3"]]:
    """Return estimates by networks trained as in the authors' code on their augmented transforms.

    Pairs were re-illuminated before the folds were made, so that test illuminants can be training
    targets, and the step is selected on the augmented test fold.
    """
    transforms = augmented.transforms.reshape(-1, 9)
    illuminants, folds = augmented.illuminants, augmented.folds
    trained = CameraPairs(
        {TRANSFORM: transforms}, illuminants, illuminants, folds, data.cameras, data.note
    )
    outcome = cross_validate(
        trained,
        {"as released": lambda pairs, train, _: pairs.samples(train)},
        "test-set",
        seeds,
        training,
        Checkpoints(folder.checkpoints / "as-released"),
        tested=data,
    )
    illuminants, depths = outcome.illuminants(), outcome.networks[TRANSFORM].models
    names = [f"{method_name(TRANSFORM, depth)}, as released" for depth in depths]
    return {name: illuminants[name] for name in names}


def save_ensembles(folder: RunFolder, outcome: CrossValidation, data: CameraPairs) -> Table:
    """Save all folds' and seeds' networks, each fold's of its chosen augmentation, for `estimate`.

    Intervals are calibrated on every test fold by the networks trained without it. All networks
    together disagree a little more, which widens the intervals. Their coverage is returned.
    """
    rows = data.folds.ravel()
    truth, folds, coverage = data.targets(rows), np.split(np.arange(len(rows)), FOLDS), {}
    distances = cross_calibrate_distances(jnp.asarray(data.inputs[TRANSFORM]), list(data.folds))
    for depth in outcome.networks[TRANSFORM].models:
        name = method_name(TRANSFORM, depth)
        estimates = outcome.estimates[f"{name}, {CHOSEN}"]
        held_out = estimates.reshape(len(estimates), -1, 2)
        members = outcome.members(TRANSFORM, depth)
        known = jnp.asarray(held_out), jnp.asarray(truth)
        view = calibrated_view(TRANSFORM, depth, members, *known, distances)
        trained_on = f"{data.note}; held-out selection"
        model = PairModel(view, None, None, "sum", data.cameras, trained_on)
        save_pair_model(folder.path / "models" / f"S20-{PARAMETERS[depth]}", model)
        coverage[name] = {"main": [cross_coverage([held_out] * FOLDS, truth, folds)]}
    return coverage_table(
        coverage,
        "the saved ensembles with held-out selection, on each fold after calibration on the other "
        "two.",
    )
