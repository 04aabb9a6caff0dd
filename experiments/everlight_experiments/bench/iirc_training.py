"""IIRC's training: the race against the authors' code, and an epoch with replay."""

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import monitoring
from jaxtyping import Array, Int

from everlight.continual.base import Learner, Memory, TaskSequence
from everlight.continual.engine.epochs import count_steps, epoch_step, open_epoch
from everlight.continual.engine.evaluation import evaluate, validate
from everlight.continual.engine.protocol import Protocol
from everlight.continual.engine.run import Build, Run, SequenceResult, SequenceState
from everlight.continual.engine.sequence import run_sequence
from everlight.continual.engine.tasks import begin_state, begin_task, end_task, take_task
from everlight.scenarios.iirc import TaskConfiguration, iirc
from everlight_data.images.iirc_metadata import official_metadata
from everlight_data.images.image_set import ImageSet
from everlight_experiments.bench.net_training import has_torch
from everlight_experiments.bench.timing import median_ratio, seconds_in_turns
from everlight_experiments.common.checkpoint import Checkpoints
from everlight_experiments.common.many_runs import Unit, train_units
from everlight_experiments.common.run_folder import RunFolder
from everlight_experiments.common.sequences import store_images
from everlight_experiments.common.settings import RunSettings
from everlight_experiments.continual.benchmark import RunData, own_of
from everlight_experiments.continual.runner import build_with
from everlight_experiments.iirc.record import (
    FORMS,
    PLANS,
    SCENARIO,
    iirc_begin,
    iirc_protocol,
)
from everlight_experiments.iirc.scores import score_method

AUTHORS_S, AUTHORS_TRAINING_S = 396.0, 156.0
"""Of the authors' PyTorch code for the race of the default sizes on two cores, not run here."""


class TrainingSizes(NamedTuple):
    """Of IIRC-CIFAR's first official configuration; images are noise."""

    tasks: int = 22
    """The first so many; 22 are all, with 115 classes."""
    train_per_class: int = 250
    """Of each of the 100 subclasses; a fifth of them is validation."""
    test_per_class: int = 50
    side: int = 32
    blocks: int = 3
    """Of each stage of the net: 3 is ResNet-20."""
    batch_size: int = 128
    part_rounds: int = 5
    """Turns of what is timed apart from the race."""
    replay_task: int = 11
    """The task of the epoch with replay, counted from 0; all before it have exemplars."""
    replay_rounds: int = 2


class RaceSpeed(NamedTuple):
    """Seconds of ER's whole sequence, one epoch a task, driven as the experiments do and compiled.

    Evaluation, validation and checkpoints were timed apart on the trained net, and stand for all
    tasks; training is what they and compilation leave of the driven sequence.
    """

    tasks: int
    classes: int
    train_images: int
    """Samples trained on in all tasks, exemplars too."""
    test_images: int
    driven_s: float
    """With compilation, evaluation, scores and checkpoints."""
    driven_compilation_s: float
    training_s: float
    evaluation_s: float
    """Passes over the test samples of the tasks so far after every task, and at the end all scores
    from them."""
    validation_s: float
    checkpoints_s: float
    compiled_s: float
    """With evaluation, without compilation and checkpoints."""
    compiled_compilation_s: float


class ReplaySpeed(NamedTuple):
    """Median seconds of one epoch; PyTorch's fields are None where it is not installed."""

    images: int
    exemplars: int
    """Of these images."""
    steps: int
    everlight_s: float
    torch_s: float | None
    ratio: float | None


class _World(NamedTuple):
    data: RunData
    sequence: TaskSequence
    build: Build
    protocol: Protocol


