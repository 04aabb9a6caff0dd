"""TRGP against the official procedure in float64 NumPy, whose bases have no padding."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from everlight.base import Batch, Outputs, Samples, Setup, Task
from everlight.continual.engine.tasks import init_learner
from everlight.continual.engine.updates import train_step
from everlight.continual.objectives.softmax import softmax_objective
from everlight.continual.strategies.trgp import chosen_tasks, empty_region, trgp, with_task
from tests.continual.small_net import finite_differences

RATE, MOMENTUM, THRESHOLD, GROWTH, TRUST = 0.3, 0.5, 0.8, 0.02, 0.3
SIZES = {"one": (6, 5), "two": (5, 4), "head": (4, 8)}
TASKS = [[0, 1], [2, 3], [4, 5], [6, 7]]
_rng = np.random.default_rng(7)
# Inputs of every task lie near a line and a plane of their own.
LABELS = np.arange(48) % 8
_DIRECTIONS = _rng.normal(size=(4, 3, 6))
DATA = np.stack([(_rng.normal(size=3) * [2, 1, 0.5]) @ _DIRECTIONS[label // 2] for label in LABELS])
START = {name: _rng.normal(size=size) * 0.6 for name, size in SIZES.items()} | {
    f"{name} bias": _rng.normal(size=size[1]) * 0.3 for name, size in SIZES.items()
}
KEY = jax.random.key(0)


def nested(params):
    return {
        name: {"kernel": jnp.float32(params[name]), "bias": jnp.float32(params[f"{name} bias"])}
        for name in SIZES
    }


def flat(params):
    result = {name: np.asarray(params[name]["kernel"], float) for name in SIZES}
    return result | {f"{name} bias": np.asarray(params[name]["bias"], float) for name in SIZES}


def layers_of(params, inputs):
    values, rows = inputs, {}
    for name in SIZES:
        rows[name] = values
        values = values @ params[name]["kernel"] + params[name]["bias"]
        values = values if name == "head" else jnp.tanh(values)
    return rows, values


def make_setup(optimizer):
    data = jnp.float32(DATA)

    def apply(params, batch_stats, inputs, train, key):
        rows, logits = layers_of(params, inputs)
        return Outputs(logits, rows["head"]), batch_stats

    def layer_inputs(params, batch_stats, inputs):
        rows, _ = layers_of(params, inputs)
        return {(name, "kernel"): leaf[:, None] for name, leaf in rows.items()}

    return Setup(
        init=lambda key: (nested(START), {}),
        apply=apply,
        objective=softmax_objective(),
        optimizer=optimizer,
        gather=lambda index, key: data[index],
        layer_inputs=layer_inputs,
    )


SETUP = make_setup(optax.sgd(RATE, MOMENTUM))


def mask(classes):
    return jnp.asarray(np.isin(np.arange(8), classes))


def index_of(classes):
    return np.flatnonzero(np.isin(LABELS, classes))


def task_of(number):
    index = index_of(TASKS[number])
    # Padding follows the task's samples.
    padded = np.concatenate([index, [0, 1]])
    samples = Samples(
        jnp.asarray(padded),
        jnp.asarray(LABELS[padded][:, None]),
        jnp.arange(len(padded)) < len(index),
    )
    return Task(samples, samples, mask(TASKS[number]), jnp.int32(number))


def batches_of(number):
    index = index_of(TASKS[number])
    return [index[:6], index[6:], index[::2]]


@functools.cache
def states(optimizer="sgd"):
    """Return memory and learner after each task."""
    setup = SETUP if optimizer == "sgd" else make_setup(optax.adamw(0.05, weight_decay=0.1))
    strategy = trgp(setup, len(TASKS), THRESHOLD, GROWTH, max_samples=16, trust=TRUST)
    learner = init_learner(setup, 8, KEY)
    memory = strategy.init(KEY, learner)
    step = jax.jit(functools.partial(train_step, setup, strategy))
    begin, end = jax.jit(strategy.begin_task), jax.jit(strategy.end_task)
    after = []
    for number in range(len(TASKS)):
        task = task_of(number)
        learner = learner._replace(seen=learner.seen | task.classes)
        memory, learner = begin(memory, learner, task, KEY)
        learner = learner._replace(opt_state=setup.optimizer.init(learner.params))
        for index in batches_of(number):
            count = len(index)
            batch = Batch(
                jnp.asarray(index),
                jnp.asarray(LABELS[index][:, None]),
                jnp.ones(count),
                jnp.zeros(count, bool),
            )
            memory, learner, _ = step(memory, learner, batch, task, KEY)
        memory, learner = end(memory, learner, task, KEY)
        after.append((memory, learner))
    return strategy, after


# This is the same in float64, with a basis per task and no padding.


def scaled(params, spaces, scales):
    """Scale weights by `space1` and `space2` of the official layers, as `[inputs, outputs]`."""
    result = dict(params)
    for name, chosen in spaces.items():
        weight = params[name].T
        total = weight
        for place, basis in enumerate(chosen):
            scale = scales[name, place]
            total = total + weight @ basis @ scale @ basis.T - weight @ basis @ basis.T
        result[name] = total.T
    return result


def rows_of(params, index):
    values, rows = DATA[index], {}
    for name in SIZES:
        rows[name] = values
        values = values @ params[name] + params[f"{name} bias"]
        values = values if name == "head" else np.tanh(values)
    return rows, values


def own_loss(params, index, classes, spaces=(), names=()):
    """Return the loss by the weights and, where named in `names`, by the matrices S in `params`."""
    params = scaled(params, dict(spaces), {name: params[name] for name in names})
    logits = rows_of(params, index)[1][:, classes]
    rows = np.array([classes.index(label) for label in LABELS[index]])
    return np.mean(np.log(np.exp(logits).sum(axis=1)) - logits[np.arange(len(rows)), rows])


def chosen_basis(total, columns, share):
    """Return the task's and the whole basis as `get_space_and_grad`, greatest new one included."""
    energy = [direction @ columns @ columns.T @ direction for direction in total.T]
    rest = columns - total @ (total.T @ columns)
    left, lengths, _ = np.linalg.svd(rest, full_matrices=False)
    stack = np.concatenate([energy, lengths**2])
    everything, order, count, covered = np.hstack([total, left]), np.argsort(stack)[::-1], 0, 0.0
    while covered < share * np.sum(columns**2) and count < columns.shape[0]:
        covered += stack[order[count]]
        count += 1
    taken = order[:count]
    new = sorted(taken[taken >= total.shape[1]])
    return everything[:, sorted(taken)], np.hstack([total, everything[:, new]])


