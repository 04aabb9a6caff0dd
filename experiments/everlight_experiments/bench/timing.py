"""Contestants timed in turns, so that whatever else the machine does meets all of them alike."""

import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np

Contestants = dict[str, Callable[[], object]]


def seconds_in_turns(contestants: Contestants, rounds: int) -> dict[str, list[float]]:
    """Wall seconds of every contestant in every round, after one call of each to warm up."""
    for run in contestants.values():
        jax.block_until_ready(run())
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, run in contestants.items():
            begin = time.perf_counter()
            jax.block_until_ready(run())
            seconds[name].append(time.perf_counter() - begin)
    return seconds


def calls_per_second_in_turns(
    contestants: Contestants, rounds: int, window: float
) -> dict[str, list[float]]:
    """Calls per second of every contestant in every round, each called for `window` seconds."""
    for run in contestants.values():
        jax.block_until_ready(run())
    rates: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, run in contestants.items():
            begin, calls, elapsed = time.perf_counter(), 0, 0.0
            while elapsed < window:
                jax.block_until_ready(run())
                calls, elapsed = calls + 1, time.perf_counter() - begin
            rates[name].append(calls / elapsed)
    return rates


def median_ratio(numerators: list[float], denominators: list[float]) -> float:
    """The median of the rounds' own ratios."""
    return float(np.median(np.divide(numerators, denominators)))


def copy_bandwidth(megabytes: int) -> float:
    """Bytes read and written per second by copies of float32, one on each core, at their best."""
    workers = os.cpu_count() or 1
    source = np.ones((workers, megabytes * 250_000 // workers), np.float32)
    target = np.zeros_like(source)
    with ThreadPoolExecutor(workers) as pool:

        def copy() -> None:
            list(pool.map(np.copyto, target, source))

        best = min(seconds_in_turns({"copy": copy}, rounds=7)["copy"])
    return 2 * source.nbytes / best


def matmul_flops(size: int) -> float:
    """Floating-point operations per second of a square float32 matrix product, at its best."""
    matrix = jnp.ones((size, size), jnp.float32)
    product = jax.jit(lambda m: jnp.matmul(m, m, precision=jax.lax.Precision.HIGHEST))
    return 2 * size**3 / min(seconds_in_turns({"product": lambda: product(matrix)}, 7)["product"])
