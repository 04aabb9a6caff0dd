"""Lifelong facts as a benchmark: data, net and training of the paper at each preset."""

import dataclasses
import zlib
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, UInt8

from everlight.continual.base import Objective, Predictions, Setup, TaskSequence
from everlight.continual.engine.evaluation import evaluate
from everlight.continual.engine.flax_setup import StoredImages, StreamedImages, flax_setup
from everlight.continual.engine.protocol import Protocol
from everlight.continual.engine.run import Run, SequenceResult
from everlight.continual.engine.tasks import begin_state
from everlight.continual.objectives.embedding import embedding_objective
from everlight.metrics.ranking import Facts, Ranks, distances_to_facts, top_k
from everlight.models.joint_embedding import JointEmbedding
from everlight.scenarios.facts import Examples, fact_sequence
from everlight.scenarios.shapes import same_shapes
from everlight_data.images.image_set import ImageSet
from everlight_data.images.jpeg_store import JpegStore
from everlight_experiments.common.checkpoint import checksums_of
from everlight_experiments.common.plan_settings import changed_plan
from everlight_experiments.common.settings import Count, Preset, Rate
from everlight_experiments.common.streaming import Channels, channels, naming_files, stream_centers
from everlight_experiments.continual.benchmark import (
    Arrays,
    Begin,
    Benchmark,
    Draw,
    RunData,
    Scores,
    own_of,
)
from everlight_experiments.continual.features import Features, load_features, stored_features
from everlight_experiments.continual.methods import METHODS, Method, Needs, with_published
from everlight_experiments.continual.plan import Dtype, Seeds, StrategiesRun, computed_in
from everlight_experiments.continual.runner import build_with
from everlight_experiments.facts.benchmarks import (
    SPLITS,
    TOP,
    DataSet,
    FactSet,
    Size,
    Split,
    load_images,
    load_source,
    make_benchmark,
)

GATE_SIDE = 8
"""ExpertGate's gate sees images as means of blocks, so many a side."""
GATE_HIDDEN = 100
EXEMPLARS = 2
"""Of every fact, for methods that are not the paper's."""
SHOWN = 48
"""Test samples of different facts, from head to tail, whose nearest facts are kept."""
HYPERPARAMETERS: Mapping[str, tuple[float, ...]] = {
    "IMM mode": (1e-4, 1e-3, 1e-2, 1e-1),
    "MAS": (0.1, 1, 10, 100, 1000),
}
PAPER_METHODS = ("ExpertGate", "finetune", "IMM mode", "SI", "MAS", "joint")
# With EWC and IMM's mean beside the paper's, and the values that SI's and MAS's papers recommend.
METHODS_HERE: dict[str, Method] = {
    row.name: row
    for row in with_published(
        [
            METHODS["naive" if name == "finetune" else name]._replace(name=name)
            for name in (*PAPER_METHODS[:-1], "EWC", "IMM mean", "joint")
        ]
    )
}
SEQUENTIAL = tuple(name for name in METHODS_HERE if name != "joint")


@dataclass(frozen=True)
class BenchmarkPlan:
    """A set of facts and what is trained on it."""

    size: Size
    methods: tuple[str, ...]
    protocol: Protocol
    seeds: Seeds
    hyperparameters_tried: Count = 5
    """Of each method's, the middle ones."""
    replay_batch_size: Count | None = None
    """Samples that methods draw from memory per step; None is as many as a step has."""


@dataclass(frozen=True)
class Net:
    """The network, and Adam's rate."""

    side: int
    """Of the images."""
    trunk: tuple[int, ...]
    branch: int
    hidden: int
    learning_rate: Rate = 1e-3
    dtype: Dtype = "float32"


@dataclass(frozen=True)
class Plan:
    """What a preset changes."""

    data: DataSet
    net: Net
    benchmarks: Mapping[str, BenchmarkPlan]
    chosen: str
    """How net, rate and lengths were chosen, for the report."""
    scenes: tuple[int, int] = (1500, 400)
    """Of the procedural world, for training and testing."""


def _select_last(epochs: int, batch_size: int) -> Protocol:
    # The last epoch: joint's task would be judged on the last task's validation alone.
    return Protocol(epochs=epochs, batch_size=batch_size, select="last")


