"""Lifelong facts as benchmarks, one for each split: data, network, ranks and their metrics.

A label is a fact ⟨S, P, O⟩; a test image is right where its fact is among the five nearest.
"""

import functools
import zlib
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Int

from everlight.continual import (
    SequenceResult,
    Setup,
    StoredImages,
    TaskSequence,
    embedding_objective,
    flax_setup,
)
from everlight.continual.engine.run import Run
from everlight.continual.engine.tasks import initial_evaluation
from everlight.continual.methods.method import Method, StrategyArguments
from everlight.continual.methods.registry import METHODS
from everlight.continual.objectives.embedding import RanksAndNearest, with_nearest_facts
from everlight.continual.strategies.expert_gate import expert_gate
from everlight.continual.strategies.parts.gate_features import block_means
from everlight.metrics.fact_scores import (
    BACKWARD,
    DROP,
    FEW_SHOT,
    FORWARD,
    GENERALISED,
    OVER_TASKS,
    STANDARD,
    FactGroups,
    FactScores,
    fact_scores,
    group_facts,
)
from everlight.metrics.ranking import Facts, Means, Ranks
from everlight.metrics.ranking_groups import SPO_CASES
from everlight.models.joint_embedding import JointEmbedding
from everlight.scenarios import pad_sequences
from everlight.trees import checksums_of
from everlight_data.facts.parts.word_vectors import WordVectors
from everlight_data.facts.splits.fact_images import PicturedFacts, pictured_facts
from everlight_data.facts.splits.fact_splits import SPLITS, Part, Split, SplitFacts
from everlight_data.images.inputs.as_inputs import DeviceStatistics, naming_files, stream_centers
from everlight_data.images.inputs.jpeg_store import JpegStore
from everlight_data.runs.finished_runs import matrix_name
from everlight_data.sets.features import Features
from everlight_experiments.continual.benchmarks.benchmark import (
    Benchmark,
    Benchmarks,
    Data,
    Request,
    Selection,
    Setting,
    Training,
)
from everlight_experiments.continual.benchmarks.metric import (
    Axis,
    Metric,
    Metrics,
    once_per_run,
)
from everlight_experiments.continual.benchmarks.parts import Inputs, inputs_of
from everlight_experiments.continual.benchmarks.run_data import (
    PerRunData,
    RunData,
    SequenceId,
    TrainedRun,
    Use,
)
from everlight_experiments.continual.benchmarks.shapes import image_set, stored_shapes
from everlight_experiments.continual.training.programs import build_with
from everlight_experiments.facts.config import GRIDS, FactsConfig, Network

GATE_SIDE = 8
"""ExpertGate's gate reads images as means of this many blocks per side."""
GATE_HIDDEN = 100
EXEMPLARS = 2
"""Stored samples per fact, for methods with exemplars."""
TOP = 5
"""Rank up to which a fact counts as found; 5 in the paper."""
EDGES = (0, 1, 2, 6, 11, 21, 51, 101, 100_000)
"""Edges of bins of training examples, from tail to head."""
BINS = ("0", "1", "2–5", "6–10", "11–20", "21–50", "51–100", "101+")
TAIL = (
    "Accuracy by the number of training examples of the fact, from tail to head (figure 4), after "
    "the last task; in brackets the number of test examples."
)
LEAST = (15, 50)
"""Training examples that a part must have in the cases of SPO generalization."""
BY_COUNT, NEAREST, SPO = "{} by training examples", "nearest facts", "SPO generalisation"


def group_tests(divided: SplitFacts) -> FactGroups:
    """Return the groups of the test examples."""
    return group_facts(divided.pieces, divided.train_counts, divided.test.fact, LEAST)


