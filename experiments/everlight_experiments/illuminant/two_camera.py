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

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from everlight.checks import Between
from everlight.color.chromaticity import from_chromaticity, to_chromaticity
from everlight.models.illuminant_interval import COVERAGE
from everlight.models.illuminant_training import Problem, TrainingSettings
from everlight_data.color.image_sets import (
    THUMBNAIL_SIDE,
    draw_folds,
    official_pairs,
    split_within,
    thumbnail_cameras,
)
from everlight_data.color.quasi_real import FOLDS
from everlight_data.color.s20 import AugmentedS20, load_augmented_s20
from everlight_data.color.spectra import EMBEDDED_CAMERAS, embedded_library
from everlight_experiments.common.checkpoint import Checkpoints
from everlight_experiments.common.report import Column, FirstScreen, Section, Table, write_report
from everlight_experiments.common.run_folder import RunFolder
from everlight_experiments.common.settings import Count, RunSettings, in_words
from everlight_experiments.common.trees import rows_of
from everlight_experiments.illuminant import CITATION
from everlight_experiments.illuminant.comparison import Comparison, record_errors
from everlight_experiments.illuminant.config import (
    MAIN,
    PRESETS,
    RATES,
    SECOND,
    PairPreset,
    Plan,
)
from everlight_experiments.illuminant.cross_validation import (
    CHOSEN,
    RULES,
    TRANSFORM,
    CameraPairs,
    Coverage,
    CrossValidation,
    calibrate_all,
    chosen_rows,
    cross_coverage,
    cross_validate,
    network_name,
    uninformative,
)
from everlight_experiments.illuminant.methods import cross_validate_methods, moments_of
from everlight_experiments.illuminant.model_files import PairModel, ViewModel, save_model
from everlight_experiments.illuminant.networks import (
    PARAMETERS,
    index_of_lowest,
    predict_all,
    stack_problems,
    train_networks,
)
from everlight_experiments.illuminant.pairs import (
    PHONE_AUGMENTATIONS,
    calibrated_distances,
    chart_augmentations,
    for_second_view,
    phone_estimates,
    quasi_real_pairs,
    released_pairs,
    rendered_pairs,
)
from everlight_experiments.illuminant.paper import (
    METHOD_NOTES,
    PHONE_NOTES,
    QUASI_REAL_NOTES,
    phone_rows,
    quasi_real_rows,
)
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
from everlight_experiments.illuminant.tables import error_table
from everlight_experiments.illuminant.unseen import run_unseen

LEAST_SCENES = 16
"""Minimum number of scenes: ten train, and linear regression fits that many numbers."""
SIDE = 64
"""Longest side in pixels of NUS's thumbnails."""
SECOND_VIEW = "second illuminant"
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
    runs = {"photographs": _photographs, "quasi-real": _quasi_real, "transforms": _transforms}
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