def race_speed(sizes: TrainingSizes) -> RaceSpeed:
    """Trains ER with 20 exemplars once through every task, driven and then compiled."""
    world, key = _world(sizes), jax.random.key(0)
    shared, own = world.data
    unit, results = Unit("race", {}, world.sequence, key, own), []
    with tempfile.TemporaryDirectory() as path, _compilation_seconds() as compilation:
        folder = RunFolder("bench", "race", RunSettings(runs=Path(path)))
        begin = time.perf_counter()
        train_units(
            folder,
            [unit],
            world.build,
            world.protocol,
            shared,
            lambda result: {"losses": result.losses},
            RunData,
            after_task=lambda unit, task, result: results.append(result),
        )
        result = results[-1]
        score_method(world.sequence, np.asarray(result.evaluation))
        driven = time.perf_counter() - begin
    compilation_s = sum(compilation)
    apart = _parts_of_race(world, result, sizes.part_rounds)

    begin = time.perf_counter()
    program = jax.jit(lambda *inputs: run_sequence(Run(world.build, world.protocol, *inputs)))
    compiled = program.lower(world.data, world.sequence, key).compile()
    ready = time.perf_counter()
    jax.block_until_ready(compiled(world.data, world.sequence, key))
    done = time.perf_counter()

    tasks, classes = world.sequence.tasks.classes.shape
    held = np.asarray(result.usage.stored_samples).sum()
    return RaceSpeed(
        tasks,
        classes,
        train_images=int(np.asarray(world.sequence.tasks.train.mask).sum() + held),
        test_images=world.sequence.test.mask.shape[0],
        driven_s=driven,
        driven_compilation_s=compilation_s,
        training_s=driven - compilation_s - sum(apart.values()),
        **apart,
        compiled_s=done - ready,
        compiled_compilation_s=ready - begin,
    )


def _parts_of_race(world: _World, result: SequenceResult, rounds: int) -> dict[str, float]:
    """Seconds that evaluation, validation and checkpoints take over all tasks."""
    data, sequence, build, protocol = world
    size, tasks = protocol.evaluation_batch, sequence.tasks.id.shape[0]

    @jax.jit
    def evaluate_all(data, sequence, memory, learner):
        left = (*build(data), memory)

        def after_task(seen):
            return evaluate(*left, learner._replace(seen=seen), sequence, size)

        return jax.lax.map(after_task, jnp.cumsum(sequence.tasks.classes, axis=0) > 0)

    @jax.jit
    def validate_all(data, sequence, memory, learner):
        left = (*build(data), memory, learner)
        return jax.lax.map(
            lambda samples: validate(*left, samples, size, jax.random.key(0)),
            sequence.tasks.valid,
        )

    with tempfile.TemporaryDirectory() as folder:
        checkpoints, numbers = Checkpoints(Path(folder)), iter(range(1, rounds + 2))
        inputs = (data, sequence, result.memory, result.learner)
        seconds = seconds_in_turns(
            {
                "evaluation": lambda: evaluate_all(*inputs),
                "scores": lambda: score_method(sequence, np.asarray(result.evaluation)),
                "validation": lambda: validate_all(*inputs),
                "checkpoint": lambda: checkpoints.save(next(numbers), result),
            },
            rounds,
        )
    median = {name: float(np.median(values)) for name, values in seconds.items()}
    return {
        "evaluation_s": median["evaluation"] + median["scores"],
        "validation_s": median["validation"],
        "checkpoints_s": tasks * median["checkpoint"],
    }


