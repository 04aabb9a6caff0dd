"""Whole task sequences in one program, driven with checkpoints, and in PyTorch; many at once."""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from everlight.continual import (
    Protocol,
    Run,
    Runs,
    StoredImages,
    balanced_replay,
    drive_runs,
    ewc,
    flax_setup,
    naive,
    run_sequence,
    runs_mesh,
    softmax_objective,
)
from everlight.continual.base import Setup, Strategy, TaskSequence
from everlight.models.small_cnn import SmallCNN
from everlight.scenarios.class_incremental import class_incremental, equal_tasks
from tests.speed.cases import OURS, Case, Machine, has_torch


class Sizes(NamedTuple):
    """Sizes of a sequence of random images."""

    tasks: int = 3
    classes: int = 30
    train_per_class: int = 50
    test_per_class: int = 20
    side: int = 32
    channels: tuple[int, int] = (32, 64)
    hidden: int = 512
    epochs: int = 2
    rate: float = 1e-3
    strength: float = 100.0
    """Regularization of EWC."""
    fisher_samples: int = 256
    exemplars: int = 20
    """Exemplars per class of replay."""


STRATEGIES: dict[str, Callable[[Setup, Sizes], Strategy]] = {
    "naive": lambda setup, sizes: naive(setup),
    "EWC": lambda setup, sizes: ewc(setup, sizes.strength, fisher_samples=sizes.fisher_samples),
    "experience replay": lambda setup, sizes: balanced_replay(setup, sizes.exemplars),
}
DEFAULT = Sizes()
MANY = Sizes(2, 20, 200, 50, 16, (16, 32), 64)


def random_images(sizes: Sizes) -> tuple[StoredImages, TaskSequence]:
    """Return random images and their tasks."""
    train = np.repeat(np.arange(sizes.classes), sizes.train_per_class)
    test = np.repeat(np.arange(sizes.classes), sizes.test_per_class)
    shape = (len(train) + len(test), sizes.side, sizes.side, 3)
    images = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    stored = StoredImages.of(jnp.asarray(images), jnp.full(3, 127.5), jnp.full(3, 74.0))
    tasks = equal_tasks(range(sizes.classes), sizes.tasks)
    return stored, class_incremental(train, test, tasks, sizes.classes)


def build_strategy(name: str, sizes: Sizes):
    """Return how the engine builds a strategy with the network of these sizes."""
    net = SmallCNN(sizes.classes, sizes.channels, sizes.hidden)

    def build(stored: StoredImages) -> tuple[Setup, Strategy]:
        setup = flax_setup(net, stored, softmax_objective(), optax.adam(sizes.rate))
        return setup, STRATEGIES[name](setup, sizes)

    return build


def driven(build, protocol: Protocol, stored, sequence: TaskSequence, keys, devices: int = 1):
    """Return the losses of runs that are driven epoch by epoch, one per device at a time."""
    mesh, losses = runs_mesh(jax.devices()[:devices]), []
    for first in range(0, len(keys), devices):
        some = keys[first : first + devices]
        repeated = jax.tree.map(partial(_repeated, len(some)), sequence)
        runs = Runs(build, protocol, stored, repeated, some)
        *_, last = drive_runs(runs, chunk=1, mesh=mesh)
        losses.append(np.asarray(last.result.losses))
    return np.concatenate(losses)


def task_sequence(machine: Machine, strategy: str = "EWC", sizes: Sizes = DEFAULT) -> Case:
    """Train one whole sequence, with validation and evaluation."""
    stored, sequence = random_images(sizes)
    build, protocol = build_strategy(strategy, sizes), Protocol(epochs=sizes.epochs)
    compiled = jax.jit(lambda d, s, k: run_sequence(Run(build, protocol, d, s, k)).losses)
    key = jax.random.key(0)
    contestants = {
        OURS: lambda: compiled(stored, sequence, key),
        "everlight, driven by epochs": lambda: driven(build, protocol, stored, sequence, key[None]),
    }
    if has_torch():
        from tests.speed.torch_sequences import torch_sequence

        contestants["PyTorch"] = torch_sequence(strategy, sizes, stored, sequence, protocol)
    return Case(f"sequence of {sizes.tasks} tasks, {strategy}", contestants, rounds=3)


def many_runs(machine: Machine, runs: int = 4, sizes: Sizes = MANY) -> Case:
    """Train independent runs, one per device at once, and one after another."""
    stored, sequence = random_images(sizes)
    build, protocol = build_strategy("EWC", sizes), Protocol(epochs=sizes.epochs)
    keys = jax.random.split(jax.random.key(0), runs)
    parts = build, protocol, stored, sequence, keys
    devices = len(jax.devices())
    contestants = {
        OURS: lambda: driven(*parts, devices),
        "one after another": lambda: driven(*parts, 1),
    }
    return Case(f"{runs} runs on {devices} devices", contestants, rounds=2)


def _repeated(times: int, leaf: jax.Array) -> jax.Array:
    return jnp.stack([leaf] * times)