Compared = tuple[str, str, tuple[FirstScreen, list[Section]]]
"""Note on the data, selection rule, and the report's summary and body."""
BOTH_RULES = "held-out selection and the paper's test-set selection, a table each; quote held-out"


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
    moments = {"main": moments_of(images)}
    pairs = quasi_real_pairs(quasi, moments, (MAIN, SECOND), images.note)
    comparisons = {}
    for selection, described in RULES.items():
        outcome = cross_validate(
            pairs,
            chart_augmentations(quasi),
            selection,
            seeds,
            plan.training,
            Checkpoints(folder.checkpoints / selection),
        )
        comparisons[selection] = Comparison(
            single | outcome.illuminants(),
            pairs.main[pairs.folds],
            f"{selection} selection",
            described,
            published=quasi_real_rows(),
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


def _transforms(folder: RunFolder, plan: Plan, seeds: Sequence[int]) -> Compared:
    """Compare networks and regressions on a phone's transforms, for both cameras' illuminants."""
    data = released_pairs() if plan.measured else rendered_pairs(seeds[0])
    augmented = load_augmented_s20(len(data.main)) if plan.measured else None
    comparisons = {}
    for selection, described in RULES.items():
        outcome = cross_validate(
            data,
            PHONE_AUGMENTATIONS,
            selection,
            seeds,
            plan.training,
            Checkpoints(folder.checkpoints / selection),
            rates=RATES if selection == "held-out" else (),
        )
        estimates = phone_estimates(data) | outcome.illuminants()
        if selection == "held-out":
            held_out = outcome
            save_ensembles(folder, outcome, data)
        elif augmented is not None:
            estimates |= as_released(folder, data, augmented, seeds, plan.training)
        comparisons[selection] = _phone_comparison(
            data, estimates, f"{selection} selection", described, phone_rows()
        )
    second = for_second_view(data)
    outcome = cross_validate(
        second,
        PHONE_AUGMENTATIONS,
        "held-out",
        seeds,
        plan.training,
        Checkpoints(folder.checkpoints / "second"),
        {TRANSFORM: (5,)},
        RATES,
    )
    other = _phone_comparison(
        second,
        phone_estimates(second) | outcome.illuminants(),
        SECOND_VIEW,
        f"The illuminant of {data.cameras[1]} from the same transforms; {RULES['held-out']}",
    )
    folder.save_results(**record_errors(folder, comparisons | {SECOND_VIEW: other}))
    chosen = [f"Net, {count} parameters, {CHOSEN}" for count in (470, 200, 1460)]
    illuminants = dict(zip(data.cameras, (data.main, data.second), strict=True))
    rates = " or ".join(f"{rate:g}" for rate in RATES)
    sections = compared_sections(
        folder.path,
        "How well do networks estimate a phone's illuminants from its two cameras?",
        data.note,
        comparisons,
        (*chosen, f"{chosen[0]}, ensemble", f"Linear regression, {CHOSEN}"),
        {" + ".join(data.cameras): illuminants},
        (
            *PHONE_NOTES,
            f"With held-out selection each fold selects the learning rate, {rates}.",
            _coverage_note(coverage_of(held_out, data)),
        ),
        [*map(error_table, (*comparisons.values(), other)), _validation_table(held_out)],
    )
    return data.note, BOTH_RULES, sections


def _phone_comparison(
    data: CameraPairs,
    estimates: Mapping[str, np.ndarray],
    title: str,
    caption: str,
    published: Mapping[str, Sequence[float]] = {},
) -> Comparison:
    truth = data.illuminants[data.folds]
    return Comparison(estimates, truth, title, caption, published=published)


def as_released(
    folder: RunFolder,
    data: CameraPairs,
    augmented: AugmentedS20,
    seeds: Sequence[int],
    training: TrainingSettings,
) -> dict[str, Float[np.ndarray, "runs 3 k 3"]]:
    """Return estimates by networks trained as in the authors' code on their augmented transforms.

    Pairs were re-illuminated before the folds were made, so that test illuminants can be training
    targets, and the step is selected on the augmented test fold.
    """
    features, truth = augmented.transforms.reshape(-1, 9), jnp.asarray(augmented.illuminants)
    targets = np.asarray(to_chromaticity(truth))
    problems = []
    for fold in range(FOLDS):
        valid = augmented.folds[fold]
        train = np.setdiff1d(np.arange(len(features)), valid)
        parts = (features[train], targets[train], features[valid], targets[valid])
        problems += [Problem(*parts)] * len(seeds)
    trained = train_networks(
        stack_problems(problems),
        tuple(PARAMETERS),
        training,
        seeds[0],
        Checkpoints(folder.checkpoints / "as-released"),
    )
    tests = np.repeat(data.inputs[TRANSFORM][data.folds], len(seeds), axis=0)
    estimates = {}
    for depth, models in trained.models.items():
        predicted = predict_all(depth, models, jnp.asarray(tests)).reshape(FOLDS, len(seeds), -1, 2)
        every = from_chromaticity(predicted).swapaxes(0, 1)
        estimates[f"{network_name(TRANSFORM, depth)}, as released"] = np.asarray(every)
    return estimates


def save_ensembles(folder: RunFolder, outcome: CrossValidation, data: CameraPairs) -> None:
    """Save all folds' and seeds' networks, each fold's of its chosen augmentation, for `estimate`.

    Intervals are calibrated on every test fold by the networks trained without it. All networks
    together disagree a little more, which widens the intervals.
    """
    distances = calibrated_distances(data)
    for depth, models in outcome.networks[TRANSFORM].models.items():
        by_augmentation = outcome.validation[network_name(TRANSFORM, depth)]
        losses = np.stack([by_augmentation[name] for name in PHONE_AUGMENTATIONS])
        members = rows_of(models, chosen_rows(losses, models.mean.shape[0]))
        estimates, truth = map(jnp.asarray, _held_out(outcome, data, depth))
        scale, alone = calibrate_all(estimates, truth), uninformative(truth).degrees
        best = [tuple(PHONE_AUGMENTATIONS)[index] for index in index_of_lowest(losses)]
        note = f"{data.note}; augmentation {', '.join(best)}, held-out selection"
        view = ViewModel("T", depth, members, scale, distances, alone)
        model = PairModel(view, None, None, "sum", data.cameras, note)
        save_model(folder.path / "models" / f"S20-{PARAMETERS[depth]}", model)


def _held_out(
    outcome: CrossValidation, data: CameraPairs, depth: int
) -> tuple[Float[np.ndarray, "seeds n 2"], Float[np.ndarray, "n 2"]]:
    """Return estimates of every test fold by networks trained without it, and the truth."""
    estimates = outcome.estimates[f"{network_name(TRANSFORM, depth)}, {CHOSEN}"]
    return estimates.reshape(len(estimates), -1, 2), data.targets(data.folds.ravel())


def coverage_of(outcome: CrossValidation, data: CameraPairs) -> dict[str, Coverage]:
    """Return each network's interval coverage on a fold, calibrated on the other two."""
    folds = np.split(np.arange(data.folds.size), len(data.folds))
    found = {}
    for depth in outcome.networks[TRANSFORM].models:
        estimates, truth = _held_out(outcome, data, depth)
        found[network_name(TRANSFORM, depth)] = cross_coverage([estimates] * FOLDS, truth, folds)
    return found


def _coverage_note(coverage: Mapping[str, Coverage]) -> str:
    covered = "; ".join(
        f"{name}: {each.share:.0%}, mean radius {each.degrees:.1f} degrees, "
        f"{each.uninformative:.0%} uninformative (no smaller than the interval of the training "
        "illuminants)"
        for name, each in coverage.items()
    )
    return (
        f"Intervals of the saved ensembles have a nominal coverage of {COVERAGE:.0%}. Coverage on "
        f"one fold after calibration on two, held-out selection: {covered}."
    )


def _validation_table(outcome: CrossValidation) -> Table:
    rows = []
    for method, losses in outcome.validation.items():
        row = [method]
        for name in PHONE_AUGMENTATIONS:
            cells = [f"{loss:.4f}" for loss in losses[name]]
            if method in outcome.rates:
                rates = outcome.rates[method][name]
                cells = [f"{c} ({rate:g})" for c, rate in zip(cells, rates, strict=True)]
            row.append(" / ".join(cells))
        rows.append(row)
    caption = (
        "Mean of the lowest validation losses by augmentation, one number per fold, which selects "
        "each fold's augmentation. In brackets the learning rate, selected before in the same way."
    )
    return Table(caption, [Column("Method"), *map(Column, PHONE_AUGMENTATIONS)], rows)
