"""Both cameras' photographs, paired, registered and measured; bad pairs are named and left out."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int
from tqdm import tqdm

from everlight.color.moments import edge_moments
from everlight.color.registration import RegisteredBlocks, registered_blocks
from everlight.illuminant.pair_estimate import SINGULAR, transform_obstacle
from everlight.illuminant.pair_inputs import VIEWS, View
from everlight.illuminant.registered_pairs import RegisteredPairs
from everlight_data.color.pairs.camera_folders import camera_set
from everlight_data.color.pairs.pair_lists import match_images, read_groups
from everlight_data.color.photographs.camera_images import (
    CameraImages,
    IlluminantImages,
    check_edges,
    read_camera_images,
)
from everlight_data.color.photographs.image_groups import group_folds, read_assigned_folds
from everlight_data.color.photographs.thumbnail_checks import check_thumbnails
from everlight_data.color.rendered.rendered_views import render_thumbnails
from everlight_data.color.spectra.library import embedded_library
from everlight_data.errors import DataError
from everlight_data.progress import progress
from everlight_experiments.illuminant.config import MIN_IMAGES, RENDERED
from everlight_experiments.illuminant.core.method_inputs import features_of, moments_of
from everlight_experiments.illuminant.pairs.options import PairsOptions

MIN_CORRELATION = 0.75
"""Minimum correlation of both images' logarithmic brightness after registration.

