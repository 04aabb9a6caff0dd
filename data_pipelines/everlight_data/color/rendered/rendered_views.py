"""The radiometric set's scenes as cameras record them: exact, or with noise and exposures."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from everlight.color.dual_exposure import dual_exposure_feature
from everlight.color.radiometry import (
    Sensor,
    patch_means,
    patch_thumbnail,
    take_exposures,
    take_photograph,
)
from everlight_data.color.photographs.camera_images import CameraImages
from everlight_data.color.rendered.radiometric import (
    RadiometricSettings,
    Scenes,
    draw_scenes,
    photograph,
)
from everlight_data.color.spectra.library import SpectralLibrary

PIECE = 1_200
"""Scenes rendered or fitted at once, so that each program is compiled for one number of scenes."""
BLOCK = 60
"""Scenes per step; it divides `PIECE`, so that no smaller batch is compiled."""

patch_thumbnails = jax.jit(jax.vmap(patch_thumbnail))


class RenderedView(NamedTuple):
    """One camera's view of all scenes; `read_noise` is None for exact responses."""

    exact: Float[Array, "n 24 3"]
    colors: Float[Array, "n 24 3"]
    illuminants: Float[Array, "n 3"]
    keys: PRNGKeyArray
    read_noise: Float[Array, "n"] | None

    def images(self, rows: slice) -> Float[Array, "k h w 3"]:
        """Return thumbnails of some scenes, whose patches have the means `colors`."""
        if self.read_noise is None:
            return patch_thumbnails(self.exact[rows])
        return _photographs(self.keys[rows], self.exact[rows], self.read_noise[rows], False)


def view_scenes(
    library: SpectralLibrary,
    camera: str,
    scenes: Scenes,
    seed: int,
    read_noise: Float[np.ndarray, "n"] | None = None,
) -> RenderedView:
    """Render every scene for one camera.

    Args:
      library: spectral library that contains the camera.
      camera: the camera's name.
      scenes: scenes from `draw_scenes`.
      seed: random seed of exposures and noise, which differ between cameras.
      read_noise: read noise of each scene as a share of white; None for exact responses at one
        exposure.
    """
    exact = photograph(library, camera, scenes)
    key = jax.random.fold_in(jax.random.key(seed), library.camera_names.index(camera))
    keys = jax.random.split(key, len(exact.colors))
    colors, illuminants = jnp.asarray(exact.colors), jnp.asarray(exact.illuminants)
    if read_noise is None:
        return RenderedView(colors, colors, illuminants, keys, None)
    noise = jnp.asarray(read_noise, jnp.float32)
    return RenderedView(colors, _photographs(keys, colors, noise, True), illuminants, keys, noise)


def exposure_features(view: RenderedView) -> Float[Array, "n 9"]:
    """Return the dual-exposure feature of every scene, row by row; NaN where it is undetermined.

    The short frame is the view's own photograph, the long one is three stops longer.

    Raises:
      ValueError: the view has exact responses, which do not clip.
    """
    if view.read_noise is None:
        raise ValueError("exact responses have no exposures; render the view with read noise")
    parts = view.keys, view.exact, view.read_noise
    return map_pieces(lambda rows: _expose_piece(*(part[rows] for part in parts)), len(view.exact))


@jax.jit
def _expose_piece(
    keys: PRNGKeyArray, exact: Float[Array, "n 24 3"], read_noise: Float[Array, "n"]
) -> Float[Array, "n 9"]:
    def one(scene: tuple) -> Float[Array, "9"]:
        key, colors, noise = scene
        fit = dual_exposure_feature(take_exposures(key, colors, Sensor(read_noise=noise)))
        return jnp.where(fit.valid, fit.transform, jnp.nan).reshape(9)

    return jax.lax.map(one, (keys, exact, read_noise), batch_size=BLOCK)


def render_views(
    library: SpectralLibrary,
    pairs: Sequence[tuple[str, str]],
    scenes: Scenes,
    seed: int,
    read_noise: Float[np.ndarray, "n"] | None = None,
) -> dict[str, RenderedView]:
    """Return the view of every camera of the pairs, each rendered once."""
    cameras = sorted({camera for pair in pairs for camera in pair})
    return {camera: view_scenes(library, camera, scenes, seed, read_noise) for camera in cameras}


def render_thumbnails(
    library: SpectralLibrary, cameras: Sequence[str], count: int, seed: int
) -> dict[str, CameraImages]:
    """Return the radiometric set's scenes as patch thumbnails of 32x48 pixels, by camera."""
    scenes = draw_scenes(library, RadiometricSettings(count, "random", seed))
    names, by_camera = tuple(f"{index:04}" for index in range(count)), {}
    for camera in cameras:
        view = photograph(library, camera, scenes)
        images = np.asarray(patch_thumbnails(view.colors))
        masks = np.ones(images.shape[:3], np.float32)
        by_camera[camera] = CameraImages(images, masks, view.illuminants, names)
    return by_camera


def map_pieces(compute: Callable[[slice], PyTree], count: int) -> PyTree:
    """Concatenate the results of a function that takes `PIECE` scenes at a time."""
    pieces = [compute(slice(start, start + PIECE)) for start in range(0, count, PIECE)]
    return jax.tree.map(lambda *parts: jnp.concatenate(parts), *pieces)


def _photographs(
    keys: PRNGKeyArray, colors: Float[Array, "n 24 3"], read_noise: Float[Array, "n"], means: bool
) -> Float[Array, "n ..."]:
    return map_pieces(
        lambda rows: _take_piece(keys[rows], colors[rows], read_noise[rows], means), len(colors)
    )


@partial(jax.jit, static_argnums=3)
def _take_piece(
    keys: PRNGKeyArray, colors: Float[Array, "n 24 3"], read_noise: Float[Array, "n"], means: bool
) -> Float[Array, "n ..."]:
    def one(scene: tuple) -> Array:
        key, exact, noise = scene
        image = take_photograph(key, exact, Sensor(read_noise=noise))
        return patch_means(image) if means else image

    return jax.lax.map(one, (keys, colors, read_noise), batch_size=BLOCK)