PLANS: Mapping[Preset, Plan] = {
    "demo": Plan(
        data="procedural",
        chosen="The learning rate (0.0003, 0.001 or 0.003) is that of the papers. It is "
        "statistically tied with the best for finetune and joint on held-out scenes with a "
        "validation seed. Sizes and epochs are limited by the demo's time.",
        net=Net(side=32, trunk=(16, 32), branch=32, hidden=128),
        benchmarks={
            "mid-scale": BenchmarkPlan(
                Size(60, 4, (60, 20)),
                ("ExpertGate", "finetune", "IMM mode", "MAS", "joint"),
                _select_last(6, 32),
                seeds=1,
                hyperparameters_tried=2,
            )
        },
    ),
    "small": Plan(
        data="vrd",
        chosen="Learning rates of 0.0003, 0.001 and 0.003 and, mid-scale, 6 and 12 epochs were "
        "compared. The papers' learning rate is statistically tied with the best for finetune and "
        "joint on held-out scenes with a validation seed. The rest is limited by two cores.",
        net=Net(side=32, trunk=(16, 32), branch=32, hidden=128),
        benchmarks={
            "mid-scale": BenchmarkPlan(
                Size(186, 4, (25, 10)), tuple(METHODS_HERE), _select_last(12, 32), seeds=3
            ),
            "large-scale": BenchmarkPlan(
                Size(None, 8, (20, 3)),
                (*PAPER_METHODS, "SI, published", "MAS, published"),
                _select_last(4, 32),
                seeds=3,
            ),
        },
    ),
    "paper": Plan(
        data="vrd",
        chosen="The paper gives none, and these were not chosen on any data.",
        net=Net(side=64, trunk=(64, 128, 256), branch=256, hidden=1024),
        benchmarks={
            "mid-scale": BenchmarkPlan(
                Size(186, 4, (150, 75)), tuple(METHODS_HERE), _select_last(30, 64), seeds=5
            ),
            "large-scale": BenchmarkPlan(
                Size(None, 8, (100_000, 100_000)),
                tuple(METHODS_HERE),
                _select_last(10, 64),
                seeds=3,
            ),
        },
    ),
}


class Shared(NamedTuple):
    """What all sequences are learnt from."""

    images: StoredImages | Channels
    """Channels alone where images are streamed."""
    facts: Facts
    shown: Int[Array, "s"]
    """Test samples of which the nearest facts are kept, for the report's examples."""


class Kept(NamedTuple):
    """What is kept of the test union after a task."""

    ranks: Ranks
    found: Int[Array, "s k"]
    """The nearest facts of all tasks for the shown samples, nearest first."""


def facts_begin(
    net: Net,
    words: int,
    facts: int,
    tasks: int,
    store: JpegStore | None = None,
    replay_batch_size: int | None = None,
) -> Begin:
    """What strategies are made from: Adam, and one embedding for all tasks.

    Args:
      net: of the plan.
      words: dimensions of a word's vector.
      facts: of all tasks.
      tasks: of a split.
      store: where images are read that are not in memory.
      replay_batch_size: of the plan.
    """
    module = JointEmbedding(words, net.trunk, net.branch, net.hidden, net.dtype)

    def begin(scenario: str, method: Method, data: RunData) -> tuple[Setup, Needs]:
        shared: Shared = data.shared
        objective = _keeping_examples(embedding_objective(shared.facts), shared)
        images: StoredImages | StreamedImages = shared.images
        if store is not None:
            images = stream_centers(store, shared.images)
        setup = flax_setup(module, images, objective, optax.adam(net.learning_rate))
        return setup, Needs(
            tasks,
            facts,
            EXEMPLARS,
            gate=gate_features,
            gate_hidden=GATE_HIDDEN,
            replay_batch_size=replay_batch_size,
        )

    return begin


