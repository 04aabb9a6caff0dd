"""The two-camera paper (Abdelhamed et al. 2021): every table, each as a preset.

    everlight paper two-camera                                # table 1, rendered; no data needed
    EVERLIGHT_DATA=... everlight paper two-camera --preset s20-small

Presets are a table and a size: `rendered-*` is table 1, `nus-*` table 2, `s20-*` tables 3 and 4,
and `unseen-*` is an experiment beyond the paper. The demos need no data: they render images or
pairs in the place of NUS's and S20's. `*-small` runs on two cores, `*-paper` has the paper's own
optimizer and length and is meant for a GPU.

Table 2: `nus-small` has the D5200's thumbnails, whose charts are masked, so that quasi-real pairs
cannot be made; it compares the single-image methods, as `illuminant dataset` does. `nus-paper`
reads the official release. A quasi-real pair's second image is made from its first by the chart's
transform, so T is that transform, whatever the scene: networks on T know more than two photographs
would show. Transforms are fitted without normalising pixels, for which re-illumination in closed
form is exact, and then scaled to a mean row sum of 1, which removes the exposures.

Tables 3 and 4: the repository of S20 holds transforms; its README links the raw images and the
authors' augmented transforms, which are used ("as released") where they lie beside the rest.
Otherwise von Kries factors replace the paper's chart transforms in re-illumination, on
sum-normalised transforms, where the closed form is approximate.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from everlight.checks import Between
from everlight_data.color.camera_pairs import quasi_real_pairs
from everlight_data.color.image_sets import (
    THUMBNAIL_SIDE,
    draw_folds,
    official_pairs,
    split_within,
    thumbnail_cameras,
)
from everlight_data.color.pair_augmentations import chart_augmentations
from everlight_data.color.quasi_real import FOLDS
from everlight_data.color.spectra import EMBEDDED_CAMERAS, embedded_library
from everlight_experiments.illuminant import CITATION
from everlight_experiments.illuminant.comparison import record_errors
from everlight_experiments.illuminant.config import (
    MAIN,
    PRESETS,
    SECOND,
    PairPreset,
    Plan,
)
from everlight_experiments.illuminant.cross_validation import compare_rules
from everlight_experiments.illuminant.methods import cross_validate_methods, moments_of
from everlight_experiments.illuminant.paper import METHOD_NOTES, QUASI_REAL_NOTES, quasi_real_rows
from everlight_experiments.illuminant.phone import BOTH_RULES, Compared, run_phone
from everlight_experiments.illuminant.photographs import (
    absent,
    compare_cameras,
    correction_columns,
    nus_thumbnails,
    photograph_sections,
    read_images,
    rendered_cameras,
)
from everlight_experiments.illuminant.rendered import run_rendered
from everlight_experiments.illuminant.report import compared_sections, corrections_figure
from everlight_experiments.illuminant.unseen import run_unseen
from everlight_experiments.report.writer import FirstScreen, Section, write_report
from everlight_experiments.run_folder.folder import RunFolder
from everlight_experiments.run_folder.settings import Count, RunSettings, in_words

LEAST_SCENES = 16
"""Minimum number of scenes: ten train, and linear regression fits that many numbers."""
SIDE = 64
"""Longest side in pixels of NUS's thumbnails."""
TITLES = {
    "rendered": "Two-camera illuminant estimation: rendered scenes (table 1)",
    "photographs": "Illuminant estimation on NUS images (table 2)",
    "quasi-real": "Two-camera illuminant estimation: quasi-real pairs (table 2)",
    "transforms": "Two-camera illuminant estimation: S20 phone pairs (tables 3 and 4)",
    "unseen": "Two-camera illuminant estimation: unseen camera pairs",
}

Report = tuple[list[tuple[str, str]], FirstScreen, list[Section]]


@dataclass(frozen=True)
class TwoCameraRun(RunSettings):
    """Reproduce the two-camera paper's tables 1 to 4, each as a preset."""

    preset: PairPreset = "rendered-demo"
    """Configuration to run: rendered scenes (table 1), NUS photographs (table 2), S20 phone pairs
    (tables 3 and 4), or unseen camera pairs; a demo needs no data, small runs on two cores, paper
    has the paper's optimizer."""
    seeds: Count = 8
    """Number of trainings per fold of nus and s20 presets, each with its own initialization and
    validation pairs."""
    camera_pairs: Annotated[int, Between(1, 378)] = 5
    """Number of randomly drawn pairs of measured cameras, for rendered and unseen presets."""
    scenes: Annotated[int, Between(LEAST_SCENES, 10_000_000)] | None = None
    """Number of scenes of 24 surfaces, split 60/20/20, for rendered presets; by default 12,000 for
    the demo and 18,000 for others."""


