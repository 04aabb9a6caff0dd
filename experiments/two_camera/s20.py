"""The two-camera paper's experiment on real phone images (section 4.3, tables 3 and 4, figure 5C).

    EVERLIGHT_DATA=... python -m experiments two_camera s20 --scale cpu

Scales:
  demo: no data needed: 162 rendered pairs in the place of S20's, one seed pair; a rehearsal.
  cpu: the released transforms and folds, 8 seeds, 6,000 steps of 128.
  paper: as cpu with the released models' optimizer: rate 1e-3, all training pairs at every step,
    500,000 epochs; meant for a GPU.

The release holds transforms, not images, and no chart colours. So the paper's augmentation can
only be done with von Kries factors in the place of its chart transforms, and on sum-normalised
transforms, where the closed form is approximate. `mixed` is ours: mixtures of pairs under similar
lights.
"""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

import jax
import numpy as np
from jaxtyping import Float

from data_pipelines.radiometric import RadiometricSettings, draw_scenes, photograph
from data_pipelines.s20 import load_s20
from data_pipelines.spectra import EMBEDDED_CAMERAS, embedded_library
from everlight.color.chromagenic import fit_linear_regression, linear_estimate
from everlight.color.chromaticity import from_chromaticity
from everlight.color.mixing import mix_neighbors
from everlight.color.reillumination import augment_transforms, von_kries
from everlight.color.transforms import fit_color_transform
from everlight.models.illuminant_training import Problem, TrainingSettings
from experiments.common.checkpoint import Checkpoints
from experiments.common.report import write_report
from experiments.common.run_folder import RunFolder, Scale
from experiments.two_camera.model_files import LoadedModel, ensemble_chromaticity, save_model
from experiments.two_camera.s20_report import PhonePairs, S20Results, report_sections
from experiments.two_camera.tables import angular_errors
from experiments.two_camera.training import (
    PARAMETERS,
    TrainedNets,
    predict_all,
    stack_problems,
    train_nets,
)

Augmentation = Literal["none", "von Kries", "mixed"]
Selection = Literal["honest", "paper"]
AUGMENTATIONS: tuple[Augmentation, ...] = get_args(Augmentation)

COPIES = 20
NEIGHBORS = 10
VALIDATION_PAIRS = 16

TRAINING = {
    "demo": TrainingSettings(steps=2_000, batch_size=128, validate_every=50),
    "cpu": TrainingSettings(steps=6_000, batch_size=128, validate_every=50),
    "paper": TrainingSettings(500_000, 0, 1e-3, "constant", validate_every=100),
}


@dataclass(frozen=True)
class S20Run:
    """Real pairs of a phone's two cameras, 3-fold (tables 3 and 4)."""

    scale: Scale = "cpu"
    """demo: rendered pairs instead; cpu: the release; paper: its optimizer too."""
    seeds: int = 8
    """Trainings per fold, each with its own initial net and inner validation pairs."""
    seed: int = 0
    """The first seed."""
    tag: str = ""
    """Added to the name of the run's folder."""
    runs: Path = Path("runs")
    """Where run folders are made."""


def run_s20(settings: S20Run) -> Path:
    """Runs it all; returns the report's path."""
    started = time.monotonic()
    folder = RunFolder("two_camera", "s20", settings)
    data = rendered_pairs(settings.seed) if settings.scale == "demo" else released_pairs()
    training = TRAINING[settings.scale]
    results = S20Results(data, AUGMENTATIONS, {}, {})
    for selection in get_args(Selection):
        problems = [
            make_problem(data, fold, augmentation, selection, settings.seed + offset)
            for augmentation in AUGMENTATIONS
            for fold in range(3)
            for offset in range(settings.seeds)
        ]
        checkpoints = Checkpoints(folder.checkpoints / selection)
        depths = tuple(PARAMETERS)
        nets = train_nets(stack_problems(problems), depths, training, settings.seed, checkpoints)
        errors = {"Linear regression": linear_errors(data)}
        errors |= net_errors(data, nets, settings.seeds)
        results.errors[selection] = errors
        for name, values in errors.items():
            folder.log(selection=selection, method=name, mean_error=values.mean(axis=(1, 2)))
        if selection == "honest":
            results.validation.update(validation_losses(nets))
            save_ensembles(folder, nets, data, results.best_augmentation())
    folder.save_results(
        **{f"{rule}/{name}": v for rule, by in results.errors.items() for name, v in by.items()}
    )
    summary = [
        ("Data", data.note),
        ("Protocol", "3 folds of 54 test pairs; statistics within a fold, averaged over folds"),
        ("Selection rules", "honest and paper, a table each; honest is the one to quote"),
        ("Seeds", f"{settings.seeds} per fold, from {settings.seed}"),
        ("Training", str(training)),
        ("Duration", f"{time.monotonic() - started:.0f} s on {jax.devices()[0].device_kind}"),
    ]
    title = f"Two-camera illuminant estimation: S20 phone pairs ({settings.scale})"
    return write_report(folder.path, title, summary, report_sections(folder.path, results))


def released_pairs() -> PhonePairs:
    """The release's transforms from the whole image, its lights and its folds."""
    data = load_s20()
    return PhonePairs(
        data.transform_image.astype(np.float32),
        data.illuminant_main.astype(np.float32),
        data.illuminant_second.astype(np.float32),
        np.stack(data.folds),
        ("S20 Ultra main", "S20 Ultra wide-angle"),
        f"S20 release: {len(data.names)} real pairs (the paper counts 156), transforms of "
        "sum-normalised images",
    )


