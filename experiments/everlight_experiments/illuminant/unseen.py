"""Nets for pairs of cameras that they never saw: the transform, and what the two sensors are.

    EVERLIGHT_DATA=... everlight two_camera unseen

Of the 28 cameras of Jiang et al. two are left out in turn, in both roles. Nets are trained on pairs
of the other 26: of 22 that teach, their best step chosen on pairs of four that do not. They get the
transform T between the two views of a scene, its moments, or both, and with it a description of the
pair: its transforms and whites under two known lights, which a photograph of a chart under each
would give, or its sensitivities' first principal components. Beside them stand nets of the very
pair and the very camera, which know what the others cannot, and what learns nothing.

Between known lights T is given by its place: how far along the way from the one's to the other's,
and what is left beside the way, in units of its length. The whites interpolated by that place are a
light already; nets answer with the ratio of the true one to it. T and the known lights' transforms
given as they are did worse on cameras and scenes that are not reported.

Presets:
  small: 5 pairs, 6,000 scenes, 4,000 steps.
  paper: 18,000 scenes, 20,000 steps of larger batches. The paper has no such experiment.
  demo: there is none, as no 28 cameras come with a package.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from everlight.checks import Between
from everlight.color.chromaticity import from_chromaticity, to_chromaticity
from everlight.color.estimators import ESTIMATORS
from everlight.models.illuminant_training import Problem, TrainingSettings
from everlight_data.color.radiometric import (
    Split,
)
from everlight_data.color.spectra import SpectralLibrary, measured_library
from everlight_data.errors import DataError
from everlight_experiments.common.checkpoint import Checkpoints
from everlight_experiments.common.report import write_report
from everlight_experiments.common.run_folder import RunFolder
from everlight_experiments.common.settings import Preset, RunSettings, in_words
from everlight_experiments.illuminant import CITATION
from everlight_experiments.illuminant.networks import predict_all, stack_problems, train_nets
from everlight_experiments.illuminant.pair_map import sensitivity_distances
from everlight_experiments.illuminant.radiometric import SPLITS
from everlight_experiments.illuminant.radiometric_methods import thumbnails
from everlight_experiments.illuminant.tables import Comparison, estimate_all
from everlight_experiments.illuminant.unseen_cameras import (
    COMPONENTS,
    KNOWN_KELVIN,
    Sensors,
    Shots,
    World,
    all_shots,
    draw_shots,
    inputs_of,
    known_lights,
    principal_components,
    see_scenes,
)
from everlight_experiments.illuminant.unseen_report import UnseenResults, report_sections

JUDGES = 4
"""Cameras whose pairs choose the best step."""
LEAST_TEACHERS = COMPONENTS + 1
"""Of fewer some component is nothing but rounding."""
DEPTH, WIDTH = 5, 16
"""Hidden layers of all nets, and their units."""
SAMPLES, JUDGED = 20_000, 4_000
"""Of a training on many pairs, and of the pairs that choose its step."""
TRAINING = {
    "small": TrainingSettings(4_000, 256, 1e-2, validate_every=40),
    "paper": TrainingSettings(20_000, 512, 1e-2),
}
SCENES = {"small": 6_000, "paper": 18_000}

OTHERS = {
    "Net on T, other pairs": ("T",),
    "Net on T and known lights, other pairs": ("known lights",),
    "Net on T and sensitivities, other pairs": ("T", "sensitivities"),
    "Net on moments, other cameras": ("moments",),
    "Net on moments and known lights, other cameras": ("moments", "whites"),
    "Net on T, moments and known lights, other pairs": ("moments", "known lights"),
}
"""Inputs of the nets that never saw the two cameras; T is in its place between known lights."""
INTERPOLATED = "Interpolated between the known lights"
OWN = {
    "Net on T, the very pair": ("T",),
    "Net on moments, the very camera": ("moments",),
    "Net on T and moments, the very pair": ("T", "moments"),
}
"""Of those that were trained on them."""


@dataclass(frozen=True)
class UnseenRun(RunSettings):
    """Train networks for camera pairs that were never seen, given their sensors' description."""

    preset: Preset = "small"
    """Configuration to run: small has 6,000 scenes and 4,000 steps, paper 18,000 and 20,000;
    there is no demo."""
    camera_pairs: Annotated[int, Between(1, 14)] = 5
    """Number of randomly drawn, disjoint camera pairs that are held out in turn."""


class Fold(NamedTuple):
    """Cameras by their part."""

    unseen: Int[np.ndarray, "2"]
    judges: Int[np.ndarray, "j"]
    teachers: Int[np.ndarray, "t"]

    def roles(self) -> list[tuple[int, int]]:
        """The unseen pair, main camera first, in both roles."""
        first, second = self.unseen.tolist()
        return [(first, second), (second, first)]


