"""Every method trained on every order of batches, once and for good, and what each costs."""

import dataclasses
import functools
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from data_pipelines.images.core50 import Core50
from everlight.continual.base import Learner, Memory, Samples, TaskSequence
from everlight.continual.engine.evaluation import predict_samples
from everlight.continual.engine.flax_setup import StoredImages
from everlight.continual.engine.sequence import initial_state, operations_per_step
from everlight.continual.engine.state import Build, SequenceResult
from everlight.scenarios.core50 import Level, Scenario, core50
from experiments.common.run_folder import RunFolder
from experiments.common.sequences import train_unit
from experiments.core50.beginning import (
    Beginning,
    Features,
    make_head,
    make_net,
    trunk_features,
)
from experiments.core50.methods import METHODS, SequenceData, build_method
from experiments.core50.plans import Length, Plan, protocol_of

ELSEWHERE = (
    *("tuned", "frozen", "cumulative", "fine_tuning", "scratch"),
    *("orders", "cumulative_orders", "chosen"),
)
"""Of a plan, what says nothing about one sequence: its own length is told apart."""
Evaluate = Callable[[], Float[Array, "m c"]]
"""Scores of the test set by what a sequence left."""


class Learnt(NamedTuple):
    """What a method leaves on one order of batches."""

    accuracy: Float[np.ndarray, "t"]
    """On the whole test set after each batch."""
    correct: Bool[np.ndarray, "t m"]
    confidence: Float[np.ndarray, "t m"]
    """The greatest class probability."""
    steps: Int[np.ndarray, "t"]
    """Of each batch."""
    stored_samples: Int[np.ndarray, "t"]
    """Of earlier batches, held while a batch is learnt."""
    seconds: Float[np.ndarray, ""]
    """Of the whole sequence, compilation included; NaN where it was stopped and continued."""
    evaluation_seconds: Float[np.ndarray, ""]
    """Of one pass over the test set, without compilation."""


class Cost(NamedTuple):
    """What does not depend on the order."""

    parameters: int
    """That learn."""
    memory_bytes: int
    """Of the strategy's own memory."""
    sample_bytes: int
    """Of a sample, where samples are held."""
    step_operations: float
    frame_operations: float
    """Of a frame before the first step: the frozen trunk's; else 0."""


