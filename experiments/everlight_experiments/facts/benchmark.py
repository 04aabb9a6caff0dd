"""Lifelong facts as benchmarks, one for each split: data, network, ranks and their metrics.

A label is a fact ⟨S, P, O⟩; a test image is right where its fact is among the five nearest.
"""

import dataclasses
import functools
import zlib
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Int, PRNGKeyArray

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
from everlight.continual.method import Method, Needs
from everlight.continual.registry import METHODS
from everlight.continual.strategies.expert_gate import block_means
from everlight.metrics import gem_backward_transfer, gem_forward_transfer
from everlight.metrics.ranking import Facts, Ranks, mean_hits, nearest_facts, top_k
from everlight.metrics.ranking_groups import (
    SPO_CASES,
    accuracy_by_count,
    few_shot,
    spo_generalisation,
)
from everlight.models.joint_embedding import JointEmbedding
from everlight.scenarios import fact_sequence, same_shapes
from everlight.scenarios.facts import Examples
from everlight.trees import checksums_of
from everlight_data.errors import DataError
from everlight_data.facts.divided import SPLITS, DividedFacts, Split
from everlight_data.facts.pictured import PicturedFacts, pictured_facts
from everlight_data.images.as_inputs import (
    Channels,
    channels,
    naming_files,
    store_images,
    stream_centers,
)
from everlight_data.images.feature_files import Features
from everlight_data.images.jpeg_store import JpegStore
from everlight_experiments.continual.benchmark import (
    Benchmark,
    Benchmarks,
    Draw,
    Metric,
    Request,
    RunData,
    Trained,
    once_per_run,
    own_data,
)
from everlight_experiments.continual.outcome import BY_TASK
from everlight_experiments.continual.parts import load_features, stored_features
from everlight_experiments.continual.runner import build_with
from everlight_experiments.facts.config import GRIDS, Config, Network

GATE_SIDE = 8
"""ExpertGate's gate reads images as means of this many blocks per side."""
GATE_HIDDEN = 100
EXEMPLARS = 2
"""Stored samples per fact, for methods with exemplars."""
_NONE = Examples(np.zeros(0, int), np.zeros(0, int))
TOP = 5
"""Rank up to which a fact counts as found; 5 in the paper."""
EDGES = (0, 1, 2, 6, 11, 21, 51, 101, 100_000)
"""Edges of bins of training examples, from tail to head."""
BINS = ("0", "1", "2–5", "6–10", "11–20", "21–50", "51–100", "101+")
LEAST = (15, 50)
"""Training examples that a part must have in the cases of SPO generalisation."""
STANDARD, GENERALISED, DROP = "standard Top-5", "generalised Top-5", "drop"
OVER_TASKS, BY_COUNT = "{} over tasks", "{} by training examples"
BACKWARD, FORWARD = "backward transfer (GEM)", "forward transfer (GEM)"
HITS, FOUND = "hits", "nearest facts"
FEW_SHOT = "few-shot Top-5"
SPO = "SPO generalisation"
LAYOUT, NO_INPUT = "layout only", "no input"


class Groups(NamedTuple):
    """Groups of test examples by what was trained on; the same for all methods."""

    counts: Int[np.ndarray, "m"]
    """Training examples of each test example's fact."""
    few: Bool[np.ndarray, "m"]
    spo: Bool[np.ndarray, "thresholds 7 m"]


def group_tests(divided: DividedFacts) -> Groups:
    """Return the groups of the test examples."""
    counts, label = divided.train_counts, divided.test.fact
    cases = [spo_generalisation(divided.pieces, counts, least)[:, label] for least in LEAST]
    few = np.asarray(few_shot(jnp.asarray(counts[label])))
    return Groups(counts[label], few, np.stack(cases))


def fact_metrics(
    groups: Groups, shown: int, initial: Callable[[Draw], Ranks]
) -> tuple[Metric, ...]:
    """Return all metrics, which share what is computed once for a run.

    Args:
      groups: of the test examples.
      shown: number of test samples whose nearest facts are kept.
      initial: ranks before the first task.
    """
    scores = once_per_run(functools.partial(scores_of, groups, initial))

    def metric(name: str, *axes, better: bool | None = True) -> Metric:
        return Metric(name, lambda run: scores(run)[name], axes, better)

    def top5(name: str, better: bool = True) -> list[Metric]:
        return [
            metric(name, "time", better=better),
            metric(BY_TASK.format(name), "time", "task", better=better),
            metric(OVER_TASKS.format(name), "time", better=better),
        ]

    return (
        *top5(GENERALISED),
        *top5(STANDARD),
        *top5(DROP, False),
        metric(BACKWARD),
        metric(FORWARD),
        metric(HITS, len(groups.counts)),
        metric(FEW_SHOT),
        metric(BY_TASK.format(FEW_SHOT), "task"),
        metric(OVER_TASKS.format(FEW_SHOT)),
        metric(BY_COUNT.format(STANDARD), BINS),
        metric(BY_COUNT.format(GENERALISED), BINS),
        metric(SPO, len(LEAST), len(SPO_CASES)),
        metric(FOUND, shown, TOP, better=None),
    )


