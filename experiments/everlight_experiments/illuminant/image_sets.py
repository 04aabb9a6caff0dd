"""Images with known lights: thumbnails, rendered in their place, or from releases."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from everlight.color.alignment import area_downsample
from everlight_data.color.constancy_sets import SATURATION, ConstancySet, thumbnail_set
from everlight_data.color.nus import (
    RELEASE_SOURCE,
    THUMBNAILS_SOURCE,
    OfficialNus,
    load_official,
    load_same_scene_pairs,
)
from everlight_data.color.quasi_real import FOLDS, QuasiReal, build_quasi_real
from everlight_data.color.radiometric import RadiometricSettings, draw_scenes, photograph
from everlight_data.color.spectra import EMBEDDED_CAMERAS, SpectralLibrary, embedded_library
from everlight_data.locations import locate
from everlight_experiments.common.progress import progress
from everlight_experiments.illuminant.radiometric_methods import thumbnails

MAIN, SECOND = "NikonD5200", "Canon1DsMkIII"

# Longest side of the official images where single-image estimators see them.
THUMBNAIL_SIDE = 384


class ImageSet(NamedTuple):
    """Images whose lights are known.

    Attributes:
      images: linear raw colours.
      masks: 0 where a pixel has no part.
      illuminants: the lights, any scale.
      folds: sets of equally many test images; the rest of the images teach.
      lights: by camera, to be shown together.
      note: which data these are, for reports.
      camera: that took the test images.
      taken_by: of each image, where several cameras took them; empty, all are by `camera`.
    """

    images: Float[np.ndarray, "n h w 3"]
    masks: Float[np.ndarray, "n h w"]
    illuminants: Float[np.ndarray, "n 3"]
    folds: Sequence[Int[np.ndarray, "_"]]
    lights: Mapping[str, Float[np.ndarray, "m 3"]]
    note: str
    camera: str
    taken_by: Sequence[str] = ()

    def cameras(self) -> Sequence[str]:
        """Which camera took each image."""
        return self.taken_by or [self.camera] * len(self.images)


def thumbnail_images(seed: int) -> ImageSet:
    """The D5200's thumbnails, and both cameras' lights in the pairs of one scene."""
    folder = locate("nus8_64x64", THUMBNAILS_SOURCE, "37 MB")
    cameras = {camera: thumbnail_set(folder / f"{camera}.npz")[camera] for camera in (MAIN, SECOND)}
    pairs = load_same_scene_pairs()
    main = cameras[MAIN]
    images, masks = shrink_images(main, main.names)
    lights = {
        camera: data.illuminants[[data.names.index(name) for name in names]]
        for (camera, data), names in zip(cameras.items(), (pairs.main, pairs.second), strict=True)
    }
    return ImageSet(
        images,
        masks,
        main.illuminants,
        draw_folds(len(images), seed),
        lights,
        f"NUS-8: {len(images)} linear thumbnails (64x64) of {MAIN}, {len(images) % FOLDS} of them "
        f"in no fold; masked are the chart and pixels from {SATURATION} of the image's maximum on "
        f"({(images.any(axis=-1) & (masks == 0)).mean():.1%})",
        MAIN,
    )


def rendered_images(seed: int) -> ImageSet:
    """Rendered patch thumbnails, for a rehearsal without data."""
    library, count = embedded_library(), 162
    rendered = render_thumbnails(library, EMBEDDED_CAMERAS, count, seed)
    images, lights = rendered[EMBEDDED_CAMERAS[0]]
    return ImageSet(
        images,
        np.ones(images.shape[:3], np.float32),
        lights,
        draw_folds(count, seed),
        {camera: own for camera, (_, own) in rendered.items()},
        f"NOT NUS: {count} thumbnails (32x48) rendered from the spectra of colour-science",
        EMBEDDED_CAMERAS[0],
    )


def render_thumbnails(
    library: SpectralLibrary, cameras: Sequence[str], count: int, seed: int
) -> dict[str, tuple[Float[np.ndarray, "n 32 48 3"], Float[np.ndarray, "n 3"]]]:
    """The radiometric set's scenes as patch thumbnails and their lights, by camera."""
    scenes = draw_scenes(library, RadiometricSettings(count, "random", seed))
    views = {camera: photograph(library, camera, scenes) for camera in cameras}
    return {
        camera: (np.asarray(thumbnails(view.colors)), view.illuminants)
        for camera, view in views.items()
    }


def draw_folds(count: int, seed: int) -> list[np.ndarray]:
    """Three disjoint sets of test images of equal size; up to two images are in none."""
    drawn = np.random.default_rng(seed).permutation(count)
    return np.split(drawn[: count // FOLDS * FOLDS], FOLDS)


def official_pairs(seed: int) -> tuple[QuasiReal, ImageSet]:
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
    images, masks = shrink_images(main, [name for name, _ in names])
    note = (
        f"NUS-8 release: {len(names)} quasi-real pairs of {MAIN} and {SECOND} (the paper's own "
        "list has 195); charts and saturation masked"
    )
    if dropped:
        note += f"; left out for folds of equal size: {', '.join(dropped)}"
    lights = {MAIN: quasi.illuminants_main, SECOND: quasi.illuminants_second}
    return quasi, ImageSet(images, masks, quasi.illuminants_main, quasi.folds, lights, note, MAIN)


def shrink_images(
    camera: ConstancySet | OfficialNus, names: Sequence[str], side: int = THUMBNAIL_SIDE
) -> tuple[Float[np.ndarray, "n h w 3"], Float[np.ndarray, "n h w"]]:
    """Block means, on a canvas that holds upright and wide ones; what they leave is masked.

    Images whose longest side is not above `side` stay as they are.
    """
    shrunk = []
    with progress("images", len(names), unit="image") as bar:
        for name in names:
            image, mask = camera.read_image(camera.names.index(name))
            factor = math.ceil(max(mask.shape) / side)
            shrunk.append((image, mask) if factor == 1 else _blocks(image, mask, factor))
            bar.update()
    canvas = np.max([mask.shape for _, mask in shrunk], axis=0)
    images = np.zeros((len(names), *canvas, 3), np.float32)
    masks = np.zeros((len(names), *canvas), np.float32)
    for row, (image, mask) in enumerate(shrunk):
        height, width = mask.shape
        images[row, :height, :width] = image
        masks[row, :height, :width] = mask
    return images, masks


def _blocks(image: np.ndarray, mask: np.ndarray, factor: int) -> tuple[Array, Array]:
    small = area_downsample(jnp.asarray(image), factor, jnp.asarray(mask))
    return jnp.where(small.mask[..., None], small.image, 0), small.mask
