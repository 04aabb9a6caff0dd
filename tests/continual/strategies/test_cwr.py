"""CWR against a hand computation in float64: three tasks, of which all hold one class."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from everlight.base import Setup
from everlight.continual.engine.tasks import init_learner
from everlight.continual.engine.updates import train_step
from everlight.continual.objectives.fixed_test_set import fixed_test_objective
from everlight.continual.strategies.cwr import cwr
from everlight.models.caffe_nets import LinearClassifier
from tests.continual import small_net as net
from tests.continual.small_net import CLASSES, DATA, FEATURES, LABELS, RATE

NET = LinearClassifier(CLASSES)
_rng = np.random.default_rng(5)
START = {
    "kernel": _rng.normal(size=(FEATURES, CLASSES)) * 0.3,
    "bias": _rng.normal(size=CLASSES) * 0.2,
}
SETUP = Setup(
    init=lambda key: ({"head": net.as_float32(START)}, {}),
    apply=lambda params, stats, inputs, train, key: (
        NET.apply({"params": params}, inputs, train),
        stats,
    ),
    objective=fixed_test_objective(CLASSES),
    optimizer=optax.sgd(RATE),
    gather=lambda index, key: net.as_float32(DATA)[index],
)
STRATEGY = net.compiled(cwr(SETUP))
# Samples of class c are c, c + 6, c + 12 and so on; class 0 is in every task, class 5 in none.
INDEX = [[0, 1, 2, 6, 7, 8], [0, 3, 6, 9], [12, 4, 18, 10]]
CARRIED = [[0, 1, 2], [0, 3], [0, 4]]


def made_task(number, index=None):
    # The slot of mask 0 holds a sample of class 5, which is missing.
    index = INDEX[number] if index is None else index
    train = net.samples_of([*index, 5], [True] * len(index) + [False])
    return net.task_of(number, CARRIED[number], train), [net.batch_of(index)] * 3


def temporary_head(index, start=START):
    """Descend for three steps from the start, over all outputs."""
    head = {name: leaf.copy() for name, leaf in start.items()}
    for _ in range(3):
        logits = DATA[index] @ head["kernel"] + head["bias"]
        powers = np.exp(logits)
        slope = powers / powers.sum(axis=1, keepdims=True) - np.eye(CLASSES)[LABELS[index]]
        head["kernel"] -= RATE * DATA[index].T @ slope / len(index)
        head["bias"] -= RATE * slope.mean(axis=0)
    return head


@pytest.fixture(scope="module")
def states():
    return net.run_tasks(SETUP, STRATEGY, [made_task(number) for number in range(3)])


def test_three_tasks_are_the_hand_computation(states):
    first, second, third = (temporary_head(index) for index in INDEX)
    expected = {}
    for name, gain in (("kernel", 3), ("bias", 1)):
        head = np.zeros_like(START[name])
        # Class 0 is averaged with one update before, then with two.
        old, middle, new = (part[name][..., 0] for part in (first, second, third))
        head[..., 0] = (2 * (gain * old + middle) / 2 + new) / 3
        head[..., [1, 2]] = gain * first[name][..., [1, 2]]
        head[..., 3] = second[name][..., 3]
        head[..., 4] = third[name][..., 4]
        expected[name] = head
    memory, _ = states[-1]
    net.assert_trees_close(memory.head, expected)
    # The first head is tripled only when the second task begins.
    stored = states[0][0].head["kernel"][:, jnp.array(CARRIED[0])]
    np.testing.assert_allclose(stored, first["kernel"][:, CARRIED[0]], rtol=1e-4)
    np.testing.assert_array_equal(memory.updates, [3, 1, 1, 1, 1, 0])
    assert not memory.held.any()
    for leaf in memory.head.values():
        np.testing.assert_array_equal(leaf[..., 5], 0)


def test_the_gain_of_the_first_task_is_a_setting():
    tasks = [made_task(0), made_task(1)]
    memory, _ = net.run_tasks(SETUP, cwr(SETUP, first_task_gain=1.5), tasks)[-1]
    expected = 1.5 * temporary_head(INDEX[0])["kernel"][:, [1, 2]]
    np.testing.assert_allclose(memory.head["kernel"][:, jnp.array([1, 2])], expected, rtol=1e-4)


@pytest.fixture(scope="module")
def as_coded():
    strategy = net.compiled(cwr(SETUP, form="code"))
    return strategy, net.run_tasks(SETUP, strategy, [made_task(number) for number in range(3)])


def test_three_tasks_of_the_code_s_form_are_the_hand_computation(as_coded):
    """Later heads begin from what the first left; classes not met yet have the latest rows."""
    first = temporary_head(INDEX[0])
    start = {"kernel": first["kernel"], "bias": START["bias"]}
    second, third = (temporary_head(index, start) for index in INDEX[1:])
    for number, latest in enumerate((first, second, third)):
        memory, _ = as_coded[1][number]
        for name, gain in (("kernel", 3 if number else 1), ("bias", 1)):
            head = latest[name].copy()
            head[..., [1, 2]] = gain * first[name][..., [1, 2]]
            old = gain * first[name][..., 0]
            if number == 0:
                head[..., 0] = old
            else:
                # Class 0 is averaged with one update before, then with two.
                head[..., 0] = (old + second[name][..., 0]) / 2
                head[..., 3] = second[name][..., 3]
            if number == 2:
                head[..., 0] = (2 * head[..., 0] + third[name][..., 0]) / 3
            np.testing.assert_allclose(memory.head[name], head, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(memory.updates, [3, 1, 1, 1, 1, 0])


def test_in_the_code_s_form_classes_not_met_yet_are_scored_by_the_latest_rows(as_coded):
    strategy, left = as_coded
    inputs = net.as_float32(DATA[:7])
    for memory, learner in left:
        head = learner.params["head"]
        expected = np.float64(DATA[:7]) @ head["kernel"][:, 5] + head["bias"][5]
        scores = strategy.predict(memory, learner, inputs)
        np.testing.assert_allclose(scores[:, 5], expected, rtol=1e-4, atol=1e-5)


def test_every_task_trains_a_redrawn_head():
    drawing = SETUP._replace(
        init=lambda key: (NET.init(key, jnp.zeros((1, FEATURES)), False)["params"], {})
    )
    strategy = cwr(drawing)
    learner = init_learner(drawing, CLASSES, jax.random.key(0))
    memory = strategy.init(jax.random.key(1), learner)
    assert not jax.tree.leaves(memory.start)
    heads = []
    for number in range(2):
        task, key = made_task(number)[0], jax.random.key(2 + number)
        memory, learner = strategy.begin_task(memory, learner, task, key)
        heads.append(learner.params["head"])
        np.testing.assert_array_equal(
            heads[-1]["kernel"], drawing.init(key)[0]["head"]["kernel"], strict=True
        )
    assert np.abs(heads[0]["kernel"] - heads[1]["kernel"]).min() > 0


def test_predictions_are_the_consolidated_heads(states):
    memory, learner = states[-1]
    inputs = net.as_float32(DATA[:7])
    scores = STRATEGY.predict(memory, learner, inputs)
    expected = DATA[:7] @ np.float64(memory.head["kernel"]) + np.float64(memory.head["bias"])
    np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(scores[:, 5], 0)


def test_while_a_task_is_learned_predictions_are_those_it_would_leave(states):
    task, (batch, *_) = made_task(1)
    memory, learner = net.begin(SETUP, STRATEGY, *states[0], task)
    memory, learner, _ = train_step(
        SETUP, STRATEGY, memory, learner, batch, task, jax.random.key(1)
    )
    inputs = net.as_float32(DATA[:7])
    during = STRATEGY.predict(memory, learner, inputs)
    ended = STRATEGY.end_task(memory, learner, task, jax.random.key(2))
    np.testing.assert_array_equal(during, STRATEGY.predict(*ended, inputs))


def test_before_the_first_task_nothing_is_known():
    learner = init_learner(SETUP, CLASSES, jax.random.key(0))
    memory = STRATEGY.init(jax.random.key(1), learner)
    assert not STRATEGY.predict(memory, learner, net.as_float32(DATA[:2])).any()


# Samples of classes 0 and 1 come again, in other numbers; class 5 never comes.
RECURRING = [[0, 6, 12, 18, 1, 7, 2], [0, 6, 1, 7, 13, 19, 25, 3], [24, 1, 7, 4, 10]]
COUNTS = np.array([[4, 2, 1, 0, 0, 0], [2, 5, 0, 1, 0, 0], [1, 2, 0, 0, 2, 0]])


def recurring_tasks():
    tasks = []
    for number, index in enumerate(RECURRING):
        train = net.samples_of([*index, 5], [True] * len(index) + [False])
        tasks.append((net.task_of(number, np.flatnonzero(COUNTS[number]), train), [index] * 3))
    return tasks


def expected_heads(form):
    """Return consolidated heads after each task, row by row as in the papers' pseudocode."""
    cw = {name: np.zeros_like(leaf) for name, leaf in START.items()}
    past, heads = np.zeros(CLASSES), []
    for index, count in zip(RECURRING, COUNTS, strict=True):
        current = np.flatnonzero(count)
        start = {name: np.zeros_like(leaf) for name, leaf in cw.items()}
        if form == "star":
            for name in cw:
                start[name][..., current] = cw[name][..., current]
                start[name][..., past == 0] = 0
        tw = temporary_head(index, start)
        for name in cw:
            mean = np.mean(tw[name][..., current])
            for j in range(CLASSES):
                row = tw[name][..., j] - mean
                if count[j]:
                    weight = np.sqrt(past[j] / count[j]) if form == "star" else past[j]
                    cw[name][..., j] = (cw[name][..., j] * weight + row) / (weight + 1)
                elif not past[j]:
                    cw[name][..., j] = tw[name][..., j]
        past += count if form == "star" else count > 0
        heads.append(({name: leaf.copy() for name, leaf in cw.items()}, past.copy()))
    return heads


