"""Lifelong facts as benchmarks, one for each split: data, network, ranks and their metrics.

A label is a fact ⟨S, P, O⟩; a test image is right where its fact is among the five nearest.
"""

import dataclasses
import functools
import zlib
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt8

from everlight.continual import (
    Objective,
    Predictions,
    SequenceResult,
    Setup,
    StoredImages,
    TaskSequence,
    embedding_objective,
    flax_setup,
)
from everlight.continual.engine.evaluation import evaluate
from everlight.continual.engine.run import Run
from everlight.continual.engine.tasks import begin_state
from everlight.continual.registry import METHODS, Method, Needs
from everlight.metrics.ranking import Facts, Ranks
from everlight.models.joint_embedding import JointEmbedding
from everlight.scenarios import fact_sequence, same_shapes
from everlight.scenarios.facts import Examples
from everlight.trees import checksums_of
from everlight_data.errors import DataError, MissingDataError
from everlight_data.facts.divided import (
    SPLITS,
    DividedFacts,
    Size,
    Split,
    WordFile,
    divide_facts,
    load_source,
    make_images,
)
from everlight_data.facts.published import open_photographs, read_published
from everlight_data.images.as_inputs import (
    Channels,
    channels,
    naming_files,
    store_images,
    stream_centers,
)
from everlight_data.images.feature_files import Features
from everlight_data.images.image_set import ImageSet
from everlight_data.images.jpeg_store import JpegStore
from everlight_experiments.continual.benchmark import (
    Benchmark,
    Benchmarks,
    Draw,
    Request,
    RunData,
    Trained,
    own_data,
)
from everlight_experiments.continual.parts import load_features, stored_features
from everlight_experiments.continual.runner import build_with
from everlight_experiments.facts.config import GRIDS, Config, Data, Network, Scale
from everlight_experiments.facts.metrics import (
    GENERALISED,
    TOP,
    fact_metrics,
    group_tests,
    nearest_facts,
)

GATE_SIDE = 8
"""ExpertGate's gate reads images as means of this many blocks per side."""
GATE_HIDDEN = 100
EXEMPLARS = 2
"""Stored samples per fact, for methods with exemplars."""
SHOWN = 48
"""Test samples of different facts, from head to tail, whose nearest facts are kept."""
_NONE = Examples(np.zeros(0, int), np.zeros(0, int))


class Shared(NamedTuple):
    """Data of all runs."""

    images: StoredImages | Channels
    """Channels alone where images are streamed."""
    facts: Facts
    shown: Int[Array, "s"]
    """Test samples whose nearest facts are kept, for the report's examples."""


class Kept(NamedTuple):
    """Evaluation of all test examples after a task."""

    ranks: Ranks
    found: Int[Array, "s k"]
    """Nearest facts of all tasks for the shown samples, nearest first."""


class Learned(NamedTuple):
    """Facts and images of a configuration."""

    divided: DividedFacts
    images: ImageSet | JpegStore
    """Images, training first, in memory or read when steps need them."""
    features: Features | None = None
    """Features that networks read instead."""

    @property
    def shown(self) -> Int[np.ndarray, "s"]:
        """First test samples of facts that are evenly spaced by their training examples."""
        facts, first = np.unique(self.divided.test.fact, return_index=True)
        order = np.argsort(-self.divided.train_counts[facts], kind="stable")
        spaced = np.unique(np.linspace(0, len(order) - 1, SHOWN).astype(int))
        return first[order[spaced]]

    @property
    def pictures(self) -> UInt8[np.ndarray, "s h w 3"]:
        """Images of the shown samples."""
        places = len(self.divided.train.fact) + self.shown
        if isinstance(self.images, JpegStore):
            return self.images.read(places)
        return self.images.images[places]

    @property
    def sizes(self) -> str:
        """Numbers of facts, tasks and examples in words."""
        divided = self.divided
        tasks = int(divided.fact_task["random"].max()) + 1
        return (
            f"{len(divided.facts):,} facts in {tasks} tasks, {len(divided.train.fact):,} training "
            f"and {len(divided.test.fact):,} test examples"
        )


def facts_benchmarks(request: Request) -> Benchmarks:
    """Return the benchmarks of `everlight run facts`, by split.

    Raises:
      DataError: data or options that cannot be used.
    """
    config, seed = request.config, request.seed
    learned = loader(config.data, config.network.side, seed)(config.scale)
    if config.features is not None:
        if isinstance(learned.images, JpegStore):
            raise DataError("--features is not for --splits, whose photographs are streamed")
        features = load_features(config.features, learned.images, request.runs)
        learned = learned._replace(features=features)
    return fact_benchmarks(config, learned)


