"""A run of either side, from the same file of numbers.

Avalanche runs in a process of its own, in the environment whose Python EVERLIGHT_AVALANCHE names,
else in this one. It is asked by a file: images, labels and test samples; for every run its classes
by task, training samples, initial weights, `batches` of every task, epoch and step (-1 fills up),
and what it replays where that is given, `replay`: the samples of a step of some task, by the first
sample of its own batch. It answers with weights and test samples' scores after the last task.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

from everlight.continual import (
    Protocol,
    Setup,
    StoredImages,
    Strategy,
    TaskSequence,
    drive_sequence,
    flax_setup,
    run_sequence,
    softmax_objective,
)
from everlight.continual.base import Epoch
from everlight.continual.engine.keys import epoch_keys, task_keys
from everlight.continual.engine.steps import shuffle
from everlight.scenarios import same_shapes
from everlight_data.errors import DataError
from everlight_experiments.bench.agreement_cases import Case
from everlight_experiments.bench.agreement_material import (
    BATCH,
    TASKS,
    Fed,
    Material,
    draws_of,
    order_of,
    sequence_of,
    start_of,
)

SIDE = Path(__file__).with_name("avalanche_side.py")
VARIABLE = "EVERLIGHT_AVALANCHE"
"""Names the Python of an environment with avalanche-lib, where this one has none."""
RATE = 0.02
MOMENTUM = 0.9

Weights = dict[str, np.ndarray]


class Trained(NamedTuple):
    """What everlight's run left."""

    weights: Weights
    scores: Float[np.ndarray, "m c"]
    """Of the test samples."""


class Plan(NamedTuple):
    """How tasks are trained."""

    epochs: int
    batch_size: int = BATCH


class RunData(NamedTuple):
    """Of a compiled run."""

    stored: StoredImages
    start: PyTree
    fed: Fed


class Place:
    """A material under one seed, with a plan: what all methods share."""

    def __init__(self, material: Material, plan: Plan, seed: int, sequence: TaskSequence):
        self.material, self.plan, self.seed, self.sequence = material, plan, seed, sequence
        stored = StoredImages.of(jnp.asarray(material.images), jnp.zeros(1), jnp.ones(1))
        self.data = RunData(stored, start_of(material, seed), draws_of(material, seed))
        self.key = jax.random.key(seed)


def places_of(material: Material, plan: Plan, seeds: int) -> list[Place]:
    """The first seeds, whose sequences have one shape."""
    sequences = same_shapes([sequence_of(material, seed) for seed in range(seeds)])
    return [Place(material, plan, seed, each) for seed, each in enumerate(sequences)]


def build_of(case: Case, net: nn.Module, equated: bool = False) -> Callable:
    """From `RunData` to setup and strategy; with Avalanche's equations where that is asked for."""
    make = case.equated if equated and case.equated is not None else case.ours

    def build(data: RunData) -> tuple[Setup, Strategy]:
        optimizer = optax.sgd(RATE, momentum=MOMENTUM)
        setup = flax_setup(net, data.stored, softmax_objective(), optimizer)
        setup = setup._replace(init=lambda key: (data.start, {}))
        if equated and case.adapt is not None:
            setup = case.adapt(setup)
        return setup, make(setup, data.fed)

    return build


def protocol_of(case: Case, plan: Plan) -> Protocol:
    """Of a case; what counts or keeps samples, and learns nothing from them, sees each once."""
    epochs = 1 if case.method in ("streaming LDA", "GDumb") else plan.epochs
    last = {"select": "last", "evaluate_every": TASKS}
    return Protocol(epochs=epochs, batch_size=plan.batch_size, **last)


class Trainer:
    """everlight's runs of a case; one compiled program for all seeds."""

    def __init__(self, case: Case, net: nn.Module, plan: Plan, equated: bool = False):
        self._build = build_of(case, net, equated)
        self._protocol = protocol_of(case, plan)
        self._run = jax.jit(self._trained)

    def train(self, place: Place) -> Trained:
        """The run of one seed."""
        params, scores = self._run(place.data, place.sequence, place.key)
        return Trained(named(params), np.asarray(scores))

    def batches(self, place: Place) -> Int[np.ndarray, "t e s b"]:
        """The batches of a run, whatever they hang on."""
        epochs = []
        given = (self._build, self._protocol, place.data, place.sequence, place.key)
        for _ in drive_sequence(*given, announce=epochs.append):
            pass
        return cut(epochs, self._protocol.epochs, self._protocol.batch_size)

    def _trained(self, data: RunData, sequence: TaskSequence, key: PRNGKeyArray) -> tuple:
        result = run_sequence(self._build, self._protocol, data, sequence, key)
        setup, strategy = self._build(data)
        memory, learner = result.memory, result.learner
        if strategy.before_evaluation is not None:
            memory, learner = strategy.before_evaluation(memory, learner, key)
        scores = strategy.predict(memory, learner, setup.gather(sequence.test.index, None))
        return learner.params, scores


