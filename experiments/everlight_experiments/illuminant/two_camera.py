"""The two-camera paper (Abdelhamed et al. 2021): every table, each as a preset.

    everlight paper two-camera                                # table 1, rendered; no data needed
    EVERLIGHT_DATA=... everlight paper two-camera --preset s20-small

Presets are a table and a size: `rendered-*` is table 1, `nus-*` table 2, `s20-*` tables 3 and 4.
The demos need no data: they render images or pairs in the place of NUS's and S20's. `*-small` runs
on two cores, `*-paper` has the paper's own optimizer and length and is meant for a GPU.

`nus-small` has the D5200's thumbnails, whose charts are masked, so that quasi-real pairs cannot be
made; it compares the single-image methods, as `illuminant dataset` does. `nus-paper` reads the
official release. Its transforms are fitted without normalizing pixels, for which re-illumination in
closed form is exact, and then scaled to a mean row sum of 1, which removes the exposures. S20's
transforms are sum-normalized; there the closed form is approximate.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from everlight.checks import Between
from everlight_data.color.pairs.camera_pairs import quasi_real_pairs
from everlight_data.color.pairs.pair_augmentations import chart_augmentations
from everlight_data.color.pairs.quasi_real import official_pairs
from everlight_data.color.photographs.camera_images import THUMBNAIL_SIDE
from everlight_data.color.photographs.published_folds import FOLDS
from everlight_data.color.spectra.library import EMBEDDED_CAMERAS
from everlight_experiments.illuminant import CITATION
from everlight_experiments.illuminant.comparison import record_errors
from everlight_experiments.illuminant.config import MAIN, PRESETS, SECOND, PairPreset, Plan
from everlight_experiments.illuminant.corrections import corrections_figure
from everlight_experiments.illuminant.cross_validation import compare_rules
from everlight_experiments.illuminant.dataset import DatasetRun, compare_photographs
from everlight_experiments.illuminant.methods import cross_validate_methods, moments_of
from everlight_experiments.illuminant.paper import METHOD_NOTES, QUASI_REAL_NOTES
from everlight_experiments.illuminant.phone import Compared, run_phone
from everlight_experiments.illuminant.photographs import CURVES, absent
from everlight_experiments.illuminant.published_tables import TABLE_2_NUS
from everlight_experiments.illuminant.rendered import run_rendered
from everlight_experiments.illuminant.report import Report, compared_sections
from everlight_experiments.report.writer import write_report
from everlight_experiments.run_folder.folder import RunFolder
from everlight_experiments.run_folder.settings import Count, RunSettings, in_words

MIN_SCENES = 16
"""Minimum number of scenes: ten train, and linear regression fits that many numbers."""
TITLES = {
    "rendered": "Two-camera illuminant estimation: rendered scenes (table 1)",
    "photographs": "Illuminant estimation from one image (table 2)",
    "quasi-real": "Two-camera illuminant estimation: quasi-real pairs (table 2)",
    "transforms": "Two-camera illuminant estimation: S20 phone pairs (tables 3 and 4)",
}


@dataclass(frozen=True)
class TwoCameraRun(RunSettings):
    """Reproduce the two-camera paper's tables 1 to 4, each as a preset."""

    preset: PairPreset = "rendered-demo"
    """Configuration to run: rendered scenes (table 1), NUS photographs (table 2), or S20 phone
    pairs (tables 3 and 4); a demo needs no data, small runs on two cores, paper has the paper's
    optimizer."""
    seeds: Count = 8
    """Number of trainings per fold of nus and s20 presets, each with its own initialization and
    validation pairs."""
    camera_pairs: Annotated[int, Between(1, 378)] = 5
    """Number of randomly drawn pairs of measured cameras, for rendered presets except the demo."""
    scenes: Annotated[int, Between(MIN_SCENES, 10_000_000)] | None = None
    """Number of scenes of 24 surfaces, split 60/20/20, for rendered presets; by default 12,000 for
    the demo and 18,000 for others."""


def run_two_camera(settings: TwoCameraRun, presets: Mapping[PairPreset, Plan] = PRESETS) -> Path:
    """Run a preset and return the report's path."""
    folder = RunFolder("two-camera", "", settings)
    plan = presets[settings.preset]
    summary, first, sections = two_camera_sections(folder, settings, plan)
    print(" ".join(first.sentences[:2]))
    title = f"{TITLES[plan.data]}, preset {settings.preset}"
    return write_report(folder.path, title, summary, sections, first)


def two_camera_sections(folder: RunFolder, settings: TwoCameraRun, plan: Plan) -> Report:
    """Run a preset; return the report's facts, summary and body."""
    if plan.data == "rendered":
        count = settings.scenes or plan.scenes
        return run_rendered(folder, plan, settings.seed, count, settings.camera_pairs)
    if plan.data == "photographs":
        preset, camera = ("small", MAIN) if plan.measured else ("demo", EMBEDDED_CAMERAS[0])
        dataset = DatasetRun(
            preset=preset, cameras=(camera,), seed=settings.seed, seeds=settings.seeds
        )
        return compare_photographs(folder, dataset, plan.training)
    compare = _compare_quasi_real if plan.data == "quasi-real" else run_phone
    seeds = range(settings.seed, settings.seed + settings.seeds)
    note, (first, sections) = compare(folder, plan, seeds)
    summary = [
        ("Paper", CITATION),
        ("Data", note),
        ("Protocol", f"{FOLDS} folds; statistics within a fold, averaged over folds"),
        (
            "Selection rule",
            "held-out selection and the paper's test-set selection, a table each; quote held-out",
        ),
        ("Seeds", f"{settings.seeds} per fold, from {settings.seed}, which also draws the folds"),
        ("Training", in_words(plan.training)),
        ("Duration", folder.duration()),
    ]
    return summary, first, sections


def _compare_quasi_real(folder: RunFolder, plan: Plan, seeds: Sequence[int]) -> Compared:
    """Compare all methods on the release's quasi-real pairs."""
    quasi, images = official_pairs(MAIN, SECOND, seeds[0])
    single = cross_validate_methods(images)
    pairs = quasi_real_pairs(quasi, moments_of(images), (MAIN, SECOND), images.note)
    augmentations = chart_augmentations(quasi)
    comparisons, _ = compare_rules(
        folder, pairs, augmentations, seeds, plan.training, single, TABLE_2_NUS
    )
    folder.save_results(**record_errors(folder, comparisons))
    held_out = comparisons["held-out"]
    sections = compared_sections(
        folder.path,
        "Does a second camera lower the angular error on NUS's scenes?",
        images.note,
        comparisons,
        ("Net, 1460 parameters, re-illuminated, ensemble", *CURVES),
        {f"{MAIN} + {SECOND}": {MAIN: pairs.main, SECOND: pairs.second}},
        (*QUASI_REAL_NOTES, *METHOD_NOTES, *absent({MAIN: images}, {MAIN: held_out})),
        figures=[corrections_figure(folder.path, images, held_out.estimates)],
    )
    note = f"{images.note}; averaged down to {THUMBNAIL_SIDE} pixels for single-image methods"
    return note, sections