class Trainer:
    """Trains methods and keeps what each left in the run's folder."""

    def __init__(
        self,
        folder: RunFolder,
        plan: Plan,
        frames: Core50,
        beginning: Beginning,
        level: Level,
        seed: int,
    ):
        self._folder, self._plan, self._frames = folder, plan, frames
        self._beginning, self._level, self._seed = beginning, level, seed
        self.classes = len(frames.object_names if level == "object" else frames.category_names)
        self._sequences: dict[tuple[Scenario, int], TaskSequence] = {}
        self._costs: dict[str, Cost] = {}
        self._builds: dict[tuple[str, float, float], Build] = {}

    @functools.cached_property
    def features(self) -> Features:
        """What the frozen trunk makes of the frames, computed when first asked for."""
        return trunk_features(self._beginning, self._plan)

    def sequence(self, scenario: Scenario, order: int = 0) -> TaskSequence:
        """The batches in the published order of that number."""
        asked = scenario, order
        if asked not in self._sequences:
            frames = self._frames
            self._sequences[asked] = core50(frames.object, frames.session, *asked, self._level)
        return self._sequences[asked]

    def length(self, name: str, scenario: Scenario) -> Length:
        """How long a method learns from each batch of a scenario, and at which rate."""
        approach = METHODS[name].approach
        return self._plan.tuned[scenario] if approach == "tuned" else getattr(self._plan, approach)

    def train(self, scenario: Scenario, name: str, order: int) -> Learnt:
        """One method on one order; read back if it was trained before."""
        unit = f"{scenario}-{name}-{order}"
        begun = None if (self._folder.checkpoints / unit).exists() else time.monotonic()

        def keep(result: SequenceResult, evaluate: Evaluate) -> dict[str, Any]:
            seconds = np.nan if begun is None else time.monotonic() - begun
            jax.block_until_ready(evaluate())  # compiles
            start = time.monotonic()
            jax.block_until_ready(evaluate())
            spent = time.monotonic() - start
            self._folder.log(event="sequence", unit=unit, seconds=seconds, evaluation=spent)
            kept, usage = result.evaluation, result.usage
            learnt = Learnt(
                kept.accuracy,
                kept.correct,
                kept.confidence,
                np.diff(usage.steps, prepend=0),
                usage.stored_samples,
                seconds,
                spent,
            )
            return learnt._asdict()

        length = self.length(name, scenario)
        return Learnt(**self.train_unit(unit, name, scenario, order, length, keep))

    def train_unit(
        self,
        unit: str,
        name: str,
        scenario: Scenario,
        order: int,
        length: Length,
        keep: Callable[[SequenceResult, Evaluate], dict[str, Any]],
        drawn: bool = False,
    ) -> dict[str, np.ndarray]:
        """A sequence as a part of the run, told from others by all that it depends on.

        Args:
          unit: name of the part.
          name: of the method.
          scenario, order: of the batches.
          length: of the training on each batch.
          keep: from what the sequence left, and its evaluation, to what the run keeps.
          drawn: begin with a random net, all layers of which have one rate.
        """
        facts = {
            "method": name,
            "order": order,
            "seed": self._seed,
            "level": self._level,
            "beginning": None if drawn else self._beginning.fingerprint,
            "length": dataclasses.asdict(length),
            **dataclasses.asdict(self._plan),
        }
        for other in ELSEWHERE:
            del facts[other]
        build, data = self._build(name, scenario, drawn), self._data(name, length, drawn)
        protocol = protocol_of(length, self._plan.batch_size)
        sequence = self.sequence(scenario, order)

        def evaluated(result: SequenceResult) -> dict[str, Any]:
            left = result.memory, result.learner
            size = protocol.evaluation_batch
            evaluate = partial(score_test_set, build, size, data, sequence.test, *left)
            return keep(result, evaluate)

        key = jax.random.fold_in(jax.random.key(self._seed), order)
        return train_unit(
            self._folder, unit, facts, build, protocol, data, sequence, key, evaluated
        )

    def cost(self, scenario: Scenario, name: str) -> Cost:
        """What a method needs, counted from shapes and from the compiled step.

        It is counted in the scenario that is asked for first; in the others it is the same.
        """
        if name not in self._costs:
            self._costs[name] = self._count(scenario, name)
        return self._costs[name]

    def _count(self, scenario: Scenario, name: str) -> Cost:
        length = self.length(name, scenario)
        build, data = self._build(name, scenario), self._data(name, length)
        protocol = protocol_of(length, self._plan.batch_size)
        arguments = (build, protocol, data, self.sequence(scenario), jax.random.key(0))
        result = initial_state(*arguments).result
        values = data.frames.images
        return Cost(
            sum(leaf.size for leaf in jax.tree.leaves(result.learner.params)),
            sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(result.memory)),
            values.nbytes // len(values),
            operations_per_step(*arguments),
            self.features.operations if METHODS[name].approach == "frozen" else 0.0,
        )

    def _build(self, name: str, scenario: Scenario, drawn: bool = False) -> Build:
        # The gain makes up for a first batch of more classes, which NI has not.
        gain = 1.0 if scenario == "NI" else self._plan.gain
        frozen = METHODS[name].approach == "frozen"
        dense_rate = 1.0 if frozen or drawn else self._plan.dense_rate
        asked = name, gain, dense_rate
        if asked not in self._builds:
            net = (make_head if frozen else make_net)(self._plan, self.classes)
            self._builds[asked] = build_method(name, net, self.classes, dense_rate, gain)
        return self._builds[asked]

    def _data(self, name: str, length: Length, drawn: bool = False) -> SequenceData:
        rates = jnp.float32(length.rate), jnp.float32(length.later_factor)
        if METHODS[name].approach == "frozen":
            values = StoredImages(self.features.values, jnp.float32(0), jnp.float32(1))
            return SequenceData(values, {}, *rates)
        return SequenceData(self._beginning.stored, {} if drawn else self._beginning.layers, *rates)


@partial(jax.jit, static_argnums=(0, 1))
def score_test_set(
    build: Build, size: int, data: SequenceData, test: Samples, memory: Memory, learner: Learner
) -> Float[Array, "m c"]:
    """Scores of the test set, as they are computed after every batch."""
    setup, strategy = build(data)
    return predict_samples(setup, strategy, memory, learner, test, size)