def record(
    name: str,
    plan: BenchmarkPlan,
    net: Net,
    fact_set: FactSet,
    images: StoredImages | JpegStore,
    chosen: str,
    features: Features | None = None,
) -> Benchmark:
    """The benchmark, whose scenarios are the splits; a draw is an initial net.

    Args:
      name: of the set of facts.
      plan, net: of the preset.
      fact_set: of the plan's size.
      images: on the device, or where they are read.
      chosen: how net, rate and lengths were, for the report.
      features: of the images, from which nets learn in their place.
    """
    if features is not None:
        images = stored_features(features, slice(len(fact_set.train.fact)))
    store = images if isinstance(images, JpegStore) else None
    shared = Shared(
        channels() if isinstance(images, JpegStore) else images,
        Facts(jnp.asarray(fact_set.pieces), jnp.asarray(fact_set.words.vectors)),
        jnp.asarray(shown_samples(fact_set)),
    )
    made = [_sequence(fact_set, split) for split in SPLITS]
    choosing = [_tuning_sequence(fact_set, split) for split in SPLITS]
    padded = same_shapes([*made, *choosing])
    asked = [(split, use) for use in ("reported", "tuning") for split in SPLITS]
    sequences = dict(zip(asked, padded, strict=True))
    facts = {
        "words": fact_set.words.source,
        "size": dataclasses.asdict(plan.size),
        "protocol": dataclasses.asdict(plan.protocol),
        "net": dataclasses.asdict(net),
    }
    if plan.replay_batch_size is not None:
        facts["replay_batch_size"] = plan.replay_batch_size
    links = "\n".join((*fact_set.train.links, *fact_set.test.links))
    if store is not None:
        facts["images"] = zlib.crc32(links.encode())
    content = [np.array(links), fact_set.train.fact, fact_set.test.fact]
    if features is not None:
        content.append(features.values)
        facts["features"] = checksums_of(features.values)
    width = fact_set.words.vectors.shape[1]
    return Benchmark(
        name="facts",
        note=f"{name}: {sizes(fact_set)}, {net.side}×{net.side} pixels",
        measure="generalised Top-5",
        scenarios=SPLITS,
        draws="initial net",
        training=net_name(net, features),
        chosen=chosen,
        facts=lambda scenario, method: facts,
        checksums=checksums_of(*content),
        offers=lambda scenario: frozenset(("one label", "own classes")),
        shared=lambda scenario, method: shared,
        begin=facts_begin(
            net, width, len(fact_set.facts), plan.size.tasks, store, plan.replay_batch_size
        ),
        protocol=lambda scenario, method: plan.protocol,
        sequence=lambda scenario, method, draw: sequences[scenario, draw.use],
        keep=_keep,
        scores=_scores,
        metric=_goodness,
        hyperparameters=HYPERPARAMETERS,
        store=store,
    )


def facts_benchmark(settings: StrategiesRun) -> Benchmark:
    """The first of the paper's benchmarks at a preset, for any methods."""
    plan = changed_plan(PLANS[settings.preset], settings.plan)
    name, wanted = next(iter(plan.benchmarks.items()))
    source = load_source(plan.data, plan.scenes, settings.seed)
    fact_set = make_benchmark(source, plan.data, wanted.size, settings.seed)
    images = load_images(fact_set, plan.net.side, None)
    features = None
    if settings.features is not None:
        train, test = fact_set.train.fact, fact_set.test.fact
        names = tuple(f"fact {number}" for number in range(len(fact_set.facts)))
        seen = ImageSet(
            name, np.asarray(images.pieces).reshape(-1, *images.shape), train, test, names
        )
        features = load_features(settings.features, seen, settings.runs)
    return record(name, wanted, plan.net, fact_set, images, plan.chosen, features)._replace(
        plan=plan
    )


def _keep(scenario: str, method: Method, result: SequenceResult) -> dict[str, Any]:
    kept: Kept = result.evaluation
    return {**kept.ranks._asdict(), "found": kept.found}


def _scores(scenario: str, arrays: Arrays, sequence: TaskSequence) -> Scores:
    ranks = Ranks(jnp.asarray(arrays["standard"]), jnp.asarray(arrays["generalised"]))
    means = top_k(ranks, jnp.asarray(sequence.test_member), TOP).generalised
    return Scores(np.asarray(means.over_examples), np.asarray(means.by_task))


def _goodness(scenario: str, arrays: Arrays, sequence: TaskSequence) -> float:
    """Generalised Top-5 on the held-out scenes, over examples."""
    member = np.asarray(sequence.test.mask)
    return float(np.mean(arrays["generalised"][-1][member] <= TOP))


def initial_ranking(benchmark: Benchmark, method: Method) -> Callable[[str, Draw], Ranks]:
    """Ranks before the first task: the same for all methods of a seed."""
    build = build_with(benchmark.begin, benchmark.scenarios[0], method)
    protocol = benchmark.protocol(benchmark.scenarios[0], method)

    @jax.jit
    def ranks(data: RunData, sequence: TaskSequence, key: PRNGKeyArray) -> Ranks:
        setup, strategy = build(data)
        start = begin_state(Run(build, protocol, data, sequence, key)).result
        beginning = (start.memory, start.learner, sequence)
        return evaluate(setup, strategy, *beginning, protocol.evaluation_batch).ranks

    def of(scenario: str, draw: Draw) -> Ranks:
        sequence, store = benchmark.sequence(scenario, method, draw), benchmark.store
        data = RunData(benchmark.shared(scenario, method), own_of(sequence, 0.0))
        with nullcontext() if store is None else naming_files(store):
            return jax.block_until_ready(ranks(data, sequence, draw.key))

    return of


