"""The two-camera paper's quasi-real set (section 4.2), from the NUS 8-camera release.

Two cameras' photographs of one scene are not aligned. The chart, which both show, therefore gives
the colour transform T_M between them, and T_M applied to the main image gives the second one. In
the thumbnails the charts are masked: this set needs the release's full images. It is tested on
small files in the release's format.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from everlight.color.alignment import MaskedImage, area_downsample
from everlight.color.transforms import (
    Normalization,
    apply_color_transform,
    fit_color_transform,
    normalize_sum,
)
from everlight.illuminant.charted_pairs import ChartedPairs, PairedView
from everlight_data.color.dmcc_thumbnails import load_same_scene_pairs
from everlight_data.color.nus8 import DATA_SETS, OfficialNus, load_official
from everlight_data.color.photographs.camera_images import IlluminantImages, shrink_photographs
from everlight_data.color.photographs.published_folds import FOLDS
from everlight_data.errors import DataError
from everlight_data.names import repeated_names


def build_quasi_real(
    main: OfficialNus,
    second: OfficialNus,
    pairs: Sequence[tuple[str, str]],
    seed: int,
    normalize: Normalization = None,
) -> ChartedPairs:
    """Build the quasi-real pairs, with the colour transform T from each main to its second image.

    T is fitted to the image shrunk six times, without blocks that touch the chart or saturation.
    The second image is a linear function of the main one. So without normalization T equals T_M up
    to rounding, whatever the scene, and carries the ratio of the two exposures. With
    `normalize="sum"` it depends on the scene's content.

    Args:
      main: camera whose illuminant is to be estimated; the paper's is NikonD5200.
      second: the other camera; the paper's is Canon1DsMkIII.
      pairs: names of the two cameras' images of one scene, each in at most one pair.
      seed: random seed of the folds.
      normalize: normalization as for `fit_color_transform`.

    Raises:
      MissingDataError: an image's files do not exist.
      DataError: a name is unknown or repeated, there are too few pairs, or a file is damaged. Or
        the colours of a chart or image do not determine a transform.
    """
    indices_main = _indices(main, [pair[0] for pair in pairs])
    indices_second = _indices(second, [pair[1] for pair in pairs])
    if len(pairs) < FOLDS:
        raise DataError(f"{len(pairs)} pairs do not suffice for {FOLDS} folds; give more pairs.")
    fitted, charts_main, charts_second, usable = [], [], [], []
    for i, j in zip(indices_main, indices_second, strict=True):
        chart_main, chart_second = main.read_chart(i), second.read_chart(j)
        both = chart_main.usable & chart_second.usable
        photograph = main.photographs.read_image(i)
        fit = _fit_pair(
            jnp.asarray(chart_main.colors, jnp.float32),
            jnp.asarray(chart_second.colors, jnp.float32),
            jnp.asarray(both, jnp.float32),
            area_downsample(jnp.asarray(photograph.image), mask=jnp.asarray(photograph.mask)),
            normalize,
            f"{main.photographs.names[i]} with {second.photographs.names[j]}",
        )
        fitted.append(fit)
        charts_main.append(chart_main.colors)
        charts_second.append(chart_second.colors)
        usable.append(both)
    order = np.random.default_rng(seed).permutation(len(pairs))
    transforms, means_main, means_second = map(np.stack, zip(*fitted, strict=True))
    return ChartedPairs(
        names=tuple(pairs),
        transforms=transforms,
        main=PairedView(
            illuminants=main.photographs.illuminants[indices_main],
            charts=np.stack(charts_main),
            means=means_main,
        ),
        second=PairedView(
            illuminants=second.photographs.illuminants[indices_second],
            charts=np.stack(charts_second),
            means=means_second,
        ),
        usable=np.stack(usable),
        folds=tuple(np.sort(order[fold::FOLDS]) for fold in range(FOLDS)),
    )


class OfficialPairs(NamedTuple):
    """Quasi-real pairs of two cameras, and the main camera's images."""

    charted: ChartedPairs
    images: IlluminantImages


def official_pairs(main: str, second: str, seed: int) -> OfficialPairs:
    """Return the quasi-real pairs of two cameras, and the main images at `THUMBNAIL_SIDE` pixels.

    Folds are of equal size: if the list does not divide, the least similar pairs are left out.
    """
    folder = DATA_SETS["nus8"].locate()
    both = [load_official(folder, camera) for camera in (main, second)]
    listed = load_same_scene_pairs()
    alike = np.argsort(-listed.similarity, kind="stable")
    used = np.sort(alike[: len(alike) // FOLDS * FOLDS])
    names = [(listed.main[i], listed.second[i]) for i in used]
    dropped = [listed.main[i] for i in np.setdiff1d(alike, used)]
    charted = build_quasi_real(*both, names, seed)
    photographs = both[0].photographs
    rows = [photographs.names.index(name) for name, _ in names]
    images, masks = shrink_photographs(photographs, rows)
    note = (
        f"NUS-8 release: {len(names)} quasi-real pairs of {main} and {second} (the paper's own "
        "list has 195); charts and saturation masked"
    )
    if dropped:
        note += f"; left out for folds of equal size: {', '.join(dropped)}"
    main_images = IlluminantImages(
        images=images,
        masks=masks,
        illuminants=charted.main.illuminants,
        folds=charted.folds,
        note=note,
        camera=main,
        taken_by=[main] * len(images),
        names=[name for name, _ in names],
    )
    return OfficialPairs(charted=charted, images=main_images)


def _indices(camera: OfficialNus, names: Sequence[str]) -> list[int]:
    positions = {name: i for i, name in enumerate(camera.photographs.names)}
    unknown = [name for name in names if name not in positions]
    if unknown:
        raise DataError(f"pairs: {camera.folder} has no image {', '.join(unknown)}.")
    if twice := repeated_names(names):
        raise DataError(f"pairs: {', '.join(twice)} is in more than one pair.")
    return [positions[name] for name in names]


class _PairFit(NamedTuple):
    """T between two images, and their mean colours in its scale."""

    transform: Float[np.ndarray, "3 3"]
    main: Float[np.ndarray, "3"]
    second: Float[np.ndarray, "3"]


def _fit_pair(
    chart_main: Float[Array, "24 3"],
    chart_second: Float[Array, "24 3"],
    usable: Float[Array, "24"],
    thumbnail: MaskedImage,
    normalize: Normalization,
    pair: str,
) -> _PairFit:
    """Return T between the main pixels and those that the charts' transform makes of them."""
    colors = thumbnail.image.reshape(-1, 3)
    between_charts = fit_color_transform(chart_main, chart_second, usable)
    synthetic = apply_color_transform(colors, between_charts.transform)
    weights = thumbnail.mask.ravel().astype(jnp.float32)
    fit = fit_color_transform(colors, synthetic, weights, normalize)
    for valid, what in ((between_charts.valid, "unsaturated patches"), (fit.valid, "pixels")):
        if not valid:
            raise DataError(
                f"{pair}: too few {what} of different colours for a transform; "
                "remove this pair from the list."
            )
    views = (
        (normalize_sum(view) for view in (colors, synthetic))
        if normalize == "sum"
        else (
            colors,
            synthetic,
        )
    )
    share = weights[:, None] / jnp.sum(weights)
    return _PairFit(
        np.asarray(fit.transform), *(np.asarray(jnp.sum(view * share, axis=0)) for view in views)
    )
