"""Cross-validation of every single-image method on photographs of known illuminant."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np
from jaxtyping import Float

from everlight.color.learned.fourier_constancy import TUNED_HERE
from everlight.illuminant.illuminant_training import TrainingSettings
from everlight.trees import checksums_of
from everlight_data.color.pairs.camera_pairs import MOMENTS, CameraPairs
from everlight_data.color.pairs.pair_augmentations import IMAGE_AUGMENTATIONS
from everlight_data.color.photographs.camera_images import IlluminantImages
from everlight_data.progress import progress
from everlight_data.runs.checkpoints import Checkpoints
from everlight_experiments.illuminant.comparison import Comparison
from everlight_experiments.illuminant.config import MAIN
from everlight_experiments.illuminant.corrections import corrections_figure
from everlight_experiments.illuminant.cross_validation import cross_validate
from everlight_experiments.illuminant.methods import (
    Keep,
    cross_validate_methods,
    left_out,
    moments_of,
)
from everlight_experiments.illuminant.paper import METHOD_NOTES
from everlight_experiments.illuminant.published_tables import (
    CROSS_CAMERA,
    CROSS_CAMERA_PROTOCOL,
    CROSS_CAMERA_SETS,
    FFCC_THUMBNAILS,
    TABLE_2_NUS,
)
from everlight_experiments.illuminant.report import compared_sections
from everlight_experiments.illuminant.tables import error_table
from everlight_experiments.report.writer import Section, Summary
from everlight_experiments.run_folder.folder import RunFolder

Split = Literal["folds", "cross-camera"]

FIXED = (", none", ", re-illuminated")
"""Names of methods with one augmentation; reports show the one that each fold selects."""
CURVES = ("Net on moments, chosen in the fold", "FFCC", "APAP (PCA)", "GW", "SoG", "PCA")


def compare_cameras(
    folder: RunFolder,
    sets: Mapping[str, IlluminantImages],
    split: Split,
    seeds: Sequence[int],
    training: TrainingSettings,
    names: Sequence[str] | None = None,
) -> dict[str, Comparison]:
    """Compare all methods on every camera's images; finished cameras and methods are read back."""
    comparisons = {}
    for camera, data in progress("cameras", unit="camera", values=sets.items()):
        identity = asdict(training) | {
            "seeds": len(seeds),
            "seed": seeds[0],
            "data": checksums_of(data.images, data.masks, data.illuminants, *data.folds),
            "camera": data.camera,
            "taken_by": checksums_of(np.array(data.taken_by, dtype=np.str_)),
            "left_out": sorted(left_out(data)),
        }
        if data.captures is not None:
            identity["captures"] = checksums_of(data.captures)
        if data.calibrations:
            identity["matrices"] = checksums_of(*(m.matrices for m in data.calibrations.values()))
        keep = partial(folder.computed, fingerprint=identity)
        checkpoints = Checkpoints(folder.checkpoints / camera)
        compute = partial(compare_images, data, seeds, training, checkpoints, keep, names)
        estimates = keep(camera, compute=compute)
        truth = data.illuminants[np.stack(data.folds)]
        rows = published_rows(camera, split)
        caption = f"{data.note}."
        if split == "cross-camera" and rows:
            caption += f" {CROSS_CAMERA_PROTOCOL}"
        comparisons[camera] = Comparison(estimates, truth, camera, caption, published=rows)
    return comparisons


def compare_images(
    data: IlluminantImages,
    seeds: Sequence[int],
    training: TrainingSettings,
    checkpoints: Checkpoints,
    keep: Keep | None = None,
    names: Sequence[str] | None = None,
) -> dict[str, Float[np.ndarray, "runs folds k 3"]]:
    """Return the estimates of all methods, and of networks and regressions on colour moments."""
    inputs, cameras = {MOMENTS: moments_of(data)}, (data.camera, data.camera)
    truth, folds = data.illuminants, np.stack(data.folds)
    pairs = CameraPairs(inputs, truth, truth, folds, cameras, data.note)
    outcome = cross_validate(pairs, IMAGE_AUGMENTATIONS, "held-out", seeds, training, checkpoints)
    return cross_validate_methods(data, keep, names) | outcome.illuminants()


def published_rows(camera: str, split: Split) -> dict[str, tuple[float, ...]]:
    """Return published statistics of one camera's images; FFCC's in folds are of its authors."""
    if split == "cross-camera":
        return CROSS_CAMERA.get(CROSS_CAMERA_SETS.get(frozenset({camera}), ""), {})
    rows = dict(TABLE_2_NUS) if camera == MAIN else {}
    if camera in FFCC_THUMBNAILS:
        rows[TUNED_HERE] = (FFCC_THUMBNAILS[camera],)
    return rows


def photograph_sections(
    folder: Path,
    sets: Mapping[str, IlluminantImages],
    comparisons: Mapping[str, Comparison],
    split: Split,
    note: str,
    illuminants: Mapping[str, Float[np.ndarray, "n 3"]],
) -> tuple[Summary, list[Section]]:
    """Return the summary and body of a report on photographs."""
    shown = {}
    for camera, compared in comparisons.items():
        free = {n: e for n, e in compared.estimates.items() if not any(part in n for part in FIXED)}
        shown[camera] = compared._replace(estimates=free)
    first, *others = sets
    tables = list(map(error_table, shown.values()))
    together = shown[first]
    if others:
        together = pooled(shown, split)
        tables = [error_table(together), *tables]
    return compared_sections(
        folder,
        "Which single-image method has the lowest mean angular error?",
        note,
        {split: together._replace(title=split)},
        CURVES,
        {" + ".join(illuminants): illuminants},
        (*METHOD_NOTES, *absent(sets, shown)),
        tables,
        [corrections_figure(folder, sets[first], shown[first].estimates)],
    )


def absent(
    sets: Mapping[str, IlluminantImages], comparisons: Mapping[str, Comparison]
) -> list[str]:
    """Return a sentence for each method without a row, with the reason and the cameras."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for camera, data in sets.items():
        for name, reason in left_out(data).items():
            if name not in comparisons[camera].estimates:
                reasons.setdefault((name, reason), []).append(camera)
    return [
        f"{name} has no row for {', '.join(cameras)}: {reason}."
        for (name, reason), cameras in reasons.items()
    ]


def pooled(comparisons: Mapping[str, Comparison], split: Split) -> Comparison:
    """Return all cameras' images in one fold, with the methods that every camera has.

    Published numbers across cameras stand next to all cameras of a data set.
    """
    cameras = list(comparisons.values())

    def joined(parts: Sequence[np.ndarray]) -> np.ndarray:
        flat = [part.reshape(*part.shape[:-3], 1, -1, 3) for part in parts]
        return np.concatenate(flat, axis=-2)

    estimates = {
        name: joined([camera.estimates[name] for camera in cameras])
        for name in cameras[0].estimates
        if all(name in camera.estimates for camera in cameras)
    }
    caption, published = f"All {len(cameras)} cameras' images together.", {}
    name = CROSS_CAMERA_SETS.get(frozenset(comparisons), "")
    if split == "cross-camera" and name:
        published = CROSS_CAMERA[name]
        caption += f" {CROSS_CAMERA_PROTOCOL}"
    truth = joined([camera.truth for camera in cameras])
    return Comparison(estimates, truth, caption=caption, published=published)
