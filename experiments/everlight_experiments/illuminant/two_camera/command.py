"""The two-camera paper (Abdelhamed et al. 2021): every table, each as a preset.

    everlight paper two-camera                                # table 1, rendered; no data needed
    EVERLIGHT_DATA=... everlight paper two-camera --preset s20-small

Presets are a table and a size: `rendered-*` is table 1, `nus-*` table 2, `s20-*` tables 3 and 4.
The demos need no data: they render images or pairs in the place of NUS's and S20's. `*-small` runs
on two cores, `*-paper` has the paper's own optimizer and length and is meant for a GPU.

`nus-small` has the D5200's thumbnails, whose charts are masked, so that quasi-real pairs cannot be
made; it compares the single-image methods, as `illuminant dataset` does. `nus-paper` reads the
official release. Its transforms are fitted without normalizing pixels, for which re-illumination in
closed form is exact, and then scaled to images of mean 1, which removes the exposures. S20's
transforms are sum-normalized; there the closed form is approximate.
"""

from dataclasses import replace
from pathlib import Path

from everlight.illuminant.camera_pairs import charted_camera_pairs
from everlight.illuminant.pair_augmentations import chart_augmentations
from everlight_data.color.pairs.quasi_real import official_pairs
from everlight_data.color.photographs.camera_images import THUMBNAIL_SIDE
from everlight_data.color.spectra.library import EMBEDDED_CAMERAS
from everlight_experiments.illuminant.config import MAIN, PRESETS, SECOND, PairConfig
from everlight_experiments.illuminant.core.cross_validation import compare_rules
from everlight_experiments.illuminant.core.experiment import (
    IlluminantExperiment,
    estimate_arrays,
    record_errors,
)
from everlight_experiments.illuminant.core.image_methods import cross_validate_methods
from everlight_experiments.illuminant.core.method_inputs import moments_of
from everlight_experiments.illuminant.core.networks import NetworkTraining
from everlight_experiments.illuminant.core.report import publish
from everlight_experiments.illuminant.paper import METHOD_NOTES, QUASI_REAL_NOTES
from everlight_experiments.illuminant.photographs.corrections import (
    LARGE_NETWORK,
    corrections_figure,
)
from everlight_experiments.illuminant.photographs.dataset import (
    CURVES,
    DatasetOptions,
    compare_photographs,
    omission_notes,
)
from everlight_experiments.illuminant.published_tables import TABLE_2_NUS
from everlight_experiments.illuminant.two_camera.options import (
    BLOCK,
    BOTH_RULES,
    READERS,
    TwoCameraOptions,
)
from everlight_experiments.illuminant.two_camera.rendered import compare_rendered
from everlight_experiments.illuminant.two_camera.transforms import compare_transforms
from everlight_experiments.run_folder.folder import RunFolder
from everlight_experiments.run_folder.options import refuse_unread


def run_two_camera(options: TwoCameraOptions) -> Path:
    """Run a preset and return the report's path.

    Raises:
      DataError: an option is for other presets, or data cannot be read.
    """
    config = PRESETS[options.preset]
    variants = _variants(config)
    refuse_unread(options, READERS, variants, f"--preset is {options.preset}")
    folder = RunFolder("two-camera", "", options)
    return publish(folder, compare_two_cameras(folder, options, config))


def _variants(config: PairConfig) -> set[str]:
    """Return the words of `READERS` that hold for a preset."""
    is_rendered, has_blocks = config.data == "rendered", config.data == "transforms"
    return {
        "rendered presets" if is_rendered else "nus and s20 presets",
        *(["rendered presets except the demo"] if is_rendered and config.measured else []),
        *(["s20 presets"] if has_blocks else []),
    }


def compare_two_cameras(
    folder: RunFolder, options: TwoCameraOptions, config: PairConfig
) -> IlluminantExperiment:
    """Run a preset and save its errors; the result's report is still to be written."""
    if config.data == "transforms":
        options = replace(options, block=BLOCK if options.block is None else options.block)
    return COMPARISONS[config.data](folder, options, config)


def _compare_photographs(
    folder: RunFolder, options: TwoCameraOptions, config: PairConfig
) -> IlluminantExperiment:
    """Compare single-image methods on one camera's photographs, as `illuminant dataset` does."""
    preset, camera = ("small", MAIN) if config.measured else ("demo", EMBEDDED_CAMERAS[0])
    shared = {"seed": options.seed, "seeds": options.seeds}
    dataset = DatasetOptions(preset=preset, cameras=(camera,), **shared)
    experiment = compare_photographs(folder, dataset, config.training)
    title = f"Illuminant estimation from one image (table 2), preset {options.preset}"
    return replace(experiment, title=title)


def _compare_quasi_real(
    folder: RunFolder, options: TwoCameraOptions, config: PairConfig
) -> IlluminantExperiment:
    """Compare all methods on the release's quasi-real pairs."""
    charted, images = official_pairs(MAIN, SECOND, options.seed)
    single = cross_validate_methods(images)
    pairs = charted_camera_pairs(charted, moments_of(images), (MAIN, SECOND), images.note)
    training = NetworkTraining(config.training, options.training_seeds, folder.checkpoints)
    rules = compare_rules(pairs, chart_augmentations(charted), training, single, TABLE_2_NUS)
    comparisons = rules.comparisons
    folder.save_results(**record_errors(folder, comparisons), **estimate_arrays(comparisons))
    held_out = rules.comparisons["held-out"]
    side = f"averaged down to {THUMBNAIL_SIDE} pixels for single-image methods"
    return IlluminantExperiment(
        title=f"Two-camera illuminant estimation: quasi-real pairs (table 2), preset "
        f"{options.preset}",
        question="Does a second camera lower the angular error on NUS's scenes?",
        data=f"{images.note}; {side}",
        comparisons=rules.comparisons,
        illuminants={f"{MAIN} + {SECOND}": {MAIN: pairs.main, SECOND: pairs.second}},
        curves=(LARGE_NETWORK.name, *CURVES),
        notes=(*QUASI_REAL_NOTES, *METHOD_NOTES, *omission_notes({MAIN: images}, {MAIN: held_out})),
        figures=[corrections_figure(folder.path, images, held_out.estimates)],
        training=config.training,
        protocol=options.protocol_in_folds,
        selection_rule=BOTH_RULES,
        seeds=options.seeds_in_folds,
    )


COMPARISONS = {
    "rendered": compare_rendered,
    "photographs": _compare_photographs,
    "quasi-real": _compare_quasi_real,
    "transforms": compare_transforms,
}
"""Comparison by the data of a preset."""
