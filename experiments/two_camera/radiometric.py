"""The two-camera paper's radiometric experiment (section 4.1, table 1, figures 4 and 5).

    python -m experiments two_camera radiometric --scale demo

Scales:
  demo: measured spectra that ship with colour-science, its two cameras in both roles.
  cpu: the 28 cameras of Jiang et al. and the SFU lights below EVERLIGHT_DATA; a map of linear
    regression over all 756 ordered pairs, then the nets on five pairs drawn by the seed.
  paper: as cpu, with the paper's optimizer: rate 1e-4, batches of 1,024, 1 million epochs (its
    10 hours on a V100).
"""

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from data_pipelines.errors import DataError
from data_pipelines.radiometric import (
    CameraView,
    RadiometricSettings,
    Split,
    draw_scenes,
    photograph,
)
from data_pipelines.spectra import SpectralLibrary, embedded_library, measured_library
from everlight.color.chromagenic import fit_linear_regression, linear_estimate
from everlight.color.chromaticity import from_chromaticity, to_chromaticity
from everlight.color.transforms import fit_color_transform
from everlight.models.illuminant_training import IlluminantModel, TrainingSettings
from experiments.common.checkpoint import Checkpoints
from experiments.common.progress import progress
from experiments.common.report import Section, write_report
from experiments.common.run_folder import RunFolder, RunSettings, Scale
from experiments.two_camera import CITATION
from experiments.two_camera.model_files import LoadedModel, save_model
from experiments.two_camera.radiometric_methods import PairData, compare_methods, prepare_pairs
from experiments.two_camera.radiometric_report import RadiometricResults, report_sections
from experiments.two_camera.tables import angular_errors
from experiments.two_camera.training import (
    PARAMETERS,
    best_of_restarts,
    predict_all,
    stack_problems,
    train_nets,
)

RESTARTS = 2
"""Trainings of every net from different initial parameters; validation chooses."""

SPLITS: tuple[Split, ...] = get_args(Split)
TRAINING = {
    "demo": TrainingSettings(learning_rate=1e-2),
    "cpu": TrainingSettings(learning_rate=1e-2),
    # 11 batches an epoch; a validation every 100 epochs.
    "paper": TrainingSettings(11_000_000, 1024, 1e-4, "constant", validate_every=1_100),
}


@dataclass(frozen=True)
class RadiometricRun(RunSettings):
    """Pairs rendered from measured spectra: the nets beside single-image estimators (table 1)."""

    scale: Scale = "demo"
    """demo: spectra that ship with colour-science; cpu: measured sets; paper: its optimizer."""
    camera_pairs: int = 5
    """Pairs drawn by the seed (cpu and paper)."""
    scenes: int = 18_000
    """Scenes of 24 surfaces, split 60/20/20."""


def run_radiometric(
    settings: RadiometricRun, training: Mapping[Scale, TrainingSettings] = TRAINING
) -> Path:
    """Runs it all; returns the report's path."""
    folder = RunFolder("two_camera", "radiometric", settings)
    summary, sections = radiometric_sections(folder, settings, training)
    title = f"Two-camera illuminant estimation: radiometric set ({settings.scale})"
    return write_report(folder.path, title, summary, sections)