def rendered_pairs(seed: int) -> PhonePairs:
    """As many rendered pairs as S20 has, for a rehearsal without data."""
    library, count = embedded_library(), 162
    scenes = draw_scenes(library, RadiometricSettings(count, "random", seed))
    main, second = (photograph(library, camera, scenes) for camera in EMBEDDED_CAMERAS)
    fit = jax.vmap(lambda a, b: fit_color_transform(a, b, normalize="sum"))
    folds = np.random.default_rng(seed).permutation(count).reshape(3, -1)
    return PhonePairs(
        np.asarray(fit(main.colors, second.colors).transform),
        main.illuminants,
        second.illuminants,
        folds,
        EMBEDDED_CAMERAS,
        f"NOT S20: {count} pairs rendered from the spectra of colour-science",
    )


def make_problem(
    data: PhonePairs, fold: int, augmentation: Augmentation, selection: Selection, seed: int
) -> Problem:
    """Training and validation samples of one training.

    Every augmentation gives 1 + `COPIES` samples per pair (`none` repeats them), so that all
    trainings of a table run in one program.
    """
    test = data.folds[fold]
    rest = np.setdiff1d(np.arange(len(data.main)), test)
    train, valid = rest, test
    if selection == "honest":
        drawn = np.random.default_rng((seed, fold)).permutation(rest)
        valid, train = drawn[:VALIDATION_PAIRS], drawn[VALIDATION_PAIRS:]
    key = jax.random.fold_in(jax.random.key(seed), fold)
    features, targets = data.features(train), data.targets(train)
    if augmentation == "mixed":
        features, targets = mix_neighbors(key, features, targets, NEIGHBORS, COPIES)
    elif augmentation == "von Kries":
        features, targets = _reilluminated(data, train, key)
    else:
        features, targets = np.tile(features, (1 + COPIES, 1)), np.tile(targets, (1 + COPIES, 1))
    return Problem(features, targets, data.features(valid), data.targets(valid))


def _reilluminated(data: PhonePairs, train: np.ndarray, key: jax.Array) -> tuple:
    """Each pair under its own light and under `COPIES` others of the training part."""
    green = [light[train] / light[train][:, 1:2] for light in (data.main, data.second)]
    everything = augment_transforms(data.transforms[train], *map(von_kries, green))
    # Sum-normalised transforms have rows that add up to about 1; factors change that.
    everything /= everything.sum(axis=-1).mean(axis=-1)[..., None, None]
    own = np.arange(len(train))[:, None]
    others = jax.vmap(lambda k: jax.random.permutation(k, len(train) - 1)[:COPIES])
    shift = 1 + others(jax.random.split(key, len(train)))
    target = np.concatenate([own, (own + shift) % len(train)], axis=1)
    return everything[own, target].reshape(-1, 9), data.targets(train)[target.ravel()]


def linear_errors(data: PhonePairs) -> Float[np.ndarray, "1 3 k"]:
    """Linear regression, fold by fold."""
    errors = []
    for test in data.folds:
        train = np.setdiff1d(np.arange(len(data.main)), test)
        model = fit_linear_regression(data.transforms[train], data.targets(train))
        chromaticity = jax.vmap(linear_estimate, (None, 0))(model, data.transforms[test])
        errors.append(angular_errors(from_chromaticity(chromaticity), data.main[test]))
    return np.stack(errors)[None]


def net_errors(
    data: PhonePairs, nets: TrainedNets, seeds: int
) -> dict[str, Float[np.ndarray, "runs 3 k"]]:
    """Errors of single nets, `[seeds, 3, k]`, and of the seeds' ensemble, `[1, 3, k]`."""
    features = np.repeat(data.features(data.folds), seeds, axis=0)
    features = np.concatenate([features] * len(AUGMENTATIONS))
    truth = data.main[data.folds]
    errors = {}
    for depth, models in nets.models.items():
        estimates = predict_all(depth, models, features)
        estimates = estimates.reshape(len(AUGMENTATIONS), 3, seeds, -1, 2).swapaxes(1, 2)
        for name, single in zip(AUGMENTATIONS, estimates, strict=True):
            label = f"Net, {PARAMETERS[depth]} parameters, {name}"
            errors[label] = np.asarray(angular_errors(from_chromaticity(single), truth))
            together = from_chromaticity(ensemble_chromaticity(single))[None]
            errors[f"{label}, ensemble"] = np.asarray(angular_errors(together, truth))
    return errors


def validation_losses(nets: TrainedNets) -> dict[str, float]:
    """Least validation loss of each net and augmentation, mean over folds and seeds."""
    means = {}
    for depth, losses in nets.losses.items():
        best = np.nanmin(losses.valid, axis=0).reshape(len(AUGMENTATIONS), -1).mean(axis=1)
        for name, value in zip(AUGMENTATIONS, best, strict=True):
            means[f"{PARAMETERS[depth]} parameters, {name}"] = float(value)
    return means


def save_ensembles(
    folder: RunFolder, nets: TrainedNets, data: PhonePairs, augmentation: str
) -> None:
    """All folds' and seeds' nets of one augmentation, under models/, for `estimate`."""
    for depth, models in nets.models.items():
        count = models.mean.shape[0] // len(AUGMENTATIONS)
        start = count * AUGMENTATIONS.index(augmentation)
        members = jax.tree.map(lambda leaf, s=start, n=count: leaf[s : s + n], models)
        note = f"{data.note}; augmentation {augmentation}, honest selection"
        model = LoadedModel(members, depth, "sum", data.cameras, note)
        save_model(folder.path / "models" / f"S20-{PARAMETERS[depth]}", model)
