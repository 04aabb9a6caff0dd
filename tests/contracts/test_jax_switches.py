"""JAX's own switches, under which every strategy still learns: keys, 64 bits, checks, meshes."""

import warnings
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jax.sharding import AxisType

from everlight.continual import Runs, drive_runs, naive, run_sequence, train
from everlight.continual.engine.run import Run
from everlight.continual.engine.run_states import result_of_run
from everlight.meshes import runs_mesh
from everlight.models import MLP
from tests.contracts.short_sequence import DATA, LABELS, PROTOCOL, SEQUENCE
from tests.contracts.strategies import STRATEGIES, TASKS, build_with, some_now
from tests.single_run import drive_run

RBG = ("rbg", "unsafe_rbg")
DESCENDING = ("naive", "ER-balanced", "DER++", "A-GEM")
"""Strategies that train the whole network on the samples' cross-entropy, which falls in two epochs.
Others freeze the network, or have losses of pairs of samples, which depend on the batch."""


@pytest.mark.parametrize("implementation", RBG)
@some_now(STRATEGIES, DESCENDING)
def test_keys_of_every_implementation_train(name, implementation):
    build = build_with(f"{name}, {implementation}", name)
    key = jax.random.key(3, impl=implementation)
    program = jax.jit(lambda data, key: run_sequence(Run(build, PROTOCOL, data, SEQUENCE, key)))
    result = program(DATA, key)
    losses = np.asarray(result.losses)
    assert np.isfinite(losses).all()
    for leaf in jax.tree.leaves((result.learner.params, result.evaluation)):
        assert np.isfinite(np.asarray(leaf)).all() or not jnp.issubdtype(leaf.dtype, jnp.floating)
    if name in DESCENDING:
        assert np.mean(losses[:, -1] < losses[:, 0]) > 0.5


@some_now(STRATEGIES, ("naive", "HAT", "DER++", "EWC"))
def test_strategies_train_with_64_bits(name):
    with jax.enable_x64(True):
        build = build_with(f"{name}, x64", name)
        data, sequence = jax.tree.map(jnp.asarray, jax.tree.map(np.asarray, (DATA, SEQUENCE)))
        # Users' arrays have 64 bits wherever JAX chooses.
        sequence = jax.tree.map(
            lambda leaf: leaf.astype(int) if leaf.dtype == jnp.int32 else leaf, sequence
        )
        key = jax.random.key(3)
        program = jax.jit(lambda *arguments: run_sequence(Run(build, PROTOCOL, *arguments)))
        result = program(data, sequence, key)
        *_, driven = drive_run(Run(build, PROTOCOL, data, sequence, key))
    assert np.isfinite(result.losses).all()
    assert np.isfinite(driven.result.losses).all()
    assert np.isfinite(result.evaluation.class_incremental).all()


def test_prequential_accuracy_keeps_its_type_with_64_bits():
    """Its sums formerly had 64 bits, of which JAX warns where they enter a curve of 32."""
    with jax.enable_x64(True), warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        build, protocol = build_with("naive"), replace(PROTOCOL, prequential=True)
        data, sequence = jax.tree.map(jnp.asarray, jax.tree.map(np.asarray, (DATA, SEQUENCE)))
        *_, driven = drive_run(Run(build, protocol, data, sequence, jax.random.key(3)))
    assert driven.result.prequential.dtype == jnp.float32
    assert np.isfinite(driven.result.prequential).all()


def two_runs(build=None):
    keys = jax.random.split(jax.random.key(5), 2)
    sequence = jax.tree.map(lambda leaf: jnp.stack([leaf] * 2), SEQUENCE)
    return Runs(build or build_with("naive"), PROTOCOL, DATA, sequence, keys)


@pytest.fixture(scope="module")
def expected():
    *_, last = drive_runs(two_runs())
    return last


def same(result, expected):
    assert int(result.task) == TASKS
    for one, other in zip(jax.tree.leaves(result), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(one, other)


def test_programs_have_no_nan_that_training_does_not_make(expected):
    with jax.debug_nans(True):
        for state in drive_runs(two_runs(), chunk=1):
            if int(state.task) == 1:
                break
        result = jax.device_get(state.result)
        assert np.isnan(result.losses[:, 1:]).all()
        assert np.isfinite(result.losses[:, 0]).all()
        assert np.isnan(result.evaluation.class_incremental[:, 1:]).all()
        *_, last = drive_runs(two_runs(), state=state)
    same(last, expected)


def test_a_task_without_validation_makes_no_nan_in_programs_of_a_resumed_run():
    valid = SEQUENCE.tasks.valid
    nothing = valid._replace(mask=jnp.zeros_like(valid.mask))
    sequence = SEQUENCE._replace(tasks=SEQUENCE.tasks._replace(valid=nothing))
    protocol, key = replace(PROTOCOL, select="last", first_epochs=1), jax.random.key(3)
    with jax.debug_nans(True):
        states = [
            jax.device_get(state)
            for state in drive_run(Run(build_with("naive"), protocol, DATA, sequence, key))
        ]
        *_, last = drive_run(Run(build_with("naive"), protocol, DATA, sequence, key), states[1])
    assert np.isnan(last.result.validation).all()
    same(last, states[-1])


def test_a_run_is_taken_out_of_a_state_with_checks_for_nan():
    """Values that a run does not have yet are NaN."""
    with jax.debug_nans(True):
        state = next(iter(drive_runs(two_runs(), chunk=1)))
        first = result_of_run(state, 0, runs_mesh())
    assert np.isfinite(first.losses[0, 0])
    assert np.isnan(first.losses[1:]).all()


def test_nan_of_training_is_found_by_jax_debug_nans():
    build = build_with("naive, at a wild rate", "naive", optimizer=optax.sgd(1e30))
    with jax.debug_nans(True), pytest.raises(FloatingPointError):
        list(drive_runs(two_runs(build)))


def test_from_a_net_to_its_scores_with_checks_for_nan():
    """The validations of a call without validation samples are NaN."""
    images = np.asarray(DATA[: len(LABELS)])
    with jax.debug_nans(True):
        trained = train(MLP(20, hidden=(8,)), images, LABELS, naive, tasks=2, seeds=2, epochs=1)
        assert np.isfinite(trained.class_incremental_matrices).all()
        assert np.isfinite(trained.predict(images[:3])).all()


@pytest.mark.parametrize("kind", [AxisType.Auto, AxisType.Explicit])
def test_a_mesh_of_the_user_s_plays_no_part(kind, expected):
    images = np.asarray(DATA[: len(LABELS)])
    mesh = jax.make_mesh((1, 1), ("model", "batch"), axis_types=(kind, kind))
    with jax.set_mesh(mesh):
        *_, last = drive_runs(two_runs())
        trained = train(MLP(20, hidden=(8,)), images, LABELS, naive, tasks=2, seeds=2, epochs=1)
        assert trained.predict(images[:3]).shape == (2, 3, 20)
    same(last, expected)


def test_a_finished_state_is_given_back_as_it_is(expected):
    (again,) = drive_runs(two_runs(), state=expected)
    assert again is expected


def test_divergence_shows_in_the_matrices():
    build = build_with("naive, at a wild rate", "naive", optimizer=optax.sgd(1e30))
    result = jax.jit(
        lambda data: run_sequence(Run(build, PROTOCOL, data, SEQUENCE, jax.random.key(0)))
    )(DATA)
    removed = np.isnan(result.losses).any(axis=1)
    first = int(removed.argmax())
    assert removed[first]
    assert np.isnan(result.evaluation.class_incremental[first:]).all()
    assert np.isfinite(result.evaluation.class_incremental[:first]).all()
