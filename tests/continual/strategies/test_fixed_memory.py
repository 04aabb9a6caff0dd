"""A fixed total memory that the classes seen share, against the procedure in float64 NumPy."""

import functools
from itertools import chain

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from everlight.base import Outputs, Samples, Setup, Task
from everlight.continual.engine.tasks import init_learner
from everlight.continual.objectives.softmax import softmax_objective
from everlight.continual.strategies import agem, balanced_replay, bic, icarl, lucir
from everlight.continual.strategies.parts.exemplars import add_herded_exemplars, empty_exemplars
from tests.continual.small_net import compiled

CLASSES, TOTAL, WIDTH = 9, 50, 4
TASKS = [[0, 1], [2, 3, 4], [5], [6, 7, 8]]
# After each task 50 exemplars are over 2, 5, 6 and 9 classes.
QUOTAS = [25, 10, 8, 5]
COUNTS = np.array([40, 12, 30, 7, 26, 33, 4, 28, 20])
SLOTS = 100
"""Number of slots for the samples of a task, so that one program serves all tasks."""
KEY = jax.random.key(0)
_rng = np.random.default_rng(7)
LABEL = _rng.permutation(np.repeat(np.arange(CLASSES), COUNTS))
DATA = _rng.normal(size=(len(LABEL), WIDTH)) + 0.4
# The network's features change from task to task.
MIXES = [_rng.normal(size=(WIDTH, WIDTH)) for _ in TASKS]


def features_of(mix, index):
    rows = DATA[index] @ mix
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def setup_of():
    data = jnp.float32(DATA)

    def apply(params, batch_stats, inputs, train, key):
        features = inputs @ params["mix"]
        return Outputs(jnp.pad(features, ((0, 0), (0, CLASSES - WIDTH))), features), batch_stats

    return Setup(
        init=lambda key: ({"mix": jnp.float32(MIXES[0])}, {}),
        apply=apply,
        objective=softmax_objective(),
        optimizer=optax.sgd(0.1),
        gather=lambda index, key: data[index],
    )


SETUP = setup_of()


