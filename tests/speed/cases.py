"""A speed case: contestants that compute the same, timed in turns, and the machine's floor."""

import importlib.util
import os
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

OURS = "everlight"


class Machine(NamedTuple):
    """What the machine can do at best."""

    bandwidth: float
    """Bytes read and written per second by copies, one on each core."""
    flops: float
    """Floating-point operations per second of a float32 matrix product."""


class Case(NamedTuple):
    """Contestants for one task."""

    name: str
    contestants: Mapping[str, Callable[[], object]]
    """Functions by name, `OURS` first; each does the same work in one call."""
    floor_s: float | None = None
    """Seconds that the machine needs at least: memory traffic or arithmetic."""
    rounds: int = 5


class Timed(NamedTuple):
    """Median seconds of a case, and medians of the rounds' ratios to ours."""

    name: str
    seconds: dict[str, float]
    ratios: dict[str, float]
    floor_s: float | None


def measure(case: Case) -> Timed:
    """Time all contestants in turns, so that other load meets all of them alike.

    Each is called once before to compile and warm up.
    """
    for run in case.contestants.values():
        jax.block_until_ready(run())
    seconds: dict[str, list[float]] = {name: [] for name in case.contestants}
    for _ in range(case.rounds):
        for name, run in case.contestants.items():
            begin = time.perf_counter()
            jax.block_until_ready(run())
            seconds[name].append(time.perf_counter() - begin)
    ratios = {
        name: float(np.median(np.divide(values, seconds[OURS])))
        for name, values in seconds.items()
        if name != OURS
    }
    medians = {name: float(np.median(values)) for name, values in seconds.items()}
    return Timed(case.name, medians, ratios, case.floor_s)


def this_machine(megabytes: int = 256, size: int = 2048) -> Machine:
    """Measure copies of this many megabytes and a product of square matrices of this size."""
    workers = os.cpu_count() or 1
    source = np.ones((workers, megabytes * 250_000 // workers), np.float32)
    target = np.zeros_like(source)
    matrix = jnp.ones((size, size), jnp.float32)
    product = jax.jit(lambda m: jnp.matmul(m, m, precision=jax.lax.Precision.HIGHEST))
    with ThreadPoolExecutor(workers) as pool:
        copying = Case("copy", {OURS: lambda: list(pool.map(np.copyto, target, source))}, rounds=7)
        copied = measure(copying).seconds[OURS]
    multiplied = measure(Case("product", {OURS: lambda: product(matrix)}, rounds=7)).seconds[OURS]
    return Machine(2 * source.nbytes / copied, 2 * size**3 / multiplied)


def has_torch() -> bool:
    """Return whether PyTorch can be imported."""
    return importlib.util.find_spec("torch") is not None


def table(timed: list[Timed]) -> str:
    """Return a Markdown table with a row per contestant."""
    rows = []
    for each in timed:
        floor = "–" if each.floor_s is None else f"{each.floor_s / each.seconds[OURS]:.0%}"
        for name, seconds in each.seconds.items():
            ratio = f"{each.ratios[name]:.2f}" if name in each.ratios else "1"
            shown = floor if name == OURS else ""
            rows.append(f"| {each.name} | {name} | {1e3 * seconds:,.3g} | {ratio} | {shown} |")
    head = "| case | implementation | ms | time / everlight's | floor / everlight's |"
    return "\n".join([head, "|---|---|---|---|---|", *rows])
