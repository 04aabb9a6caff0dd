"""Image pairs of two cameras as inputs of networks, and the augmentations of their training."""

from collections.abc import Mapping, Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from everlight.color.chromaticity import from_chromaticity, to_chromaticity
from everlight.color.feature_distribution import (
    FeatureDistribution,
    feature_distance,
    fit_feature_distribution,
)
from everlight.color.mixing import mix_neighbors
from everlight.color.moments import reilluminate_moments
from everlight.color.reillumination import augment_transforms, von_kries
from everlight.color.transforms import fit_color_transform, scale_free
from everlight.models.illuminant_training import TrainingSettings
from everlight.models.out_of_distribution import DistanceCalibration, calibrate_distances
from everlight_data.checkpoints import Checkpoints
from everlight_data.color.quasi_real import QuasiReal, reilluminate_training
from everlight_data.color.radiometric import RadiometricSettings, draw_scenes, photograph
from everlight_data.color.s20 import load_s20
from everlight_data.color.spectra import EMBEDDED_CAMERAS, embedded_library
from everlight_experiments.common.run_folder import RunFolder
from everlight_experiments.illuminant.comparison import Comparison
from everlight_experiments.illuminant.cross_validation import (
    MOMENTS,
    RULES,
    TRANSFORM,
    Augment,
    CameraPairs,
    CrossValidation,
    Samples,
    View,
    cross_validate,
    repeat_samples,
)

COPIES = 99
"""Re-illuminations of each pair, the paper's number."""
NEIGHBORS = (5, 20)
"""Numbers of neighbours to mix a pair with; each fold's validation pairs select one."""
TRANSFORM_AND_MOMENTS = "T and moments"
WHITE_BALANCE = "the phone's white balance"
TRANSFORM_AND_WHITE_BALANCE = "T and the phone's white balance"


def quasi_real_pairs(
    quasi: QuasiReal,
    moments: Mapping[View, Float[np.ndarray, "n 9"]],
    cameras: tuple[str, str],
    note: str,
    view: View = "main",
) -> CameraPairs:
    """Return pairs with a chart as inputs for one camera's illuminant."""
    transforms = np.asarray(scale_free(jnp.asarray(quasi.transforms))).reshape(-1, 9)
    own = moments[view]
    return CameraPairs(
        {TRANSFORM: transforms, MOMENTS: own, TRANSFORM_AND_MOMENTS: np.hstack([transforms, own])},
        quasi.illuminants_main,
        quasi.illuminants_second,
        np.stack(quasi.folds),
        cameras,
        note,
        view,
    )


def chart_augmentations(quasi: QuasiReal) -> dict[str, Augment]:
    """Return the training pairs as they are, and the paper's re-illumination by their charts."""
    return {"none": _repeated_others, "re-illuminated": partial(_relit_by_charts, quasi)}


def _copies(train: np.ndarray) -> int:
    # Without the validation pairs some folds have fewer than 99 others.
    return min(COPIES, len(train) - 1)


def _repeated_others(data: CameraPairs, train: np.ndarray, _: jax.Array) -> Samples:
    return repeat_samples(data, train, 1 + _copies(train))


def _relit_by_charts(
    quasi: QuasiReal, data: CameraPairs, train: np.ndarray, key: jax.Array
) -> Samples:
    others = np.setdiff1d(np.arange(len(quasi.names)), train)
    augmented = reilluminate_training(
        quasi._replace(folds=(others,)), 0, int(jax.random.bits(key)), _copies(train)
    )
    transforms = np.asarray(scale_free(jnp.asarray(augmented.transforms))).reshape(-1, 9)
    relights = {"main": augmented.relights_main, "second": augmented.relights_second}
    truth = {"main": augmented.illuminants_main, "second": augmented.illuminants_second}
    moments = jax.vmap(reilluminate_moments)(
        jnp.asarray(data.inputs[MOMENTS][augmented.sources]), jnp.asarray(relights[data.view])
    )
    both = np.hstack([transforms, moments])
    return Samples(
        {TRANSFORM: transforms, MOMENTS: moments, TRANSFORM_AND_MOMENTS: both},
        to_chromaticity(jnp.asarray(truth[data.view])),
    )


def released_pairs() -> CameraPairs:
    """Return S20's transforms of the whole image, its illuminants and its folds."""
    data = load_s20()
    transforms = data.transform_image.reshape(-1, 9).astype(np.float32)
    return CameraPairs(
        _with_white_balance(transforms, data.as_shot_neutral_1),
        data.illuminant_main.astype(np.float32),
        data.illuminant_second.astype(np.float32),
        np.stack(data.folds),
        ("S20 Ultra main", "S20 Ultra wide-angle"),
        f"S20 release: {len(data.names)} real pairs (the paper counts 156), transforms of "
        "sum-normalised images",
    )


def rendered_pairs(seed: int) -> CameraPairs:
    """Render as many pairs as S20 has, for a rehearsal without data."""
    library, count = embedded_library(), 162
    scenes = draw_scenes(library, RadiometricSettings(count, "random", seed))
    main, second = (photograph(library, camera, scenes) for camera in EMBEDDED_CAMERAS)
    fit = jax.vmap(lambda a, b: fit_color_transform(a, b, normalize="sum"))
    folds = np.random.default_rng(seed).permutation(count).reshape(3, -1)
    return CameraPairs(
        {TRANSFORM: np.asarray(fit(main.colors, second.colors).transform).reshape(-1, 9)},
        main.illuminants,
        second.illuminants,
        folds,
        EMBEDDED_CAMERAS,
        f"NOT S20: {count} pairs rendered from the spectra of colour-science",
    )


