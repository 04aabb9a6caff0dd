"""Cross-validation of every single-image method on photographs of known illuminant."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float
from tqdm import tqdm

from everlight.color.moments import reilluminate_moments
from everlight.color.reillumination import von_kries
from everlight.color.rendering import encode_srgb, full_scale_balance, render
from everlight.models.illuminant_training import TrainingSettings
from everlight.trees import checksums_of
from everlight_data.checkpoints import Checkpoints
from everlight_data.color.camera_pairs import MOMENTS, CameraPairs, Samples
from everlight_data.color.constancy_sets import ConstancySet
from everlight_data.color.image_sets import CameraImages, ImageSet, shrink_images
from everlight_data.color.nus import CAMERAS, THUMBNAILS_SOURCE
from everlight_data.color.pair_augmentations import repeat_samples
from everlight_data.color.published_tables import CROSS_SENSOR_NUS, FFCC_THUMBNAILS
from everlight_data.color.rendered_views import render_thumbnails
from everlight_data.color.spectra import SpectralLibrary
from everlight_data.locations import locate
from everlight_experiments.illuminant.comparison import Comparison, angular_errors
from everlight_experiments.illuminant.cross_validation import cross_validate
from everlight_experiments.illuminant.methods import (
    Illuminants,
    Keep,
    compute,
    cross_validate_methods,
    left_out,
    moments_of,
)
from everlight_experiments.illuminant.paper import METHOD_NOTES, table_2_rows
from everlight_experiments.illuminant.report import compared_sections, corrections_figure
from everlight_experiments.illuminant.tables import error_table
from everlight_experiments.report.writer import Column, FirstScreen, Section, Table
from everlight_experiments.run_folder.folder import RunFolder
from everlight_experiments.run_folder.progress import progress

Split = Literal["folds", "cross-camera"]

COPIES = 99
"""Maximum number of re-illuminations per training image, the paper's number."""
SAMPLES = 19_500
"""Maximum number of samples of a training with re-illuminations, as in the paper's NUS set."""
CAMERA_SECONDS, SECONDS = 260.0, 0.1
"""Processor time per camera and per image of 64x64 pixels at preset small.

Measured: 284 s for 198 images, 438 s for 1,707.
"""
RENDERED = 162
"""Number of rendered scenes, each by every camera."""
FIXED = (", none", ", re-illuminated")
"""Names of methods with one augmentation; reports show the one that each fold selects."""
CURVES = (
    "Net on moments, chosen in the fold",
    "FFCC",
    "APAP (PCA)",
    "Linear regression on moments, chosen in the fold",
    "GW",
    "SoG",
    "PCA",
    "WP",
    "Gamut Pixel",
)


def rendered_cameras(
    library: SpectralLibrary, cameras: Sequence[str], seed: int
) -> tuple[dict[str, CameraImages], str]:
    """Return rendered thumbnails by camera, and a note on them."""
    names = tuple(f"{index:04}" for index in range(RENDERED))
    rendered = {
        camera: CameraImages(images, np.ones(images.shape[:3], np.float32), truth, names)
        for camera, (images, truth) in render_thumbnails(library, cameras, RENDERED, seed).items()
    }
    return rendered, f"NOT photographs: {RENDERED} rendered thumbnails (32x48); {library.note}"


def nus_thumbnails(cameras: Sequence[str] = CAMERAS) -> list[Path]:
    """Return the NUS-8 thumbnail files of some cameras below EVERLIGHT_DATA."""
    folder = locate("nus8_64x64", THUMBNAILS_SOURCE, "37 MB")
    return [folder / f"{camera}.npz" for camera in cameras]


def read_images(camera: ConstancySet, side: int) -> CameraImages:
    """Read a camera's images, averaged down to a longest side."""
    with progress("images", len(camera.names), unit="image") as bar:
        # The set's own order is that in which published folds number the images.
        images, masks = shrink_images(camera, _counted(camera.names, bar), side)
    return CameraImages(images, masks, camera.illuminants, tuple(camera.names))


def _counted(values: Iterable[Any], bar: tqdm) -> Iterator[Any]:
    for value in values:
        yield value
        bar.update()


def expected_duration(sets: Mapping[str, ImageSet]) -> str:
    """Return a rough duration from the training images and pixels of each camera's methods."""
    images = sum(len(data.images) for data in sets.values())
    pixels = sum(data.masks.size for data in sets.values())
    minutes = round((CAMERA_SECONDS * len(sets) + SECONDS * pixels / 64**2) / 60)
    return (
        f"{len(sets)} cameras, {images:,} training images: about {minutes:,} minutes of "
        "processor time, most of it for DMCC, SIIE, C5 and FFCC at the end of each camera; "
        "--methods chooses among the learned ones"
    )


