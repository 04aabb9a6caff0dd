"""Whole task sequences: compiled and driven against plain PyTorch, and what evaluation takes."""

import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

from everlight.continual.base import Setup, Strategy, TaskSequence
from everlight.continual.engine.evaluation import evaluate
from everlight.continual.engine.flax_setup import StoredImages, flax_setup
from everlight.continual.engine.protocol import Protocol
from everlight.continual.engine.run import Build, Run, SequenceState
from everlight.continual.engine.runs import Runs, drive_runs
from everlight.continual.engine.sequence import run_sequence
from everlight.continual.objectives.softmax import softmax_objective
from everlight.continual.strategies.balanced_replay import balanced_replay
from everlight.continual.strategies.ewc import ewc
from everlight.continual.strategies.naive import naive
from everlight.models.small_cnn import SmallCNN
from everlight.scenarios.class_incremental import class_incremental, equal_tasks
from everlight_experiments.bench.net_training import has_torch
from everlight_experiments.bench.timing import median_ratio, seconds_in_turns
from everlight_experiments.common.checkpoint import Checkpoints
from everlight_experiments.common.trees import rows_of


class SequenceSizes(NamedTuple):
    """The tasks that are timed; images are noise."""

    strategies: tuple[str, ...] = ("naive", "EWC", "experience replay")
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
    """Of EWC."""
    fisher_samples: int = 256
    exemplars: int = 20
    """Of every class, in experience replay."""
    rounds: int = 3


STRATEGIES: dict[str, Callable[[Setup, SequenceSizes], Strategy]] = {
    "naive": lambda setup, sizes: naive(setup),
    "EWC": lambda setup, sizes: ewc(setup, sizes.strength, fisher_samples=sizes.fisher_samples),
    "experience replay": lambda setup, sizes: balanced_replay(setup, sizes.exemplars),
}


class SequenceSpeed(NamedTuple):
    """Median seconds a task; PyTorch's fields are None where it is not installed."""

    strategy: str
    compiled_s: float
    driven_s: float
    torch_s: float | None
    driven_over_compiled: float
    torch_over_compiled: float | None
    evaluation_share: float
    """Of the compiled sequence's time: one pass over the test union after every task."""
    paper_share: float
    """The same with the paper's 10,000 test images a task for 22 epochs of 4,500 images."""


class CheckpointCost(NamedTuple):
    """Of the state after EWC's last task: parameters, Adam's moments, two sums, best epoch."""

    parameters: int
    state_bytes: int
    stored_bytes: int
    save_s: float
    restore_s: float


def sequence_speeds(sizes: SequenceSizes) -> list[SequenceSpeed]:
    """Times each strategy's whole sequence, contestants in turns."""
    stored, sequence = made_up(sizes)
    return [_speed(name, sizes, stored, sequence) for name in sizes.strategies]


def checkpoint_cost(sizes: SequenceSizes) -> CheckpointCost:
    """Writes and reads EWC's last state as the experiments do."""
    stored, sequence = made_up(sizes)
    build = build_strategy("EWC", sizes)
    state = drive(build, Protocol(epochs=1), stored, sequence)
    with tempfile.TemporaryDirectory() as folder:
        checkpoints = Checkpoints(Path(folder))
        begin = time.perf_counter()
        checkpoints.save(1, state)
        written = time.perf_counter()
        jax.block_until_ready(checkpoints.restore(1, state).state)
        read = time.perf_counter()
        stored_bytes = sum(p.stat().st_size for p in Path(folder).rglob("*") if p.is_file())
    leaves = jax.tree.leaves(state)
    return CheckpointCost(
        sum(leaf.size for leaf in jax.tree.leaves(state.result.learner.params)),
        sum(leaf.nbytes for leaf in leaves),
        stored_bytes,
        written - begin,
        read - written,
    )


def made_up(sizes: SequenceSizes) -> tuple[StoredImages, TaskSequence]:
    """Noise and its tasks."""
    train = np.repeat(np.arange(sizes.classes), sizes.train_per_class)
    test = np.repeat(np.arange(sizes.classes), sizes.test_per_class)
    shape = (len(train) + len(test), sizes.side, sizes.side, 3)
    images = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    stored = StoredImages.of(jnp.asarray(images), jnp.full(3, 127.5), jnp.full(3, 74.0))
    tasks = equal_tasks(range(sizes.classes), sizes.tasks)
    return stored, class_incremental(train, test, tasks, sizes.classes)


def build_strategy(name: str, sizes: SequenceSizes) -> Build:
    """A strategy of the sizes with their net."""
    net = SmallCNN(sizes.classes, sizes.channels, sizes.hidden)

    def build(stored: StoredImages) -> tuple[Setup, Strategy]:
        setup = flax_setup(net, stored, softmax_objective(), optax.adam(sizes.rate))
        return setup, STRATEGIES[name](setup, sizes)

    return build


def drive(
    build: Build, protocol: Protocol, stored: StoredImages, sequence: TaskSequence
) -> SequenceState:
    """The last state of a sequence driven epoch by epoch."""
    run = Run(build, protocol, stored, sequence, jax.random.key(0))
    *_, last = drive_runs(Runs.of(run), chunk=1)
    result, best = rows_of((last.result, last.best), 0)
    return last._replace(result=result, best=best)


def _speed(
    name: str, sizes: SequenceSizes, stored: StoredImages, sequence: TaskSequence
) -> SequenceSpeed:
    build, protocol = build_strategy(name, sizes), Protocol(epochs=sizes.epochs)
    compiled = jax.jit(lambda d, s, k: run_sequence(Run(build, protocol, d, s, k)))
    finished = drive(build, protocol, stored, sequence).result

    @jax.jit
    def evaluate_last(stored, sequence, memory, learner):
        left = (*build(stored), memory, learner)
        return evaluate(*left, sequence, protocol.evaluation_batch)

    contestants = {
        "compiled": lambda: compiled(stored, sequence, jax.random.key(0)),
        "driven": lambda: drive(build, protocol, stored, sequence),
        "evaluation": lambda: evaluate_last(stored, sequence, finished.memory, finished.learner),
    }
    if has_torch():
        from everlight_experiments.bench.torch_sequences import torch_sequence

        contestants["torch"] = torch_sequence(name, sizes, stored, sequence, protocol)
    seconds = seconds_in_turns(contestants, sizes.rounds)
    task = {key: float(np.median(values)) / sizes.tasks for key, values in seconds.items()}
    rival = seconds.get("torch")
    share = sizes.tasks * task["evaluation"] / task["compiled"]
    images = sizes.epochs * np.asarray(sequence.tasks.train.mask).sum() / sizes.tasks
    test_image = share / sequence.test.mask.shape[0]
    train_image = (1 - share) / images
    return SequenceSpeed(
        name,
        task["compiled"],
        task["driven"],
        task.get("torch"),
        median_ratio(seconds["driven"], seconds["compiled"]),
        None if rival is None else median_ratio(rival, seconds["compiled"]),
        share,
        10_000 * test_image / (10_000 * test_image + 22 * 4_500 * train_image),
    )
