"""The two-camera paper's experiment on real phone images (section 4.3, tables 3 and 4, figure 5C).

    EVERLIGHT_DATA=... everlight two_camera s20 --preset small

Presets:
  demo: no data needed: 162 rendered pairs in the place of S20's, one seed pair; a rehearsal.
  small: the released transforms and folds, 8 seeds, 6,000 steps of 128.
  paper: as small with the released models' optimizer: rate 1e-3, all training pairs at every step,
    500,000 epochs; meant for a GPU.

The repository holds transforms. Its README offers the raw images and the authors' own augmented
transforms too, elsewhere and not at hand when this was written; `as_released` uses the latter where
they lie beside the rest. Without them the paper's augmentation can only be done with von Kries
factors in the place of its chart transforms, and on sum-normalised transforms, where the closed
form is approximate. `mixed` is ours: mixtures of pairs under similar lights.

What an image alone says is in the release as the phone's own white balance of it. The second
camera's light is asked for too, from the same transforms, by nets of 470 parameters.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

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
from everlight.color.reillumination import augment_transforms, von_kries
from everlight.color.transforms import fit_color_transform, scale_free
from everlight.models.illuminant_training import Problem, TrainingSettings
from everlight.models.out_of_distribution import DistanceCalibration, calibrate_distances
from everlight_data.color.radiometric import RadiometricSettings, draw_scenes, photograph
from everlight_data.color.s20 import AugmentedS20, load_augmented_s20, load_s20
from everlight_data.color.spectra import EMBEDDED_CAMERAS, embedded_library
from everlight_experiments.common.checkpoint import Checkpoints
from everlight_experiments.common.report import write_report
from everlight_experiments.common.run_folder import RunFolder
from everlight_experiments.common.settings import Count, Preset, RunSettings, in_words
from everlight_experiments.common.trees import rows_of
from everlight_experiments.illuminant import CITATION
from everlight_experiments.illuminant.intervals import (
    Coverage,
    calibrate_all,
    cross_coverage,
    uninformed,
)
from everlight_experiments.illuminant.model_files import LightModel, LoadedModel, save_model
from everlight_experiments.illuminant.networks import (
    PARAMETERS,
    index_of_least,
    predict_all,
    stack_problems,
    train_nets,
)
from everlight_experiments.illuminant.pair_folds import (
    CHOSEN,
    RULES,
    TRANSFORM,
    Augment,
    CameraPairs,
    CrossValidation,
    Samples,
    cross_validate,
    net_name,
    repeat_samples,
)
from everlight_experiments.illuminant.s20_report import SECOND_LIGHT, S20Results, report_sections
from everlight_experiments.illuminant.tables import Comparison

COPIES = 99
"""Re-illuminations of each pair, the paper's number."""
NEIGHBORS = (5, 20)
"""Pairs that one is mixed with; each fold's validation pairs choose."""

RATES = (3e-3, 1e-2)
"""Each fold's validation pairs choose; under the paper's rule there is the training's own."""
SECOND_DEPTHS = {TRANSFORM: (5,)}
"""Of the nets that tell the second camera's light."""

WHITE_BALANCE = "the phone's white balance"
BOTH = "T and the phone's white balance"

TRAINING = {
    "demo": TrainingSettings(steps=2_000, batch_size=128, validate_every=50),
    "small": TrainingSettings(steps=6_000, batch_size=128, validate_every=50),
    "paper": TrainingSettings(500_000, 0, 1e-3, "constant", validate_every=100),
}


@dataclass(frozen=True)
class S20Run(RunSettings):
    """Estimate illuminants of a phone's real camera pairs in three folds (tables 3 and 4)."""

    preset: Preset = "small"
    """Configuration to run: demo renders pairs, small uses the release, paper also the paper's
    optimizer."""
    seeds: Count = 8
    """Number of trainings per fold, each with its own initialization and validation pairs."""


