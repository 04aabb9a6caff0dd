"""The two-camera paper's experiment on a phone's transforms (section 4.3, tables 3 and 4)."""

from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from everlight.color.chromaticity import chromaticity_to_illuminant
from everlight.illuminant.camera_pairs import CameraPairs
from everlight.illuminant.illuminant_interval import cross_coverage
from everlight.illuminant.out_of_distribution import cross_calibrate_distances
from everlight.illuminant.pair_augmentations import PHONE_AUGMENTATIONS
from everlight.illuminant.pair_inputs import (
    MOMENTS,
    TRANSFORM,
    TRANSFORM_AND_MOMENTS,
    TRANSFORM_AND_WHITE_BALANCE,
    WHITE_BALANCE,
    View,
)
from everlight.illuminant.pair_model import PairModel, calibrated_view
from everlight_data.color.models.pair_model_files import save_pair_model
from everlight_data.color.pairs.released_pairs import released_pairs
from everlight_data.color.photographs.image_groups import group_folds
from everlight_data.color.photographs.published_folds import FOLDS
from everlight_data.color.rendered.rehearsal import rehearsal_pairs
from everlight_data.color.s20 import AUGMENTED_ARCHIVE, load_augmented_s20
from everlight_data.errors import DataError
from everlight_experiments.illuminant.config import RATES, PairConfig
from everlight_experiments.illuminant.core.camera_means import camera_mean, camera_mean_name
from everlight_experiments.illuminant.core.cross_validation import (
    CHOSEN,
    OTHER_DEPTHS,
    RULES,
    CrossValidation,
    Estimator,
    compare_rules,
    cross_validate,
    method_name,
)
from everlight_experiments.illuminant.core.experiment import (
    Comparison,
    Errors,
    Gain,
    IlluminantExperiment,
    ResamplingUnits,
    estimate_arrays,
    record_errors,
)
from everlight_experiments.illuminant.core.networks import DEPTH, PARAMETERS, NetworkTraining
from everlight_experiments.illuminant.core.report import coverage_table, error_table, spread
from everlight_experiments.illuminant.paper import PHONE_NOTES
from everlight_experiments.illuminant.published_tables import TABLE_3_S20
from everlight_experiments.illuminant.two_camera.options import BOTH_RULES, TwoCameraOptions
from everlight_experiments.report.writer import Column, Table
from everlight_experiments.run_folder.folder import RunFolder

SECOND_VIEW = "second illuminant"
AS_RELEASED = "as released"
"""Name for the authors' own augmentation of the pairs."""
NOT_COMPARABLE = (
    "Table 3 of the paper is left out: its folds hold out single pairs (--block 1), and these "
    "whole blocks."
)


