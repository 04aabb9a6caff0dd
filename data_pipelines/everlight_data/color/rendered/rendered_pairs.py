"""Rendered scenes seen by pairs of cameras: transforms, moments and true illuminants."""

import itertools
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from everlight.color.chromaticity import illuminant_to_chromaticity
from everlight.color.moments import color_moments, edge_moments
from everlight.color.transform_prior import (
    ProbableTransform,
    TransformPrior,
    fit_probable_transform,
    learn_transform_prior,
)
from everlight.color.transforms import fit_color_transform, scale_free
from everlight.illuminant.camera_pairs import (
    Samples,
    finite_rows,
    problem_of,
)
from everlight.illuminant.illuminant_training import Problem
from everlight.illuminant.pair_inputs import View
from everlight_data.color.rendered.ambient_sensor import read_ambient
from everlight_data.color.rendered.radiometric import (
    IlluminantSplit,
    RadiometricSettings,
    Scenes,
    draw_color_counts,
    draw_scenes,
    show_colors,
)
from everlight_data.color.rendered.rendered_views import (
    BLOCK,
    RenderedView,
    exposure_features,
    map_pieces,
    render_views,
)
from everlight_data.color.spectra.library import SpectralLibrary
from everlight_data.errors import DataError

Condition = Literal["exact", "noisy"]
"""Condition in which cameras photograph scenes: noise-free at one exposure, or as cameras do."""
InputName = Literal[
    "T",
    "T with exposure",
    "T of sum-normalised",
    "moments",
    "moments and edge moments",
    "T and moments",
    "exposures",
    "exposures and moments",
    "ambient sensor",
    "ambient sensor and moments",
]
"""Name of a network's input."""

MISFIT = 0.05
"""Misfit of noisy scenes' transforms (`TransformPrior`).

Of 0.015, 0.05 and 0.15 it is the best on validation camera pairs and scenes.
"""
TRAINING_NOISE = (0.002, 0.05)
"""Range of the noisy training scenes' read noise, log-uniform, as a share of white."""
MIN_COLORS = 3
"""Minimum number of colours of calibration scenes; `estimate` refuses fewer."""
ILLUMINANT_SPLITS: dict[IlluminantSplit, str] = {
    "random": "seen illuminants",
    "illuminant": "unseen illuminants",
}
"""Kinds of test scenes, and whether their illuminants occur in training."""


class SceneKind(NamedTuple):
    """Condition of scenes, and whether test scenes share illuminants with training."""

    condition: Condition
    split: IlluminantSplit


_scene_moments = jax.jit(jax.vmap(color_moments))


@jax.jit
def _edge_moments(images: Float[Array, "n h w 3"]) -> Float[Array, "n 9"]:
    return jax.lax.map(lambda image: edge_moments(image, None), images, batch_size=BLOCK)


def photograph_inputs(view: RenderedView) -> dict[InputName, Float[Array, "n f"]]:
    """Return the inputs from one camera's photographs alone: colour moments, edge moments too."""
    moments = _scene_moments(view.colors)
    edges = map_pieces(lambda rows: _edge_moments(view.images(rows)), len(view.colors))
    both = jnp.concatenate([moments, edges], axis=1)
    return {"moments": moments, "moments and edge moments": both}


class RenderedPair(NamedTuple):
    """One ordered camera pair's views and inputs."""

    main: RenderedView
    """View of the camera whose illuminant is estimated."""
    second: RenderedView
    """View of the other camera."""
    scenes: Scenes
    """Illuminants and surfaces."""
    inputs: Mapping[InputName, Float[Array, "n f"]]
    """Inputs of networks by name; NaN where a scene has no transform."""
    prior: TransformPrior | None
    """Prior of noisy scenes' transforms; None for exact ones."""
    distances: Float[Array, "n"] | None
    """Distance of each noisy scene's transform from the prior."""

    def targets(self, rows: slice, view: View = "main") -> Float[Array, "k 2"]:
        """Return one camera's true chromaticities."""
        return illuminant_to_chromaticity(getattr(self, view).illuminants[rows])

    def problem(self, input_name: InputName, view: View = "main") -> Problem:
        """Return training and validation samples; scenes without a transform are left out."""
        parts = self.scenes.train, self.scenes.valid
        return problem_of(
            input_name, *(self.finite_samples(input_name, rows, view) for rows in parts)
        )

    def finite_samples(self, input_name: InputName, rows: slice, view: View = "main") -> Samples:
        """Return an input and targets; samples without the input are replaced, so sizes agree.

        Raises:
          DataError: no scene has the input.
        """
        inputs = np.asarray(self.inputs[input_name][rows])
        chosen = finite_rows(inputs)
        if not len(chosen):
            raise DataError(f"no scene determines the input {input_name!r}; render more scenes")
        return Samples({input_name: inputs[chosen]}, np.asarray(self.targets(rows, view))[chosen])

    def seen_by_second(self) -> "RenderedPair":
        """Return the pair with the second camera as main one and inputs of its photographs."""
        inputs = photograph_inputs(self.second)
        return RenderedPair(self.second, self.main, self.scenes, inputs, None, None)

    def find_determined(self, rows: slice) -> Bool[np.ndarray, "k"]:
        """Return which noisy scenes have enough colours to determine more than the prior.

        Raises:
          DataError: the scenes are exact, so they have no distances from a prior.
        """
        if self.distances is None:
            raise DataError("exact scenes have no prior; give a pair of `noisy_inputs`")
        colors = np.array([len(set(row)) for row in self.scenes.surfaces[rows].tolist()])
        return np.isfinite(np.asarray(self.distances[rows])) & (colors >= MIN_COLORS)