def run_s20(settings: S20Run) -> Path:
    """Runs it all; returns the report's path."""
    folder = RunFolder("two_camera", "s20", settings)
    data = rendered_pairs(settings.seed) if settings.preset == "demo" else released_pairs()
    training = TRAINING[settings.preset]
    seeds = range(settings.seed, settings.seed + settings.seeds)
    augmented = None if settings.preset == "demo" else load_augmented_s20(len(data.main))
    results = S20Results(data, tuple(AUGMENTATIONS), {}, {}, {}, {})
    for selection in RULES:
        checkpoints = Checkpoints(folder.checkpoints / selection)
        rates = RATES if selection == "honest" else ()
        outcome = cross_validate(
            data, AUGMENTATIONS, selection, seeds, training, checkpoints, rates=rates
        )
        lights = told_by_phone(data) | outcome.lights()
        if selection == "paper" and augmented is not None:
            lights |= as_released(folder, data, augmented, seeds, training)
        results.compared[selection] = Comparison(lights, data.lights[data.folds])
        if selection == "honest":
            results.validation.update(outcome.validation)
            results.rates.update(outcome.rates)
            save_ensembles(folder, outcome, data)
            results.coverage.update(coverage_of(outcome, data))
    second = of_second(data)
    outcome = cross_validate(
        second,
        AUGMENTATIONS,
        "honest",
        seeds,
        training,
        Checkpoints(folder.checkpoints / "second"),
        SECOND_DEPTHS,
        RATES,
    )
    told = told_by_phone(second) | outcome.lights()
    results.compared[SECOND_LIGHT] = Comparison(told, second.lights[second.folds])
    for rule, compared in results.compared.items():
        for name, values in compared.errors().items():
            folder.log(selection=rule, method=name, mean_error=values.mean(axis=(1, 2)))
    folder.save_results(
        **{f"{rule}/{name}": v for rule, by in results.errors().items() for name, v in by.items()}
    )
    summary = [
        ("Paper", CITATION),
        ("Data", data.note),
        ("Protocol", "3 folds of 54 test pairs; statistics within a fold, averaged over folds"),
        (
            "Selection rules",
            "held-out selection and the paper's test-set selection, a table each; quote held-out",
        ),
        ("Seeds", f"{settings.seeds} per fold, from {settings.seed}"),
        (
            "Training",
            f"{in_words(training)}; with held-out selection at learning rate "
            f"{' or '.join(f'{rate:g}' for rate in RATES)}, selected by each fold's validation "
            "pairs",
        ),
        ("Duration", folder.duration()),
    ]
    title = f"Two-camera illuminant estimation: S20 phone pairs ({settings.preset})"
    first, sections = report_sections(folder.path, results)
    return write_report(folder.path, title, summary, sections, first)


def released_pairs() -> CameraPairs:
    """The release's transforms from the whole image, its lights and its folds."""
    data = load_s20()
    transforms = data.transform_image.reshape(-1, 9).astype(np.float32)
    return CameraPairs(
        with_white_balance(transforms, data.as_shot_neutral_1),
        data.illuminant_main.astype(np.float32),
        data.illuminant_second.astype(np.float32),
        np.stack(data.folds),
        ("S20 Ultra main", "S20 Ultra wide-angle"),
        f"S20 release: {len(data.names)} real pairs (the paper counts 156), transforms of "
        "sum-normalised images",
    )


def with_white_balance(
    transforms: Float[np.ndarray, "n 9"], as_shot_neutral: Float[np.ndarray, "n 3"]
) -> dict[str, Float[np.ndarray, "n f"]]:
    """Transforms, what the phone says of one camera's light, and both."""
    told = np.asarray(to_chromaticity(jnp.asarray(as_shot_neutral)))
    return {TRANSFORM: transforms, WHITE_BALANCE: told, BOTH: np.hstack([transforms, told])}


def of_second(data: CameraPairs) -> CameraPairs:
    """The same pairs, asked for the second camera's light."""
    inputs = data.inputs
    if WHITE_BALANCE in inputs:
        inputs = with_white_balance(inputs[TRANSFORM], load_s20().as_shot_neutral_2)
    return data._replace(inputs=inputs, asked="second")


def told_by_phone(data: CameraPairs) -> dict[str, Float[np.ndarray, "1 3 k 3"]]:
    """The phone's own white balance, where it is known."""
    if WHITE_BALANCE not in data.inputs:
        return {}
    told = from_chromaticity(jnp.asarray(data.inputs[WHITE_BALANCE][data.folds]))
    return {"The phone's white balance": np.asarray(told)[None]}


def rendered_pairs(seed: int) -> CameraPairs:
    """As many rendered pairs as S20 has, for a rehearsal without data."""
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


def _repeated(data: CameraPairs, train: np.ndarray, _: jax.Array) -> Samples:
    return repeat_samples(data, train, 1 + COPIES)


def _reilluminated(data: CameraPairs, train: np.ndarray, key: jax.Array) -> Samples:
    """Each pair under its own light and `COPIES` times under others of the training part."""
    green = [light[train] / light[train][:, 1:2] for light in (data.main, data.second)]
    factors = [von_kries(jnp.asarray(lights)) for lights in green]
    transforms = jnp.asarray(data.inputs[TRANSFORM][train]).reshape(-1, 3, 3)
    # Sum-normalised transforms have rows that add up to about 1; factors change that.
    everything = np.asarray(scale_free(augment_transforms(transforms, *factors)))
    own = np.arange(len(train))[:, None]
    others = jax.vmap(lambda k: jax.random.permutation(k, len(train) - 1))
    # There may be fewer others than copies: then some come twice.
    shift = np.resize(np.asarray(others(jax.random.split(key, len(train)))).T, (COPIES, len(train)))
    target = np.concatenate([own, (own + 1 + shift.T) % len(train)], axis=1)
    inputs = {TRANSFORM: everything[own, target].reshape(-1, 9)}
    targets = data.targets(train)
    if WHITE_BALANCE in data.inputs:
        # A light that is told moves with the light.
        told = data.inputs[WHITE_BALANCE][train][:, None] * targets[target] / targets[:, None]
        inputs[WHITE_BALANCE] = told.reshape(-1, 2)
        inputs[BOTH] = np.hstack([inputs[TRANSFORM], inputs[WHITE_BALANCE]])
    return Samples(inputs, targets[target.ravel()])