def replay_speed(sizes: TrainingSizes) -> ReplaySpeed:
    """Times ER's epoch in the middle of the sequence, where old exemplars join the task's samples.

    Both train on the same samples: crops, mirrors, BCE over seen classes, SGD with momentum.
    """
    world = _world(sizes)
    number, key = jnp.asarray(sizes.replay_task), jax.random.key(0)
    run = Run(world.build, world.protocol, world.data, world.sequence, key)
    epoch, reach = _epoch_programs(number)
    state = reach(run)
    memory, learner = state.result.memory, state.result.learner
    _, strategy = world.build(world.data)
    task = take_task(strategy, world.protocol, world.sequence, number)
    samples = strategy.epoch_data(memory, task).samples
    contestants: dict[str, Callable[[], object]] = {"everlight": lambda: epoch(run, state)}
    if has_torch():
        from everlight_experiments.bench.iirc_torch import torch_epoch

        contestants["torch"] = torch_epoch(
            world.data.shared,
            samples,
            learner.seen,
            sizes.blocks,
            sizes.batch_size,
            PLANS["paper"].learning_rate,
        )
    seconds = seconds_in_turns(contestants, sizes.replay_rounds)
    ours, theirs = seconds["everlight"], seconds.get("torch")
    images = int(jnp.sum(samples.mask))
    return ReplaySpeed(
        images,
        int(jnp.sum(memory.buffer.mask)),
        -(-images // sizes.batch_size),
        float(np.median(ours)),
        float(np.median(theirs)) if theirs else None,
        median_ratio(theirs, ours) if theirs else None,
    )


def _epoch_programs(number: Int[Array, ""]) -> tuple[Callable, Callable]:
    """One epoch of a task as a program, and one that reaches the task without training."""

    @jax.jit
    def reach(run: Run) -> SequenceState:
        unevaluated = replace(run, protocol=replace(run.protocol, evaluate_every=run.tasks))

        def pass_task(_: Int[Array, ""], state: SequenceState) -> SequenceState:
            return end_task(unevaluated, begin_task(run, state))

        return begin_task(run, jax.lax.fori_loop(0, number, pass_task, begin_state(run)))

    @jax.jit
    def epoch(run: Run, state: SequenceState) -> tuple[Memory, Learner]:
        (setup, strategy), protocol = run.build(run.data), run.protocol
        task, result = take_task(strategy, protocol, run.sequence, number), state.result
        opened = open_epoch(strategy, result.memory, task, run.key)

        def one_step(step: Int[Array, ""], learned: tuple) -> tuple[Memory, Learner]:
            parts = (setup, strategy, protocol, *learned, opened, task, step, run.key)
            return epoch_step(*parts)[:2]

        steps = count_steps(opened[1], protocol)
        return jax.lax.fori_loop(0, steps, one_step, (result.memory, result.learner))

    return epoch, reach


def _world(sizes: TrainingSizes) -> _World:
    hierarchy, (configuration, *_), valid_fraction = official_metadata("iirc_cifar100")
    names = tuple(name for name in chain(*configuration.tasks) if name not in hierarchy)
    tasks, later = configuration.tasks[: sizes.tasks], configuration.tasks[sizes.tasks :]
    configuration = TaskConfiguration(tasks, (*chain(*later), *configuration.left_out))
    train = np.repeat(np.arange(len(names)), sizes.train_per_class)
    test = np.repeat(np.arange(len(names)), sizes.test_per_class)
    shape = (len(train) + len(test), sizes.side, sizes.side, 3)
    noise = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    stored = store_images(ImageSet("noise", noise, train, test, names))
    sequence = iirc(
        train, test, names, hierarchy, configuration, valid_fraction=valid_fraction
    ).sequence
    plan = PLANS["paper"]
    protocol = replace(plan.protocol, epochs=1, first_epochs=1, batch_size=sizes.batch_size)
    plan = replace(plan, blocks=sizes.blocks, protocol=protocol)
    begin = iirc_begin(plan, sequence.class_task.shape[0], len(tasks))
    return _World(
        RunData(stored, own_of(sequence, 0.0)),
        sequence,
        build_with(begin, SCENARIO, FORMS["ER-balanced"]),
        iirc_protocol(plan, FORMS["ER-balanced"]),
    )


@contextmanager
def _compilation_seconds() -> Iterator[list[float]]:
    """Collects what JAX reports of tracing, lowering and compiling."""
    seconds: list[float] = []

    def add(event: str, duration: float, **_: Any) -> None:
        if event.startswith("/jax/core/compile/"):
            seconds.append(duration)

    monitoring.register_event_duration_secs_listener(add)
    try:
        yield seconds
    finally:
        monitoring.unregister_event_duration_listener(add)