def train_by_hand():
    params, history, after = START, [], []
    full = {name: np.zeros((size[0], 0)) for name, size in SIZES.items()}
    for number, classes in enumerate(TASKS):
        index = index_of(classes)
        gradient = finite_differences(
            functools.partial(own_loss, index=index, classes=classes), params
        )
        spaces, chosen = {}, {}
        for name in ("one", "two"):
            norms = np.array(
                [np.linalg.norm(basis[name].T @ gradient[name]) for basis, *_ in history]
            )
            order = np.argsort(norms)[::-1][:2].astype(int)
            enough = norms[order] > TRUST * np.linalg.norm(gradient[name])
            chosen[name] = [int(task) for task in order[enough]]
            spaces[name] = [history[task][0][name] for task in chosen[name]]
        scales = {
            (name, place): np.eye(basis.shape[1])
            for name in spaces
            for place, basis in enumerate(spaces[name])
        }
        trace = {name: np.zeros_like(leaf) for name, leaf in (params | scales).items()}
        for batch in batches_of(number):
            options = {"index": batch, "classes": classes, "spaces": spaces, "names": [*scales]}
            slope = finite_differences(functools.partial(own_loss, **options), params | scales)
            trace = {name: MOMENTUM * trace[name] + slope[name] for name in trace}
            change = {name: -RATE * leaf for name, leaf in trace.items()}
            for name, basis in full.items():
                free = change[name] - basis @ (basis.T @ change[name])
                if name == "head":
                    free[:, classes] = change[name][:, classes]
                change[name] = free
                if number:
                    still = np.zeros_like(change[f"{name} bias"])
                    if name == "head":
                        still[classes] = change[f"{name} bias"][classes]
                    change[f"{name} bias"] = still
            scales = {name: leaf + change[name] for name, leaf in scales.items()}
            params = {name: leaf + change[name] for name, leaf in params.items()}
        rows, _ = rows_of(scaled(params, spaces, scales), index)
        current = {}
        for name in SIZES:
            share = THRESHOLD + GROWTH * number
            current[name], full[name] = chosen_basis(full[name], rows[name].T, share)
        history.append((current, spaces, scales))
        after.append((params, dict(full), current, chosen, scaled(params, spaces, scales)))
    return after, history


@functools.cache
def by_hand():
    return train_by_hand()


def test_four_tasks_done_again_in_float64():
    """Parameters, bases and chosen tasks agree after each task."""
    for number, (state, expected) in enumerate(zip(states()[1], by_hand()[0], strict=True)):
        memory, learner = state
        params, full, current, chosen, _ = expected
        for name, leaf in flat(learner.params).items():
            np.testing.assert_allclose(leaf, params[name], rtol=1e-3, atol=2e-4, err_msg=name)
        for name in SIZES:
            region = memory.regions[name, "kernel"]
            basis = np.asarray(region.basis)
            np.testing.assert_allclose(basis @ basis.T, full[name] @ full[name].T, atol=2e-3)
            columns = basis * np.asarray(region.member[number])
            np.testing.assert_allclose(
                columns @ columns.T, current[name] @ current[name].T, atol=2e-3
            )
        for name, tasks in chosen.items():
            result = np.asarray(memory.regions[name, "kernel"].chosen[number])
            assert result[result >= 0].tolist() == tasks