def radiometric_sections(
    folder: RunFolder,
    settings: RadiometricRun,
    training: Mapping[Scale, TrainingSettings] = TRAINING,
) -> tuple[list[tuple[str, str]], list[Section]]:
    """Trains and compares; gives the report's summary and body."""
    library, pairs = _library_and_pairs(settings)
    pair_map = None if settings.scale == "demo" else map_of_pairs(library, settings)

    data: dict[Split, list[PairData]] = {}
    for split in SPLITS:
        drawn = RadiometricSettings(settings.scenes, split, settings.seed)
        data[split] = prepare_pairs(library, pairs, draw_scenes(library, drawn))
    problems = [pair.problem() for split in SPLITS for pair in data[split]]
    optimizer = training[settings.scale]
    train_started = time.monotonic()
    nets = train_nets(
        stack_problems([problem for problem in problems for _ in range(RESTARTS)]),
        tuple(PARAMETERS),
        optimizer,
        settings.seed,
        Checkpoints(folder.checkpoints),
    )
    nets = best_of_restarts(nets, RESTARTS)
    train_seconds = time.monotonic() - train_started

    estimates: dict[Split, dict[str, np.ndarray]] = {}
    with progress("estimators", len(problems), unit="pair") as bar:
        for index, split in enumerate(SPLITS):
            compared = []
            for pair in data[split]:
                compared.append(compare_methods(pair))
                bar.update()
            estimates[split] = {name: np.stack([c[name] for c in compared]) for name in compared[0]}
            rows = slice(index * len(pairs), (index + 1) * len(pairs))
            features = np.stack([pair.features(pair.scenes.test) for pair in data[split]])
            for depth, models in nets.models.items():
                members = jax.tree.map(lambda leaf, rows=rows: leaf[rows], models)
                light = from_chromaticity(predict_all(depth, members, features))
                estimates[split][f"Net, {PARAMETERS[depth]} parameters"] = np.asarray(light)
    results = RadiometricResults(pairs, data, estimates, nets.losses, pair_map, library)

    for split, by_method in results.errors().items():
        for name, errors in by_method.items():
            folder.log(split=split, method=name, mean_error=np.nanmean(errors, axis=1))
    folder.save_results(**results.arrays())
    save_models(folder, nets.models, pairs, library.note)
    summary = [
        ("Paper", CITATION),
        ("Data", library.note),
        ("Scenes", f"{settings.scenes:,} of 24 surfaces: 60% train, 20% validate, 20% test"),
        ("Camera pairs (main + second)", "; ".join(" + ".join(pair) for pair in pairs)),
        (
            "Selection rule",
            f"honest: of {RESTARTS} trainings the step with the least loss on the validation part",
        ),
        ("Seeds", f"scenes, camera pairs and trainings from seed {settings.seed}"),
        (
            "Training",
            f"{RESTARTS * len(problems) * len(PARAMETERS)} trainings in {train_seconds:.0f} s: "
            f"{optimizer}",
        ),
        ("Duration", folder.duration()),
    ]
    return summary, report_sections(folder.path, results, optimizer.validate_every)


def draw_pairs(cameras: Sequence[str], count: int, seed: int) -> list[tuple[str, str]]:
    """`count` different pairs of cameras, the first of each being the main one.

    Raises:
      DataError: fewer than one pair, or more than there are.
    """
    every = list(itertools.combinations(cameras, 2))
    if not 1 <= count <= len(every):
        raise DataError(
            f"camera_pairs={count}; {len(cameras)} cameras make 1 to {len(every)} pairs"
        )
    drawn = np.random.default_rng(seed).choice(len(every), count, replace=False)
    return [every[index] for index in drawn]


def _library_and_pairs(
    settings: RadiometricRun,
) -> tuple[SpectralLibrary, list[tuple[str, str]]]:
    if settings.scale == "demo":
        library = embedded_library()
        first, second = library.camera_names
        return library, [(first, second), (second, first)]
    library = measured_library()
    return library, draw_pairs(library.camera_names, settings.camera_pairs, settings.seed)


def map_of_pairs(library: SpectralLibrary, settings: RadiometricRun) -> Float[np.ndarray, "c c"]:
    """Mean test error of linear regression by main camera (row) and second camera (column)."""
    drawn = RadiometricSettings(settings.scenes, "random", settings.seed)
    scenes = draw_scenes(library, drawn)
    views = [
        jax.tree.map(jnp.asarray, photograph(library, camera, scenes))
        for camera in library.camera_names
    ]

    @jax.jit
    def mean_error(main: CameraView, second: CameraView) -> jax.Array:
        transforms = jax.vmap(fit_color_transform)(main.colors, second.colors).transform
        lights = main.illuminants
        model = fit_linear_regression(
            transforms[scenes.train], to_chromaticity(lights[scenes.train])
        )
        chromaticity = jax.vmap(linear_estimate, (None, 0))(model, transforms[scenes.test])
        estimate = from_chromaticity(chromaticity)
        return jnp.mean(angular_errors(estimate, lights[scenes.test]))

    errors = np.full((len(views), len(views)), np.nan)
    with progress("pair map", len(views) * (len(views) - 1), unit="pair") as bar:
        for row, column in itertools.permutations(range(len(views)), 2):
            errors[row, column] = mean_error(views[row], views[column])
            bar.update()
    return errors


def save_models(
    folder: RunFolder,
    models: dict[int, IlluminantModel],
    pairs: Sequence[tuple[str, str]],
    note: str,
) -> None:
    """Each pair's nets of the random split, under models/, for `estimate --checkpoint`."""
    for depth, trained in models.items():
        for index, cameras in enumerate(pairs):
            members = jax.tree.map(lambda leaf, i=index: leaf[i : i + 1], trained)
            name = f"{'+'.join(cameras)}-{PARAMETERS[depth]}".replace(" ", "_")
            model = LoadedModel(members, depth, None, cameras, f"radiometric set of {note}")
            save_model(folder.path / "models" / name, model)
