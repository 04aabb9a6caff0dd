"""Contracts of every strategy, driven by one table: a new strategy is tested by its row."""

import functools
import importlib.util
import inspect
import re

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from everlight.continual.engine.cost.targets import chips_of_a_v5e
from everlight.continual.engine.driver import (
    Programs,
    RunInputs,
    Runs,
    _program,
    initial_runs_state,
)
from everlight.continual.engine.epochs import count_steps, end_epoch, epoch_step, open_epoch
from everlight.continual.engine.protocol import Protocol
from everlight.continual.engine.run import Run, with_learned
from everlight.continual.engine.sequence import run_sequence
from everlight.continual.engine.tasks import (
    begin_state,
    begin_task,
    end_task,
    learn_epochs,
    take_task,
)
from everlight.continual.strategies.naive import naive
from everlight.meshes import REPLICATED, RUNS_SPEC, runs_mesh
from everlight.scenarios import (
    pad_sequences,
    with_blurry_boundaries,
    with_recurring_classes,
)
from everlight_data.runs.checkpoints import Checkpoints
from everlight_experiments.run_folder.compilation import describe_tpu, release_programs
from tests.contracts.strategies import (
    CLASSES,
    COUNTING,
    DATA,
    FIRST_TASK_ALONE,
    FROM_SCRATCH,
    KEY,
    PROTOCOL,
    SEQUENCE,
    STRATEGIES,
    TASKS,
    TRACES,
    WITHOUT_GRADIENT,
    bound,
    build_with,
    each_driven,
    each_strategy,
    make_data,
    only_the_head,
    some_now,
)
from tests.single_run import drive_run


@pytest.fixture(autouse=True)
def one_strategy_at_a_time(request):
    """Release the programs of the strategy before, hundreds of megabytes for all of them."""
    params = getattr(request.node, "callspec", None)
    name = params and params.params.get("name")
    if name != one_strategy_at_a_time.now:
        one_strategy_at_a_time.now = name
        for stored in (driven, plain, program, driven_build):
            stored.cache_clear()
        release_programs()


one_strategy_at_a_time.now = None


@functools.cache
def driven_build(name):
    return build_with(f"{name}, driven", name)


@functools.cache
def driven(name):
    """Return all states that the driver yields, in chunks of one epoch."""
    return list(drive_run(Run(driven_build(name), PROTOCOL, DATA, SEQUENCE, KEY)))


@functools.cache
def program(name):
    return jax.jit(lambda d, s, k: run_sequence(Run(build_with(name), PROTOCOL, d, s, k)))


@functools.cache
def plain(name):
    return program(name)(DATA, SEQUENCE, KEY)


@each_strategy
def test_ten_tasks_are_one_program_and_another_seed_is_no_new_one(name):
    first = plain(name)
    traced = TRACES[name]
    other = program(name)(*make_data(1), bound(jax.random.key(4)))
    assert TRACES[name] == traced
    assert program(name)._cache_size() == 1
    assert first.evaluation.task_masked.shape == (TASKS, TASKS)

    def learned(result):
        return jax.tree.leaves(result.memory)[0] if name in WITHOUT_GRADIENT else result.losses

    assert np.any(learned(first) != learned(other))


