"""The two-camera paper's experiment on NUS images (section 4.2, table 2, figures 5B and 9).

    EVERLIGHT_DATA=... everlight two_camera nus --preset small

Presets:
  demo: no data needed: 162 rendered thumbnails in the place of NUS's; a rehearsal.
  small: every method that sees one image, as `two_camera dataset` has them, on the D5200's 200
    thumbnails of 64x64. Their charts are masked, so the paper's quasi-real pairs cannot be made
    from them.
  paper: the official release of D5200 and Canon 1Ds Mark III in nus8/ below EVERLIGHT_DATA: the
    quasi-real pairs, each re-illuminated as 99 others, for linear regression and the nets, and the
    single-image estimators on the same scenes; rate 1e-3 as in table 4; meant for a GPU.

The gamuts, the regressions and the nets are trained on two thirds of the images and tested on the
third, in three folds; the other estimators learn nothing.

The quasi-real transforms are fitted without normalising pixels, for which re-illumination in closed
form is exact, and then scaled to a mean row sum of 1, which takes the two exposures out of them. As
the second image is made from the first by the chart's transform, they are that transform, and what
the scene shows has no part in them: nets on T are told more here than two photographs could tell.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from everlight.color.chromaticity import to_chromaticity
from everlight.color.moments import reilluminate_moments
from everlight.color.transforms import scale_free
from everlight.models.illuminant_training import TrainingSettings
from everlight_data.color.quasi_real import FOLDS, QuasiReal, reilluminate_training
from everlight_experiments.common.checkpoint import Checkpoints
from everlight_experiments.common.report import write_report
from everlight_experiments.common.run_folder import RunFolder
from everlight_experiments.common.settings import Count, Preset, RunSettings, in_words
from everlight_experiments.illuminant import CITATION
from everlight_experiments.illuminant.image_methods import (
    MOMENTS,
    compare_on_images,
    in_folds,
    moments_of,
    single_image_estimates,
)
from everlight_experiments.illuminant.image_sets import (
    MAIN,
    SECOND,
    official_pairs,
    rendered_images,
    thumbnail_images,
)
from everlight_experiments.illuminant.nus_report import NusResults, report_sections
from everlight_experiments.illuminant.pair_folds import (
    RULES,
    TRANSFORM,
    Augment,
    CameraPairs,
    Samples,
    cross_validate,
    repeat_samples,
)
from everlight_experiments.illuminant.radiometric_methods import Light
from everlight_experiments.illuminant.tables import Comparison

REILLUMINATIONS = 99
TRAINING = TrainingSettings(500_000, 1_024, 1e-3, "constant", validate_every=100)
THUMBNAIL_TRAINING = TrainingSettings(4_000, 128, validate_every=50)

BOTH = "T and moments"


@dataclass(frozen=True)
class NusRun(RunSettings):
    """Estimate illuminants of NUS photographs from one image and from two cameras (table 2)."""

    preset: Preset = "small"
    """Configuration to run: demo renders images, small uses thumbnails, paper the official
    release and networks."""
    seeds: Count = 8
    """Number of trainings per fold, each with its own initialization and validation pairs."""


def run_nus(
    settings: NusRun,
    training: TrainingSettings = TRAINING,
    thumbnail_training: TrainingSettings = THUMBNAIL_TRAINING,
) -> Path:
    """Runs it all; returns the report's path."""
    folder = RunFolder("two_camera", "nus", settings)
    if settings.preset == "paper":
        results = compare_on_pairs(folder, settings, training)
        protocol = [
            ("Protocol", f"{FOLDS} folds; statistics within a fold, averaged over folds"),
            (
                "Selection rules",
                "held-out selection and the paper's test-set selection, a table each; quote "
                "held-out",
            ),
            (
                "Seeds",
                f"{settings.seeds} per fold, from {settings.seed}, which also determines the folds",
            ),
            ("Training", in_words(training)),
        ]
    else:
        load = {"demo": rendered_images, "small": thumbnail_images}[settings.preset]
        images = load(settings.seed)
        seeds = range(settings.seed, settings.seed + settings.seeds)
        checkpoints = Checkpoints(folder.checkpoints / "honest")
        compared = compare_on_images(images, seeds, thumbnail_training, checkpoints)
        results = NusResults(images, {"honest": compared})
        protocol = [
            ("Protocol", f"{FOLDS} folds; statistics within a fold, averaged over folds"),
            (
                "Selection rule",
                "held-out selection: step and augmentation on pairs of the training folds",
            ),
            (
                "Seeds",
                f"{settings.seeds} per fold, from {settings.seed}, which also determines the folds",
            ),
            ("Training", in_words(thumbnail_training)),
        ]
    arrays = {}
    for rule, compared in results.compared.items():
        arrays |= {f"{rule}/{name}": values for name, values in compared.errors().items()}
        for name, values in compared.errors().items():
            folder.log(selection=rule, method=name, mean_error=np.nanmean(values, axis=(1, 2)))
    folder.save_results(**arrays)
    summary = [
        ("Paper", CITATION),
        ("Data", results.data.note),
        *protocol,
        ("Duration", folder.duration()),
    ]
    title = f"Illuminant estimation on NUS images ({settings.preset})"
    first, sections = report_sections(folder.path, results)
    return write_report(folder.path, title, summary, sections, first)


