"""The two-camera paper's experiment on a phone's transforms (section 4.3, tables 3 and 4)."""

from collections.abc import Mapping, Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from everlight.color.chromaticity import from_chromaticity, to_chromaticity
from everlight.models.illuminant_batches import index_of_lowest
from everlight.models.illuminant_interval import COVERAGE, IntervalCoverage, cross_coverage
from everlight.models.illuminant_training import TrainingSettings
from everlight.models.out_of_distribution import cross_calibrate_distances
from everlight.models.pair_model import PairModel, View, calibrated_view
from everlight.trees import rows_of
from everlight_data.checkpoints import Checkpoints
from everlight_data.color.camera_pairs import (
    TRANSFORM,
    WHITE_BALANCE,
    CameraPairs,
    Samples,
    released_pairs,
    rendered_pairs,
)
from everlight_data.color.pair_augmentations import PHONE_AUGMENTATIONS
from everlight_data.color.pair_model_files import save_pair_model
from everlight_data.color.quasi_real import FOLDS
from everlight_data.color.s20 import AugmentedS20, load_augmented_s20
from everlight_experiments.illuminant.comparison import Comparison, record_errors
from everlight_experiments.illuminant.config import RATES, Plan
from everlight_experiments.illuminant.cross_validation import (
    CHOSEN,
    RULES,
    CrossValidation,
    chosen_rows,
    compare_rules,
    cross_validate,
    network_name,
    train_folds,
)
from everlight_experiments.illuminant.networks import PARAMETERS
from everlight_experiments.illuminant.paper import PHONE_NOTES, phone_rows
from everlight_experiments.illuminant.report import compared_sections
from everlight_experiments.illuminant.tables import error_table
from everlight_experiments.report.writer import Column, FirstScreen, Section, Table
from everlight_experiments.run_folder.folder import RunFolder

SECOND_VIEW = "second illuminant"

Compared = tuple[str, str, tuple[FirstScreen, list[Section]]]
"""Note on the data, selection rule, and the report's summary and body."""
BOTH_RULES = "held-out selection and the paper's test-set selection, a table each; quote held-out"


def run_phone(folder: RunFolder, plan: Plan, seeds: Sequence[int]) -> Compared:
    """Compare networks and regressions on a phone's transforms, for both cameras' illuminants."""

    def pairs(view: View) -> CameraPairs:
        return released_pairs(view) if plan.measured else rendered_pairs(seeds[0], view)

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
        (
            *PHONE_NOTES,
            f"With held-out selection each fold selects the learning rate, {rates}.",
            _coverage_note(coverage),
        ),
        [*map(error_table, (*comparisons.values(), other)), _validation_table(held_out)],
    )
    return data.note, BOTH_RULES, sections


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
    features = augmented.transforms.reshape(-1, 9)
    targets = np.asarray(to_chromaticity(jnp.asarray(augmented.illuminants)))

    def split(fold: int, _: int) -> tuple[Samples, Samples]:
        valid = augmented.folds[fold]
        train = np.setdiff1d(np.arange(len(features)), valid)
        return tuple(Samples({TRANSFORM: features[r]}, targets[r]) for r in (train, valid))

    data = data._replace(inputs={TRANSFORM: data.inputs[TRANSFORM]})
    checkpoints = Checkpoints(folder.checkpoints / "as-released")
    outcome = train_folds(data, {"as released": split}, seeds, training, checkpoints)
    illuminants, depths = outcome.illuminants(), outcome.networks[TRANSFORM].models
    names = [f"{network_name(TRANSFORM, depth)}, as released" for depth in depths]
    return {name: illuminants[name] for name in names}


def save_ensembles(
    folder: RunFolder, outcome: CrossValidation, data: CameraPairs
) -> dict[str, IntervalCoverage]:
    """Save all folds' and seeds' networks, each fold's of its chosen augmentation, for `estimate`.

    Intervals are calibrated on every test fold by the networks trained without it. All networks
    together disagree a little more, which widens the intervals.

    Returns:
      Each network's interval coverage on a fold, calibrated on the other two.
    """
    transforms, truth = jnp.asarray(data.inputs[TRANSFORM]), data.targets(data.folds.ravel())
    distances = cross_calibrate_distances(transforms, list(data.folds))
    folds, coverage = np.split(np.arange(len(truth)), FOLDS), {}
    for depth, models in outcome.networks[TRANSFORM].models.items():
        name = network_name(TRANSFORM, depth)
        losses = np.stack([outcome.validation[name][each] for each in PHONE_AUGMENTATIONS])
        members = rows_of(models, chosen_rows(losses, models.mean.shape[0]))
        chosen = outcome.estimates[f"{name}, {CHOSEN}"]
        estimates = chosen.reshape(len(chosen), -1, 2)
        best = [tuple(PHONE_AUGMENTATIONS)[index] for index in index_of_lowest(losses)]
        note = f"{data.note}; augmentation {', '.join(best)}, held-out selection"
        held_out = jnp.asarray(estimates), jnp.asarray(truth)
        view = calibrated_view("T", depth, members, *held_out, distances)
        model = PairModel(view, None, None, "sum", data.cameras, note)
        save_pair_model(folder.path / "models" / f"S20-{PARAMETERS[depth]}", model)
        coverage[name] = cross_coverage([estimates] * FOLDS, truth, folds)
    return coverage


def _coverage_note(coverage: Mapping[str, IntervalCoverage]) -> str:
    covered = "; ".join(
        f"{name}: {each.share:.0%}, mean radius {each.degrees:.1f} degrees, "
        f"{each.uninformative:.0%} uninformative (no smaller than the interval of the training "
        "illuminants)"
        for name, each in coverage.items()
    )
    return (
        f"Intervals of the saved ensembles have a nominal coverage of {COVERAGE:.0%}. Coverage on "
        f"one fold after calibration on two, held-out selection: {covered}."
    )


def _validation_table(outcome: CrossValidation) -> Table:
    rows = []
    for method, losses in outcome.validation.items():
        row = [method]
        for name in PHONE_AUGMENTATIONS:
            cells = [f"{loss:.4f}" for loss in losses[name]]
            if method in outcome.rates:
                rates = outcome.rates[method][name]
                cells = [f"{c} ({rate:g})" for c, rate in zip(cells, rates, strict=True)]
            row.append(" / ".join(cells))
        rows.append(row)
    caption = (
        "Mean of the lowest validation losses by augmentation, one number per fold, which selects "
        "each fold's augmentation. In brackets the learning rate, selected before in the same way."
    )
    return Table(caption, [Column("Method"), *map(Column, PHONE_AUGMENTATIONS)], rows)
