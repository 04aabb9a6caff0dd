"""Every method trained on both splits of a benchmark, once and for good."""

import dataclasses
import zlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Int, PRNGKeyArray, UInt8

from data_pipelines.images.jpeg_store import JpegStore
from everlight.continual.base import TaskSequence
from everlight.continual.engine.evaluation import evaluate
from everlight.continual.engine.flax_setup import StoredImages
from everlight.continual.engine.state import Build, SequenceResult
from everlight.continual.engine.steps import Protocol, begin_sequence
from everlight.metrics.ranking import Facts, Ranks
from everlight.models.joint_embedding import JointEmbedding
from everlight.scenarios.facts import Examples, fact_sequence
from everlight.scenarios.shapes import same_shapes
from experiments.common.many_runs import (
    Unit,
    has_diverged,
    refuse_diverged,
    train_streamed,
    train_units,
)
from experiments.common.run_folder import RunFolder
from experiments.common.streaming import channels, naming_files, stream_centers
from experiments.facts.benchmarks import (
    SPLITS,
    Benchmark,
    Size,
    Split,
)
from experiments.facts.methods import METHODS, TOP, SequenceData, build_method, join_strength

SHOWN = 48
"""Test samples of different facts, from head to tail, whose nearest facts are kept."""


@dataclass(frozen=True)
class BenchmarkPlan:
    """A benchmark and what is trained on it."""

    size: Size
    methods: tuple[str, ...]
    protocol: Protocol
    seeds: int
    strengths_tried: int = 5
    """Of each method's, the middle ones; 0 takes those chosen on the benchmark before it."""


@dataclass(frozen=True)
class Net:
    """The network, and Adam's rate."""

    side: int
    """Of the images."""
    trunk: tuple[int, ...]
    branch: int
    hidden: int
    rate: float = 1e-3


