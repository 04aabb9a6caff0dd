"""CORe50 as a benchmark: frames, nets and training of the paper at each preset."""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, PyTree

from everlight.continual.base import Learner, Memory, Samples, Setup, TaskSequence
from everlight.continual.engine.evaluation import predict_samples
from everlight.continual.engine.flax_setup import StoredImages, flax_setup
from everlight.continual.engine.protocol import Protocol
from everlight.continual.engine.run import Build, SequenceResult
from everlight.continual.objectives.fixed_test import fixed_test_objective
from everlight.scenarios.core50 import RUNS, TEST_SESSIONS, Level, core50
from everlight_data.errors import DataError
from everlight_data.images.core50 import Core50
from everlight_data.images.image_set import ImageSet
from everlight_experiments.common.checkpoint import checksums_of
from everlight_experiments.common.plan_settings import changed_plan
from everlight_experiments.common.run_folder import RunFolder
from everlight_experiments.continual.benchmark import (
    Arrays,
    Begin,
    Benchmark,
    Draw,
    RunData,
    Scores,
    own_of,
)
from everlight_experiments.continual.features import load_features, stored_features
from everlight_experiments.continual.methods import METHODS, Demand, Method, Needs
from everlight_experiments.continual.plan import StrategiesRun, without_unset
from everlight_experiments.continual.runner import build_with
from everlight_experiments.core50.beginning import (
    Beginning,
    Features,
    begin_with,
    load_frames,
    make_head,
    make_net,
    thin_test,
    thinned,
    trunk_features,
)
from everlight_experiments.core50.plans import PLANS, BatchScenario, Length, Plan, protocol_of

MOMENTUM, WEIGHT_DECAY = 0.9, 5e-4
EXEMPLARS, IMPORTANCE_SAMPLES = 20, 256
CHOOSING_SESSIONS = (0, 1, 3, 4, 7, 8), (5, 10)
"""Training and test sessions of the validation seeds; all are training sessions."""
TUNING, SCRATCH = "fine-tuning", "from scratch"
"""The static benchmark, from the common beginning and from a random one."""
HYPERPARAMETERS: Mapping[str, tuple[float, ...]] = {
    "EWC": (0.01, 0.1, 1, 10),
    "online EWC": (0.01, 0.1, 1, 10),
    "SI": (0.01, 0.1, 1, 10),
    "MAS": (1e-4, 1e-3, 1e-2, 1e-1),
}
"""Of penalties whose gradients are added."""
# The paper's three, CWR in both forms, then others at untuned hyperparameters that do not diverge
# in NI.
FIXED: dict[str, Method] = {
    name: METHODS[name] for name in ("naive", "CWR", "CWR as coded", "cumulative")
} | {
    name: METHODS[name]._replace(hyperparameters=hyperparameters)
    for name, hyperparameters in (
        ("EWC", (1.0,)),
        ("SI", (1.0,)),
        ("MAS", (0.01,)),
        ("LwF", (1.0,)),
        ("ER-balanced", ()),
        ("A-GEM", ()),
    )
}
PAPER_METHODS = {
    "NI": ("naive", "cumulative"),
    "NC": ("naive", "CWR", "cumulative"),
    "NIC": ("naive", "CWR", "cumulative"),
}
ELSEWHERE = (
    *("tuned", "frozen", "cumulative", "fine_tuning", "scratch"),
    *("orders", "cumulative_orders", "chosen"),
)
"""Of a plan, what says nothing about one sequence: its own length is told apart."""


class Shared(NamedTuple):
    """What all sequences of a method begin from."""

    frames: StoredImages
    """The images, or what the frozen trunk makes of them."""
    layers: PyTree
    """That every net begins with; the others are drawn."""
    rate: Float[Array, ""]
    later_factor: Float[Array, ""]
    """On the rate, in all batches but the first."""


def core50_begin(plan: Plan, classes: int, tasks: int, on_features: bool = False) -> Begin:
    """What strategies are made from: softmax over all classes, SGD with momentum and decay.

    Args:
      plan: of the preset.
      classes: of the level.
      tasks: of a sequence.
      on_features: every method learns a head on features in the frames' place.
    """

    def begin(scenario: str, method: Method, data: RunData) -> tuple[Setup, Needs]:
        shared: Shared = data.shared
        frozen = on_features or method.trains == "head"
        dense_rate = 1.0 if frozen or scenario == SCRATCH else plan.dense_rate
        optimizer = optax.chain(
            optax.add_decayed_weights(WEIGHT_DECAY),
            optax.sgd(shared.rate, momentum=MOMENTUM),
            scale_layers(dense_rate),
        )
        net = (make_head if frozen else make_net)(plan, classes)
        drawn = flax_setup(net, shared.frames, fixed_test_objective(classes), optimizer)
        setup = drawn._replace(
            init=lambda key: _begun(drawn, shared.layers, key),
            task_rate=lambda number: jnp.where(number == 0, 1.0, shared.later_factor),
        )
        # The gain makes up for a first batch of more classes, which NI has not.
        gain = 1.0 if scenario == "NI" else plan.gain
        return setup, Needs(
            tasks,
            classes,
            EXEMPLARS,
            importance_samples=IMPORTANCE_SAMPLES,
            gain=gain,
            replay_batch_size=plan.replay_batch_size,
        )

    return begin