def draw_camera_pairs(cameras: Sequence[str], count: int, seed: int) -> list[tuple[str, str]]:
    """Draw `count` different pairs of cameras, the main camera first.

    Raises:
      DataError: fewer than one pair, or more than there are.
    """
    pairs = list(itertools.combinations(cameras, 2))
    if not 1 <= count <= len(pairs):
        raise DataError(
            f"camera_pairs={count}; {len(cameras)} cameras make 1 to {len(pairs)} pairs"
        )
    drawn = np.random.default_rng(seed).choice(len(pairs), count, replace=False)
    return [pairs[index] for index in drawn]


def render_conditions(
    library: SpectralLibrary, pairs: Sequence[tuple[str, str]], count: int, seed: int
) -> dict[SceneKind, list[RenderedPair]]:
    """Render the scenes for every pair under both conditions and splits.

    Exact responses have one exposure and 24 colours. Noisy scenes have 1 to 24 colours, exposures
    of each camera, and read noise in `TRAINING_NOISE`.

    Args:
      library: spectra and cameras.
      pairs: names of main and second camera.
      count: number of scenes.
      seed: random seed of scenes, colours, exposures and noise.

    Raises:
      DataError: there are too few scenes, surfaces or illuminants, or a camera is unknown.
    """
    rendered: dict[SceneKind, list[RenderedPair]] = {}
    for split in ILLUMINANT_SPLITS:
        scenes = draw_scenes(library, RadiometricSettings(count, split, seed))
        views = render_views(library, pairs, scenes, seed)
        exact = [pair_inputs(views[main], views[second], scenes) for main, second in pairs]
        generator = np.random.default_rng((seed, 2))
        fewer = show_colors(scenes, draw_color_counts(generator, count))
        low, high = TRAINING_NOISE
        noise = low * (high / low) ** generator.random(count)
        views = render_views(library, pairs, fewer, seed, noise)
        rendered[SceneKind("exact", split)] = exact
        ambient = read_ambient(library, fewer, seed)
        rendered[SceneKind("noisy", split)] = [
            noisy_inputs(views[main], views[second], fewer, learn_pair_prior(inputs), ambient)
            for (main, second), inputs in zip(pairs, exact, strict=True)
        ]
    return rendered


def pair_inputs(
    main: RenderedView, second: RenderedView, scenes: Scenes, prior: TransformPrior | None = None
) -> RenderedPair:
    """Return the inputs of networks from two views.

    Args:
      main: view of the camera whose illuminant is estimated.
      second: view of the other camera.
      scenes: illuminants and surfaces of both.
      prior: prior of the transforms of noisy scenes, which are the most probable ones; without it
        transforms are least-squares fits, as in the paper.
    """
    inputs, distances = photograph_inputs(main), None
    inputs["T of sum-normalised"] = _least_squares(main, second, "sum")
    if prior is None:
        inputs["T"] = _least_squares(main, second, "scale")
        inputs["T with exposure"] = _least_squares(main, second, None)
    else:
        fit = map_pieces(
            lambda rows: _probable(main.colors[rows], second.colors[rows], prior), len(main.colors)
        )
        inputs["T"], distances = _flat_or_nan(fit), fit.distance
    inputs["T and moments"] = jnp.concatenate([inputs["T"], inputs["moments"]], axis=1)
    return RenderedPair(main, second, scenes, inputs, prior, distances)


def noisy_inputs(
    main: RenderedView,
    second: RenderedView,
    scenes: Scenes,
    prior: TransformPrior,
    ambient: Float[np.ndarray, "n 8"],
) -> RenderedPair:
    """Return the inputs of noisy scenes, also those of one camera and another second sensor.

    "exposures" is the dual-exposure feature of the main camera; arguments as of `pair_inputs`.
    """
    pair = pair_inputs(main, second, scenes, prior)
    single = {"ambient sensor": jnp.asarray(ambient), "exposures": exposure_features(main)}
    with_moments = {
        f"{name} and moments": jnp.concatenate([features, pair.inputs["moments"]], axis=1)
        for name, features in single.items()
    }
    return pair._replace(inputs={**pair.inputs, **single, **with_moments})


def learn_pair_prior(exact: RenderedPair) -> TransformPrior:
    """Return the distribution of the training scenes' exact transforms."""
    train = exact.scenes.train
    return _learn_prior(exact.main.exact[train], exact.second.exact[train], MISFIT)


_learn_prior = jax.jit(learn_transform_prior)


@jax.jit
def _probable(main: Array, second: Array, prior: TransformPrior) -> Any:
    def fit_scene(views: tuple[Array, Array]) -> ProbableTransform:
        fit = fit_probable_transform(*views, prior)
        return fit._replace(transform=scale_free(fit.transform))

    return jax.lax.map(fit_scene, (main, second), batch_size=BLOCK)


def _least_squares(
    main: RenderedView, second: RenderedView, normalize: str | None
) -> Float[Array, "n 9"]:
    return _flat_or_nan(_fit_all(main.colors, second.colors, normalize))


def _flat_or_nan(fit: Any) -> Float[Array, "n 9"]:
    """Return fitted transforms row by row, NaN where a scene has none."""
    return jnp.where(fit.valid[:, None, None], fit.transform, jnp.nan).reshape(-1, 9)


@partial(jax.jit, static_argnums=2)
def _fit_all(
    main: Float[Array, "n k 3"], second: Float[Array, "n k 3"], normalize: str | None
) -> Any:
    """Fit the least-squares transform of every scene (`TransformFit`, with a leading axis)."""
    return jax.vmap(partial(fit_color_transform, normalize=normalize))(main, second)
