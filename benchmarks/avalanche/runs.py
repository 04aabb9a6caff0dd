"""Runs of either side on the same numbers.

Avalanche runs in a process of its own, with the Python that EVERLIGHT_AVALANCHE names, else with
this one. A file holds the question: images, labels and test samples; for every run its classes by
task, training samples, initial weights, `batches` of every task, epoch and step (padded with -1),
and `replay`, the samples that a step replays by the first sample of its own batch. The answer is
the weights and the test samples' scores after the last task.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Int, PRNGKeyArray, PyTree

from benchmarks.avalanche.cases import Case
from benchmarks.avalanche.inputs import BATCH, TASKS, RunData, Seeded, task_order
from everlight.base import Epoch
from everlight.continual import (
    Protocol,
    Run,
    Runs,
    Setup,
    Strategy,
    TaskSequence,
    drive_runs,
    flax_setup,
    run_sequence,
    softmax_objective,
)
from everlight.continual.engine.epochs import shuffle
from everlight.continual.engine.keys import epoch_keys, task_keys
from everlight_data.errors import DataError

SIDE = Path(__file__).with_name("avalanche_side.py")
VARIABLE = "EVERLIGHT_AVALANCHE"
"""Environment variable with the Python of an environment that has avalanche-lib."""
RATE = 0.02
MOMENTUM = 0.9

Weights = dict[str, np.ndarray]


class Trainer:
    """Everlight's runs of a case, one compiled program for all seeds.

    Args:
      case: method to train.
      epochs: epochs per task.
      avalanche: true uses Avalanche's equations.
      stepwise: true replays the samples that both sides receive.
    """

    def __init__(self, case: Case, epochs: int, avalanche: bool = False, stepwise: bool = False):
        self.protocol = protocol_of(case, epochs)
        self._case, self._avalanche, self._stepwise = case, avalanche, stepwise
        self._run = jax.jit(self._trained, static_argnums=0)

    def train(self, seeded: Seeded) -> Weights:
        """Return weights and test scores of one seed's run."""
        params, scores = self._run(seeded.inputs.net, seeded.data, seeded.sequence, seeded.key)
        return named(params) | {"scores": np.asarray(scores)}

    def batches(self, seeded: Seeded) -> Int[np.ndarray, "t e s b"]:
        """Return the batches that the engine takes, with samples from memory."""
        epochs = []
        build = self.build(seeded.inputs.net)
        run = Run(build, self.protocol, seeded.data, seeded.sequence, seeded.key)
        for _ in drive_runs(Runs.of(run), announce=epochs.append):
            pass
        return cut(epochs, self.protocol.epochs)

    def build(self, net):
        """Return the function from the data to setup and strategy."""
        case, optimizer = self._case, optax.sgd(RATE, momentum=MOMENTUM)

        def build(data: RunData) -> tuple[Setup, Strategy]:
            setup = flax_setup(net, data.stored, softmax_objective(), optimizer)
            setup = setup._replace(init=lambda key: (data.start, {}))
            if self._avalanche and case.adapt is not None:
                setup = case.adapt(setup)
            strategy = case.strategy(self._avalanche, self._stepwise)(setup)
            if self._stepwise and case.feed is not None:
                strategy = case.feed(strategy, data.fixed)
            return setup, strategy

        return build

    def _trained(self, net, data: RunData, sequence: TaskSequence, key: PRNGKeyArray) -> tuple:
        build = self.build(net)
        result = run_sequence(Run(build, self.protocol, data, sequence, key))
        setup, strategy = build(data)
        memory, learner = result.memory, result.learner
        if strategy.before_evaluation is not None:
            memory, learner = strategy.before_evaluation(memory, learner, key)
        scores = strategy.predict(memory, learner, setup.gather(sequence.test.index, None))
        return learner.params, scores


def protocol_of(case: Case, epochs: int) -> Protocol:
    """Return the protocol; methods that only count or store samples see each once."""
    epochs = 1 if case.method in ("streaming LDA", "GDumb") else epochs
    return Protocol(epochs=epochs, batch_size=BATCH, select="last", evaluate_every=TASKS)