def _begun(drawn: Setup, layers: PyTree, key: Array) -> tuple[PyTree, PyTree]:
    params, batch_stats = drawn.init(key)
    return {**params, **layers}, batch_stats


def scale_layers(dense_rate: float) -> optax.GradientTransformation:
    """Updates times `dense_rate` in fully connected layers, and biases twice their layer's.

    For parameters by layer, each of a `kernel`, `[in, out]` where it is fully connected, and a
    `bias`.
    """

    def scale(updates: PyTree, params: PyTree) -> PyTree:
        scaled = {}
        for name, layer in updates.items():
            factor = dense_rate if layer["kernel"].ndim == 2 else 1.0
            scaled[name] = {
                "kernel": factor * layer["kernel"],
                "bias": 2 * factor * layer["bias"],
            }
        return scaled

    return optax.stateless(scale)


def length_of(plan: Plan, scenario: str, method: Method) -> Length:
    """How long a method learns from each batch of a scenario, and at which rate."""
    if scenario in (TUNING, SCRATCH):
        return plan.fine_tuning if scenario == TUNING else plan.scratch
    if method.trains == "head":
        return plan.frozen
    return plan.cumulative if method.anew else plan.tuned[scenario]


def record(
    plan: Plan,
    frames: Core50,
    level: Level,
    seed: int,
    scenarios: tuple[str, ...],
    beginning: Beginning | None = None,
    features: Callable[[], Features] | None = None,
) -> Benchmark:
    """The benchmark; a draw is a published order of the batches.

    Args:
      plan: of the preset.
      frames: of the plan.
      level: of the classes.
      seed: of the run.
      scenarios: NI, NC, NIC, or the static ones.
      beginning: weights of all strategies; without it nothing can be trained.
      features: of the frames, by the frozen trunk.
    """
    classes = len(frames.object_names if level == "object" else frames.category_names)
    labels = frames.object if level == "object" else frames.object // 5
    on_features = beginning is not None and len(beginning.stored.shape) == 1
    net = "a linear head" if on_features else plan.net_description

    @functools.cache
    def sequences(scenario: str, use: str, number: int) -> TaskSequence:
        kind = "static" if scenario in (TUNING, SCRATCH) else scenario
        if use == "tuning":
            return _choosing(frames, kind, RUNS - 1 - number, level, plan.test_frames)
        return core50(frames.object, frames.session, kind, number, level)

    def sequence(scenario: str, method: Method, draw: Draw) -> TaskSequence:
        return sequences(scenario, draw.use, draw.number)

    def begin(scenario: str, method: Method, data: RunData) -> tuple[Setup, Needs]:
        tasks = sequences(scenario, "reported", 0).tasks.id.shape[0]
        return core50_begin(plan, classes, tasks, on_features)(scenario, method, data)

    def facts(scenario: str, method: Method) -> dict:
        every = without_unset(dataclasses.asdict(plan))
        for other in ELSEWHERE:
            del every[other]
        return {
            "seed": seed,
            "level": level,
            "beginning": None if scenario == SCRATCH else beginning.fingerprint,
            **({"features": checksums_of(content[-1])} if on_features else {}),
            "length": dataclasses.asdict(length_of(plan, scenario, method)),
            **every,
        }

    def shared(scenario: str, method: Method) -> Shared:
        length = length_of(plan, scenario, method)
        rates = jnp.float32(length.learning_rate), jnp.float32(length.later_factor)
        if method.trains == "head" and not on_features:
            values = StoredImages.of(features().values, jnp.float32(0), jnp.float32(1))
            return Shared(values, {}, *rates)
        return Shared(beginning.stored, {} if scenario == SCRATCH else beginning.layers, *rates)

    def protocol(scenario: str, method: Method) -> Protocol:
        return protocol_of(length_of(plan, scenario, method), plan.batch_size)

    offered: tuple[Demand, ...] = ("class scores", "one label")
    tested = np.isin(frames.session, TEST_SESSIONS)
    content = [frames.images, labels[~tested], labels[tested]]
    if on_features:
        content.append(np.asarray(beginning.stored.pieces))
        said = beginning.remark
    else:
        begun = f"every strategy begins with weights {beginning.remark}; " if beginning else ""
        said = f"{begun}CWR and methods of counting work on the frozen trunk's features"
    return Benchmark(
        name="core50",
        note=f"{frames.name}, {plan.side}×{plan.side} pixels, {classes} classes ({level} level), "
        f"{np.count_nonzero(~tested):,} training frames, {np.count_nonzero(tested):,} test frames "
        "of sessions 3, 7 and 10",
        measure="accuracy",
        tested="the full test set",
        scenarios=scenarios,
        draws="published order of batches",
        training=f"{net}, SGD with momentum 0.9, restarted at every batch, in batches of "
        f"{plan.batch_size}; {said}",
        chosen=plan.chosen,
        facts=facts,
        checksums=checksums_of(*content),
        offers=lambda scenario: frozenset(
            (*offered, "own classes") if scenario == "NC" else offered
        ),
        shared=shared,
        begin=begin,
        protocol=protocol,
        sequence=sequence,
        keep=lambda scenario, method, result: result.evaluation._asdict(),
        scores=_scores,
        hyperparameters=HYPERPARAMETERS,
        one_by_one=True,
    )