def compare_cameras(
    folder: RunFolder,
    sets: Mapping[str, ImageSet],
    split: Split,
    seeds: Sequence[int],
    training: TrainingSettings,
    names: Sequence[str] | None = None,
) -> dict[str, Comparison]:
    """Compare all methods on every camera's images; finished cameras and methods are read back."""
    print(expected_duration(sets), flush=True)
    chosen = asdict(training) | {"seeds": len(seeds), "seed": seeds[0]}
    comparisons = {}
    bar = progress("cameras", len(sets), unit="camera")
    for camera, data in _counted(sets.items(), bar):
        content = (data.images, data.masks, data.illuminants, *data.folds)
        facts = chosen | {
            "data": checksums_of(*content),
            "camera": data.camera,
            "taken_by": checksums_of(np.array(data.taken_by, dtype=np.str_)),
            "left_out": sorted(left_out(data)),
        }
        estimates = folder.read_unit(camera, facts)
        if estimates is None:
            checkpoints = Checkpoints(folder.checkpoints / camera)
            keep = _keeping(folder, camera, facts)
            estimates = compare_images(data, seeds, training, checkpoints, keep, names)
            folder.save_unit(camera, facts, **estimates)
        comparisons[camera] = Comparison(
            estimates,
            data.illuminants[np.stack(data.folds)],
            camera,
            f"{data.note}. {_published(camera, split)}",
            "seeds",
            table_2_rows() if (camera, split) == ("NikonD5200", "folds") else {},
        )
    bar.close()
    return comparisons


def compare_images(
    data: ImageSet,
    seeds: Sequence[int],
    training: TrainingSettings,
    checkpoints: Checkpoints,
    keep: Keep = compute,
    names: Sequence[str] | None = None,
) -> dict[str, Float[np.ndarray, "runs folds k 3"]]:
    """Return the estimates of all methods, and of networks and regressions on colour moments."""
    pairs = CameraPairs(
        {MOMENTS: moments_of(data)},
        data.illuminants,
        data.illuminants,
        np.stack(data.folds),
        (data.camera, data.camera),
        data.note,
    )
    augmentations = {"none": _repeated, "re-illuminated": relit_by_von_kries}
    outcome = cross_validate(pairs, augmentations, "held-out", seeds, training, checkpoints)
    return cross_validate_methods(data, keep, names) | outcome.illuminants()


def _keeping(folder: RunFolder, camera: str, facts: dict) -> Keep:
    """Return a function that stores each method's estimates as a part of the run."""

    def keep(name: str, estimates: Illuminants) -> Illuminants:
        unit = f"{camera}-{name}"
        found = folder.read_unit(unit, facts)
        if found is None:
            found = {"estimates": estimates()}
            folder.save_unit(unit, facts, **found)
        return found["estimates"]

    return keep


