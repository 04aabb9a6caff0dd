"""The images of the NUS experiment: thumbnails, rendered in their place, or from the release."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from data_pipelines.color.nus import (
    RELEASE_SOURCE,
    OfficialNus,
    load_official,
    load_same_scene_pairs,
    load_thumbnails,
)
from data_pipelines.color.quasi_real import FOLDS, QuasiReal, build_quasi_real
from data_pipelines.color.radiometric import RadiometricSettings, draw_scenes, photograph
from data_pipelines.color.spectra import EMBEDDED_CAMERAS, embedded_library
from data_pipelines.locations import locate
from everlight.color.alignment import area_downsample
from experiments.common.progress import progress
from experiments.two_camera.radiometric_methods import thumbnails

MAIN, SECOND = "NikonD5200", "Canon1DsMkIII"

# Longest side of the official images where single-image estimators see them.
THUMBNAIL_SIDE = 384

# Share of a thumbnail's own maximum from which a pixel counts as saturated. The sensor's level is
# lost; with no mask at all White Patch and Shades of Gray err two to three degrees more, while
# from 0.9 to 0.98 no mean of the seven estimators without training moves by more than 0.15.
SATURATION = 0.95


class NusImages(NamedTuple):
    """One camera's images; `folds` are sets of test images, `lights` those of both cameras."""

    images: Float[np.ndarray, "n h w 3"]
    masks: Float[np.ndarray, "n h w"]
    illuminants: Float[np.ndarray, "n 3"]
    folds: Sequence[Int[np.ndarray, "_"]]
    lights: Mapping[str, Float[np.ndarray, "m 3"]]
    note: str


def thumbnail_images(seed: int) -> NusImages:
    """The D5200's thumbnails, and both cameras' lights in the pairs of one scene."""
    main, second, pairs = load_thumbnails(MAIN), load_thumbnails(SECOND), load_same_scene_pairs()
    saturated = (main.images >= SATURATION).any(axis=-1)
    lights = {
        camera: data.illuminants[[data.names.index(name) for name in names]]
        for camera, data, names in ((MAIN, main, pairs.main), (SECOND, second, pairs.second))
    }
    return NusImages(
        main.images,
        np.where(saturated, 0, main.mask),
        main.illuminants,
        draw_folds(len(main.images), seed),
        lights,
        f"NUS-8: {len(main.images)} linear thumbnails (64x64) of {MAIN}, "
        f"{len(main.images) % FOLDS} of them in no fold; masked are the chart and pixels from "
        f"{SATURATION} of the image's maximum on ({saturated.mean():.1%})",
    )


def rendered_images(seed: int) -> NusImages:
    """Rendered patch thumbnails, for a rehearsal without data."""
    library, count = embedded_library(), 162
    scenes = draw_scenes(library, RadiometricSettings(count, "random", seed))
    views = {camera: photograph(library, camera, scenes) for camera in EMBEDDED_CAMERAS}
    main = views[EMBEDDED_CAMERAS[0]]
    images = np.asarray(thumbnails(main.colors))
    return NusImages(
        images,
        np.ones(images.shape[:3], np.float32),
        main.illuminants,
        draw_folds(count, seed),
        {camera: view.illuminants for camera, view in views.items()},
        f"NOT NUS: {count} thumbnails (32x48) rendered from the spectra of colour-science",
    )


def draw_folds(count: int, seed: int) -> list[np.ndarray]:
    """Three disjoint sets of test images of equal size; up to two images are in none."""
    drawn = np.random.default_rng(seed).permutation(count)
    return np.split(drawn[: count // FOLDS * FOLDS], FOLDS)


def official_pairs(seed: int) -> tuple[QuasiReal, NusImages]:
    """The quasi-real pairs, and their main images averaged down to `THUMBNAIL_SIDE` pixels.

    Folds are of equal size: of a list that does not divide, the pairs that are least alike go.
    """
    folder = locate("nus8", RELEASE_SOURCE, "two cameras, 200 and 259 images of 16 bits")
    main, second = (load_official(folder, camera) for camera in (MAIN, SECOND))
    listed = load_same_scene_pairs()
    alike = np.argsort(-listed.similarity, kind="stable")
    kept = np.sort(alike[: len(alike) // FOLDS * FOLDS])
    names = [(listed.main[i], listed.second[i]) for i in kept]
    dropped = [listed.main[i] for i in np.setdiff1d(alike, kept)]
    quasi = build_quasi_real(main, second, names, seed)
    images, masks = _shrunk_images(main, [name for name, _ in names])
    note = (
        f"NUS-8 release: {len(names)} quasi-real pairs of {MAIN} and {SECOND} (the paper's own "
        "list has 195); charts and saturation masked"
    )
    if dropped:
        note += f"; left out for folds of equal size: {', '.join(dropped)}"
    lights = {MAIN: quasi.illuminants_main, SECOND: quasi.illuminants_second}
    return quasi, NusImages(images, masks, quasi.illuminants_main, quasi.folds, lights, note)


def _shrunk_images(
    camera: OfficialNus, names: Sequence[str]
) -> tuple[Float[np.ndarray, "n h w 3"], Float[np.ndarray, "n h w"]]:
    """Block means, on a canvas that holds upright and wide ones; what they leave is masked."""
    shrunk = []
    with progress("images", len(names), unit="image") as bar:
        for name in names:
            image, mask = camera.read_image(camera.names.index(name))
            factor = math.ceil(max(mask.shape) / THUMBNAIL_SIDE)
            shrunk.append(area_downsample(jnp.asarray(image), factor, jnp.asarray(mask)))
            bar.update()
    canvas = np.max([one.mask.shape for one in shrunk], axis=0)
    images = np.zeros((len(names), *canvas, 3), np.float32)
    masks = np.zeros((len(names), *canvas), np.float32)
    for row, one in enumerate(shrunk):
        height, width = one.mask.shape
        images[row, :height, :width] = np.where(one.mask[..., None], one.image, 0)
        masks[row, :height, :width] = one.mask
    return images, masks