@each_strategy
def test_the_whole_sequence_lowers_for_gpus_and_tpus(name):
    """Every operation has a rule for both, and neither device is needed."""
    exported = jax.export.export(program(name), platforms=["cuda", "tpu"])(DATA, SEQUENCE, KEY)
    assert exported.platforms == ("cuda", "tpu")
    assert len(exported.mlir_module_serialized) > 10_000


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="extra tpu not installed")
@each_strategy
def test_on_four_chips_of_a_tpu_runs_compile_without_a_word_between_them(name):
    describe_tpu()
    mesh = runs_mesh(list(chips_of_a_v5e()))
    current = jax.tree.map(lambda leaf: jnp.stack([leaf] * 8), SEQUENCE)
    runs = Runs(build_with(name), PROTOCOL, DATA, current, jax.random.split(KEY, 8))
    state = initial_runs_state(runs)

    def placed(tree, spec):
        sharding = jax.NamedSharding(mesh, spec)
        return jax.tree.map(
            lambda leaf: jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding), tree
        )

    of_all = placed(state, REPLICATED)
    state = of_all._replace(
        result=placed(state.result, RUNS_SPEC), best=placed(state.best, RUNS_SPEC)
    )
    inputs = RunInputs(runs.sequence, runs.key, runs.run_data)
    arguments = placed(DATA, REPLICATED), placed(inputs, RUNS_SPEC)
    programs = Programs(runs.build, PROTOCOL, runs.join, mesh)
    epochs = placed(jnp.int32(1), REPLICATED)
    for part, *rest in ((learn_epochs, state, epochs), (end_task, state)):
        program = _program(programs, part)
        text = program.lower(*arguments, *rest).compile().as_text()
        assert not re.search(r"all-(reduce|gather|to-all)|collective-permute|reduce-scatter", text)


@each_strategy
def test_every_number_is_finite_and_learning_happens(name):
    result = plain(name)
    chex.assert_tree_all_finite(result)
    current = np.diag(result.evaluation.task_masked)
    assert (current[-1] if name == "joint" else current.mean()) > 0.75
    # Classes not yet introduced cannot be predicted.
    assert np.all(np.triu(result.evaluation.class_incremental, 1) == 0)


@each_strategy
def test_garbage_in_the_padding_changes_no_bit(name):
    def ruin(samples):
        index = jnp.where(samples.mask, samples.index, 7)
        labels = jnp.where(samples.mask[..., None], samples.labels, 5)
        return samples._replace(index=index, labels=labels)

    tasks = SEQUENCE.tasks
    assert not np.all(tasks.train.mask), "the test needs padding"
    ruined = SEQUENCE._replace(tasks=tasks._replace(train=ruin(tasks.train)))
    again = program(name)(DATA, ruined, KEY)
    chex.assert_trees_all_equal(plain(name).evaluation, again.evaluation)
    chex.assert_trees_all_equal(plain(name).learner, again.learner)


@some_now(STRATEGIES)
def test_vmapped_over_seeds_is_one_by_one(name):
    """Programs round differently; 10 tasks of some 6 steps agree to 2% of accuracy."""
    vmapped = jax.jit(
        jax.vmap(lambda k: run_sequence(Run(build_with(name), PROTOCOL, DATA, SEQUENCE, k)))
    )
    both = vmapped(jnp.stack([KEY, jax.random.key(9)]))
    single = plain(name)
    np.testing.assert_allclose(
        both.evaluation.task_masked[0].mean(), single.evaluation.task_masked.mean(), atol=0.02
    )
    np.testing.assert_allclose(both.losses[0], single.losses, atol=0.02)


NEEDS_OWN_CLASSES = {"disjoint classes", "task-incremental"}


@some_now(
    name
    for name, case in STRATEGIES.items()
    if not case.many_labels and NEEDS_OWN_CLASSES.isdisjoint(case.row.requirements)
)
def test_strategies_that_need_no_new_classes_learn_where_classes_recur(name):
    """They know more of the 20 classes than one, in blurry tasks and where classes come again."""
    recurring = with_recurring_classes(SEQUENCE, 0.5, 1)
    sequences = pad_sequences([recurring, with_blurry_boundaries(SEQUENCE, 0.3, 1)])
    train = jax.jit(lambda s: run_sequence(Run(build_with(name), PROTOCOL, DATA, s, KEY)))
    for sequence in sequences:
        result = train(sequence)
        chex.assert_tree_all_finite(result)
        assert result.evaluation.class_incremental[-1].mean() > 1.5 / CLASSES