The lowest of 144 scenes by a Canon 5DSR and a Nikon D810 is 0.77, one in twenty is below 0.89. Of
72 pairs of different scenes 8% exceed the minimum, so that it does not replace correct names.
"""
MIN_BLOCKS = 9
"""Minimum number of shared blocks: T has nine entries."""


class PairSource(NamedTuple):
    """Pairs of two cameras' images as they are given.

    Attributes:
      images: both cameras' images, one row per pair.
      cameras: names of the cameras.
      groups: group of each pair.
      assigned: fold of each pair, or None.
      note: description of the data.
    """

    images: Mapping[View, CameraImages]
    cameras: tuple[str, str]
    groups: Int[np.ndarray, "n"]
    assigned: Int[np.ndarray, "n"] | None
    note: str


class PairSet(NamedTuple):
    """Usable pairs with their measurements and folds.

    Attributes:
      names: name of each pair's main image.
      pairs: inputs of estimators.
      images: both cameras' images in the folds.
      groups: group of each pair, from 0.
      folds: test rows of folds of whole groups.
      correlations: correlation of each pair after registration.
      overlaps: share of each main image that the second one shows.
      left_out: reasons why pairs were left out, with their names.
    """

    names: tuple[str, ...]
    pairs: RegisteredPairs
    images: Mapping[View, IlluminantImages]
    groups: Int[np.ndarray, "n"]
    folds: Int[np.ndarray, "folds k"]
    correlations: Float[np.ndarray, "n"]
    overlaps: Float[np.ndarray, "n"]
    left_out: tuple[str, ...]


def read_pairs(options: PairsOptions) -> PairSource:
    """Return the pairs that the options name, after `PairsOptions.check_sources`.

    Raises:
      DataError: images have no partner, or a file is damaged.
    """
    if options.preset == "demo":
        return _rendered_pairs(options)
    paths = {"main": options.main, "second": options.second}
    sets = {view: camera_set(path) for view, path in paths.items()}
    matched = match_images(sets["main"].names, sets["second"].names, options.match)
    count = len(matched)
    if count < MIN_IMAGES:
        raise DataError(
            f"{count} pairs of images; at least {MIN_IMAGES} are needed to train and to test"
        )
    groups = read_groups(options.groups, count, options.block)
    assigned = None if options.folds is None else read_assigned_folds(options.folds, count)
    images = {}
    for place, (view, photographs) in enumerate(sets.items()):
        images[view] = read_camera_images(photographs, options.side, matched[:, place].tolist())
        check_edges(str(paths[view]), images[view])
        check_thumbnails(photographs.file, paths[view].stem, images[view])
    note = f"{count} pairs: {paths['main']} and {paths['second']}"
    return PairSource(images, _distinct(paths), groups, assigned, note)


def _distinct(paths: Mapping[str, Path]) -> tuple[str, str]:
    main, second = (path.resolve().stem for path in paths.values())
    return (main, second) if main != second else (f"{main} (main)", f"{second} (second)")


def _rendered_pairs(options: PairsOptions) -> PairSource:
    library = embedded_library()
    main, second = library.camera_names[:2]
    rendered = render_thumbnails(library, (main, second), RENDERED, options.seed)
    images = dict(zip(VIEWS, rendered.values(), strict=True))
    groups = read_groups(options.groups, RENDERED, options.block)
    assigned = None if options.folds is None else read_assigned_folds(options.folds, RENDERED)
    note = f"NOT photographs: {RENDERED} rendered pairs; {library.note}"
    return PairSource(images, (main, second), groups, assigned, note)


def measure_pairs(source: PairSource, seed: int) -> PairSet:
    """Register every pair and measure its transform and moments.

    Raises:
      DataError: too few pairs can be registered, or their groups make no folds.
    """
    moments = {view: _eighteen_moments(images) for view, images in source.images.items()}
    measured, left_out = {}, []
    names = source.images["main"].names
    for row, name in enumerate(progress("registration", unit="pair", values=names)):
        blocks = _registered(source.images, row)
        reason = _obstacle(blocks, [values[row] for values in moments.values()])
        if reason:
            left_out.append(f"{name} with {source.images['second'].names[row]}: {reason}")
            tqdm.write(f"LEFT OUT: {left_out[-1]}", file=sys.stderr)
        else:
            measured[row] = blocks
    if len(measured) < MIN_IMAGES:
        raise DataError(
            f"{len(measured)} of {len(names)} pairs are usable, and at least {MIN_IMAGES} are "
            f"needed; the first that is not: {left_out[0]}"
        )
    rows = np.array(list(measured))
    assigned = None if source.assigned is None else source.assigned[rows]
    groups = np.unique(source.groups[rows], return_inverse=True)[1]
    folds = group_folds(groups, assigned, seed, [names[row] for row in rows])
    qualities = [blocks.registration for blocks in measured.values()]
    return PairSet(
        names=tuple(names[row] for row in rows),
        pairs=_registered_pairs(source, rows, list(measured.values()), moments),
        images=_in_folds(source, rows, folds),
        groups=groups,
        folds=folds,
        correlations=np.array([quality.correlation for quality in qualities]),
        overlaps=np.array([quality.overlap for quality in qualities]),
        left_out=tuple(left_out),
    )


_blocks = jax.jit(registered_blocks)


def _registered(images: Mapping[View, CameraImages], row: int) -> RegisteredBlocks:
    parts = [
        jnp.asarray(part[row])
        for view in VIEWS
        for part in (images[view].images, images[view].masks)
    ]
    return jax.tree.map(np.asarray, _blocks(*parts))


def _eighteen_moments(images: CameraImages) -> Float[np.ndarray, "n 18"]:
    edges = np.asarray(features_of(edge_moments, images))
    return np.concatenate([moments_of(images), edges], axis=1)


def _obstacle(blocks: RegisteredBlocks, moments: list[Float[np.ndarray, "18"]]) -> str:
    """Return why a pair cannot be used, or ""."""
    correlation, shared = float(blocks.registration.correlation), int(blocks.mask.sum())
    if not correlation >= MIN_CORRELATION:
        return (
            f"the images' brightness correlates by {correlation:.2f} after registration, less than "
            f"{MIN_CORRELATION}; they show different scenes, or little of one"
        )
    if shared < MIN_BLOCKS:
        return f"the images share {shared} blocks that are not masked, fewer than {MIN_BLOCKS}"
    if not all(np.isfinite(values).all() for values in moments):
        return "an image has no unmasked pixels with edges"
    return transform_obstacle(blocks.main[blocks.mask], blocks.second[blocks.mask], SINGULAR)


def _registered_pairs(
    source: PairSource,
    rows: Int[np.ndarray, "n"],
    measured: list[RegisteredBlocks],
    moments: Mapping[View, Float[np.ndarray, "m 18"]],
) -> RegisteredPairs:
    colors = {view: [getattr(blocks, view)[blocks.mask] for blocks in measured] for view in VIEWS}
    scaled = {view: [color / color.mean() for color in colors[view]] for view in VIEWS}
    transforms = [
        np.linalg.lstsq(np.float64(main), np.float64(second), rcond=None)[0]
        for main, second in zip(scaled["main"], scaled["second"], strict=True)
    ]
    return RegisteredPairs(
        transforms=np.float32(transforms),
        means={view: np.stack([color.mean(axis=0) for color in scaled[view]]) for view in VIEWS},
        moments={view: moments[view][rows] for view in VIEWS},
        illuminants={view: source.images[view].illuminants[rows] for view in VIEWS},
    )


def _in_folds(
    source: PairSource, rows: Int[np.ndarray, "n"], folds: Int[np.ndarray, "folds k"]
) -> dict[View, IlluminantImages]:
    return {
        view: IlluminantImages(
            images=source.images[view].images[rows],
            masks=source.images[view].masks[rows],
            illuminants=source.images[view].illuminants[rows],
            folds=list(folds),
            note=source.note,
            camera=camera,
            taken_by=[camera] * len(rows),
            names=[source.images[view].names[row] for row in rows],
        )
        for view, camera in zip(VIEWS, source.cameras, strict=True)
    }