def compare_transforms(
    folder: RunFolder, options: TwoCameraOptions, config: PairConfig
) -> IlluminantExperiment:
    """Compare networks and regressions on a phone's transforms, for both cameras' illuminants."""

    def pairs(view: View) -> CameraPairs:
        data = released_pairs(view) if config.measured else rehearsal_pairs(options.seed, view)
        return in_blocks(data, options.block, options.seed)

    data, second = pairs("main"), pairs("second")
    training = NetworkTraining(config.training, options.training_seeds, folder.checkpoints, RATES)
    # The paper's folds hold out single pairs, so its statistics compare with no folds of blocks.
    published = published_rows() if options.block == 1 else {}
    rules = compare_rules(data, PHONE_AUGMENTATIONS, training, phone_estimates(data), published)
    coverage = save_ensembles(folder, rules.held_out, data)
    released = {}
    if config.measured and options.block == 1:
        # The authors' re-illuminations are of the published folds.
        released = as_released(data, training.below("as-released")._replace(rates=()))
        if not released:
            print(
                f"left out: networks {AS_RELEASED}, which need {AUGMENTED_ARCHIVE} beside the pairs"
            )
    outcome = second_camera(second, training)
    means = camera_means({"main": rules.held_out, "second": outcome}, data)
    comparisons = with_estimates(rules.comparisons, {"test-set": released, "held-out": means})
    other = second_comparison(second, outcome, data.cameras[1])
    if options.block > 1:
        units = ResamplingUnits("blocks", data.folds // options.block)
        other = other._replace(units=units)
        comparisons = without_published(comparisons, units)
    both = comparisons | {SECOND_VIEW: other}
    folder.save_results(**record_errors(folder, both), **estimate_arrays(both))
    return _experiment(options, config, data, comparisons, other, coverage)


def _experiment(
    options: TwoCameraOptions,
    config: PairConfig,
    data: CameraPairs,
    comparisons: Mapping[str, Comparison],
    second: Comparison,
    coverage: Table,
) -> IlluminantExperiment:
    """Return what the report shows of both cameras' comparisons and the saved ensembles."""
    chosen = [Estimator(method_name(TRANSFORM, depth)) for depth in (5, 2, 16)]
    curves = [*chosen, chosen[0]._replace(ensemble=True), Estimator(method_name(TRANSFORM, None))]
    rates = " or ".join(f"{rate:g}" for rate in RATES)
    return IlluminantExperiment(
        title=f"Two-camera illuminant estimation: S20 phone pairs (tables 3 and 4), preset "
        f"{options.preset}",
        question="How well do networks estimate a phone's illuminants from its two cameras?",
        data=data.note,
        comparisons=comparisons,
        illuminants={
            " + ".join(data.cameras): dict(zip(data.cameras, (data.main, data.second), strict=True))
        },
        curves=[estimator.name for estimator in curves],
        notes=(
            *PHONE_NOTES,
            f"With held-out selection each fold selects the learning rate, {rates}.",
        ),
        tables=[
            gain_table(comparisons["held-out"]),
            *map(error_table, (*comparisons.values(), second)),
            coverage,
        ],
        training=config.training,
        protocol=options.protocol_in_folds,
        selection_rule=BOTH_RULES,
        seeds=options.seeds_in_folds,
    )


def second_camera(second: CameraPairs, training: NetworkTraining) -> CrossValidation:
    """Return the held-out selection of networks of the default depth for the second illuminant."""
    below = training.below("second")
    return cross_validate(second, PHONE_AUGMENTATIONS, "held-out", below, {TRANSFORM: (DEPTH,)})


def second_comparison(second: CameraPairs, outcome: CrossValidation, camera: str) -> Comparison:
    """Return the estimates of the second camera's illuminant, named by the camera."""
    return Comparison(
        phone_estimates(second) | outcome.illuminants(),
        second.illuminants[second.folds],
        SECOND_VIEW,
        f"The illuminant of {camera} from the same transforms; {RULES['held-out']}",
    )


def with_estimates(
    comparisons: Mapping[str, Comparison],
    added: Mapping[str, Mapping[str, Float[np.ndarray, "runs folds k 3"]]],
) -> dict[str, Comparison]:
    """Return comparisons by selection rule with the estimates that are added to each."""
    return {
        rule: compared._replace(estimates={**compared.estimates, **added[rule]})
        for rule, compared in comparisons.items()
    }


def without_published(
    comparisons: Mapping[str, Comparison], units: ResamplingUnits
) -> dict[str, Comparison]:
    """Return comparisons on blocks of pairs, whose captions say why table 3 is left out."""
    return {
        rule: compared._replace(units=units, caption=f"{compared.caption} {NOT_COMPARABLE}")
        for rule, compared in comparisons.items()
    }


def in_blocks(data: CameraPairs, block: int, seed: int) -> CameraPairs:
    """Return pairs in drawn folds of whole blocks of consecutive pairs; one pair is no block.

    Raises:
      DataError: the blocks do not divide into folds of equal size.
    """
    if block == 1:
        return data
    count = len(data.illuminants)
    if count % (FOLDS * block):
        sizes = [size for size in range(2, count // FOLDS + 1) if count % (FOLDS * size) == 0]
        raise DataError(
            f"--block {block}: {count} pairs do not divide into {FOLDS} equal folds of such "
            f"blocks; give {', '.join(map(str, sizes))}"
        )
    names = [f"pair {row + 1}" for row in range(count)]
    return data._replace(folds=group_folds(np.arange(count) // block, None, seed, names))


def published_rows() -> dict[str, tuple[float, ...]]:
    """Return table 3 with each network's row under every re-illumination of the transforms."""
    rows = dict(TABLE_3_S20)
    for method in (method_name(TRANSFORM, depth) for depth in PARAMETERS):
        published = rows.pop(method)
        for augmentation in ("von Kries", CHOSEN, AS_RELEASED):
            rows[Estimator(method, augmentation).name] = published
    return rows


def gain_table(compared: Comparison) -> Table:
    """Return the gain of the second camera over one camera's input, paired by image and seed."""
    errors = compared.errors()
    single, joined = WHITE_BALANCE, TRANSFORM_AND_WHITE_BALANCE
    if Estimator(f"Net on {single}").name not in errors:
        single, joined = MOMENTS, TRANSFORM_AND_MOMENTS
    labels: dict[tuple[str, str], str] = {}
    for method in ("Net", "Linear regression"):
        for ensemble in (False, True):
            single_view, with_transform = (
                Estimator(f"{method} on {inputs}", ensemble=ensemble).name
                for inputs in (single, joined)
            )
            added = {with_transform: "T", camera_mean_name(single_view): "mean of both estimates"}
            kind = f"{method}, ensemble" if ensemble else method
            labels |= {
                (other, single_view): f"{kind}: {addition}"
                for other, addition in added.items()
                if other in errors
            }
    rows = [
        [label, *_gain_cells(gain, errors)]
        for label, gain in zip(labels.values(), compared.gains(labels), strict=True)
    ]
    columns = [Column("Method: what the second camera adds"), Column(f"on {single}")]
    columns += [Column("with the second camera"), Column("Gain")]
    columns += [Column("95% interval of the gain")]
    caption = (
        "Does the second camera help? Mean errors in degrees with held-out selection, augmentation "
        "chosen in the fold. T is a further input; the mean is of estimates by networks or "
        f"regressions on each camera's {single}. ± is the standard deviation over seeds; the "
        f"interval is a bootstrap over {compared.unit_name}, of errors averaged over seeds."
    )
    return Table(caption, columns, rows)


def _gain_cells(gain: Gain, errors: Mapping[str, Errors]) -> list[str]:
    """Return both mean errors, the gain and its interval."""
    # A mean over folds, not over images, as in the other tables.
    means = [
        np.nanmean(errors[name], axis=2).mean(axis=1) for name in (gain.reference, gain.method)
    ]
    difference = spread(means[0] - means[1], "+")
    return [*map(spread, means), difference, f"{gain.low:+.2f} to {gain.high:+.2f}"]


def camera_means(
    outcomes: Mapping[View, CrossValidation], data: CameraPairs
) -> dict[str, Float[np.ndarray, "runs folds k 3"]]:
    """Return the means of both cameras' estimates by the methods that read white balance alone."""
    illuminants: dict[View, Float[np.ndarray, "n 3"]] = {"main": data.main, "second": data.second}
    estimates = {view: outcome.illuminants() for view, outcome in outcomes.items()}
    names = [
        Estimator(method_name(WHITE_BALANCE, depth), ensemble=ensemble).name
        for depth in (None, *OTHER_DEPTHS)
        for ensemble in (False, True)
    ]
    return {
        camera_mean_name(name): camera_mean(
            {view: by_name[name] for view, by_name in estimates.items()}, illuminants, data.folds
        )
        for name in names
        if name in estimates["main"]
    }


def phone_estimates(data: CameraPairs) -> dict[str, Float[np.ndarray, "1 folds k 3"]]:
    """Return the phone's own white balance as a method, where it is known."""
    if WHITE_BALANCE not in data.inputs:
        return {}
    estimates = chromaticity_to_illuminant(jnp.asarray(data.inputs[WHITE_BALANCE][data.folds]))
    return {"The phone's white balance": np.asarray(estimates)[None]}


def as_released(
    data: CameraPairs, training: NetworkTraining
) -> dict[str, Float[np.ndarray, "runs 3 k 3"]]:
    """Return estimates by networks trained as in the authors' code on their augmented transforms.

    Pairs were re-illuminated before the folds were made, so that test illuminants can be training
    targets, and the step is selected on the augmented test fold. Without the authors' file of
    re-illuminations there are none.
    """
    augmented = load_augmented_s20(len(data.main))
    if augmented is None:
        return {}
    trained = data._replace(
        inputs={TRANSFORM: augmented.transforms.reshape(-1, 9)},
        main=augmented.illuminants,
        second=augmented.illuminants,
        folds=augmented.folds,
    )
    as_they_are = {AS_RELEASED: lambda pairs, train, _: pairs.samples(train)}
    outcome = cross_validate(trained, as_they_are, "test-set", training, tested=data)
    illuminants, depths = outcome.illuminants(), outcome.networks[TRANSFORM].models
    names = [Estimator(method_name(TRANSFORM, depth), AS_RELEASED).name for depth in depths]
    return {name: illuminants[name] for name in names}


def save_ensembles(folder: RunFolder, outcome: CrossValidation, data: CameraPairs) -> Table:
    """Save all folds' and seeds' networks for `estimate`, and return their intervals' coverage.

    The networks of a fold have its chosen augmentation. Intervals are calibrated on every test fold
    by the networks trained without it. All networks together disagree a little more, which widens
    the intervals.
    """
    rows = data.folds.ravel()
    truth, folds, coverage = data.targets(rows), np.split(np.arange(len(rows)), FOLDS), {}
    distances = cross_calibrate_distances(jnp.asarray(data.inputs[TRANSFORM]), list(data.folds))
    for depth in outcome.networks[TRANSFORM].models:
        name = method_name(TRANSFORM, depth)
        estimates = outcome.estimates[Estimator(name)]
        held_out = estimates.reshape(len(estimates), -1, 2)
        members = outcome.members(TRANSFORM, depth)
        view = calibrated_view(
            inputs=TRANSFORM,
            depth=depth,
            members=members,
            held_out=jnp.asarray(held_out),
            truth=jnp.asarray(truth),
            distances=distances,
        )
        trained_on = f"{data.note}; held-out selection"
        model = PairModel(view, None, None, "sum", data.cameras, trained_on)
        save_pair_model(folder.path / "models" / f"S20-{PARAMETERS[depth]}", model)
        coverage[name] = {"main": [cross_coverage([held_out] * FOLDS, truth, folds)]}
    return coverage_table(
        coverage,
        "the saved ensembles with held-out selection, on each fold after calibration on the other "
        "two.",
    )