def _mixed(neighbors: int, data: CameraPairs, train: np.ndarray, key: jax.Array) -> Samples:
    targets = jnp.asarray(data.targets(train))
    inputs = {}
    for name, values in data.inputs.items():
        # One key: every input is mixed with the same partner by the same share.
        mixed = mix_neighbors(key, jnp.asarray(values[train]), targets, neighbors, COPIES)
        inputs[name] = mixed.features
    return Samples(inputs, mixed.targets)


AUGMENTATIONS: dict[str, Augment] = {
    "none": _repeated,
    "von Kries": _reilluminated,
    **{f"mixed with {count}": partial(_mixed, count) for count in NEIGHBORS},
}


def as_released(
    folder: RunFolder,
    data: CameraPairs,
    augmented: AugmentedS20,
    seeds: Sequence[int],
    training: TrainingSettings,
) -> dict[str, Float[np.ndarray, "runs 3 k 3"]]:
    """Lights by nets trained as the authors' code does with their augmented transforms.

    Which lets test lights be training labels, since pairs were re-illuminated before the folds were
    made, and chooses the step on the augmented test fold.
    """
    features, lights = augmented.transforms.reshape(-1, 9), jnp.asarray(augmented.illuminants)
    targets = np.asarray(to_chromaticity(lights))
    problems = []
    for fold in range(3):
        valid = augmented.folds[fold]
        train = np.setdiff1d(np.arange(len(features)), valid)
        parts = (features[train], targets[train], features[valid], targets[valid])
        problems += [Problem(*parts)] * len(seeds)
    nets = train_nets(
        stack_problems(problems),
        tuple(PARAMETERS),
        training,
        seeds[0],
        Checkpoints(folder.checkpoints / "as-released"),
    )
    tests = np.repeat(data.inputs[TRANSFORM][data.folds], len(seeds), axis=0)
    lights = {}
    for depth, models in nets.models.items():
        estimates = predict_all(depth, models, jnp.asarray(tests)).reshape(3, len(seeds), -1, 2)
        told = from_chromaticity(estimates).swapaxes(0, 1)
        lights[f"{net_name(TRANSFORM, depth)}, as released"] = np.asarray(told)
    return lights


def familiar_pairs(data: CameraPairs) -> DistanceCalibration:
    """All pairs' transforms, and each test fold's distances from those of the other two."""
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


def save_ensembles(folder: RunFolder, outcome: CrossValidation, data: CameraPairs) -> None:
    """All folds' and seeds' nets, each fold's of its chosen augmentation, for `estimate`.

    Intervals are calibrated on every test fold by the nets that were not trained on it; all nets
    together disagree a little more than those, which makes them wider.
    """
    familiar = familiar_pairs(data)
    for depth, models in outcome.nets[TRANSFORM].models.items():
        losses = outcome.validation[net_name(TRANSFORM, depth)]
        best = index_of_least(np.stack([losses[name] for name in AUGMENTATIONS]))
        seeds = models.mean.shape[0] // (3 * len(AUGMENTATIONS))
        rows = np.concatenate(
            [(3 * best[fold] + fold) * seeds + np.arange(seeds) for fold in range(3)]
        )
        members = rows_of(models, rows)
        estimates, truth = map(jnp.asarray, _held_out(outcome, data, depth))
        scale, alone = calibrate_all(estimates, truth), uninformed(truth).degrees
        names = ", ".join(tuple(AUGMENTATIONS)[index] for index in best)
        note = f"{data.note}; augmentation {names}, held-out selection"
        light = LightModel("T", depth, members, scale, familiar, alone)
        model = LoadedModel(light, None, None, "sum", data.cameras, note)
        save_model(folder.path / "models" / f"S20-{PARAMETERS[depth]}", model)


def _held_out(
    outcome: CrossValidation, data: CameraPairs, depth: int
) -> tuple[Float[np.ndarray, "seeds n 2"], Float[np.ndarray, "n 2"]]:
    """Estimates of every test fold in turn by nets that were not trained on it, and the lights."""
    estimates = outcome.estimates[f"{net_name(TRANSFORM, depth)}, {CHOSEN}"]
    return estimates.reshape(len(estimates), -1, 2), data.targets(data.folds.ravel())


def coverage_of(outcome: CrossValidation, data: CameraPairs) -> dict[str, Coverage]:
    """By net, how often its intervals hold on a fold when calibrated on the other two."""
    folds = np.split(np.arange(data.folds.size), len(data.folds))
    found = {}
    for depth in outcome.nets[TRANSFORM].models:
        estimates, truth = _held_out(outcome, data, depth)
        found[net_name(TRANSFORM, depth)] = cross_coverage([estimates] * 3, truth, folds)
    return found