def run_unseen(
    settings: UnseenRun,
    library: SpectralLibrary | None = None,
    training: Mapping[Preset, TrainingSettings] = TRAINING,
    scenes: Mapping[Preset, int] = SCENES,
) -> Path:
    """Runs it all, by default with the measured cameras; returns the report's path."""
    if settings.preset not in training:
        raise DataError(
            f"--preset {settings.preset}: no 28 cameras come with a package; give --preset small, "
            "with EVERLIGHT_DATA set"
        )
    library = measured_library() if library is None else library
    folds = draw_folds(len(library.camera_names), settings.camera_pairs, settings.seed)
    folder = RunFolder("two_camera", "unseen", settings)
    optimizer = training[settings.preset]
    worlds = {
        split: see_scenes(library, scenes[settings.preset], split, settings.seed)
        for split in SPLITS
    }
    jobs = [(split, fold) for split in SPLITS for fold in folds]
    known = known_lights(library)
    sensors = [Sensors(*known, principal_components(library, fold.teachers)) for _, fold in jobs]
    lights: dict[Split, dict[str, np.ndarray]] = {}
    others = _train_others(jobs, worlds, sensors, optimizer, settings.seed, folder.checkpoints)
    own = _train_own(jobs, worlds, sensors, optimizer, settings.seed, folder.checkpoints)
    for split, world in worlds.items():
        roles = [role for fold in folds for role in fold.roles()]
        lights[split] = _without_learning(world, roles, sensors[0])
        places = [index for index, job in enumerate(jobs) if job[0] == split]
        for name, told in (others | own).items():
            lights[split][name] = told[places].reshape(len(roles), 1, -1, 3)
    truth = {
        split: np.stack(
            [world.lights[main, world.scenes.test] for fold in folds for main, _ in fold.roles()]
        )[:, None]
        for split, world in worlds.items()
    }
    names = [
        (library.camera_names[main], library.camera_names[second])
        for fold in folds
        for main, second in fold.roles()
    ]
    distances = sensitivity_distances(library)
    results = UnseenResults(
        names,
        [distances[main, second] for fold in folds for main, second in fold.roles()],
        {split: Comparison(lights[split], truth[split]) for split in SPLITS},
        {split: world.scenes.clusters[world.scenes.test] for split, world in worlds.items()},
    )
    arrays = {}
    for split, compared in results.compared.items():
        for name, errors in compared.errors().items():
            arrays[f"{split}/{name}"] = errors
            folder.log(split=split, method=name, mean_error=np.nanmean(errors, axis=(1, 2)))
    folder.save_results(camera_pairs=np.array(names), **arrays)
    teachers = len(folds[0].teachers)
    kelvin = " and ".join(f"{each:,.0f}" for each in KNOWN_KELVIN)
    summary = [
        ("Paper", f"{CITATION}; it has no such experiment"),
        ("Data", library.note),
        (
            "Scenes",
            f"{scenes[settings.preset]:,} of 24 surfaces, exact responses: 60% train, 20% "
            "validate, 20% test",
        ),
        ("Unseen cameras", "; ".join(" and ".join(pair) for pair in names[::2])),
        (
            "Trained on",
            f"{SAMPLES:,} scenes by random pairs of {teachers} cameras; {JUDGES} others select "
            "the step; networks of the very pair on its own training scenes",
        ),
        ("Known illuminants", f"black bodies of {kelvin} K on all surfaces"),
        ("Networks", f"{DEPTH} hidden layers of {WIDTH} units, {in_words(optimizer)}"),
        (
            "Selection rule",
            "held-out selection: the step on cameras and scenes outside training and test",
        ),
        ("Seeds", f"cameras, scenes and trainings from seed {settings.seed}"),
        ("Duration", folder.duration()),
    ]
    title = "Two-camera illuminant estimation: unseen camera pairs"
    return write_report(folder.path, title, summary, report_sections(folder.path, results))


def draw_folds(cameras: int, pairs: int, seed: int) -> list[Fold]:
    """Different pairs that are left out in turn, with the cameras that judge and teach.

    Raises:
      DataError: too few cameras.
    """
    least = max(2 * pairs, 2 + JUDGES + LEAST_TEACHERS)
    if cameras < least:
        raise DataError(f"{cameras} cameras; {pairs} pairs that are left out need {least}")
    order = np.random.default_rng(seed).permutation(cameras)
    folds = []
    for pair in range(pairs):
        turned = np.roll(order, -2 * pair)
        folds.append(Fold(*np.split(turned, [2, 2 + JUDGES])))
    return folds


def _joined(inputs: Mapping[str, np.ndarray], given: Sequence[str]) -> Float[np.ndarray, "n f"]:
    return np.hstack([inputs[name] for name in given])


class _Part(NamedTuple):
    """Inputs by name, and chromaticities; scenes without a transform repeat others."""

    inputs: dict[str, np.ndarray]
    targets: Float[np.ndarray, "n 2"]


