"""Whole task sequences against plain PyTorch, and many runs at once.

`sequences` learns three tasks without replay, with EWC and with exemplars; `iirc-training` learns
the first tasks of IIRC-CIFAR with exemplars, `iirc-race` all of them; `many-runs` trains eight runs
on as many devices as the process has. Images are noise.
"""

from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.speed.timing import HAS_TORCH, Case, Machine
from everlight.continual import (
    Protocol,
    Run,
    Runs,
    Setup,
    StoredImages,
    Strategy,
    TaskSequence,
    balanced_replay,
    binary_objective,
    drive_runs,
    ewc,
    flax_setup,
    naive,
    run_sequence,
    runs_mesh,
    softmax_objective,
)
from everlight.models import ReducedResNet, SmallCNN
from everlight.models.augmentation import crop_and_flip
from everlight.scenarios import class_incremental, equal_tasks
from everlight.scenarios.iirc import TaskConfiguration, iirc
from everlight_data.iirc.metadata import official_metadata

REGULARIZATION = 100.0
FISHER_SAMPLES = 256
EXEMPLARS_PER_CLASS = 20
ADAM_RATE = 1e-3
SGD_RATE, MOMENTUM, WEIGHT_DECAY = 0.1, 0.9, 1e-5
AUTHORS_S = 396
"""Seconds of the IIRC authors' code for all 22 tasks on two cores; it is not run here."""


class Sizes(NamedTuple):
    """Images and network of three tasks of noise."""

    classes: int
    train_per_class: int
    test_per_class: int
    side: int
    channels: tuple[int, int]
    hidden: int


LEAST = Sizes(6, 10, 2, 8, (2, 2), 4)
FULL = Sizes(30, 50, 20, 32, (32, 64), 512)
MANY_RUNS = Sizes(30, 100, 20, 16, (16, 32), 64)


class Training(NamedTuple):
    """A sequence of tasks and what learns it, on both sides."""

    strategy: Literal["naive", "EWC", "ER-balanced"]
    net: SmallCNN | ReducedResNet
    """Convolutions with softmax and Adam, or IIRC's residual network with binary outputs, SGD,
    random crops and flips."""
    stored: StoredImages
    sequence: TaskSequence
    protocol: Protocol

    @property
    def is_iirc(self) -> bool:
        """Return whether samples may have several labels."""
        return isinstance(self.net, ReducedResNet)

    def build(self, stored: StoredImages) -> tuple[Setup, Strategy]:
        """Return everlight's setup and strategy."""
        if self.is_iirc:
            decay = optax.add_decayed_weights(WEIGHT_DECAY)
            optimizer = optax.chain(decay, optax.sgd(SGD_RATE, momentum=MOMENTUM))
            setup = flax_setup(self.net, stored, binary_objective(), optimizer, crop_and_flip)
        else:
            setup = flax_setup(self.net, stored, softmax_objective(), optax.adam(ADAM_RATE))
        if self.strategy == "EWC":
            return setup, ewc(setup, REGULARIZATION, importance_samples=FISHER_SAMPLES)
        if self.strategy == "naive":
            return setup, naive(setup)
        labels = self.sequence.tasks.train.labels.shape[-1]
        return setup, balanced_replay(setup, EXEMPLARS_PER_CLASS, labels)


def sequences(machine: Machine, small: bool) -> list[Case]:
    """Return three tasks of ten classes with the four-convolution network."""
    sizes = LEAST if small else FULL
    strategies = ("EWC",) if small else ("naive", "EWC", "ER-balanced")
    return [_training_case(f"3 tasks, {name}", _noise_training(name, sizes)) for name in strategies]


def iirc_training(machine: Machine, small: bool) -> list[Case]:
    """Return the first tasks of IIRC-CIFAR with the samples of old classes replayed."""
    tasks = 2 if small else 4
    return [_training_case(f"IIRC, {tasks} tasks, ER-balanced", _iirc_training(tasks, small))]


def iirc_race(machine: Machine, small: bool) -> list[Case]:
    """Return all tasks of IIRC-CIFAR, one epoch each, as the authors' code was timed."""
    tasks = 3 if small else 22
    name = f"IIRC, {tasks} tasks, ER-balanced (authors' code, 22 tasks: {AUTHORS_S} s)"
    return [_training_case(name, _iirc_training(tasks, small))._replace(rounds=1)]