def pictures(fact_set: FactSet, images: StoredImages | JpegStore) -> UInt8[np.ndarray, "s h w 3"]:
    """What the shown test samples show."""
    places = len(fact_set.train.fact) + shown_samples(fact_set)
    if isinstance(images, JpegStore):
        return images.read(places)
    return np.asarray(images.take(jnp.asarray(places), None))


def shown_samples(fact_set: FactSet) -> Int[np.ndarray, "s"]:
    """The first test samples of facts that are evenly spaced by their training examples."""
    facts, first = np.unique(fact_set.test.fact, return_index=True)
    order = np.argsort(-fact_set.train_counts[facts], kind="stable")
    spaced = np.unique(np.linspace(0, len(order) - 1, SHOWN).astype(int))
    return first[order[spaced]]


def gate_features(inputs: Float[Array, "b *shape"]) -> Float[Array, "b f"]:
    """For ExpertGate's gate: normalised images as means of 8x8 blocks, or features as they are."""
    if inputs.ndim == 2:
        return inputs
    batch, side, _, colors = inputs.shape
    block = side // GATE_SIDE
    blocks = inputs.reshape(batch, GATE_SIDE, block, GATE_SIDE, block, colors)
    return jnp.mean(blocks, axis=(2, 4)).reshape(batch, -1)


def _keeping_examples(plain: Objective, shared: Shared) -> Objective:
    def per_sample_metrics(predictions: Predictions, seen: Bool[Array, "c"]) -> tuple:
        return plain.per_sample_metrics(predictions, seen), predictions.scores

    def evaluate(sequence: TaskSequence, judged: tuple, seen: Bool[Array, "c"]) -> Kept:
        ranks, scores = judged
        embeddings = scores[shared.shown].reshape(shared.shown.shape[0], 3, -1)
        return Kept(plain.evaluate(sequence, ranks, seen), nearest_facts(embeddings, shared.facts))

    return plain._replace(per_sample_metrics=per_sample_metrics, evaluate=evaluate)


def nearest_facts(embeddings: Float[Array, "s 3 d"], facts: Facts) -> Int[Array, "s k"]:
    """The facts of all tasks that are nearest, nearest first."""
    return jax.lax.top_k(-distances_to_facts(embeddings, facts).T, TOP)[1]


def _sequence(fact_set: FactSet, split: Split) -> TaskSequence:
    fact_task = fact_set.fact_task[split]
    return fact_sequence(fact_task, fact_set.train_examples, _NONE, fact_set.test_examples)


def _tuning_sequence(fact_set: FactSet, split: Split) -> TaskSequence:
    """The tasks tested on scenes that are held out of training.

    In the order that is reported: in another, a great task may come last, and what is chosen then
    is to forget.
    """
    held_out, every = fact_set.held_out, fact_set.train_examples
    kept, tested = (Examples(*(part[where] for part in every)) for where in (~held_out, held_out))
    return fact_sequence(fact_set.fact_task[split], kept, _NONE, tested)


_NONE = Examples(np.zeros(0, int), np.zeros(0, int))


def sizes(fact_set: FactSet) -> str:
    """For the report."""
    tasks = int(fact_set.fact_task["random"].max()) + 1
    return (
        f"{len(fact_set.facts):,} facts in {tasks} tasks, {len(fact_set.train.fact):,} training "
        f"and {len(fact_set.test.fact):,} test examples"
    )


def net_name(net: Net, features: Features | None = None) -> str:
    """For the report."""
    if features is None:
        below = f"channels {net.trunk} and {net.branch}"
        gate = "normalised images as means of 8×8 blocks, no pretrained network"
    else:
        below, gate = f"on {features.note}", "the same features"
    return (
        f"joint embedding, {below}, {net.hidden} hidden units per branch{computed_in(net.dtype)}; "
        f"Adam at {net.learning_rate:g}, restarted at every task; input of ExpertGate's gate: "
        f"{gate}"
    )