def plain_batches(seeded: Seeded, epochs: int) -> Int[np.ndarray, "t e s b"]:
    """Return the batches of every strategy whose epochs are the task's own samples."""

    def order(task: Int[Array, ""], epoch: Int[Array, ""]) -> Int[Array, "n"]:
        train = jax.tree.map(lambda leaf: leaf[task], seeded.sequence.tasks.train)
        samples = Epoch(train, jnp.zeros_like(train.mask))
        keys = epoch_keys(task_keys(seeded.key, task).epochs, epoch)
        shuffled = shuffle(samples, keys.order)
        place = jnp.arange(train.mask.shape[0])
        return jnp.where(place < shuffled.count, train.index[shuffled.slots], -1)

    order_of_epochs = jax.vmap(jax.vmap(order, (None, 0)), (0, None))
    orders = np.asarray(order_of_epochs(jnp.arange(TASKS), jnp.arange(epochs)))
    return cut([row[row >= 0] for row in orders.reshape(-1, orders.shape[-1])], epochs)


def cut(orders: Sequence[Int[np.ndarray, "n"]], epochs: int) -> Int[np.ndarray, "t e s b"]:
    """Return the batches of every task, epoch and step, padded with -1."""
    steps = -(-max(map(len, orders)) // BATCH)
    out = np.full((len(orders), steps * BATCH), -1)
    for row, order in zip(out, orders, strict=True):
        row[: len(order)] = order
    return out.reshape(-1, epochs, steps, BATCH)


def named(params: PyTree) -> Weights:
    """Return weights by layer and part."""
    return {
        f"{layer}/{part}": np.asarray(value)
        for layer, parts in params.items()
        for part, value in parts.items()
    }


class Question(NamedTuple):
    """A run of Avalanche."""

    case: Case
    seeded: Seeded
    batches: Int[np.ndarray, "t e s b"]
    stepwise: bool


def avalanche_python() -> str | None:
    """Return the Python of an environment with avalanche-lib; None if there is none."""
    if VARIABLE in os.environ:
        return os.environ[VARIABLE]
    return sys.executable if find_spec("avalanche") else None


def ask(python: str, questions: Sequence[Question]) -> tuple[list[Weights], dict[str, str]]:
    """Return Avalanche's answer to each question about the same inputs, and package versions.

    Raises:
      DataError: Avalanche did not run there; the message has the last line of its errors.
    """
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("questions.npz", "answers.npz")]
        np.savez(files[0], **_arrays(questions))
        run = subprocess.run([python, SIDE, *files], stderr=subprocess.PIPE, text=True)
        if run.returncode:
            last = run.stderr.strip().splitlines()[-1:] or ["no message"]
            raise DataError(
                f"{python} could not run Avalanche ({last[0]}); give the Python of an environment "
                f'with avalanche-lib and quadprog, as ".[bench]" installs them, in {VARIABLE}'
            )
        with np.load(files[1]) as stored:
            answered = dict(stored)
    versions = json.loads(str(answered.pop("versions")))
    out: list[Weights] = [{} for _ in questions]
    for key, value in answered.items():
        number, _, name = key.partition("/")
        out[int(number)][name] = value
    return out, versions


def _arrays(questions: Sequence[Question]) -> dict[str, np.ndarray]:
    inputs, runs = questions[0].seeded.inputs, []
    test = np.arange(inputs.trained, len(inputs.labels))
    out = {"images": inputs.images, "labels": inputs.labels, "test": test}
    for number, (case, seeded, batches, stepwise) in enumerate(questions):
        seed, fixed, train = seeded.seed, seeded.data.fixed, seeded.sequence.tasks.train
        out |= {
            f"tasks/{seed}": task_order(seed),
            f"train/{seed}": np.where(train.mask, train.index, -1),
            f"replay/{seed}": np.asarray(fixed.replay),
            f"held/{seed}": np.asarray(fixed.held),
            f"logits/{seed}": np.asarray(fixed.logits),
            f"batches/{number}": batches,
        }
        out |= {f"start/{seed}/{name}": weight for name, weight in named(seeded.data.start).items()}
        run = {
            "seed": seed,
            "batches": number,
            "method": case.method,
            "settings": dict(case.settings),
            "masked": case.masked,
            "own_loader": case.own_loader and not stepwise,
            "stepwise": stepwise,
            "epochs": case.epochs or batches.shape[1],
            "batch_size": BATCH,
            "rate": RATE,
            "momentum": MOMENTUM,
        }
        runs.append(run)
    return out | {"runs": np.array(json.dumps(runs))}
