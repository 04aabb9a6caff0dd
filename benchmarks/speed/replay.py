"""Whole sequences on images of Fashion-MNIST's size, also in PyTorch and Avalanche, and growth.

Five tasks of two classes, an MLP of two hidden layers, SGD, batches of 10 and 128 replayed samples:
the protocol of `everlight paper rethinking-er`, on noise. The plain PyTorch loops do the same work
with one call per batch. Avalanche has its own strategies, which log and evaluate nothing here.
Compilation is counted: every call compiles again, as the first one of a process does; only the case
by buffer size is compiled before.
"""

from collections.abc import Callable
from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.speed.timing import HAS_AVALANCHE, HAS_TORCH, Case, Machine
from everlight.continual import (
    Protocol,
    Run,
    Runs,
    Setup,
    StoredImages,
    Strategy,
    der_plus_plus,
    drive_runs,
    ewc,
    experience_replay,
    flax_setup,
    naive,
    run_sequence,
    runs_mesh,
    softmax_objective,
)
from everlight.models import MLP
from everlight.scenarios import class_incremental

CLASSES, TASKS, PIXELS = 10, 5, 784
HIDDEN, BATCH, REPLAYED, RATE = 256, 10, 128, 0.03
METHODS = ("SGD", "ER", "EWC", "DER++")
PENALTY, FISHER_SAMPLES, ALPHA, BETA = 10.0, 1_024, 0.1, 0.5
"""Coefficient and samples of EWC, and coefficients of DER++."""
BUFFER, BUFFERS = 200, (200, 5_000, 20_000)
PROTOCOL = Protocol(epochs=1, batch_size=BATCH, select="last")


def replay(machine: Machine, small: bool) -> list[Case]:
    """Return every method with one seed and ER with ten, PyTorch's, and ER by buffer size."""
    per_class, seeds = (20, 2) if small else (6_000, 10)
    images, labels = noise(per_class)
    steps = CLASSES * per_class // BATCH
    # Three matrix products, forward and twice backward, of the samples of a step.
    products = PIXELS * HIDDEN + HIDDEN * HIDDEN + HIDDEN * CLASSES
    work = 3 * 2 * (BATCH + REPLAYED) * products * steps
    cases = []
    for method, count in (*((name, 1) for name in METHODS), ("ER", seeds)):
        contestants = {"everlight": partial(train, images, labels, method, BUFFER, count)}
        if HAS_TORCH:
            from benchmarks.speed.torch_replay import torch_sequences

            contestants["PyTorch"] = partial(torch_sequences, images, labels, method, BUFFER, count)
        if HAS_AVALANCHE:
            from benchmarks.speed.avalanche_replay import avalanche_sequences

            contestants["Avalanche"] = partial(
                avalanche_sequences, images, labels, method, BUFFER, count
            )
        floor = machine.floor(0, count * work) if method == "ER" else None
        name = f"{method}, {steps:,} steps, buffer {BUFFER}, seeds: {count}"
        cases.append(Case(name, contestants, floor, rounds=1, warm=False))
    by_size = {
        f"everlight, buffer {size:,}": partial(train, images, labels, "ER", size, 1)
        for size in BUFFERS
    }
    return [*cases, Case(f"ER, {steps:,} steps by buffer size", by_size, rounds=2)]


def noise(per_class: int) -> tuple[np.ndarray, np.ndarray]:
    """Return images of noise, `[n, 784]` in [0, 1], and their labels, class by class."""
    labels = np.repeat(np.arange(CLASSES), per_class)
    images = np.random.default_rng(0).random((len(labels), PIXELS), np.float32)
    return images, labels


def train(
    images: np.ndarray, labels: np.ndarray, method: str, buffer_size: int, seeds: int
) -> np.ndarray:
    """Train all seeds and return their losses, `[seeds, tasks, 1]`.

    As many seeds as there are devices are trained at once on CPU, all of them on an accelerator.
    """
    # A few of the training images stand for the test images, whose cost is small.
    tested = np.tile(np.arange(CLASSES), 10)
    order = np.arange(CLASSES).reshape(TASKS, -1).tolist()
    sequence = class_incremental(labels, tested, order, CLASSES, 0.0, test_offset=0)
    sequences = jax.tree.map(lambda leaf: jnp.stack([leaf] * seeds), sequence)
    stored = StoredImages.of(images, jnp.float32(0), jnp.float32(1))
    build = _build(method, buffer_size)
    if seeds == 1:
        run = Run(build, PROTOCOL, stored, sequence, jax.random.key(0))
        return np.asarray(_sequence(run).losses)[None]
    keys = jax.random.split(jax.random.key(0), seeds)
    width = jax.device_count() if jax.default_backend() == "cpu" else seeds
    losses = []
    for first in range(0, seeds, width):
        rows = jax.tree.map(lambda leaf, f=first: leaf[f : f + width], sequences)
        runs = Runs(build, PROTOCOL, stored, rows, keys[first : first + width])
        *_, last = drive_runs(runs, mesh=runs_mesh())
        losses.append(np.asarray(last.result.losses))
    return np.concatenate(losses)


_sequence = jax.jit(run_sequence)


@cache
def _build(method: str, buffer_size: int) -> Callable[[StoredImages], tuple[Setup, Strategy]]:
    """Return the same function for the same arguments, by which the compiled program is found."""

    def build(stored: StoredImages) -> tuple[Setup, Strategy]:
        net = MLP(CLASSES, (HIDDEN, HIDDEN))
        setup = flax_setup(net, stored, softmax_objective(), optax.sgd(RATE))
        if method == "SGD":
            return setup, naive(setup)
        if method == "EWC":
            return setup, ewc(setup, PENALTY, importance_samples=FISHER_SAMPLES)
        if method == "DER++":
            strategy = der_plus_plus(setup, buffer_size, ALPHA, BETA, replay_batch_size=REPLAYED)
            return setup, strategy
        return setup, experience_replay(setup, buffer_size, replay_batch_size=REPLAYED)

    return build