def for_second_view(data: CameraPairs) -> CameraPairs:
    """Return the same pairs as inputs for the second camera's illuminant."""
    inputs = data.inputs
    if WHITE_BALANCE in inputs:
        inputs = _with_white_balance(inputs[TRANSFORM], load_s20().as_shot_neutral_2)
    return data._replace(inputs=inputs, view="second")


def _with_white_balance(
    transforms: Float[np.ndarray, "n 9"], as_shot_neutral: Float[np.ndarray, "n 3"]
) -> dict[str, Float[np.ndarray, "n f"]]:
    own = np.asarray(to_chromaticity(jnp.asarray(as_shot_neutral)))
    both = np.hstack([transforms, own])
    return {TRANSFORM: transforms, WHITE_BALANCE: own, TRANSFORM_AND_WHITE_BALANCE: both}


def phone_estimates(data: CameraPairs) -> dict[str, Float[np.ndarray, "1 folds k 3"]]:
    """Return the phone's own white balance as a method, where it is known."""
    if WHITE_BALANCE not in data.inputs:
        return {}
    estimates = from_chromaticity(jnp.asarray(data.inputs[WHITE_BALANCE][data.folds]))
    return {"The phone's white balance": np.asarray(estimates)[None]}


def _repeated(data: CameraPairs, train: np.ndarray, _: jax.Array) -> Samples:
    return repeat_samples(data, train, 1 + COPIES)


def _relit_by_von_kries(data: CameraPairs, train: np.ndarray, key: jax.Array) -> Samples:
    """Return each pair under its own and `COPIES` other training illuminants."""
    green = [truth[train] / truth[train][:, 1:2] for truth in (data.main, data.second)]
    factors = [von_kries(jnp.asarray(each)) for each in green]
    transforms = jnp.asarray(data.inputs[TRANSFORM][train]).reshape(-1, 3, 3)
    # Rows of sum-normalised transforms add up to about 1, which the factors change.
    everything = np.asarray(scale_free(augment_transforms(transforms, *factors)))
    own = np.arange(len(train))[:, None]
    others = jax.vmap(lambda k: jax.random.permutation(k, len(train) - 1))
    # With fewer others than copies some occur twice.
    shift = np.resize(np.asarray(others(jax.random.split(key, len(train)))).T, (COPIES, len(train)))
    target = np.concatenate([own, (own + 1 + shift.T) % len(train)], axis=1)
    inputs = {TRANSFORM: everything[own, target].reshape(-1, 9)}
    targets = data.targets(train)
    if WHITE_BALANCE in data.inputs:
        # The phone's estimate changes with the illuminant.
        balance = data.inputs[WHITE_BALANCE][train][:, None] * targets[target] / targets[:, None]
        inputs[WHITE_BALANCE] = balance.reshape(-1, 2)
        both = np.hstack([inputs[TRANSFORM], inputs[WHITE_BALANCE]])
        inputs[TRANSFORM_AND_WHITE_BALANCE] = both
    return Samples(inputs, targets[target.ravel()])


def _mixed(neighbors: int, data: CameraPairs, train: np.ndarray, key: jax.Array) -> Samples:
    targets = jnp.asarray(data.targets(train))
    inputs = {}
    for name, values in data.inputs.items():
        # One key mixes every input with the same partner in the same proportion.
        mixed = mix_neighbors(key, jnp.asarray(values[train]), targets, neighbors, COPIES)
        inputs[name] = mixed.features
    return Samples(inputs, mixed.targets)


PHONE_AUGMENTATIONS: dict[str, Augment] = {
    "none": _repeated,
    "von Kries": _relit_by_von_kries,
    **{f"mixed with {count}": partial(_mixed, count) for count in NEIGHBORS},
}
"""Augmentations without charts; mixing pairs under similar illuminants is ours."""


def compare_rules(
    folder: RunFolder,
    data: CameraPairs,
    augmentations: Mapping[str, Augment],
    seeds: Sequence[int],
    training: TrainingSettings,
    others: Mapping[str, Float[np.ndarray, "1 folds k 3"]],
    published: Mapping[str, Sequence[float]],
    rates: Sequence[float] = (),
) -> tuple[dict[str, Comparison], CrossValidation]:
    """Compare networks and regressions with other methods under both selection rules.

    Args:
      folder: the run's folder.
      data: pairs and folds.
      augmentations: augmentations by name.
      seeds: random seeds of trainings and validation pairs.
      training: optimizer settings.
      others: estimates of methods without training on pairs.
      published: published statistics by method.
      rates: learning rates that held-out selection chooses from.

    Returns:
      A comparison per selection rule, and the cross-validation with held-out selection.
    """
    outcomes = {
        selection: cross_validate(
            data,
            augmentations,
            selection,
            seeds,
            training,
            Checkpoints(folder.checkpoints / selection),
            rates=rates if selection == "held-out" else (),
        )
        for selection in RULES
    }
    truth = data.illuminants[data.folds]
    comparisons = {
        selection: Comparison(
            {**others, **outcome.illuminants()},
            truth,
            f"{selection} selection",
            RULES[selection],
            published=published,
        )
        for selection, outcome in outcomes.items()
    }
    return comparisons, outcomes["held-out"]


def calibrated_distances(data: CameraPairs) -> DistanceCalibration:
    """Return the distribution of all transforms, and each fold's distances from the other folds."""
    features = jnp.asarray(data.inputs[TRANSFORM])
    everything = np.arange(len(features))

    def distribution(rows: np.ndarray) -> FeatureDistribution:
        return fit_feature_distribution(features[rows], jnp.ones(len(rows), bool))

    distances = [
        jax.vmap(feature_distance, (None, 0))(
            distribution(np.setdiff1d(everything, fold)), features[fold]
        )
        for fold in data.folds
    ]
    return calibrate_distances(distribution(everything), jnp.concatenate(distances))