def compare_on_pairs(folder: RunFolder, settings: NusRun, training: TrainingSettings) -> NusResults:
    """All methods on the release's quasi-real pairs."""
    quasi, images = official_pairs(settings.seed)
    single = in_folds(images, single_image_estimates(images))
    pairs = camera_pairs(quasi, {"main": moments_of(images)}, (MAIN, SECOND), images.note)
    augmentations = augmentations_of(quasi)
    seeds = range(settings.seed, settings.seed + settings.seeds)
    compared = {}
    for selection in RULES:
        checkpoints = Checkpoints(folder.checkpoints / selection)
        outcome = cross_validate(pairs, augmentations, selection, seeds, training, checkpoints)
        compared[selection] = Comparison(single | outcome.lights(), pairs.main[pairs.folds])
    return NusResults(images, compared, quasi)


def camera_pairs(
    quasi: QuasiReal,
    moments: Mapping[Light, Float[np.ndarray, "n 9"]],
    cameras: tuple[str, str],
    note: str,
    asked: Light = "main",
) -> CameraPairs:
    """The pairs as regression and nets see them that tell one camera's light."""
    transforms = np.asarray(scale_free(jnp.asarray(quasi.transforms))).reshape(-1, 9)
    own = moments[asked]
    return CameraPairs(
        {TRANSFORM: transforms, MOMENTS: own, BOTH: np.hstack([transforms, own])},
        quasi.illuminants_main,
        quasi.illuminants_second,
        np.stack(quasi.folds),
        cameras,
        note,
        asked,
    )


def augmentations_of(quasi: QuasiReal) -> dict[str, Augment]:
    """The training pairs as they are, and the paper's re-illumination by their charts."""
    return {"none": _repeated, "re-illuminated": partial(_reilluminated, quasi)}


def _copies(train: np.ndarray) -> int:
    # The inner validation pairs leave fewer than 99 others to some folds.
    return min(REILLUMINATIONS, len(train) - 1)


def _repeated(data: CameraPairs, train: np.ndarray, _: jax.Array) -> Samples:
    return repeat_samples(data, train, 1 + _copies(train))


def _reilluminated(
    quasi: QuasiReal, data: CameraPairs, train: np.ndarray, key: jax.Array
) -> Samples:
    others = np.setdiff1d(np.arange(len(quasi.names)), train)
    augmented = reilluminate_training(
        quasi._replace(folds=(others,)), 0, int(jax.random.bits(key)), _copies(train)
    )
    transforms = np.asarray(scale_free(jnp.asarray(augmented.transforms))).reshape(-1, 9)
    relights = {"main": augmented.relights_main, "second": augmented.relights_second}
    lights = {"main": augmented.illuminants_main, "second": augmented.illuminants_second}
    moments = jax.vmap(reilluminate_moments)(
        jnp.asarray(data.inputs[MOMENTS][augmented.sources]), jnp.asarray(relights[data.asked])
    )
    return Samples(
        {TRANSFORM: transforms, MOMENTS: moments, BOTH: np.hstack([transforms, moments])},
        to_chromaticity(jnp.asarray(lights[data.asked])),
    )