def plain_batches(place: Place, epochs: int) -> Int[np.ndarray, "t e s b"]:
    """The batches of every strategy whose epochs are the task's own samples."""

    def order(task: Int[Array, ""], epoch: Int[Array, ""]) -> Int[Array, "n"]:
        own = jax.tree.map(lambda leaf: leaf[task], place.sequence.tasks.train)
        samples = Epoch(own, jnp.zeros_like(own.mask))
        keys = epoch_keys(task_keys(place.key, task).epochs, epoch)
        slots, count = shuffle(samples, keys.order)
        return jnp.where(jnp.arange(slots.shape[0]) < count, own.index[slots], -1)

    every = jax.vmap(jax.vmap(order, (None, 0)), (0, None))
    orders = np.asarray(every(jnp.arange(TASKS), jnp.arange(epochs)))
    rows = [row[row >= 0] for row in orders.reshape(-1, orders.shape[-1])]
    return cut(rows, epochs, place.plan.batch_size)


def named(params: PyTree) -> Weights:
    """Weights by layer and part."""
    return {
        f"{layer}/{part}": np.asarray(value)
        for layer, parts in params.items()
        for part, value in parts.items()
    }


def cut(
    orders: Sequence[Int[np.ndarray, "n"]], epochs: int, size: int
) -> Int[np.ndarray, "t e s b"]:
    """The batches of every task, epoch and step, filled up with -1."""
    steps = -(-max(map(len, orders)) // size)
    out = np.full((len(orders), steps * size), -1)
    for row, order in zip(out, orders, strict=True):
        row[: len(order)] = order
    return out.reshape(-1, epochs, steps, size)


class Asked(NamedTuple):
    """A run of Avalanche's."""

    case: Case
    place: Place
    batches: Int[np.ndarray, "t e s b"]
    replay_fed: bool


def avalanche_python() -> str | None:
    """The Python of an environment with avalanche-lib; None where there is none."""
    if VARIABLE in os.environ:
        return os.environ[VARIABLE]
    return sys.executable if find_spec("avalanche") else None


def ask(python: str, asked: Sequence[Asked]) -> tuple[list[dict[str, np.ndarray]], dict[str, str]]:
    """What Avalanche answers to each, and its versions.

    Args:
      python: of an environment that has it.
      asked: of one material.

    Raises:
      DataError: it did not answer; with the end of what it said.
    """
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("asked.npz", "answered.npz")]
        np.savez(files[0], **_question(asked))
        run = subprocess.run([python, SIDE, *files], stderr=subprocess.PIPE, text=True)
        if run.returncode:
            said = run.stderr.strip().splitlines()[-1:] or ["nothing"]
            raise DataError(
                f"{python} could not run Avalanche ({said[0]}); give the Python of an environment "
                f'with avalanche-lib and quadprog, as ".[bench]" installs them, in {VARIABLE}'
            )
        with np.load(files[1]) as stored:
            answered = dict(stored)
    versions = json.loads(str(answered.pop("versions")))
    out: list[dict[str, np.ndarray]] = [{} for _ in asked]
    for key, value in answered.items():
        number, _, name = key.partition("/")
        out[int(number)][name] = value
    return out, versions


def _question(asked: Sequence[Asked]) -> dict[str, np.ndarray]:
    material = asked[0].place.material
    out = {
        "images": material.images,
        "labels": material.labels,
        "test": np.arange(material.trained, len(material.labels)),
    }
    runs = []
    for number, (case, place, batches, replay_fed) in enumerate(asked):
        seed, fed = place.seed, place.data.fed
        train = place.sequence.tasks.train
        out |= {
            f"tasks/{seed}": order_of(seed),
            f"train/{seed}": np.where(train.mask, train.index, -1),
            f"replay/{seed}": np.asarray(fed.replay),
            f"held/{seed}": np.asarray(fed.held),
            f"logits/{seed}": np.asarray(fed.logits),
            f"batches/{number}": batches,
        }
        out |= {f"start/{seed}/{name}": each for name, each in named(place.data.start).items()}
        runs.append(
            {
                "seed": seed,
                "batches": number,
                "method": case.method,
                "settings": dict(case.settings),
                "masked": case.masked,
                "fed": case.fed,
                "replay_fed": replay_fed,
                "epochs": case.epochs or protocol_of(case, place.plan).epochs,
                "batch_size": place.plan.batch_size,
                "rate": RATE,
                "momentum": MOMENTUM,
            }
        )
    return out | {"runs": np.array(json.dumps(runs))}