@pytest.mark.parametrize("task", range(4))
def test_a_task_is_predicted_by_its_scaled_network(task):
    """The network has the last parameters, with the subspaces and matrices of the task."""
    strategy, after = states()
    memory, learner = after[-1]
    params = by_hand()[0][-1][0]
    _, spaces, scales = by_hand()[1][task]
    index = index_of(TASKS[task])
    logits = rows_of(scaled(params, spaces, scales), index)[1]
    inputs = SETUP.gather(jnp.asarray(index), None)
    result = strategy.predict_task(memory, learner, inputs, jnp.int32(task))
    np.testing.assert_allclose(result, logits, rtol=2e-3, atol=2e-3)
    if task == 3:
        np.testing.assert_array_equal(strategy.predict(memory, learner, inputs), result)


@pytest.mark.parametrize("optimizer", ["sgd", "adamw"])
def test_no_kernel_moves_along_the_inputs_of_earlier_tasks(optimizer):
    """The optimizers include one whose steps leave the gradient's subspace."""
    after = states(optimizer)[1]
    for (before, old), (_, new) in itertools.pairwise(after):
        for name in ("one", "two"):
            moved = new.params[name]["kernel"] - old.params[name]["kernel"]
            along = before.regions[name, "kernel"].basis.T @ moved
            np.testing.assert_allclose(along, 0, atol=1e-5)
            np.testing.assert_array_equal(new.params[name]["bias"], old.params[name]["bias"])
    first, second = (learner.params["two"]["kernel"] for _, learner in after[:2])
    assert np.abs(second - first).max() > 1e-3


def test_during_a_task_only_its_classes_are_predicted():
    strategy, after = states()
    memory, learner = after[0]
    begun, learner = strategy.begin_task(memory, learner, task_of(1), KEY)
    scores = strategy.predict(begun, learner, jnp.float32(DATA[:3]))
    np.testing.assert_array_equal(np.isfinite(scores), np.tile(mask(TASKS[1]), (3, 1)))


def test_chosen_tasks_by_hand():
    """Bases are axes; the gradient's parts along them are 3, 4, 0 and 1 of a length of √26."""
    member = jnp.array([[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 1, 0, 0]], bool)
    region = empty_region(4, 4)._replace(basis=jnp.eye(4), member=member)
    gradient = jnp.float32([[3.0], [4.0], [0.0], [1.0]])
    for finished, trust, expected in (
        (0, 0.5, [-1, -1]),
        (1, 0.5, [0, -1]),
        (1, 0.6, [-1, -1]),
        (3, 0.5, [1, 0]),
        (3, 0.6, [1, -1]),
        (4, 0.5, [1, 3]),
    ):
        computed = chosen_tasks(region, gradient, jnp.int32(finished), trust)
        np.testing.assert_array_equal(computed, expected)
    single = empty_region(4, 1)._replace(basis=jnp.eye(4), member=member[:1])
    np.testing.assert_array_equal(chosen_tasks(single, gradient, jnp.int32(1), 0.5), [0, -1])


def test_a_task_within_the_old_basis_adds_no_direction():
    region = empty_region(3, 2)
    rows = jnp.float32([[2.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]])
    first = with_task(region, rows, 1.0, jnp.int32(0))
    np.testing.assert_array_equal(jnp.sum(first.member, axis=1), [2, 0])
    second = with_task(first, rows[:1], 0.9, jnp.int32(1))
    np.testing.assert_array_equal(second.basis, first.basis)
    np.testing.assert_array_equal(jnp.sum(second.member, axis=1), [2, 1])


def test_networks_with_unknown_inputs_are_refused():
    head_alone = SETUP._replace(
        layer_inputs=lambda *arguments: {
            ("head", "kernel"): SETUP.layer_inputs(*arguments)["head", "kernel"]
        }
    )
    learner = init_learner(head_alone, 8, KEY)
    with pytest.raises(ValueError, match=r"\.kernel are unknown; TRGP needs networks of nn\.Dense"):
        trgp(head_alone, 2).init(jax.random.key(0), learner)


def test_the_head_has_no_matrices():
    memory = states()[1][0][0]
    assert memory.regions["head", "kernel"].scale is None
    assert memory.regions["one", "kernel"].scale.shape == (4, 2, 6, 6)
    # Squares of 6, 5 and 4 inputs count twice, those of 6 and 5 for two matrices of four tasks.
    strategy = states()[0]
    entries = 2 * (6**2 + 5**2 + 4**2) + 8 * (6**2 + 5**2)
    parameters = 6 * 5 + 5 + 5 * 4 + 4 + 4 * 8 + 8
    assert strategy.parameter_copies == -(-entries // parameters)