def _part(shots: Shots, world: World, sensors: Sensors) -> _Part:
    inputs = inputs_of(shots, world, sensors)
    rows = np.resize(np.flatnonzero(np.isfinite(inputs["T"]).all(axis=1)), len(shots.scene))
    targets = np.asarray(to_chromaticity(world.lights[shots.main, shots.scene]))
    return _Part({name: values[rows] for name, values in inputs.items()}, targets[rows])


Job = tuple[Split, Fold]


def _train_others(
    jobs: Sequence[Job],
    worlds: Mapping[Split, World],
    sensors: Sequence[Sensors],
    optimizer: TrainingSettings,
    seed: int,
    checkpoints: Path,
) -> dict[str, Float[np.ndarray, "jobs 2 n 3"]]:
    """Lights of each job's unseen pair, in both roles, by nets of other pairs."""
    parts, tests = [], []
    for number, ((split, fold), own) in enumerate(zip(jobs, sensors, strict=True)):
        world, rng = worlds[split], np.random.default_rng((seed, number))
        scenes = world.scenes
        taught = draw_shots(rng, fold.teachers, scenes.train, SAMPLES)
        judged = draw_shots(rng, fold.judges, scenes.valid, JUDGED)
        parts.append((_part(taught, world, own), _part(judged, world, own)))
        tests.append([inputs_of(all_shots(*r, scenes.test), world, own) for r in fold.roles()])
    return {
        name: _train(name, given, parts, tests, optimizer, seed, checkpoints)
        for name, given in OTHERS.items()
    }


def _train_own(
    jobs: Sequence[Job],
    worlds: Mapping[Split, World],
    sensors: Sequence[Sensors],
    optimizer: TrainingSettings,
    seed: int,
    checkpoints: Path,
) -> dict[str, Float[np.ndarray, "jobs 2 n 3"]]:
    """The same by nets of the pair itself, one for each role."""
    parts, tests = [], []
    for (split, fold), own in zip(jobs, sensors, strict=True):
        world = worlds[split]
        scenes = world.scenes
        for role in fold.roles():
            taught, judged = (
                _part(all_shots(*role, rows), world, own) for rows in (scenes.train, scenes.valid)
            )
            parts.append((taught, judged))
            tests.append([inputs_of(all_shots(*role, scenes.test), world, own)])
    return {
        name: _train(name, given, parts, tests, optimizer, seed, checkpoints).reshape(
            len(jobs), 2, -1, 3
        )
        for name, given in OWN.items()
    }


def _train(
    name: str,
    given: Sequence[str],
    parts: Sequence[tuple[_Part, _Part]],
    tests: Sequence[Sequence[Mapping[str, np.ndarray]]],
    optimizer: TrainingSettings,
    seed: int,
    checkpoints: Path,
) -> Float[np.ndarray, "problems tests n 3"]:
    """Lights of each problem's tests by the net that was trained on its parts.

    Nets that know where T is between known lights answer relative to the light that is there.
    """

    def reference(inputs: Mapping[str, np.ndarray]) -> Float[np.ndarray, "n 2"] | float:
        return inputs["interpolated"] if "known lights" in given else 1.0

    problems = []
    for both in parts:
        samples = [
            (_joined(part.inputs, given), part.targets / reference(part.inputs)) for part in both
        ]
        problems.append(Problem(*samples[0], *samples[1]))
    folder = checkpoints / name.replace(",", "").replace(" ", "-")
    trained = train_nets(
        stack_problems(problems), (DEPTH,), optimizer, seed, Checkpoints(folder), WIDTH
    )
    asked = np.stack([np.concatenate([_joined(test, given) for test in own]) for own in tests])
    told = predict_all(DEPTH, trained.models[DEPTH], jnp.asarray(asked), WIDTH)
    told = np.asarray(told).reshape(len(tests), len(tests[0]), -1, 2)
    if "known lights" in given:
        told = told * np.stack([[test["interpolated"] for test in own] for own in tests])
    return np.asarray(from_chromaticity(jnp.asarray(told)))


def _without_learning(
    world: World, roles: Sequence[tuple[int, int]], sensors: Sensors
) -> dict[str, Float[np.ndarray, "p 1 n 3"]]:
    """Lights of the test scenes by statistics of the main image, and by T among known lights."""
    test = world.scenes.test
    images = [thumbnails(world.colors[main, test]) for main, _ in roles]
    lights = {
        name: np.stack(
            [estimate_all(ESTIMATORS[name], each, jnp.ones(each.shape[:3])) for each in images]
        )[:, None]
        for name in ("GW", "SoG")
    }
    between = [inputs_of(all_shots(*role, test), world, sensors)["interpolated"] for role in roles]
    lights[INTERPOLATED] = np.asarray(from_chromaticity(jnp.asarray(np.stack(between))))[:, None]
    return lights