@pytest.mark.parametrize("form", ["plus", "star"])
def test_recurring_classes_of_the_later_forms_are_the_hand_computation(form):
    strategy = net.compiled(cwr(SETUP, form=form))
    left = net.run_tasks(SETUP, strategy, recurring_tasks())
    inputs = net.as_float32(DATA[:7])
    for (memory, learner), (head, past) in zip(left, expected_heads(form), strict=True):
        net.assert_trees_close(memory.head, head, atol=1e-5)
        np.testing.assert_array_equal(memory.updates, past)
        assert not memory.held.any()
        scores = DATA[:7] @ head["kernel"] + head["bias"]
        predicted = strategy.predict(memory, learner, inputs)
        np.testing.assert_allclose(predicted, scores, rtol=1e-4, atol=1e-5)


def test_a_mean_shift_leaves_the_probabilities_of_the_task_s_classes():
    """One constant for all entries adds the same to all logits of a sample."""
    task, (batch, *_) = recurring_tasks()[0]
    memory, _ = net.run_tasks(SETUP, cwr(SETUP, form="star"), [(task, [batch] * 3)])[0]
    tw = temporary_head(RECURRING[0], {name: np.zeros_like(leaf) for name, leaf in START.items()})
    shift = DATA[:7] @ (np.float64(memory.head["kernel"]) - tw["kernel"])[:, :3]
    assert np.abs(shift).max() > 1e-3
    np.testing.assert_allclose(shift, np.repeat(shift[:, :1], 3, axis=1), atol=1e-5)
    np.testing.assert_allclose(np.mean(memory.head["kernel"][:, :3]), 0, atol=1e-6)