class Trainer:
    """Trains methods on a benchmark and keeps what each left in the run's folder."""

    def __init__(
        self,
        folder: RunFolder,
        name: str,
        plan: BenchmarkPlan,
        net: Net,
        benchmark: Benchmark,
        images: StoredImages | JpegStore,
    ):
        self._folder, self._name, self._plan, self._net = folder, name, plan, net
        self.benchmark = benchmark
        self._store = images if isinstance(images, JpegStore) else None
        self._images = channels() if isinstance(images, JpegStore) else images
        self.facts = Facts(jnp.asarray(benchmark.pieces), jnp.asarray(benchmark.words.vectors))
        self.shown = shown_samples(benchmark)
        self._shared = self._images, self.facts, jnp.asarray(self.shown)
        module = JointEmbedding(benchmark.words.vectors.shape[1], net.trunk, net.branch, net.hidden)
        self._builds = {
            method: build_method(
                method,
                module,
                plan.size.tasks,
                net.rate,
                None if self._store is None else partial(stream_centers, self._store),
            )
            for method in plan.methods
        }
        self._initial = _initial_ranks(self._builds[plan.methods[0]], plan.protocol)
        reported = [_sequence(benchmark, split) for split in SPLITS]
        tuning = [_tuning_sequence(benchmark, split) for split in SPLITS]
        padded = same_shapes([*reported, *tuning])
        self._reported = dict(zip(SPLITS, padded[: len(SPLITS)], strict=True))
        self._tuning = dict(zip(SPLITS, padded[len(SPLITS) :], strict=True))

    def sequence(self, split: Split) -> TaskSequence:
        """The tasks that are reported."""
        return self._reported[split]

    def train(
        self, method: str, split: Split, strength: float, seeds: Sequence[int]
    ) -> list[dict[str, np.ndarray]]:
        """A run of every seed; read back where it was trained before.

        Raises:
          DivergedRunError: which did, and where.
        """
        units = [
            self._unit(
                f"{self._name}-{split}-{method}-{seed}",
                (method, split, strength, seed),
                self._reported[split],
            )
            for seed in seeds
        ]
        kept = self._train(method, units)
        refuse_diverged(units, kept)
        return kept

    def try_strengths(self, method: str, split: Split, seed: int) -> dict[float, float]:
        """Generalised Top-5 on the held-out scenes, over examples; NaN where it diverged."""
        strengths, tried = METHODS[method].strengths, self._plan.strengths_tried
        first = max(0, len(strengths) // 2 - tried // 2)
        strengths = strengths[first : first + tried]
        units = [
            self._unit(
                f"strength-{self._name}-{split}-{method}-{strength:g}",
                (method, split, strength, seed),
                self._tuning[split],
            )
            for strength in strengths
        ]
        member = np.asarray(self._tuning[split].test.mask)
        scores = [
            np.nan if has_diverged(kept) else float(np.mean(kept["generalised"][-1][member] <= TOP))
            for kept in self._train(method, units)
        ]
        return dict(zip(strengths, scores, strict=True))

    def initial_ranks(self, split: Split, seed: int) -> Ranks:
        """Ranks before the first task: the same for all methods of a seed."""
        with self._naming_files():
            return jax.block_until_ready(
                self._initial(self._data(0.0), self._reported[split], jax.random.key(seed))
            )

    def pictures(self) -> UInt8[np.ndarray, "s h w 3"]:
        """What the shown test samples show."""
        places = len(self.benchmark.train.fact) + self.shown
        if self._store is not None:
            return self._store.read(places)
        return np.asarray(self._images.images[places])

    def _naming_files(self) -> AbstractContextManager[None]:
        return nullcontext() if self._store is None else naming_files(self._store)

    def _data(self, strength: float) -> SequenceData:
        return join_strength(self._shared, jnp.float32(strength))

    def _unit(
        self, unit: str, asked: tuple[str, Split, float, int], sequence: TaskSequence
    ) -> Unit:
        """A run of a method on a split with a strength and a seed."""
        method, split, strength, seed = asked
        facts = {
            "method": method,
            "split": split,
            "strength": strength,
            "seed": seed,
            "words": self.benchmark.words.source,
            "size": dataclasses.asdict(self._plan.size),
            "protocol": dataclasses.asdict(self._plan.protocol),
            "net": dataclasses.asdict(self._net),
        }
        if self._store is not None:
            links = (*self.benchmark.train.links, *self.benchmark.test.links)
            facts["images"] = zlib.crc32("\n".join(links).encode())
        return Unit(unit, facts, sequence, jax.random.key(seed), jnp.float32(strength))

    def _train(self, method: str, units: Sequence[Unit]) -> list[dict[str, np.ndarray]]:
        build, protocol = self._builds[method], self._plan.protocol
        parts = (self._folder, units, build, protocol, self._shared, _kept)
        if self._store is None:
            return train_units(*parts, join_strength)
        with self._naming_files():
            return train_streamed(*parts, self._store.announce, join_strength)


def _kept(result: SequenceResult) -> dict[str, Any]:
    ranks = result.evaluation.ranks._asdict()
    return {**ranks, "found": result.evaluation.found, "losses": result.losses}


def shown_samples(benchmark: Benchmark) -> Int[np.ndarray, "s"]:
    """The first test samples of facts that are evenly spaced by their training examples."""
    facts, first = np.unique(benchmark.test.fact, return_index=True)
    order = np.argsort(-benchmark.train_counts[facts], kind="stable")
    spaced = np.unique(np.linspace(0, len(order) - 1, SHOWN).astype(int))
    return first[order[spaced]]


def _initial_ranks(
    build: Build, protocol: Protocol
) -> Callable[[SequenceData, TaskSequence, PRNGKeyArray], Ranks]:
    @jax.jit
    def ranks(data: SequenceData, sequence: TaskSequence, key: PRNGKeyArray) -> Ranks:
        setup, strategy = build(data)
        start = begin_sequence(setup, strategy, protocol, sequence.class_task.shape[0], key)
        beginning = (start.memory, start.learner, sequence)
        return evaluate(setup, strategy, *beginning, protocol.evaluation_batch).ranks

    return ranks


def _sequence(benchmark: Benchmark, split: Split) -> TaskSequence:
    fact_task = benchmark.fact_task[split]
    return fact_sequence(fact_task, benchmark.train_examples, _NONE, benchmark.test_examples)


def _tuning_sequence(benchmark: Benchmark, split: Split) -> TaskSequence:
    """The tasks tested on scenes that are held out of training.

    In the order that is reported: in another, a great task may come last, and what is chosen then
    is to forget.
    """
    held_out, every = benchmark.held_out, benchmark.train_examples
    kept, tested = (Examples(*(part[where] for part in every)) for where in (~held_out, held_out))
    return fact_sequence(benchmark.fact_task[split], kept, _NONE, tested)


_NONE = Examples(np.zeros(0, int), np.zeros(0, int))