def run_two_camera(settings: TwoCameraRun, presets: Mapping[PairPreset, Plan] = PRESETS) -> Path:
    """Run a preset and return the report's path."""
    folder = RunFolder("two-camera", "", settings)
    plan = presets[settings.preset]
    summary, first, sections = two_camera_sections(folder, settings, plan)
    title = f"{TITLES[plan.data]}, preset {settings.preset}"
    return write_report(folder.path, title, summary, sections, first)


def two_camera_sections(folder: RunFolder, settings: TwoCameraRun, plan: Plan) -> Report:
    """Run a preset; return the report's facts, summary and body."""
    if plan.data == "rendered":
        count = settings.scenes or plan.scenes
        return run_rendered(folder, plan, settings.seed, count, settings.camera_pairs)
    if plan.data == "unseen":
        return run_unseen(folder, plan, settings.seed, settings.camera_pairs)
    runs = {"photographs": _photographs, "quasi-real": _quasi_real, "transforms": run_phone}
    seeds = range(settings.seed, settings.seed + settings.seeds)
    note, rule, (first, sections) = runs[plan.data](folder, plan, seeds)
    facts = [
        ("Paper", CITATION),
        ("Data", note),
        ("Protocol", f"{FOLDS} folds; statistics within a fold, averaged over folds"),
        ("Selection rule", rule),
        ("Seeds", f"{settings.seeds} per fold, from {settings.seed}, which also draws the folds"),
        ("Training", in_words(plan.training)),
        ("Duration", folder.duration()),
    ]
    return facts, first, sections


def _photographs(folder: RunFolder, plan: Plan, seeds: Sequence[int]) -> Compared:
    """Compare single-image methods on one camera's images, as `illuminant dataset` does."""
    if plan.measured:
        read = thumbnail_cameras(nus_thumbnails((MAIN, SECOND)))
        cameras = {name: read_images(read[name], SIDE) for name in (MAIN, SECOND)}
        note = f"NUS-8: linear thumbnails of {MAIN}; masked are the chart and saturated pixels"
    else:
        cameras, note = rendered_cameras(embedded_library(), EMBEDDED_CAMERAS, seeds[0])
        note = f"NOT NUS; {note}"
    camera = next(iter(cameras))
    folds = draw_folds(len(cameras[camera].names), seeds[0])
    sets = {camera: split_within(camera, cameras[camera], folds)}
    comparisons = compare_cameras(folder, sets, "folds", seeds, plan.training)
    folder.save_results(**record_errors(folder, comparisons))
    illuminants = {name: each.illuminants for name, each in cameras.items()}
    sections = photograph_sections(folder.path, sets, comparisons, "folds", note, illuminants)
    rule = "held-out selection: step and augmentation on 15% of the training images"
    return note, rule, sections


def _quasi_real(folder: RunFolder, plan: Plan, seeds: Sequence[int]) -> Compared:
    """Compare all methods on the release's quasi-real pairs."""
    quasi, images = official_pairs(MAIN, SECOND, seeds[0])
    single = cross_validate_methods(images)
    pairs = quasi_real_pairs(quasi, moments_of(images), (MAIN, SECOND), images.note)
    augmentations = chart_augmentations(quasi)
    comparisons, _ = compare_rules(
        folder, pairs, augmentations, seeds, plan.training, single, quasi_real_rows()
    )
    folder.save_results(**record_errors(folder, comparisons))
    shown = "Net, 1460 parameters, re-illuminated, ensemble"
    estimates = comparisons["held-out"].estimates
    missing = absent({MAIN: images}, {MAIN: comparisons["held-out"]})
    sections = compared_sections(
        folder.path,
        "Does a second camera lower the angular error on NUS's scenes?",
        images.note,
        comparisons,
        (shown, "Net on moments, chosen in the fold", "FFCC", "APAP (PCA)", "GW", "SoG", "PCA"),
        {f"{MAIN} + {SECOND}": {MAIN: pairs.main, SECOND: pairs.second}},
        (*QUASI_REAL_NOTES, *METHOD_NOTES, *missing),
        figures=[corrections_figure(folder.path, correction_columns(images, estimates))],
    )
    note = f"{images.note}; averaged down to {THUMBNAIL_SIDE} pixels for single-image methods"
    return note, BOTH_RULES, sections