def evaluating(
    benchmark: Benchmark, scenario: str, method: Method, seed: int
) -> Callable[[SequenceResult], Callable[[], Float[Array, "m c"]]]:
    """From what a sequence left to the evaluation of its test set, as after every batch."""
    build = build_with(benchmark.begin, scenario, method)
    size = benchmark.protocol(scenario, method).evaluation_batch
    data = benchmark.shared(scenario, method)
    # The test samples are the same in all orders.
    sequence = benchmark.sequence(scenario, method, Draw("reported", seed, 0))

    def of(result: SequenceResult) -> Callable[[], Float[Array, "m c"]]:
        left = result.memory, result.learner
        return partial(score_test_set, build, size, data, sequence, *left)

    return of


@partial(jax.jit, static_argnums=(0, 1))
def score_test_set(
    build: Build,
    size: int,
    shared: Any,
    sequence: TaskSequence,
    memory: Memory,
    learner: Learner,
) -> Float[Array, "m c"]:
    """Scores of the test set, as they are computed after every batch."""
    setup, strategy = build(RunData(shared, own_of(sequence)))
    return predict_samples(setup, strategy, memory, learner, sequence.test, size)


def _scores(scenario: str, arrays: Arrays, sequence: TaskSequence) -> Scores:
    """By task: over the classes that a batch is the first to bring, equally many frames each."""
    tasks = np.arange(sequence.tasks.id.shape[0])
    brought = np.asarray(sequence.class_task) == tasks[:, None]
    with np.errstate(invalid="ignore"):
        matrix = arrays["class_accuracy"] @ brought.T / brought.sum(axis=1)
    return Scores(arrays["accuracy"], matrix)


def _choosing(
    frames: Core50, scenario: str, run: int, level: Level, test_frames: int | None
) -> TaskSequence:
    """An order that is not reported; training sessions test it, which it does not learn."""
    place = thinned(frames, CHOOSING_SESSIONS[1], test_frames)
    objects, sessions = frames.object[place], frames.session[place]
    found = core50(objects, sessions, scenario, run, level, *CHOOSING_SESSIONS)

    def in_frames(samples: Samples) -> Samples:
        return samples._replace(index=jnp.asarray(place)[samples.index])

    tasks = found.tasks._replace(
        train=in_frames(found.tasks.train), valid=in_frames(found.tasks.valid)
    )
    return found._replace(tasks=tasks, test=in_frames(found.test))


def core50_benchmark(scenario: BatchScenario, settings: StrategiesRun) -> Benchmark:
    """The paper's benchmark at a preset, for any methods.

    Raises:
      DataError: more seeds than published orders beside those of the validation seeds.
    """
    plan = changed_plan(PLANS[settings.preset], settings.plan)
    left = RUNS - settings.validation_seeds
    if settings.seeds > left:
        raise DataError(
            f"--seeds {settings.seeds}; core50 has {RUNS} published orders, of which "
            f"--validation-seeds {settings.validation_seeds} take some: give {left} or less"
        )
    frames = thin_test(load_frames(plan, settings.seed), plan.test_frames)
    parts = plan, frames, "object", settings.seed, (scenario,)

    def prepare(folder: RunFolder) -> Benchmark:
        if settings.features is not None:
            nothing = frames.object[:0]
            images = ImageSet("", frames.images, frames.object, nothing, frames.object_names)
            found = load_features(settings.features, images, settings.runs)
            train = ~np.isin(frames.session, TEST_SESSIONS)
            stored = stored_features(found, train)
            return record(*parts, Beginning({}, stored, f"on {found.note}"))._replace(plan=plan)
        beginning = begin_with(folder, plan, frames, settings.seed, None)
        features = functools.cache(lambda: trunk_features(beginning, plan))
        return record(*parts, beginning, features)._replace(plan=plan)

    return record(*parts)._replace(prepare=prepare, plan=plan)