def fact_metrics(groups: FactGroups, shown: int, initial: Callable[[SequenceId], Ranks]) -> Metrics:
    """Return all metrics; `initial` has the ranks before a sequence's first task."""
    # The test examples may be padded to the number of those for validation.
    size = len(groups.counts)
    inside, _ = np.histogram(groups.counts, EDGES)
    bins = tuple(f"{name} ({count:,})" for name, count in zip(BINS, inside, strict=True))

    @once_per_run
    def scores(run: TrainedRun) -> FactScores:
        """Return every score; there is no transfer where all was learned at once."""
        start = None
        if np.any(run.arrays["steps"][:-1]):
            start = Ranks(*(rank[:size] for rank in initial(run.sequence_id)))
        ranks = Ranks(*(jnp.asarray(run.arrays[name])[:, :size] for name in Ranks._fields))
        member = jnp.asarray(run.sequence.test_member)[:, :size]
        return fact_scores(ranks, member, groups, jnp.asarray(EDGES), TOP, start)

    def run_metric(metric: Metric) -> Metric:
        read = metric.compute
        return metric._replace(compute=lambda run: np.asarray(read(scores(run))))

    generalised = means(GENERALISED, lambda scores: scores.top_k.generalised, "time")
    score_metrics = (
        generalised.task_mean,
        *means(STANDARD, lambda scores: scores.top_k.standard, "time"),
        *means(DROP, lambda scores: scores.top_k.drop, "time"),
        Metric(BACKWARD, lambda scores: scores.backward),
        Metric(FORWARD, lambda scores: scores.forward),
        Metric("hits", lambda scores: scores.hits, (size,)),
        *means(FEW_SHOT, lambda scores: scores.few_shot),
        Metric(BY_COUNT.format(STANDARD), lambda scores: scores.standard_by_count, (bins,), TAIL),
        Metric(
            BY_COUNT.format(GENERALISED), lambda scores: scores.generalised_by_count, (bins,), TAIL
        ),
        Metric(SPO, lambda scores: scores.spo, (len(LEAST), len(SPO_CASES))),
    )
    nearest = Metric(NEAREST, lambda run: run.arrays["found"][-1], (shown, TOP))
    return Metrics(
        score=run_metric(generalised.example_mean),
        score_by_task=run_metric(generalised.by_task),
        others=(*map(run_metric, score_metrics), nearest),
    )


class MeanMetrics(NamedTuple):
    """A score's means, as metrics that read `FactScores`."""

    example_mean: Metric
    by_task: Metric
    task_mean: Metric


def means(name: str, read: Callable[[FactScores], Means], *time: Axis) -> MeanMetrics:
    """Return the metrics of a score's means."""
    return MeanMetrics(
        Metric(name, lambda scores: read(scores).example_mean, time),
        Metric(matrix_name(name), lambda scores: read(scores).by_task, (*time, "task")),
        Metric(OVER_TASKS.format(name), lambda scores: read(scores).task_mean, time),
    )


class SharedFacts(NamedTuple):
    """Data of all runs."""

    images: StoredImages | DeviceStatistics
    """Channels alone where images are streamed."""
    facts: Facts
    shown: Int[Array, "s"]
    """Test samples whose nearest facts are kept, of facts from head to tail."""


def facts_benchmarks(request: Request[FactsConfig]) -> Benchmarks:
    """Return the benchmarks of `everlight run facts`, by split.

    Raises:
      DataError: data or options that cannot be used.
    """
    config = request.config
    pictured = pictured_facts(config.data, config.network.side, request.seed)
    learned = pictured(config.scale.size)
    return fact_benchmarks(
        config, learned, inputs_of(config.features, learned.images, request.runs)
    )