def many_runs(machine: Machine, small: bool) -> list[Case]:
    """Return eight runs of EWC on all devices, on one, and one run after another."""
    count, sizes = (2, LEAST) if small else (8, MANY_RUNS)
    training = _noise_training("EWC", sizes)
    keys = jax.random.split(jax.random.key(0), count)
    compiled = everlight_training(training)
    contestants = {
        f"everlight, devices: {devices}": partial(runs_together, training, keys, devices)
        for devices in sorted({jax.device_count(), 1}, reverse=True)
    }
    contestants["one run after another"] = lambda: [compiled(key).losses for key in keys]
    return [Case(f"{count} runs of 3 tasks, EWC", contestants, rounds=2)]


def everlight_training(training: Training) -> Callable:
    """Return a function of the random key that trains the whole sequence in one program."""

    @jax.jit
    def train(stored: StoredImages, sequence: TaskSequence, key: jax.Array):
        return run_sequence(Run(training.build, training.protocol, stored, sequence, key))

    return partial(train, training.stored, training.sequence)


def runs_together(training: Training, keys: jax.Array, devices: int) -> np.ndarray:
    """Return the losses of runs that are trained as many at once as there are devices."""
    mesh, losses = runs_mesh(jax.devices()[:devices]), []
    for first in range(0, len(keys), devices):
        some = keys[first : first + devices]
        rows = jax.tree.map(partial(_repeated, len(some)), training.sequence)
        runs = Runs(training.build, training.protocol, training.stored, rows, some)
        *_, last = drive_runs(runs, mesh=mesh)
        losses.append(np.asarray(last.result.losses))
    return np.concatenate(losses)


def _training_case(name: str, training: Training) -> Case:
    train, key = everlight_training(training), jax.random.key(0)
    contestants: dict[str, Callable[[], object]] = {"everlight": lambda: train(key)}
    if HAS_TORCH:
        from benchmarks.speed.torch_sequences import torch_training

        contestants["PyTorch"] = torch_training(training)
    return Case(name, contestants, rounds=3)


def _noise_training(strategy: str, sizes: Sizes) -> Training:
    classes = sizes.classes
    counts = (sizes.train_per_class, sizes.test_per_class)
    train, test = (np.repeat(np.arange(classes), count) for count in counts)
    sequence = class_incremental(train, test, equal_tasks(range(classes), 3), classes)
    net = SmallCNN(classes, sizes.channels, sizes.hidden)
    stored = noise_images(len(train) + len(test), sizes.side)
    return Training(strategy, net, stored, sequence, Protocol(epochs=2))


def _iirc_training(tasks: int, small: bool) -> Training:
    hierarchy, (configuration, *_), valid_fraction = official_metadata("iirc_cifar100")
    names = tuple(name for name in chain(*configuration.tasks) if name not in hierarchy)
    left_out = (*chain(*configuration.tasks[tasks:]), *configuration.left_out)
    first = TaskConfiguration(configuration.tasks[:tasks], left_out)
    train_per_class, test_per_class = (30, 1) if small else (250, 50)
    train, test = (np.repeat(np.arange(100), n) for n in (train_per_class, test_per_class))
    sequence = iirc(train, test, names, hierarchy, first, valid_fraction=valid_fraction).sequence
    net = ReducedResNet(sequence.class_task.shape[0], blocks=1 if small else 3)
    stored = noise_images(len(train) + len(test), side=8 if small else 32)
    return Training("ER-balanced", net, stored, sequence, Protocol(epochs=1, batch_size=128))


def _repeated(times: int, leaf: jax.Array) -> jax.Array:
    return jnp.stack([leaf] * times)


def noise_images(count: int, side: int) -> StoredImages:
    """Return stored images of noise, on JAX's device."""
    images = np.random.default_rng(0).integers(0, 256, (count, side, side, 3), np.uint8)
    return StoredImages.of(jnp.asarray(images), jnp.full(3, 127.5), jnp.full(3, 74.0))
