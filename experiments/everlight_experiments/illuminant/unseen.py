"""Networks for camera pairs that no training contains: the transform, and the two sensors.

Two of the 28 cameras of Jiang et al. are left out in turn, in both roles. Networks are trained on
pairs of 22 of the other cameras; pairs of the remaining four select the step. Inputs are the
transform T between the two views of a scene, the main view's moments, or both, with a description
of the pair. The description is its transforms and whites under two known illuminants, which
photographs of a chart give, or the principal components of its sensitivities. They are compared
with networks of the same pair and camera, and with estimators that learn nothing.

Between known illuminants T is described by its position: the share of the way from one to the
other, and the residual beside the way in units of its length. The whites interpolated at that
position are an estimate, and networks predict the ratio of the truth to it. T and the known
transforms as plain inputs were worse on validation cameras and scenes.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from everlight.color.chromaticity import from_chromaticity
from everlight.color.illuminant_registry import ESTIMATORS
from everlight.models.illuminant_batches import predict_batch
from everlight.models.illuminant_training import Problem, TrainingSettings
from everlight_data.color.camera_descriptions import (
    KNOWN_KELVIN,
    SAMPLES,
    VALIDATION_CAMERAS,
    Inputs,
    UnseenTask,
    World,
    draw_camera_folds,
    see_scenes,
    unseen_tasks,
)
from everlight_data.color.rendered_pairs import SPLITS
from everlight_data.color.rendered_views import patch_thumbnails
from everlight_data.color.spectra import measured_library
from everlight_data.runs.checkpoints import Checkpoints
from everlight_experiments.illuminant import CITATION
from everlight_experiments.illuminant.comparison import Comparison, Units, record_errors
from everlight_experiments.illuminant.config import OWN_NETWORKS, UNSEEN_NETWORKS, Plan
from everlight_experiments.illuminant.networks import train_networks
from everlight_experiments.illuminant.rendered_methods import estimate_rendered
from everlight_experiments.illuminant.report import compared_sections
from everlight_experiments.report.writer import FirstScreen, Section
from everlight_experiments.run_folder.folder import RunFolder
from everlight_experiments.run_folder.settings import in_words

DEPTH, WIDTH = 5, 16
"""Hidden layers of all networks, and their units."""
INTERPOLATED = "Interpolated between the known illuminants"
HEADLINE = "Net on T and known illuminants, other pairs"
OWN = "Net on T, the very pair"
CURVES = (HEADLINE, OWN, "Net on moments and known illuminants, other cameras", "SoG")


def run_unseen(
    folder: RunFolder, plan: Plan, seed: int, camera_pairs: int
) -> tuple[list[tuple[str, str]], FirstScreen, list[Section]]:
    """Train and compare; return the report's facts, summary and body.

    `camera_pairs` disjoint pairs are left out in turn.
    """
    library = measured_library()
    folds = draw_camera_folds(len(library.camera_names), camera_pairs, seed)
    roles = [role for fold in folds for role in fold.roles()]
    worlds = {split: see_scenes(library, plan.scenes, split, seed) for split in SPLITS}
    others, own = unseen_tasks(library, folds, worlds, seed)
    between = jnp.asarray(np.stack([task.tests[0]["interpolated"] for task in own]))
    estimates = {INTERPOLATED: np.asarray(from_chromaticity(between))}
    estimates |= {
        name: _train(name, given, tasks, plan.training, seed, folder.checkpoints)
        for networks, tasks in ((UNSEEN_NETWORKS, others), (OWN_NETWORKS, own))
        for name, given in networks.items()
    }
    comparisons = {}
    for number, (split, world) in enumerate(worlds.items()):
        rows = slice(number * len(roles), (number + 1) * len(roles))
        known = {name: each[rows] for name, each in estimates.items()}
        comparisons[split] = _compare(SPLITS[split], world, roles, known)
    names = [tuple(library.camera_names[camera] for camera in role) for role in roles]
    folder.save_results(camera_pairs=np.array(names), **record_errors(folder, comparisons))
    kelvin = " and ".join(f"{each:,.0f}" for each in KNOWN_KELVIN)
    facts = [
        ("Paper", f"{CITATION}; it has no such experiment"),
        ("Data", library.note),
        (
            "Scenes",
            f"{plan.scenes:,} of 24 surfaces, exact responses: 60% train, 20% validate, 20% test",
        ),
        ("Unseen cameras", "; ".join(" and ".join(pair) for pair in names[::2])),
        (
            "Trained on",
            f"{SAMPLES:,} scenes by random pairs of {len(folds[0].training)} cameras; "
            f"{VALIDATION_CAMERAS} others select the step; networks of the very pair on its own "
            "training scenes",
        ),
        ("Known illuminants", f"black bodies of {kelvin} K on all surfaces"),
        ("Networks", f"{DEPTH} hidden layers of {WIDTH} units, {in_words(plan.training)}"),
        (
            "Selection rule",
            "held-out selection: the step on cameras and scenes outside training and test",
        ),
        ("Seeds", f"cameras, scenes and trainings from seed {seed}"),
        ("Duration", folder.duration()),
    ]
    world = worlds["random"]
    shown = {
        library.camera_names[camera]: world.illuminants[camera, world.scenes.test][:200]
        for camera in folds[0].unseen.tolist()
    }
    first, sections = compared_sections(
        folder.path,
        "Can a network estimate the illuminant for a camera pair that it was not trained on?",
        library.note,
        comparisons,
        CURVES,
        {" + ".join(shown): shown},
        headline=HEADLINE,
        baselines=(OWN,),
    )
    return facts, first, sections


def _train(
    name: str,
    given: Sequence[str],
    tasks: Sequence[UnseenTask],
    optimizer: TrainingSettings,
    seed: int,
    checkpoints: Path,
) -> Float[np.ndarray, "p n 3"]:
    """Return estimates of every task's tests, one after the other, by its own network.

    Networks with known illuminants predict relative to the interpolated illuminant.
    """
    relative = "known illuminants" in given

    def joined(inputs: Inputs) -> Float[np.ndarray, "n f"]:
        return np.hstack([inputs[name] for name in given])

    def reference(inputs: Inputs) -> Float[np.ndarray, "#n #2"]:
        return inputs["interpolated"] if relative else np.ones((1, 1), np.float32)

    problems = []
    for task in tasks:
        parts = [
            (joined(part.inputs), part.targets / reference(part.inputs))
            for part in (task.train, task.valid)
        ]
        problems.append(Problem(*parts[0], *parts[1]))
    folder = checkpoints / name.replace(",", "").replace(" ", "-")
    trained = train_networks(problems, (DEPTH,), optimizer, seed, Checkpoints(folder), WIDTH)
    features = np.stack([np.concatenate([joined(test) for test in task.tests]) for task in tasks])
    ratios = predict_batch(DEPTH, trained.models[DEPTH], jnp.asarray(features), WIDTH)
    references = np.stack([reference(test) for task in tasks for test in task.tests])
    return np.asarray(from_chromaticity(ratios.reshape(len(references), -1, 2) * references))


def _compare(
    title: str,
    world: World,
    roles: Sequence[tuple[int, int]],
    estimates: Mapping[str, Float[np.ndarray, "p n 3"]],
) -> Comparison:
    """Compare estimates with those by statistics of the main image."""
    test = world.scenes.test
    images = [patch_thumbnails(world.colors[main, test]) for main, _ in roles]
    statistics = {
        name: np.stack([estimate_rendered(ESTIMATORS[name], each) for each in images])
        for name in ("GW", "SoG")
    }
    return Comparison(
        {name: each[:, None] for name, each in (statistics | estimates).items()},
        np.stack([world.illuminants[main, test] for main, _ in roles])[:, None],
        title,
        f"Test scenes of {len(roles)} unseen camera pairs, {title}.",
        "camera pairs",
        units=Units("illuminants", world.scenes.clusters[test][None]),
    )
