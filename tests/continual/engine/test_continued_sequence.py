"""Arrays that grow, and a finished run that continues with a further task."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.continual.engine import Protocol, Run, Runs, drive_runs, run_sequence
from everlight.continual.engine.continued_sequence import continued_state, grow_arrays
from everlight.continual.strategies.ewc import ewc
from everlight.errors import ArgumentError
from everlight.scenarios import class_incremental
from tests.continual.engine.linear_net import CLASSES, DATA, KEY, TEST, TRAIN, linear_setup

PROTOCOL = Protocol(epochs=2, batch_size=8, select="last")
SEQUENCE = class_incremental(TRAIN, TEST, [[0, 1], [2, 3], [4, 5]], CLASSES)


def build(data):
    setup = linear_setup(data)
    return setup, ewc(setup, 1.0, importance_samples=16)


def first_tasks(count):
    return SEQUENCE._replace(
        tasks=jax.tree.map(lambda leaf: leaf[:count], SEQUENCE.tasks),
        test_member=SEQUENCE.test_member[:count],
        test_classes=SEQUENCE.test_classes[:count],
        class_task=jnp.minimum(SEQUENCE.class_task, count - 1),
    )


def run_of(sequence, protocol=PROTOCOL):
    return Run(build, protocol, DATA, sequence, KEY)


def continued(count, protocol=PROTOCOL):
    """Return the first state after so many tasks, without the optimizer's state."""
    result = run_sequence(run_of(first_tasks(count), protocol))
    result = result._replace(learner=result.learner._replace(opt_state=()))
    return continued_state(run_of(SEQUENCE, protocol), result, count)


def test_a_continued_run_equals_the_run_of_all_tasks():
    expected = run_sequence(run_of(SEQUENCE))
    state = continued(2)
    assert (int(state.task), int(state.epoch)) == (2, 0)
    # The scores before the third task are measured on its test set too.
    matrix = state.result.evaluation.class_incremental
    np.testing.assert_allclose(matrix[1], expected.evaluation.class_incremental[1], atol=1e-6)
    assert np.isnan(matrix[0, 2])
    state = state._replace(result=jax.tree.map(lambda leaf: leaf[None], state.result))
    *_, last = drive_runs(Runs.of(run_of(SEQUENCE)), 10, state=state)
    for name in ("learner", "memory", "losses", "usage"):
        pairs = (
            jax.tree.leaves(getattr(last.result, name)),
            jax.tree.leaves(getattr(expected, name)),
        )
        for actual, correct in zip(*pairs, strict=True):
            np.testing.assert_allclose(actual[0], correct, atol=1e-5)


def test_evaluations_within_earlier_tasks_are_nan_on_a_new_test_set():
    """Evaluations within the further task are not measured yet; programs hold 0 for them."""
    protocol = Protocol(epochs=1, batch_size=8, select="last", evaluate_steps=1)
    within = continued(2, protocol).result.within_tasks
    accuracies, took_place = within.evaluation.class_incremental, within.steps > 0
    assert took_place[:2].any()
    assert not took_place[2].any()
    assert np.isnan(accuracies[:2, ..., 2]).all()
    assert np.isfinite(accuracies[:2, ..., :2][took_place[:2]]).all()


def test_a_run_without_a_further_task_is_refused():
    result = run_sequence(run_of(SEQUENCE))
    with pytest.raises(ArgumentError, match="3 tasks are learned, and the run has 3"):
        continued_state(run_of(SEQUENCE), result, 3)


def test_grown_arrays_begin_with_the_smaller_ones():
    grown = grow_arrays(
        {"head": jnp.ones((2, 3)), "same": jnp.arange(4)},
        {"head": jnp.full((2, 5), 7.0), "same": jnp.zeros(4, int)},
    )
    np.testing.assert_array_equal(grown["head"], [[1, 1, 1, 7, 7]] * 2)
    np.testing.assert_array_equal(grown["same"], np.arange(4))


@pytest.mark.parametrize(
    ("tree", "larger", "message"),
    [
        ({"a": jnp.ones(3)}, {"a": jnp.ones(2)}, "a has dtype float32 and shape"),
        ({"a": jnp.ones(3)}, {"a": jnp.ones((3, 1))}, "arrays that only grow"),
        ({"a": jnp.ones(3)}, {"a": jnp.ones(3, int)}, "int32"),
        ({"a": jnp.ones(3)}, {"b": jnp.ones(3)}, "a is in one of the trees only"),
    ],
)
def test_arrays_that_shrink_or_differ_are_refused(tree, larger, message):
    with pytest.raises(ArgumentError, match=message):
        grow_arrays(tree, larger)
