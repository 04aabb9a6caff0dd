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

from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from data_pipelines.radiometric import RadiometricSettings, draw_scenes, photograph
from data_pipelines.s20 import load_s20
from data_pipelines.spectra import EMBEDDED_CAMERAS, embedded_library
from everlight.color.mixing import mix_neighbors
from everlight.color.reillumination import augment_transforms, von_kries
from everlight.color.transforms import fit_color_transform
from everlight.models.illuminant_training import TrainingSettings
from experiments.common.checkpoint import Checkpoints
from experiments.common.report import write_report
from experiments.common.run_folder import RunFolder, RunSettings, Scale
from experiments.two_camera import CITATION
from experiments.two_camera.model_files import LoadedModel, save_model
from experiments.two_camera.pair_folds import (
    RULES,
    Augment,
    CameraPairs,
    Samples,
    cross_validate,
    repeat_samples,
)
from experiments.two_camera.s20_report import S20Results, report_sections
from experiments.two_camera.training import PARAMETERS, TrainedNets

COPIES = 20
NEIGHBORS = 10

TRAINING = {
    "demo": TrainingSettings(steps=2_000, batch_size=128, validate_every=50),
    "cpu": TrainingSettings(steps=6_000, batch_size=128, validate_every=50),
    "paper": TrainingSettings(500_000, 0, 1e-3, "constant", validate_every=100),
}


@dataclass(frozen=True)
class S20Run(RunSettings):
    """Real pairs of a phone's two cameras, 3-fold (tables 3 and 4)."""

    scale: Scale = "cpu"
    """demo: rendered pairs instead; cpu: the release; paper: its optimizer too."""
    seeds: int = 8
    """Trainings per fold, each with its own initial net and inner validation pairs."""


def run_s20(settings: S20Run) -> Path:
    """Runs it all; returns the report's path."""
    folder = RunFolder("two_camera", "s20", settings)
    data = rendered_pairs(settings.seed) if settings.scale == "demo" else released_pairs()
    training = TRAINING[settings.scale]
    seeds = range(settings.seed, settings.seed + settings.seeds)
    results = S20Results(data, tuple(AUGMENTATIONS), {}, {})
    for selection in RULES:
        checkpoints = Checkpoints(folder.checkpoints / selection)
        outcome = cross_validate(data, AUGMENTATIONS, selection, seeds, training, checkpoints)
        results.errors[selection] = outcome.errors(data)
        for name, values in results.errors[selection].items():
            folder.log(selection=selection, method=name, mean_error=values.mean(axis=(1, 2)))
        if selection == "honest":
            results.validation.update(validation_losses(outcome.nets))
            save_ensembles(folder, outcome.nets, data, results.best_augmentation())
    folder.save_results(
        **{f"{rule}/{name}": v for rule, by in results.errors.items() for name, v in by.items()}
    )
    summary = [
        ("Paper", CITATION),
        ("Data", data.note),
        ("Protocol", "3 folds of 54 test pairs; statistics within a fold, averaged over folds"),
        ("Selection rules", "honest and paper, a table each; honest is the one to quote"),
        ("Seeds", f"{settings.seeds} per fold, from {settings.seed}"),
        ("Training", str(training)),
        ("Duration", folder.duration()),
    ]
    title = f"Two-camera illuminant estimation: S20 phone pairs ({settings.scale})"
    return write_report(folder.path, title, summary, report_sections(folder.path, results))


def released_pairs() -> CameraPairs:
    """The release's transforms from the whole image, its lights and its folds."""
    data = load_s20()
    return CameraPairs(
        data.transform_image.astype(np.float32),
        data.illuminant_main.astype(np.float32),
        data.illuminant_second.astype(np.float32),
        np.stack(data.folds),
        ("S20 Ultra main", "S20 Ultra wide-angle"),
        f"S20 release: {len(data.names)} real pairs (the paper counts 156), transforms of "
        "sum-normalised images",
    )


def rendered_pairs(seed: int) -> CameraPairs:
    """As many rendered pairs as S20 has, for a rehearsal without data."""
    library, count = embedded_library(), 162
    scenes = draw_scenes(library, RadiometricSettings(count, "random", seed))
    main, second = (photograph(library, camera, scenes) for camera in EMBEDDED_CAMERAS)
    fit = jax.vmap(lambda a, b: fit_color_transform(a, b, normalize="sum"))
    folds = np.random.default_rng(seed).permutation(count).reshape(3, -1)
    return CameraPairs(
        np.asarray(fit(main.colors, second.colors).transform),
        main.illuminants,
        second.illuminants,
        folds,
        EMBEDDED_CAMERAS,
        f"NOT S20: {count} pairs rendered from the spectra of colour-science",
    )


def _repeated(data: CameraPairs, train: np.ndarray, _: jax.Array) -> Samples:
    return repeat_samples(data, train, 1 + COPIES)


def _reilluminated(data: CameraPairs, train: np.ndarray, key: jax.Array) -> Samples:
    """Each pair under its own light and under `COPIES` others of the training part."""
    green = [light[train] / light[train][:, 1:2] for light in (data.main, data.second)]
    factors = [von_kries(jnp.asarray(lights)) for lights in green]
    everything = augment_transforms(jnp.asarray(data.transforms[train]), *factors)
    # Sum-normalised transforms have rows that add up to about 1; factors change that.
    everything /= everything.sum(axis=-1).mean(axis=-1)[..., None, None]
    own = np.arange(len(train))[:, None]
    others = jax.vmap(lambda k: jax.random.permutation(k, len(train) - 1)[:COPIES])
    shift = 1 + others(jax.random.split(key, len(train)))
    target = np.concatenate([own, (own + shift) % len(train)], axis=1)
    return Samples(everything[own, target].reshape(-1, 9), data.targets(train)[target.ravel()])


def _mixed(data: CameraPairs, train: np.ndarray, key: jax.Array) -> Samples:
    features, targets = jnp.asarray(data.features(train)), jnp.asarray(data.targets(train))
    return Samples(*mix_neighbors(key, features, targets, NEIGHBORS, COPIES))


AUGMENTATIONS: dict[str, Augment] = {
    "none": _repeated,
    "von Kries": _reilluminated,
    "mixed": _mixed,
}


def validation_losses(nets: TrainedNets) -> dict[str, float]:
    """Least validation loss of each net and augmentation, mean over folds and seeds."""
    means = {}
    for depth, losses in nets.losses.items():
        best = np.nanmin(losses.valid, axis=0).reshape(len(AUGMENTATIONS), -1).mean(axis=1)
        for name, value in zip(AUGMENTATIONS, best, strict=True):
            means[f"{PARAMETERS[depth]} parameters, {name}"] = float(value)
    return means


def save_ensembles(
    folder: RunFolder, nets: TrainedNets, data: CameraPairs, augmentation: str
) -> None:
    """All folds' and seeds' nets of one augmentation, under models/, for `estimate`."""
    for depth, models in nets.models.items():
        count = models.mean.shape[0] // len(AUGMENTATIONS)
        start = count * tuple(AUGMENTATIONS).index(augmentation)
        members = jax.tree.map(lambda leaf, s=start, n=count: leaf[s : s + n], models)
        note = f"{data.note}; augmentation {augmentation}, honest selection"
        model = LoadedModel(members, depth, "sum", data.cameras, note)
        save_model(folder.path / "models" / f"S20-{PARAMETERS[depth]}", model)
