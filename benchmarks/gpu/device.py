"""The device, versions, and the rates of matrix products and copies."""

import importlib.metadata
import json
from collections.abc import Iterator

import jax
import jax.numpy as jnp

from benchmarks.gpu.cases import Setting
from benchmarks.speed.timing import best_seconds

PACKAGES = ("everlight", "jax", "jaxlib", "flax", "optax", "numpy", "torch")
TIMES = 10
"""Products or copies per timing."""


def versions() -> dict[str, str]:
    """Return the versions of the packages that are installed, by name."""
    installed = {}
    for name in PACKAGES:
        try:
            installed[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return installed


def peaks(setting: Setting) -> Iterator[dict]:
    """Yield TFLOP/s of matrix products and GB/s of copies, by what is multiplied or copied."""
    size, copied = (64, 1_000) if setting.small else (8192, 250_000_000)
    rates: dict[str, object] = {"device": jax.devices()[0].device_kind, **versions()}
    for name, dtype, precision in (
        ("bfloat16", jnp.bfloat16, None),
        ("float32, default", jnp.float32, None),
        ("float32, highest", jnp.float32, "highest"),
    ):
        matrix = jax.random.normal(jax.random.key(0), (size, size), dtype)
        seconds = _seconds(
            lambda m, precision=precision: jnp.matmul(m, m, precision=precision), matrix
        )
        rates[f"TFLOP/s, {name}"] = 2 * size**3 / seconds / 1e12
        yield rates
    numbers = jnp.ones(copied, jnp.float32)
    rates["GB/s, read and written"] = 2 * numbers.nbytes / _seconds(jnp.negative, numbers) / 1e9
    yield rates


def _seconds(function, array: jax.Array) -> float:
    program = jax.jit(function)
    return best_seconds(lambda: [program(array) for _ in range(TIMES)]) / TIMES


if __name__ == "__main__":
    # This describes the device, without a measurement.
    print(json.dumps({"device": jax.devices()[0].device_kind, **versions()}))