def second_labels(task):
    """Give a third of the samples another class of the task; in task 2, three get an old one."""
    rng = np.random.default_rng(task)
    selected = np.flatnonzero(np.isin(LABEL, TASKS[task]))
    pairs = np.stack([LABEL[selected], np.full(len(selected), -1)], axis=1)
    for row in rng.choice(len(selected), len(selected) // 3, replace=False):
        other = [label for label in TASKS[task] if label != pairs[row, 0]]
        if other:
            pairs[row, 1] = rng.choice(other)
    if task == 2:
        pairs[:3, 1] = 1
    return selected, pairs


def task_parts(task, labels):
    """Return indices and labels of a task's samples."""
    current, pairs = second_labels(task)
    return current, pairs[:, :labels]


def state_at(task):
    """Return the learner at the end of a task."""
    learner = init_learner(SETUP, CLASSES, KEY)
    seen = np.isin(np.arange(CLASSES), list(chain(*TASKS[: task + 1])))
    params = {"mix": jnp.float32(MIXES[task])}
    return learner._replace(params=params, seen=jnp.asarray(seen))


def task_at(task, labels):
    """Return the padded task."""
    index, pairs = task_parts(task, labels)
    rest = SLOTS - len(index)
    samples = Samples(
        np.pad(index, (0, rest)), np.pad(pairs, ((0, rest), (0, 0))), np.arange(SLOTS) < len(index)
    )
    train = jax.tree.map(jnp.asarray, samples)
    new = jnp.asarray(np.isin(np.arange(CLASSES), TASKS[task]))
    return Task(train, train, new, jnp.array(task))


def buffers_after(strategy, labels=1):
    """Return memory and learner after each task; parameters are given, none is trained."""
    memory, after = strategy.init(KEY, state_at(0)), []
    begin = jax.jit(strategy.begin_task or (lambda memory, learner, task, key: (memory, learner)))
    end = jax.jit(strategy.end_task)
    for number in range(len(TASKS)):
        task, learner = task_at(number, labels), state_at(number)
        memory, _ = begin(memory, learner, task, KEY)
        memory, _ = end(memory, learner, task, KEY)
        after.append((memory, learner))
    return after


def herd(rows, count):
    """Return the official ranks: argmax of w·x, then w += mean − x, without chosen samples."""
    mean, chosen = rows.mean(axis=0), []
    pull = mean
    while len(chosen) < min(count, len(rows)):
        score = rows @ pull
        score[chosen] = -np.inf
        chosen.append(int(np.argmax(score)))
        pull = pull + mean - rows[chosen[-1]]
    return chosen


def reference(labels, total=TOTAL):
    """Return all classes' exemplars after each task: reduce, then construct (algorithms 4, 5)."""
    held, history = {}, []
    for number in range(len(TASKS)):
        index, pairs = task_parts(number, labels)
        new = [(i, *pair) for i, pair in zip(index.tolist(), pairs.tolist(), strict=True)]
        pool = list(dict.fromkeys([*new, *chain(*held.values())]))
        quota = total // len(list(chain(*TASKS[: number + 1])))
        held = {label: rows[:quota] for label, rows in held.items()}
        for label in sorted({label for row in new for label in row[1:] if label >= 0}):
            members = [row for row in pool if label in row[1:]]
            rows = features_of(MIXES[number], [row[0] for row in members])
            held[label] = [members[place] for place in herd(rows, quota)]
        history.append({label: list(rows) for label, rows in held.items()})
    return history


def by_class(buffer):
    """Return (index, labels) by class in the order of their ranks."""
    leaves = (*buffer.samples, buffer.label, buffer.rank)
    index, labels, mask, label, rank = map(np.asarray, leaves)
    results = {}
    for slot in np.lexsort((rank, label)):
        if mask[slot]:
            rows = results.setdefault(int(label[slot]), [])
            assert rank[slot] == len(rows)
            rows.append((int(index[slot]), *labels[slot].tolist()))
    return results


@functools.cache
def herded_after(factory, labels):
    return buffers_after(factory(SETUP, labels=labels, buffer_size=TOTAL), labels)


@pytest.mark.parametrize(("factory", "labels"), [(icarl, 1), (icarl, 2), (bic, 2)])
def test_four_tasks_are_the_written_procedure(factory, labels):
    """Old classes keep their first exemplars; new ones are herded by their task's features."""
    expected = reference(labels)
    for number, (memory, _) in enumerate(herded_after(factory, labels)):
        result = by_class(memory.buffer)
        assert result == expected[number]
        held = int(memory.buffer.samples.mask.sum())
        assert held == sum(map(len, result.values())) <= TOTAL
        assert memory.buffer.samples.mask.shape == (TOTAL,)
        assert max(map(len, result.values())) == QUOTAS[number]
    if labels == 1:
        # Every class has as many samples as fit, or all of its own.
        counts = [len(result[label]) for label in range(CLASSES)]
        np.testing.assert_array_equal(counts, np.minimum(COUNTS, QUOTAS[-1]))
    else:
        # A sample stands for two classes, in a slot of each.
        assert any(set(actual[0]) & set(actual[1]) for actual in expected)


def all_at_once():
    index = np.arange(len(LABEL))
    samples = Samples(index, LABEL[:, None], np.ones(len(LABEL), bool))
    features = jnp.asarray(features_of(MIXES[0], index), jnp.float32)
    return jax.tree.map(jnp.asarray, samples), features


@pytest.mark.parametrize("per_class", [3, 10])
def test_with_all_classes_at_once_it_is_so_many_per_class(per_class):
    """A total of K = m · classes gives the same slots to the bit."""
    samples, features = all_at_once()
    complete = jnp.ones(CLASSES, bool)
    empty = empty_exemplars(per_class * CLASSES, 1)
    inputs = empty, samples, complete, features
    add = jax.jit(add_herded_exemplars)
    apart, shared = add(*inputs), add(*inputs, complete)
    for one, other in zip(jax.tree.leaves(apart), jax.tree.leaves(shared), strict=True):
        np.testing.assert_array_equal(one, other)
    assert int(shared.samples.mask.sum()) == np.minimum(COUNTS, per_class).sum()


def test_runs_that_saw_different_classes_share_a_program():
    """Under vmap one run's herds are as long as they need, and the same as without it."""
    samples, features = all_at_once()
    seen = jnp.asarray([np.arange(CLASSES) < 2, np.arange(CLASSES) < 7])

    @jax.jit
    def held(seen):
        return add_herded_exemplars(empty_exemplars(TOTAL, 1), samples, seen, features, seen)

    together = jax.vmap(held)(seen)
    for run, quota in ((0, 25), (1, 7)):
        single, one = held(seen[run]), jax.tree.map(lambda leaf, run=run: leaf[run], together)
        assert by_class(single) == by_class(one)
        expected = np.where(seen[run], np.minimum(COUNTS, quota), 0)
        result = np.bincount(one.label[one.samples.mask], minlength=CLASSES)
        np.testing.assert_array_equal(result, expected)


def test_replay_keeps_the_least_random_numbers_of_every_class():
    """After every task they are the first m, in its order, of a memory without limit."""
    limited = buffers_after(balanced_replay(SETUP, buffer_size=TOTAL))
    complete = buffers_after(balanced_replay(SETUP, exemplars_per_class=60))
    for (memory, learner), (full, _), quota in zip(limited, complete, QUOTAS, strict=True):
        seen = np.flatnonzero(learner.seen)
        assert memory.buffer.mask.shape == (TOTAL,)
        assert int(memory.buffer.mask.sum()) == np.minimum(COUNTS[seen], quota).sum() <= TOTAL
        index = np.asarray(full.buffer.index).reshape(CLASSES, 60)
        mask = np.asarray(full.buffer.mask).reshape(CLASSES, 60)
        expected = [index[label, mask[label]][:quota].tolist() for label in seen]
        result = np.asarray(memory.buffer.index)[np.asarray(memory.buffer.mask)].tolist()
        assert result == list(chain(*expected))


def test_the_nearest_mean_of_the_exemplars_that_are_left_predicts():
    """Over three tasks a class's mean is of the first m unit features of the present network."""
    strategy = compiled(icarl(SETUP, classifier="nearest mean", buffer_size=TOTAL))
    expected = reference(1)
    inputs, complete = SETUP.gather(jnp.arange(60), None), np.arange(60)
    for number, (memory, learner) in enumerate(buffers_after(strategy)[:3]):
        ready, learner = strategy.before_evaluation(memory, learner, KEY)
        scores = np.asarray(strategy.predict(ready, learner, inputs))
        features, seen = features_of(MIXES[number], complete), np.flatnonzero(learner.seen)
        means = []
        for label in seen:
            mean = features_of(MIXES[number], [row[0] for row in expected[number][label]]).mean(
                axis=0
            )
            means.append(mean / np.linalg.norm(mean))
        away = np.sum((features[:, None] - np.stack(means)) ** 2, axis=-1)
        np.testing.assert_allclose(scores[:, seen], -away, rtol=1e-4, atol=1e-5)
        np.testing.assert_array_equal(scores[:, ~np.asarray(learner.seen)], -4)
        np.testing.assert_array_equal(seen[away.argmin(axis=1)], scores.argmax(axis=1))


def test_a_total_of_less_than_one_per_class_is_refused():
    learner = state_at(0)
    for make in (icarl, bic, lucir, balanced_replay, agem):
        with pytest.raises(ValueError, match=r"buffer_size=8 is less than one .* 9 classes; give"):
            make(SETUP, buffer_size=8).init(KEY, learner)
        assert make(SETUP, buffer_size=9).init(KEY, learner).buffer is not None