def loader(data: Data, side: int, seed: int) -> Callable[[Scale], Learned]:
    """Return the function that chooses facts and images for a scale.

    Raises:
      DataError: options that do not fit together.
      MissingDataError: --splits without --photographs.
    """
    words = WordFile(data.words, data.unknown_words)
    if data.splits is not None:
        if data.photographs is None:
            raise MissingDataError("--splits needs --photographs, the folder of what it lists")

        def read(scale: Scale) -> Learned:
            divided = read_published(data.splits, size_of(scale), words)
            return Learned(
                divided, open_photographs(divided, data.photographs, side, data.memory_limit)
            )

        return read
    if data.photographs is not None and data.data != "vrd":
        raise DataError(f"--photographs: {data.data} has none; give --data vrd or --splits")
    source = load_source(data.data, data.scenes, seed)

    def choose(scale: Scale) -> Learned:
        divided = divide_facts(source, data.data, size_of(scale), seed, words)
        return Learned(divided, make_images(divided, side, data.photographs))

    return choose


def size_of(scale: Scale) -> Size:
    """Return the number of facts, tasks and examples of a scale."""
    return Size(scale.facts, scale.tasks, scale.per_fact)


def fact_benchmarks(config: Config, learned: Learned) -> Benchmarks:
    """Return the benchmark of each split; a seed is an initial network.

    Args:
      config: data, network and training.
      learned: its facts and images.
    """
    divided, features = learned.divided, learned.features
    store = learned.images if isinstance(learned.images, JpegStore) else None
    if features is not None:
        images = stored_features(features, slice(len(divided.train.fact)))
    else:
        images = store_images(learned.images) if store is None else channels()
    shared = Shared(images, facts_of(divided), jnp.asarray(learned.shown))
    begin = beginning(config, *divided.words.vectors.shape[1:], len(divided.facts), store)
    net, words = config.network, divided.words.source
    identity = {"words": words, "scale": dataclasses.asdict(config.scale)}
    identity |= {"network": dataclasses.asdict(net)}
    links = np.array("\n".join((*divided.train.links, *divided.test.links)))
    content = [links, divided.train.fact, divided.test.fact]
    if store is not None:
        identity["images"] = zlib.crc32(str(links).encode())
    if features is not None:
        content.append(features.values)
        identity["features"] = checksums_of(features.values)
    made = [sequence_of(divided, split, use) for split in SPLITS for use in USES]
    sequences = dict(zip([(s, u) for s in SPLITS for u in USES], same_shapes(made), strict=True))
    groups, shown = group_tests(divided), len(learned.shown)

    def bound(split: Split) -> Benchmark:
        return Benchmark(
            name="facts",
            setting=split,
            note=f"{learned.sizes}, {net.side}×{net.side} pixels",
            draws="initial network",
            training=training_words(net, features),
            chosen=config.chosen,
            checksums=checksums_of(*content),
            capabilities=frozenset(("one label", "own classes")),
            metrics=fact_metrics(groups, shown, lambda draw: initial(split, draw)),
            facts=lambda method: identity,
            shared=lambda method: shared,
            begin=begin,
            protocol=lambda method: config.scale.protocol,
            sequence=lambda method, draw: sequences[split, draw.use],
            keep=keep,
            criterion=held_out_score,
            criterion_name=f"{GENERALISED} on held-out training scenes",
            hyperparameters=GRIDS,
            store=store,
            config=config,
        )

    benchmarks = {split: bound(split) for split in SPLITS}
    ranking = initial_ranking(benchmarks["random"])

    @functools.cache
    def initial(split: Split, draw: Draw) -> Ranks:
        return ranking(benchmarks[split], draw)

    return benchmarks


USES = ("evaluation", "validation")


def sequence_of(divided: DividedFacts, split: Split, use: str) -> TaskSequence:
    """Return the tasks of a split; for validation, tested on scenes held out of training.

    Validation keeps the order of the tasks: if another task came last, forgetting could be
    selected.
    """
    train, tested = divided.train_examples, divided.test_examples
    if use == "validation":
        held_out = divided.held_out
        train, tested = (
            Examples(*(part[rows] for part in train)) for rows in (~held_out, held_out)
        )
    return fact_sequence(divided.fact_task[split], train, _NONE, tested)