@some_now(name for name in STRATEGIES if name not in FROM_SCRATCH | COUNTING)
def test_frozen_parameters_stay_bit_for_bit(name):
    """This includes weight decay and momentum, which move a parameter of zero gradient.

    A strategy that trains nothing by gradient moves no head either; another test covers it.
    """
    decaying = optax.chain(optax.add_decayed_weights(0.1), optax.sgd(0.1, momentum=0.9))
    build = build_with(name, optimizer=decaying, trainable=only_the_head)
    result = jax.jit(lambda s: run_sequence(Run(build, PROTOCOL, DATA, s, KEY)))(SEQUENCE)
    start = begin_state(Run(build, PROTOCOL, DATA, SEQUENCE, KEY)).result.learner
    # InfLoRA sets the first factor of additions, not by steps.
    stored = set(start.params) - {"head", *(["lora"] if name == "InfLoRA" else [])}
    for layer in stored:
        chex.assert_trees_all_equal(result.learner.params[layer], start.params[layer])
    kernel = result.learner.params["head"]["kernel"]
    assert np.any(kernel != start.params["head"]["kernel"])


def with_after_step():
    """Return the strategies that store data at every step, found without computing any array."""

    def keeps(name):
        def ask(data):
            return None if build_with(f"{name}, kept", name)(data)[1].after_step is None else 0.0

        return jax.eval_shape(ask, DATA) is not None

    return [name for name in STRATEGIES if keeps(name)]


@some_now(with_after_step())
def test_sums_over_steps_return_to_the_best_epoch(name):
    """Two worse epochs after it leave nothing in what the task ends with."""
    run = Run(build_with(f"{name}, kept", name), PROTOCOL, DATA, SEQUENCE, KEY)
    setup, strategy = run.build(DATA)

    @jax.jit
    def train(state, score):
        task, learned = take_task(strategy, PROTOCOL, SEQUENCE, state.task), state.result
        opened = open_epoch(strategy, learned.memory, task, KEY, jnp.int32(0))

        def step(number, learned):
            return epoch_step(setup, strategy, PROTOCOL, *learned, opened, task, number, KEY)[:2]

        steps = count_steps(opened, PROTOCOL)
        learned = jax.lax.fori_loop(0, steps, step, (learned.memory, learned.learner))
        return end_epoch(strategy, PROTOCOL, with_learned(state, *learned), score)

    finish = jax.jit(functools.partial(end_task, run))
    state = begin_state(run)
    # The memory of the second task has samples of the first.
    for _ in range(2):
        best = last = train(begin_task(run, state), jnp.float32(0.9))
        for score in jnp.array([0.2, 0.5]):
            last = train(last, score)
        trained = (jax.tree.leaves(item.result.learner.params) for item in (best, last))
        trains = name not in WITHOUT_GRADIENT | (FIRST_TASK_ALONE if state.task else set())
        assert trains != all(map(np.array_equal, *trained))
        expected, state = (finish(item) for item in (best, last))
        chex.assert_trees_all_equal(state.result.memory, expected.result.memory)
        learner, stored = state.result.learner, expected.result.learner
        chex.assert_trees_all_equal(learner.params, stored.params)
        chex.assert_trees_all_equal(learner.batch_stats, stored.batch_stats)


@each_driven
def test_driven_epoch_by_epoch_it_is_the_compiled_sequence(name):
    """Two programs round differently: after ten tasks losses agree to 1e-4, or 1e-4 of them."""
    compiled, stepwise = plain(name), driven(name)[-1].result
    np.testing.assert_allclose(stepwise.losses, compiled.losses, rtol=1e-4, atol=1e-4)
    chex.assert_trees_all_close(stepwise.evaluation, compiled.evaluation, atol=0.02)
    chex.assert_trees_all_equal(stepwise.usage, compiled.usage)