def scores_of(
    groups: Groups, initial: Callable[[Draw], Ranks], run: Trained
) -> dict[str, np.ndarray]:
    """Return every metric of a run by name; transfer is NaN where all was learned at once."""
    # The test examples may be padded to the number of those for validation.
    size = len(groups.counts)
    member = jnp.asarray(run.sequence.test_member)[:, :size]
    ranks = Ranks(*(jnp.asarray(run.arrays[name])[:, :size] for name in Ranks._fields))
    scores = top_k(ranks, member, TOP)
    hits = [rank[-1] <= TOP for rank in ranks]
    backward = forward = np.float32(np.nan)
    if np.any(run.arrays["steps"][:-1]):
        start = Ranks(*(rank[None, :size] for rank in initial(run.draw)))
        matrix = scores.generalised.by_task
        backward = gem_backward_transfer(matrix)
        forward = gem_forward_transfer(matrix, top_k(start, member, TOP).generalised.by_task[0])
    few = mean_hits(hits[1], member & groups.few)
    counts, edges = jnp.asarray(groups.counts), jnp.asarray(EDGES)
    cases = mean_hits(hits[1], jnp.asarray(groups.spo).reshape(-1, size)).by_task
    found: dict[str, Any] = {}
    names = (STANDARD, GENERALISED, DROP, FEW_SHOT)
    for name, means in zip(names, (*scores, few), strict=True):
        found[name] = means.over_examples
        found[BY_TASK.format(name)] = means.by_task
        found[OVER_TASKS.format(name)] = means.over_tasks
    for name, hit in zip((STANDARD, GENERALISED), hits, strict=True):
        found[BY_COUNT.format(name)] = accuracy_by_count(hit, counts, edges).accuracy
    found |= {BACKWARD: backward, FORWARD: forward, HITS: hits[1]}
    found |= {SPO: cases.reshape(len(LEAST), len(SPO_CASES)), FOUND: run.arrays["found"][-1]}
    return {name: np.asarray(value) for name, value in found.items()}


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


def facts_benchmarks(request: Request) -> Benchmarks:
    """Return the benchmarks of `everlight run facts`, by split.

    Raises:
      DataError: data or options that cannot be used.
    """
    config, seed = request.config, request.seed
    pictured = pictured_facts(config.data.source, config.network.side, seed)
    found, features = pictured(config.scale.size), None
    if config.features is not None:
        if isinstance(found.images, JpegStore):
            raise DataError("--features is not for --splits, whose photographs are streamed")
        features = load_features(config.features, found.images, request.runs)
    return fact_benchmarks(config, found, features)


def fact_benchmarks(
    config: Config, learned: PicturedFacts, features: Features | None = None
) -> Benchmarks:
    """Return the benchmark of each split; a seed is an initial network.

    Args:
      config: data, network and training.
      learned: its facts and images.
      features: features that networks read instead of the images.
    """
    divided = learned.divided
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
            gate=partial(block_means, side=GATE_SIDE),
            gate_hidden=GATE_HIDDEN,
            replay_batch_size=scale.replay_batch_size,
        )

    return begin


def facts_of(divided: DividedFacts) -> Facts:
    """Return the label space on the device."""
    return Facts(jnp.asarray(divided.pieces), jnp.asarray(divided.words.vectors))


def keeping_examples(plain: Objective, shared: Shared) -> Objective:
    """Return an objective whose evaluation keeps the nearest facts of the shown samples too."""

    def per_sample_metrics(predictions: Predictions, seen: Bool[Array, "c"]) -> tuple:
        return plain.per_sample_metrics(predictions, seen), predictions.scores

    def evaluate(sequence: TaskSequence, per_sample: tuple, seen: Bool[Array, "c"]) -> Kept:
        ranks, scores = per_sample
        embeddings = scores[shared.shown].reshape(shared.shown.shape[0], 3, -1)
        return Kept(
            plain.evaluate(sequence, ranks, seen), nearest_facts(embeddings, shared.facts, TOP)
        )

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