def beginning(
    config: Config, words: int, facts: int, store: JpegStore | None = None
) -> Callable[[Method, RunData], tuple[Setup, Needs]]:
    """Return the function that makes the parts of a strategy: one embedding for all tasks.

    Args:
      config: of the benchmark.
      words: dimensions of a word vector.
      facts: number of facts of all tasks.
      store: reader of images that are not in memory.
    """
    net, scale = config.network, config.scale
    module = JointEmbedding(words, net.trunk, net.branch, net.hidden, net.dtype)

    def begin(method: Method, data: RunData) -> tuple[Setup, Needs]:
        shared: Shared = data.shared
        objective = keeping_examples(embedding_objective(shared.facts), shared)
        images = shared.images if store is None else stream_centers(store, shared.images)
        setup = flax_setup(module, images, objective, optax.adam(net.learning_rate))
        return setup, Needs(
            scale.tasks,
            facts,
            EXEMPLARS,
            gate=gate_features,
            gate_hidden=GATE_HIDDEN,
            replay_batch_size=scale.replay_batch_size,
        )

    return begin


def facts_of(divided: DividedFacts) -> Facts:
    """Return the label space on the device."""
    return Facts(jnp.asarray(divided.pieces), jnp.asarray(divided.words.vectors))


def gate_features(inputs: Float[Array, "b *shape"]) -> Float[Array, "b f"]:
    """Return the input of ExpertGate's gate: means of 8×8 blocks of images, or the features."""
    if inputs.ndim == 2:
        return inputs
    batch, side, _, colors = inputs.shape
    block = side // GATE_SIDE
    blocks = inputs.reshape(batch, GATE_SIDE, block, GATE_SIDE, block, colors)
    return jnp.mean(blocks, axis=(2, 4)).reshape(batch, -1)


def keeping_examples(plain: Objective, shared: Shared) -> Objective:
    """Return an objective whose evaluation keeps the nearest facts of the shown samples too."""

    def per_sample_metrics(predictions: Predictions, seen: Bool[Array, "c"]) -> tuple:
        return plain.per_sample_metrics(predictions, seen), predictions.scores

    def evaluate(sequence: TaskSequence, per_sample: tuple, seen: Bool[Array, "c"]) -> Kept:
        ranks, scores = per_sample
        embeddings = scores[shared.shown].reshape(shared.shown.shape[0], 3, -1)
        return Kept(plain.evaluate(sequence, ranks, seen), nearest_facts(embeddings, shared.facts))

    return plain._replace(per_sample_metrics=per_sample_metrics, evaluate=evaluate)


def keep(method: Method, result: SequenceResult) -> dict[str, Any]:
    """Return ranks and nearest facts after every task."""
    kept: Kept = result.evaluation
    return {**kept.ranks._asdict(), "found": kept.found}


def held_out_score(run: Trained) -> float:
    """Return the generalised Top-5 on the held-out scenes, over examples."""
    tested = np.asarray(run.sequence.test.mask)
    return float(np.mean(run.arrays["generalised"][-1][tested] <= TOP))


def initial_ranking(benchmark: Benchmark) -> Callable[[Benchmark, Draw], Ranks]:
    """Return the function of ranks before the first task, the same for all methods of a seed."""
    naive = METHODS["naive"]
    build, protocol = build_with(benchmark, naive), benchmark.protocol(naive)

    @jax.jit
    def ranks(data: RunData, sequence: TaskSequence, key: PRNGKeyArray) -> Ranks:
        setup, strategy = build(data)
        start = begin_state(Run(build, protocol, data, sequence, key)).result
        beginning = (start.memory, start.learner, sequence)
        return evaluate(setup, strategy, *beginning, protocol.evaluation_batch).ranks

    def of(benchmark: Benchmark, draw: Draw) -> Ranks:
        sequence, store = benchmark.sequence(naive, draw), benchmark.store
        data = RunData(benchmark.shared(naive), own_data(sequence, 0.0))
        with nullcontext() if store is None else naming_files(store):
            return jax.block_until_ready(ranks(data, sequence, draw.key))

    return of


def training_words(net: Network, features: Features | None) -> str:
    """Return network, optimizer and gate in words, for the report."""
    below, gate = f"on {features.note}" if features else "", "the same features"
    if features is None:
        below = f"channels {net.trunk} and {net.branch}"
        gate = "normalized images as means of 8×8 blocks, no pretrained network"
    dtype = "" if net.dtype == "float32" else f", computed in {net.dtype}"
    return (
        f"joint embedding, {below}, {net.hidden} hidden units per branch{dtype}; "
        f"Adam at {net.learning_rate:g}, restarted at every task; input of ExpertGate's gate: "
        f"{gate}"
    )
