"""One timing loop: contestants take turns, so that other work on the machine slows all alike."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

HAS_TORCH = find_spec("torch") is not None
HAS_AVALANCHE = find_spec("avalanche") is not None


class Case(NamedTuple):
    """Several ways to do the same work; the first contestant is everlight."""

    name: str
    contestants: Mapping[str, Callable[[], object]]
    floor: float | None = None
    """Seconds that the work takes at least on this machine (`Machine.floor`)."""
    rounds: int = 5
    warm: bool = True
    """True if programs are compiled before the first round; otherwise every round compiles."""


class Timed(NamedTuple):
    """Measured case; values are medians over rounds."""

    name: str
    seconds: dict[str, float]
    ratios: dict[str, float]
    """Median of each contestant's time relative to the first one's in the same round."""
    floor: float | None
    load: tuple[float, float]
    """Load average of the machine before and after."""


class Machine(NamedTuple):
    """Speed of the machine at its best."""

    bandwidth: float
    """Bytes per second that all cores read and write."""
    flops: float
    """Float32 operations per second of a matrix product."""

    def floor(self, read_and_written: float, operations: float = 0) -> float:
        """Return the least seconds for moving this many bytes and doing these operations."""
        return max(read_and_written / self.bandwidth, operations / self.flops)


def measure(case: Case) -> Timed:
    """Time every contestant in turn, for a warm case after one call of each."""
    before = os.getloadavg()[0]
    for run in case.contestants.values() if case.warm else ():
        jax.block_until_ready(run())
    rounds = []
    for _ in range(case.rounds):
        if not case.warm:
            jax.clear_caches()
        rounds.append([_seconds(run) for run in case.contestants.values()])
    seconds = np.median(rounds, axis=0)
    ratios = np.median(np.asarray(rounds) / np.asarray(rounds)[:, :1], axis=0)
    return Timed(
        case.name,
        dict(zip(case.contestants, seconds.tolist(), strict=True)),
        dict(zip(case.contestants, ratios.tolist(), strict=True)),
        case.floor,
        (before, os.getloadavg()[0]),
    )


def measure_machine(megabytes: int = 256, size: int = 2048) -> Machine:
    """Measure copies of float32 on all cores at once, and a square matrix product."""
    workers = os.cpu_count() or 1
    source = np.ones((workers, megabytes * 250_000 // workers), np.float32)
    target, matrix = np.zeros_like(source), jnp.ones((size, size), jnp.float32)
    product = jax.jit(lambda m: jnp.matmul(m, m, precision=jax.lax.Precision.HIGHEST))

    with ThreadPoolExecutor(workers) as pool:
        copied = best_seconds(lambda: list(pool.map(np.copyto, target, source)))
    return Machine(2 * source.nbytes / copied, 2 * size**3 / best_seconds(lambda: product(matrix)))


def best_seconds(run: Callable[[], object]) -> float:
    """Return the least seconds of seven calls; the first compiles."""
    return min(_seconds(run) for _ in range(7))


def table(timed: Sequence[Timed]) -> str:
    """Return a Markdown table with a row per contestant."""
    header = "case | contestant | median time | relative to everlight | floor | load"
    rows = [header, " | ".join(["---"] * (header.count("|") + 1))]
    for case in timed:
        floor = "–" if case.floor is None else duration(case.floor)
        load = f"{case.load[0]:.1f} to {case.load[1]:.1f}"
        for name, seconds in case.seconds.items():
            cells = (case.name, name, duration(seconds), f"{case.ratios[name]:.2f}", floor, load)
            rows.append(" | ".join(cells))
    return "\n".join(f"| {row} |" for row in rows)


def duration(seconds: float) -> str:
    """Return seconds with three digits, below one second in milliseconds."""
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"


def _seconds(run: Callable[[], object]) -> float:
    begin = time.perf_counter()
    jax.block_until_ready(run())
    return time.perf_counter() - begin
