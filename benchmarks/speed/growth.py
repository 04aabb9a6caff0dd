"""Growth of compilation and running time with tasks, seeds, classes and buffer: ER on noise."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax

from benchmarks.speed.timing import Case, Machine
from everlight.continual import (
    Protocol,
    Run,
    Setup,
    StoredImages,
    Strategy,
    experience_replay,
    flax_setup,
    run_sequence,
    softmax_objective,
)
from everlight.models import MLP
from everlight.scenarios import domain_incremental, permuted_pixels, transform_inputs

SIDE, SAMPLES, TESTED, BATCH = 28, 100, 10, 10
"""Side of the images; training and test samples and batch size of every task."""
HIDDEN = (100, 100)
TASKS, SEEDS, CLASSES = (5, 100, 1_000), (1, 8, 64), (10, 100, 1_000)
BUFFERS = (200, 2_000, 20_000)


def growth(machine: Machine, small: bool) -> list[Case]:
    """Return the cases by tasks (compiling, training), seeds, classes and buffer size."""
    tasks, seeds, classes = ((2, 4), (1, 2), (4, 8)) if small else (TASKS, SEEDS, CLASSES)
    buffers = BUFFERS[:2] if small else BUFFERS
    steps = SAMPLES // BATCH
    compiling = {f"tasks: {n:,}": partial(compiled, tasks=n) for n in tasks}
    trained = {f"tasks: {n:,}": trainer(tasks=n) for n in tasks}
    by_seed = {f"seeds: {n:,}": trainer(seeds=n) for n in seeds}
    by_class = {f"classes: {n:,}": trainer(classes=n) for n in classes}
    by_buffer = {f"buffer: {n:,}": trainer(buffer=n) for n in buffers}
    return [
        Case("Permuted images, compilation by tasks", compiling, rounds=2),
        Case(f"Permuted images, {steps} steps per task", trained, rounds=2),
        Case(f"Permuted images, {tasks[0]} tasks by vmapped seeds", by_seed, rounds=2),
        Case(f"Permuted images, {tasks[0]} tasks by classes", by_class, rounds=2),
        Case(f"Permuted images, {tasks[0]} tasks by buffer size", by_buffer, rounds=2),
    ]


def run_of(tasks: int = TASKS[0], classes: int = CLASSES[0], buffer: int = BUFFERS[0]) -> Run:
    """Return a run whose data are arguments of its program; another call is another program."""
    labels, tested = np.arange(max(20 * classes, SAMPLES)) % classes, np.arange(TESTED) % classes
    count = len(labels) + len(tested)
    sequence = domain_incremental(labels, tested, tasks, classes, SAMPLES)
    images = np.random.default_rng(0).random((count, SIDE * SIDE), np.float32)
    stored = replace(StoredImages.of(images, jnp.float32(0), jnp.float32(1)), copies=tasks)

    def build(data: StoredImages) -> tuple[Setup, Strategy]:
        setup = flax_setup(MLP(classes, HIDDEN), data, softmax_objective(), optax.sgd(0.03))
        pixels = permuted_pixels(tasks, SIDE * SIDE, jax.random.key(1))
        setup = transform_inputs(setup, count, pixels)
        return setup, experience_replay(setup, buffer)

    protocol = Protocol(epochs=1, batch_size=BATCH, select="last", evaluate_every=tasks)
    return Run(build, protocol, stored, sequence, jax.random.key(0))


def compiled(tasks: int) -> jax.stages.Compiled:
    """Return the compiled program of a whole sequence, made again."""
    return jax.jit(run_sequence).lower(run_of(tasks)).compile()


def trainer(
    tasks: int = TASKS[0],
    classes: int = CLASSES[0],
    seeds: int = 1,
    buffer: int = BUFFERS[0],
) -> partial:
    """Return a function that trains all seeds; it compiles when it is called first."""
    run = run_of(tasks, classes, buffer)

    def losses(data: StoredImages, keys: jax.Array) -> jax.Array:
        def of_seed(key: jax.Array) -> jax.Array:
            return run_sequence(Run(run.build, run.protocol, data, run.sequence, key)).losses

        return jax.vmap(of_seed)(keys)

    return partial(jax.jit(losses), run.data, jax.random.split(run.key, seeds))
