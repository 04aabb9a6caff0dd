"""Independent runs together on one device, two, and more."""

import time
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from everlight.continual import Protocol, Runs, drive_runs, runs_mesh
from everlight_experiments.bench.task_sequences import SequenceSizes, build_strategy, made_up
from everlight_experiments.bench.timing import median_ratio, seconds_in_turns


class ManyRunsSizes(NamedTuple):
    """What runs; the shapes are those of `cl_metrics icifar --preset small`, with fewer tasks."""

    runs: int = 8
    devices: tuple[int, ...] = (1, 2, 4, 8)
    strategy: str = "EWC"
    sequence: SequenceSizes = SequenceSizes(
        tasks=2,
        classes=20,
        train_per_class=200,
        test_per_class=50,
        side=16,
        channels=(16, 32),
        hidden=64,
        rounds=2,
    )


class ManyRunsSpeed(NamedTuple):
    """Median seconds of all runs, compilation apart."""

    together_s: dict[int, float]
    """By the number of devices."""
    ratio: dict[int, float]
    """Of the fewest devices' seconds to these."""
    first_s: dict[int, float]
    """The first call, with compilation."""
    same_bits: bool
    """Whether losses are those of one device, whatever their number."""


def many_runs_speed(sizes: ManyRunsSizes) -> ManyRunsSpeed:
    """Times them in turns; needs as many devices as the greatest number of them."""
    stored, sequence = made_up(sizes.sequence)
    build, protocol = (
        build_strategy(sizes.strategy, sizes.sequence),
        Protocol(epochs=sizes.sequence.epochs),
    )
    keys = jax.random.split(jax.random.key(0), sizes.runs)

    def together(devices: int) -> np.ndarray:
        mesh, losses = runs_mesh(jax.devices()[:devices]), []
        for first in range(0, sizes.runs, devices):
            some = keys[first : first + devices]
            repeated = jax.tree.map(partial(_repeated, len(some)), sequence)
            runs = Runs(build, protocol, stored, repeated, some)
            *_, last = drive_runs(runs, chunk=1, mesh=mesh)
            losses.append(np.asarray(last.result.losses))
        return np.concatenate(losses)

    losses, first_s = {}, {}
    for devices in sizes.devices:
        begin = time.perf_counter()
        losses[devices] = together(devices)
        first_s[devices] = time.perf_counter() - begin
    contestants = {str(devices): partial(together, devices) for devices in sizes.devices}
    seconds = seconds_in_turns(contestants, sizes.sequence.rounds)
    fewest = sizes.devices[0]
    one = losses[fewest]
    return ManyRunsSpeed(
        {n: float(np.median(seconds[str(n)])) for n in sizes.devices},
        {n: median_ratio(seconds[str(fewest)], seconds[str(n)]) for n in sizes.devices},
        first_s,
        all(np.array_equal(one, each) for each in losses.values()),
    )


def _repeated(times: int, leaf: jax.Array) -> jax.Array:
    return jnp.stack([leaf] * times)
