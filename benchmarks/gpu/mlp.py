"""Whole sequences on noise of Fashion-MNIST's size: of one to many seeds, and PyTorch's loop."""

import time
from collections.abc import Callable, Iterator
from functools import partial

import jax

from benchmarks.gpu.cases import Setting, Unavailable
from benchmarks.speed import replay
from benchmarks.speed.timing import HAS_TORCH

PER_CLASS, SMALL = 6_000, 20


def everlight(setting: Setting, method: str, seeds: int) -> Iterator[dict]:
    """Yield the time of a sequence of all seeds, vmapped on an accelerator."""
    jax.config.update("jax_enable_compilation_cache", False)
    images, labels = replay.noise(SMALL if setting.small else PER_CLASS)
    seeds = min(seeds, 2) if setting.small else seeds
    yield from _timed(
        partial(replay.train, images, labels, method, replay.BUFFER, seeds), setting, seeds
    )


def torch_loop(setting: Setting, method: str) -> Iterator[dict]:
    """Yield the time of a sequence of one seed in PyTorch, one call per batch, on its GPU."""
    if not HAS_TORCH:
        raise Unavailable("PyTorch is not installed")
    import torch

    from benchmarks.speed.torch_replay import torch_sequences

    if not (setting.small or torch.cuda.is_available()):
        raise Unavailable("PyTorch has no CUDA here")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    images, labels = replay.noise(SMALL if setting.small else PER_CLASS)
    train = partial(torch_sequences, images, labels, method, replay.BUFFER, 1, device)
    yield from _timed(train, setting, 1)


def _timed(train: Callable[[], object], setting: Setting, seeds: int) -> Iterator[dict]:
    steps = replay.CLASSES * (SMALL if setting.small else PER_CLASS) // replay.BATCH
    first = _seconds(train)
    yield {"first call s": first}
    warm = _seconds(train)
    yield {
        "sequence s": warm,
        "µs per step and seed": 1e6 * warm / steps / seeds,
        "compilation s": first - warm,
        "steps": steps,
    }


def _seconds(train: Callable[[], object]) -> float:
    begin = time.perf_counter()
    train()
    return time.perf_counter() - begin