def shapes(config: FactsConfig) -> Benchmarks:
    """Return the benchmark of each split whose images are shapes alone."""
    words, dimension = 170, 300
    count, tasks = config.scale.facts, config.scale.tasks
    images = image_set(tuple(map(str, range(count))), config.scale.per_fact, config.network.side)
    train, test = (
        Part(fact=labels, links=(), scene=np.arange(len(labels)), samples=None)
        for labels in (images.train_labels, images.test_labels)
    )
    divided = SplitFacts(
        facts=((),) * count,
        pieces=np.zeros((count, 3), int),
        words=WordVectors(np.zeros((words, dimension), np.float32), unknown=(), source=""),
        train=train,
        test=test,
        fact_task=dict.fromkeys(SPLITS, np.arange(count) * tasks // count),
        semantic=None,
    )
    inputs = Inputs(stored_shapes(images.images))
    return fact_benchmarks(config, PicturedFacts(divided, images), inputs)


def fact_benchmarks(config: FactsConfig, learned: PicturedFacts, inputs: Inputs) -> Benchmarks:
    """Return the benchmark of each split; a seed is an initial network."""
    divided, net = learned.split_facts, config.network
    shared = SharedFacts(inputs.stored, divided.label_space, jnp.asarray(learned.shown))
    links = np.array("\n".join((*divided.train.links, *divided.test.links)))
    content = [links, divided.train.fact, divided.test.fact, *inputs.feature_arrays]
    fingerprint = {"words": divided.words.source}
    if inputs.store is not None:
        fingerprint["images"] = zlib.crc32(str(links).encode())
    if inputs.features is not None:
        fingerprint["features"] = checksums_of(*inputs.feature_arrays)
    uses = [(split, use) for split in SPLITS for use in get_args(Use)]
    unpadded = [divided.sequence(split, use == "validation") for split, use in uses]
    sequences = dict(zip(uses, pad_sequences(unpadded), strict=True))

    def sequence_of(split: Split, method: Method, seq_id: SequenceId) -> TaskSequence:
        return sequences[split, seq_id.use]

    groups, shown = group_tests(divided), len(learned.shown)
    training = Training(
        words=training_words(net, inputs.features),
        fingerprint=lambda method: config.fingerprint(),
        setup=setup_factory(
            config, divided.words.vectors.shape[1], len(divided.facts), inputs.store
        ),
        protocol=lambda method: config.scale.protocol,
        keep=keep,
    )
    held_out = Metric(f"{GENERALISED} on held-out training scenes", held_out_score)
    data = {
        split: Data(
            note=f"{learned.sizes}, {net.side}×{net.side} pixels",
            checksums=checksums_of(*content),
            fingerprint=fingerprint,
            shared=lambda method: shared,
            sequence=partial(sequence_of, split),
            store=inputs.store,
        )
        for split in SPLITS
    }
    ranks = initial_ranking(data, training)
    return {
        split: Benchmark(
            "facts",
            data[split],
            Setting(
                name=split,
                draws="initial network",
                capabilities=frozenset(("one label", "disjoint classes", "last weights")),
                metrics=fact_metrics(groups, shown, partial(ranks, split)),
            ),
            training,
            Selection(config.chosen, held_out, GRIDS),
        )
        for split in SPLITS
    }


def setup_factory(
    config: FactsConfig, word_dimensions: int, facts: int, store: JpegStore | None = None
) -> Callable[[Method, RunData], tuple[Setup, StrategyArguments]]:
    """Return the function that makes the parts of a strategy: one embedding for all tasks."""
    net, scale = config.network, config.scale
    module = JointEmbedding(word_dimensions, net.trunk, net.branch, net.hidden, net.dtype)

    def make(method: Method, data: RunData) -> tuple[Setup, StrategyArguments]:
        shared: SharedFacts = data.shared
        plain = embedding_objective(shared.facts)
        objective = with_nearest_facts(plain, shared.facts, shared.shown, TOP)
        images = shared.images if store is None else stream_centers(store, shared.images)
        setup = flax_setup(module, images, objective, optax.adam(net.learning_rate))
        gate = {"features": partial(block_means, side=GATE_SIDE), "hidden": GATE_HIDDEN}
        return setup, StrategyArguments(
            scale.tasks,
            facts,
            EXEMPLARS,
            replay_batch_size=scale.replay_batch_size,
            arguments=gate if method.factory is expert_gate else {},
        )

    return make


def keep(method: Method, result: SequenceResult) -> dict[str, Any]:
    """Return ranks and nearest facts after every task."""
    ranking: RanksAndNearest = result.evaluation
    return {**ranking.ranks._asdict(), "found": ranking.nearest}


def held_out_score(run: TrainedRun) -> float:
    """Return the generalised Top-5 on the held-out scenes, over examples."""
    tested = np.asarray(run.sequence.test.mask)
    return float(np.mean(run.arrays["generalised"][-1][tested] <= TOP))


def initial_ranking(
    data: Mapping[Split, Data], training: Training
) -> Callable[[Split, SequenceId], Ranks]:
    """Return the function of ranks before the first task, the same for all methods of a seed."""
    naive, store = METHODS["naive"], next(iter(data.values())).store
    build, protocol = build_with(training, naive), training.protocol(naive)
    ranks = jax.jit(lambda *inputs: initial_evaluation(Run(build, protocol, *inputs)).ranks)

    @functools.cache
    def ranks_of(split: Split, seq_id: SequenceId) -> Ranks:
        sequence = data[split].sequence(naive, seq_id)
        per_run = PerRunData(jnp.zeros_like(sequence.class_task), jnp.float32(0))
        run_data = RunData(data[split].shared(naive), per_run)
        with nullcontext() if store is None else naming_files(store):
            return jax.block_until_ready(ranks(run_data, sequence, seq_id.key))

    return ranks_of


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