def copies_of(train: np.ndarray) -> int:
    """Return the number of re-illuminations per training image."""
    return min(COPIES, SAMPLES // len(train), len(train) - 1)


def _repeated(data: CameraPairs, train: np.ndarray, _: Array) -> Samples:
    return repeat_samples(data, train, 1 + copies_of(train))


def relit_by_von_kries(data: CameraPairs, train: np.ndarray, key: Array) -> Samples:
    """Return each image's moments under its own and other training illuminants."""
    count = copies_of(train)
    own = np.arange(len(train))[:, None]
    others = jax.vmap(lambda k: jax.random.permutation(k, len(train) - 1)[:count])
    shift = 1 + np.asarray(others(jax.random.split(key, len(train))))
    target = np.concatenate([own, (own + shift) % len(train)], axis=1)
    relights = np.asarray(von_kries(jnp.asarray(data.main[train])))[own, target]
    relights = relights.reshape(-1, 3, 3)
    source = np.repeat(train, target.shape[1])
    moments = jnp.asarray(data.inputs[MOMENTS][source])
    relit = {MOMENTS: jax.vmap(reilluminate_moments)(moments, relights)}
    return Samples(relit, data.targets(train)[target.ravel()])


def photograph_sections(
    folder: Path,
    sets: Mapping[str, ImageSet],
    comparisons: Mapping[str, Comparison],
    split: Split,
    note: str,
    illuminants: Mapping[str, Float[np.ndarray, "n 3"]],
) -> tuple[FirstScreen, list[Section]]:
    """Return the summary and body of a report on photographs."""
    shown = {
        camera: compared._replace(
            estimates={
                name: each
                for name, each in compared.estimates.items()
                if not any(part in name for part in FIXED)
            }
        )
        for camera, compared in comparisons.items()
    }
    together = pooled(list(shown.values()))
    tables = []
    if len(shown) > 1:
        caption, published = (
            f"All {len(shown)} cameras' images together.",
            cross_sensor(sets, split),
        )
        if published:
            caption += (
                " Published are the cross-sensor numbers of full photographs (Kim et al. 2025, "
                "table 1), not of this paper."
            )
        whole = together._replace(caption=caption, published=published)
        tables = [error_table(whole), _camera_table(shown)]
    together = together._replace(title=split)
    first = next(iter(sets))
    return compared_sections(
        folder,
        "Which single-image method has the lowest mean angular error?",
        note,
        {split: together} if len(shown) > 1 else {split: shown[first]._replace(title=split)},
        CURVES,
        {" + ".join(illuminants): illuminants},
        (*METHOD_NOTES, *absent(sets, shown)),
        [*tables, *(error_table(each) for each in shown.values())],
        [corrections_figure(folder, correction_columns(sets[first], shown[first].estimates))],
    )


def cross_sensor(cameras: Iterable[str], split: Split) -> dict[str, tuple[float, ...]]:
    """Return published numbers of all of NUS-8 across cameras, if these are the same data."""
    if split != "cross-camera" or set(cameras) != set(CAMERAS):
        return {}
    return {f"{name}, published": row for name, row in CROSS_SENSOR_NUS.items()}


def absent(sets: Mapping[str, ImageSet], comparisons: Mapping[str, Comparison]) -> list[str]:
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


def pooled(comparisons: Sequence[Comparison]) -> Comparison:
    """Return all images in one fold, with the methods that every camera has."""
    common = [
        name
        for name in comparisons[0].estimates
        if all(name in each.estimates for each in comparisons)
    ]

    def flat(illuminants: np.ndarray) -> np.ndarray:
        return illuminants.reshape(*illuminants.shape[:-3], 1, -1, 3)

    estimates = {
        name: np.concatenate([flat(each.estimates[name]) for each in comparisons], axis=-2)
        for name in common
    }
    return Comparison(
        estimates, np.concatenate([flat(each.truth) for each in comparisons], axis=-2)
    )


def _camera_table(comparisons: Mapping[str, Comparison]) -> Table:
    means = {
        camera: {name: np.nanmean(values) for name, values in each.errors().items()}
        for camera, each in comparisons.items()
    }
    rows = []
    for name in dict.fromkeys(name for by_method in means.values() for name in by_method):
        cells = [by_method.get(name, np.nan) for by_method in means.values()]
        cells.append(np.mean(cells))
        rows.append([name, *("–" if np.isnan(cell) else f"{cell:.2f}" for cell in cells)])
    columns = [Column("Method"), *map(Column, comparisons), Column("Mean of cameras")]
    return Table("Mean angular error by camera.", columns, rows)


def _published(camera: str, split: Split) -> str:
    if camera not in FFCC_THUMBNAILS or split != "folds":
        return ""
    return (
        f"FFCC's authors state {FFCC_THUMBNAILS[camera]:.2f} for their settings of this camera on "
        "thumbnails of 32x48 in folds of whole scenes."
    )


CORRECTED = {
    "GW": "GW",
    "SoG": "SoG",
    "PCA": "PCA",
    "Gamut Pixel": "Gamut Pixel",
    "FFCC": "FFCC",
    "Net, 1460 parameters, re-illuminated, ensemble": "Net, 1460",
}
"""Methods of the corrected examples, and their titles."""
SCENES = {"easy": 0.1, "median": 0.5, "hard": 0.9}
"""Rows of the corrected examples: quantiles of Gray World's errors."""


def correction_columns(
    data: ImageSet, estimates: Mapping[str, Float[np.ndarray, "runs folds k 3"]]
) -> dict[str, list[tuple[Float[np.ndarray, "h w 3"], str]]]:
    """Return pictures corrected by several methods, and their captions, by column."""
    tested = np.concatenate(list(data.folds))
    truth, images = data.illuminants[tested], data.images[tested]
    found = {name: estimates[name][0].reshape(-1, 3) for name in CORRECTED if name in estimates}
    errors = {name: angular_errors(each, truth) for name, each in found.items()}
    order = np.argsort(errors["GW"])
    rows = [order[round(share * (len(order) - 1))] for share in SCENES.values()]
    exposed = [_exposed(images[row], truth[row]) for row in rows]
    columns = {"input": [(np.asarray(encode_srgb(jnp.clip(e, 0, 1))), "gamma") for e in exposed]}
    for name, own in (found | {"truth": truth}).items():
        columns[CORRECTED.get(name, name)] = [
            (
                np.asarray(render(image, jnp.asarray(own[row]))),
                f"{errors[name][row]:.1f}°" if name in errors else "0°",
            )
            for image, row in zip(exposed, rows, strict=True)
        ]
    return columns


def _exposed(image: Float[np.ndarray, "h w 3"], truth: Float[np.ndarray, "3"]) -> Array:
    """Scale an image so that 3% of its correctly balanced pixels are white."""
    brightest = jnp.max(full_scale_balance(jnp.asarray(image), jnp.asarray(truth)), axis=-1)
    return jnp.asarray(image) / jnp.quantile(brightest, 0.97)