def test_the_first_task_may_take_more_epochs():
    """Its curve is longer and the others end in NaN; both drivers stop where they should."""
    protocol = Protocol(epochs=1, first_epochs=3, batch_size=8, evaluation_batch=32)
    build = build_with("more epochs", "naive")
    compiled = jax.jit(lambda: run_sequence(Run(build, protocol, DATA, SEQUENCE, KEY)))()
    states = list(drive_run(Run(build, protocol, DATA, SEQUENCE, KEY)))
    assert len(states) == 3 + TASKS - 1
    steps = -(-np.asarray(SEQUENCE.tasks.train.mask).sum(axis=1) // 8)
    np.testing.assert_array_equal(
        np.diff(compiled.usage.steps, prepend=0), steps * ([3] + [1] * (TASKS - 1))
    )
    reached = np.isfinite(compiled.losses)
    np.testing.assert_array_equal(reached.sum(axis=1), [3] + [1] * (TASKS - 1))
    np.testing.assert_allclose(states[-1].result.losses, compiled.losses, atol=1e-4)


@each_driven
def test_the_driver_compiles_its_four_parts_once(name):
    driven(name)
    traced = TRACES[f"{name}, driven"]
    other = make_data(1)
    next(drive_run(Run(driven_build(name), PROTOCOL, *other, bound(jax.random.key(4)))))
    assert TRACES[f"{name}, driven"] == traced


@each_driven
def test_structure_and_dtypes_are_stable_across_tasks(name):
    states = driven(name)
    assert len(states) == TASKS * PROTOCOL.epochs
    for state in states[1:]:
        chex.assert_trees_all_equal_structs(states[0], state)
        chex.assert_trees_all_equal_shapes_and_dtypes(states[0], state)


@each_driven
@pytest.mark.parametrize(
    "stopped_at",
    [5, *(pytest.param(at, marks=pytest.mark.slow) for at in (0, 3 * PROTOCOL.epochs - 1))],
)
def test_stopped_and_read_back_it_continues_to_the_same_bits(name, stopped_at, tmp_path):
    """The run stops within a later task, within the first, and between two."""
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(stopped_at, driven(name)[stopped_at])
    state = checkpoints.restore(stopped_at, like=driven(name)[0]).state
    *_, last = drive_run(Run(driven_build(name), PROTOCOL, DATA, SEQUENCE, KEY), state)
    chex.assert_trees_all_equal(last, driven(name)[-1])


@each_strategy
def test_predict_does_not_receive_the_task(name):
    predict = build_with(name)(DATA)[1].predict
    assert list(inspect.signature(predict).parameters) == ["memory", "learner", "inputs"]


def test_a_loss_that_is_not_finite_shows_in_its_task():
    def exploding(data):
        setup, _ = build_with("exploding", "naive")(data)

        def loss(outputs, labels, seen):
            usual = setup.objective.loss(outputs, labels, seen)
            # Class 5 is learned in some later task; its first batch makes the loss infinite.
            return jnp.where(labels[:, 0] == 5, jnp.inf, usual)

        bad = setup._replace(objective=setup.objective._replace(loss=loss))
        return bad, naive(bad)

    task = int(SEQUENCE.class_task[5])
    run = Run(exploding, PROTOCOL, DATA, SEQUENCE, KEY)
    *_, driven = drive_run(run)
    for result in (driven.result, jax.jit(run_sequence)(run)):
        finite = np.isfinite(result.losses).all(axis=1)
        assert finite[:task].all()
        assert not finite[task]


@each_strategy
def test_a_class_without_samples_and_a_task_of_one_give_no_nan(name):
    mask = np.array(SEQUENCE.tasks.train.mask)
    labels = np.asarray(SEQUENCE.tasks.train.labels[..., 0])
    mask[1] &= labels[1] != labels[1, 0]
    mask[2] = np.arange(mask.shape[1]) == 0
    train = SEQUENCE.tasks.train._replace(mask=jnp.asarray(mask))
    thin = bound(SEQUENCE._replace(tasks=SEQUENCE.tasks._replace(train=train)))
    chex.assert_tree_all_finite(program(name)(DATA, thin, KEY))
    assert program(name)._cache_size() == 1


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        pytest.param(name, *bounds, marks=pytest.mark.xdist_group(name))
        for name, bounds in {
            "naive": (0.0, 0.2),
            "ER-balanced": (0.6, 1.0),
            "joint": (0.6, 1.0),
            "cumulative": (0.6, 1.0),
        }.items()
    ],
)
def test_naive_forgets_and_methods_that_keep_data_do_not(name, least, most):
    """Final class-incremental accuracy is over 20 classes; two per task give 10%."""
    assert least <= plain(name).evaluation.class_incremental[-1].mean() <= most
