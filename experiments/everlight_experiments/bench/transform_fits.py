"""Colour transforms by least squares: everlight's vmapped fit against a loop of NumPy's lstsq."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from everlight.color.transforms import fit_color_transform
from everlight_experiments.bench.timing import median_ratio, seconds_in_turns

# Products with the pivot (6 + 5 + 4 columns), and columns freed of earlier pivots (5, then 5 + 4).
FLOPS_PER_PIXEL = 2 * (15 + 14)


class FitSpeed(NamedTuple):
    """Median seconds for all fits, NumPy's over ours, and what the machine could do at best."""

    fits: int
    pixels: int
    everlight_s: float
    numpy_float32_s: float
    numpy_float64_s: float
    ratio_float32: float
    ratio_float64: float
    memory_floor_s: float
    arithmetic_floor_s: float


class FitError(NamedTuple):
    """Median relative error of T; infinite where a method fails on half of the images or more."""

    condition: float
    everlight: float
    householder: float
    normal_equations: float
    numpy_float32: float


@jax.jit
@jax.vmap
def _fit(source: Float[Array, "n 3"], target: Float[Array, "n 3"]) -> Float[Array, "3 3"]:
    return fit_color_transform(source, target).transform


@jax.jit
@jax.vmap
def _normal_equations(
    source: Float[Array, "n 3"], target: Float[Array, "n 3"]
) -> Float[Array, "3 3"]:
    gram = jnp.matmul(source.T, source, precision=jax.lax.Precision.HIGHEST)
    product = jnp.matmul(source.T, target, precision=jax.lax.Precision.HIGHEST)
    return jax.scipy.linalg.cho_solve(jax.scipy.linalg.cho_factor(gram), product)


@jax.jit
@jax.vmap
def _householder(source: Float[Array, "n 3"], target: Float[Array, "n 3"]) -> Float[Array, "3 3"]:
    triangle = jnp.linalg.qr(jnp.concatenate([source, target], axis=1), mode="r")
    return jax.scipy.linalg.solve_triangular(triangle[:3, :3], triangle[:3, 3:])


def _numpy_loop(sources: np.ndarray, targets: np.ndarray) -> np.ndarray:
    pairs = zip(sources, targets, strict=True)
    return np.stack([np.linalg.lstsq(source, target, rcond=None)[0] for source, target in pairs])


def _targets(rng: np.random.Generator, sources: np.ndarray, noise: float) -> np.ndarray:
    change = np.eye(3) + 0.2 * rng.uniform(size=(len(sources), 3, 3))
    return np.float32(sources @ change + noise * rng.normal(size=sources.shape))


def fit_speed(fits: int, pixels: int, rounds: int, bandwidth: float, flops: float) -> FitSpeed:
    """Times `fits` fits of `pixels` pixels; data already on the device, in float32."""
    rng = np.random.default_rng(0)
    source = rng.uniform(0, 1, (fits, pixels, 3)).astype(np.float32)
    target = _targets(rng, source, noise=0.01)
    doubles = np.float64(source), np.float64(target)
    on_device = jnp.asarray(source), jnp.asarray(target)
    seconds = seconds_in_turns(
        {
            "everlight": lambda: _fit(*on_device),
            "numpy float32": lambda: _numpy_loop(source, target),
            "numpy float64": lambda: _numpy_loop(*doubles),
        },
        rounds,
    )
    ours, single, double = seconds.values()
    return FitSpeed(
        fits,
        pixels,
        *(float(np.median(s)) for s in (ours, single, double)),
        median_ratio(single, ours),
        median_ratio(double, ours),
        memory_floor_s=(source.nbytes + target.nbytes + fits * 9 * 4) / bandwidth,
        arithmetic_floor_s=fits * pixels * FLOPS_PER_PIXEL / flops,
    )


def fit_error(condition: float, images: int, pixels: int) -> FitError:
    """Errors against float64 on the same float32 pixels, of the given condition number."""
    rng = np.random.default_rng(1)
    left = np.linalg.qr(rng.normal(size=(images, pixels, 3)))[0]
    right = np.linalg.qr(rng.normal(size=(images, 3, 3)))[0]
    singular = 0.3 * np.sqrt(pixels) * np.geomspace(1, 1 / condition, 3)
    source = np.float32(left * singular @ right)
    # Noise would make T itself large in the weakest direction, and its relative error small.
    target = _targets(rng, source, noise=0)
    truth = _numpy_loop(np.float64(source), np.float64(target))

    def median_error(transforms: np.ndarray | Array) -> float:
        difference = np.linalg.norm(np.float64(transforms) - truth, axis=(1, 2))
        errors = difference / np.linalg.norm(truth, axis=(1, 2))
        return float(np.median(np.where(np.isfinite(errors), errors, np.inf)))

    methods = (_fit, _householder, _normal_equations, _numpy_loop)
    return FitError(condition, *(median_error(method(source, target)) for method in methods))
