"""BiC: who leaves training, stage 1 against float64 NumPy, stage 2 against SciPy's minimiser."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, logsumexp, softmax

from everlight.continual.base import Outputs, Samples
from everlight.continual.objectives.many_labels import binary_objective
from everlight.continual.strategies.bias_correction import (
    Correction,
    best_threshold,
    correct_classes,
    fit_pair,
)
from everlight.continual.strategies.bic import (
    bic,
    hold_out,
    label_entropy,
    label_softmax,
)
from everlight.continual.strategies.exemplars import ExemplarBuffer, empty_exemplars
from everlight.continual.strategies.lwf import Teacher
from tests.continual.many_labels import (
    OLD,
    PAIRS,
    binary_gradient,
    binary_setup,
    entropies,
    labelled,
    labelled_batch,
    mean_gradient,
    targets_of,
    teacher_logits,
)
from tests.continual.small_net import (
    CLASSES,
    LABELS,
    START,
    as_float32,
    assert_trees_close,
    batch_gradient,
    batch_of,
    classes_mask,
    filled,
    forward,
    run_tasks,
    samples_of,
    small_learner,
    small_setup,
    task_of,
)

KEY = jax.random.key(0)
SETUP = binary_setup()


# Who leaves training: two of 20 samples, at least one of fewer, none of one.

TWENTY = bic(SETUP, per_class=20, labels=2)
# Classes 0 and 1 have been learnt. Class 0 holds one image and class 1 five and a second label.
HELD = {0: [6], 1: [1, 7, 13, 19, 25]}
# Image 6 comes again as class 2, and image 1 as classes 1 and 3: other samples.
TRAIN = labelled([*range(20), 3, 9, 15, 21, 1, 39], [2] * 20 + [3] * 4 + [1, 0])
TRAIN = TRAIN._replace(
    labels=TRAIN.labels.at[24].set(jnp.array([1, 3])), mask=TRAIN.mask.at[25].set(False)
)
SECOND = task_of(1, [2, 3], TRAIN)


def buffer_of(held):
    """20 slots a class; those that are empty hold a sample that is in training."""
    index, labels = np.full((CLASSES, 20), 12), np.full((CLASSES, 20, 2), [2, -1])
    mask = np.zeros((CLASSES, 20), bool)
    for label, members in held.items():
        part = (label, slice(0, len(members)))
        index[part], labels[part], mask[part] = members, [label, -1], True
    samples = Samples(index.ravel(), labels.reshape(-1, 2), mask.ravel())
    label, rank = np.divmod(np.arange(CLASSES * 20), 20)
    return jax.tree.map(jnp.asarray, ExemplarBuffer(samples, label, rank))


def who(samples):
    """(image, labels) of every sample."""
    rows = zip(*(np.asarray(leaf).tolist() for leaf in samples), strict=True)
    return [(index, *labels) for index, labels, real in rows if real]


@jax.jit
def opened(key, buffer):
    """Memory and epoch of the second task."""
    learner = small_learner(SETUP, [0, 1, 2, 3])
    memory = TWENTY.init(KEY, learner)._replace(buffer=buffer)
    memory, learner = TWENTY.begin_task(memory, learner, SECOND, key)
    return memory, TWENTY.epoch_data(memory, SECOND)


EVERY = sorted([*who(TRAIN), *who(buffer_of(HELD).samples)])


@pytest.mark.parametrize("seed", range(6))
def test_a_tenth_of_every_seen_class_leaves_training_and_no_others(seed):
    memory, epoch = opened(jax.random.key(seed), buffer_of(HELD))
    slots = np.asarray(memory.held_out.mask).reshape(CLASSES, 2)
    np.testing.assert_array_equal(slots.sum(axis=1), [0, 1, 2, 1, 0, 0])
    labels = np.asarray(memory.held_out.labels).reshape(CLASSES, 2, 2)
    for label in range(4):
        assert np.all(np.any(labels[label] == label, axis=1)[slots[label]])
    left = set(who(memory.held_out))
    assert left <= set(EVERY)
    assert sorted(who(epoch.samples)) == [sample for sample in EVERY if sample not in left]
    # Who stays is still known as replayed or new.
    replayed = epoch.samples._replace(mask=epoch.samples.mask & epoch.from_memory)
    assert set(who(replayed)) == set(who(buffer_of(HELD).samples)) - left


def each(samples):
    """`who` of every row, as sets."""
    return [set(who(row)) for row in zip(*map(np.asarray, samples), strict=True)]


def test_who_leaves_is_drawn_and_the_same_image_with_other_labels_stays():
    keys = jax.random.split(KEY, 400)
    memories, epochs = jax.jit(jax.vmap(opened, in_axes=(0, None)))(keys, buffer_of(HELD))
    left, stays = each(memories.held_out), each(epochs.samples)
    counts = {sample: sum(sample in one for one in left) for sample in EVERY}
    # 2 of 20 samples of class 2: 40 times each, give or take 5 standard deviations of 6; and 1 of
    # 6 of class 1, of which image 1 with two labels may leave for class 3 too.
    assert all(abs(counts[i, 2, -1] - 40) < 30 for i in range(20))
    assert all(abs(counts[i, 1, -1] - 400 / 6) < 37 for i in HELD[1])
    assert any((1, 1, -1) in one and (1, 1, 3) not in one for one in left)
    for one, rest in zip(left, stays, strict=True):
        assert one | rest == set(EVERY)
        assert not one & rest
        # Some sample of every class stays.
        assert all(any(label in sample[1:] for sample in rest) for label in range(4))


@pytest.mark.parametrize(
    ("counts", "leave"),
    [((1, 2, 9), (0, 1, 1)), ((19, 20, 21), (1, 2, 2)), ((0, 30, 39), (0, 2, 2))],
)
def test_a_class_gives_a_tenth_of_what_it_has_and_keeps_one(counts, leave):
    """Of up to as many as an old class may keep, 20; classes of one or two were left with none."""
    index = np.concatenate([np.arange(count) for count in counts])
    samples = labelled(index, np.repeat([2, 3, 4], counts))
    out = hold_out(samples, classes_mask([2, 3, 4]), 20, CLASSES * 2, None, KEY)
    found = np.asarray(out.mask).reshape(CLASSES, 2).sum(axis=1)
    np.testing.assert_array_equal(found, [0, 0, *leave, 0])


@pytest.mark.parametrize("seed", range(20))
def test_what_leaves_for_one_class_is_never_all_of_another(seed):
    """Samples of two classes each: what class 2 gives may be the last that class 3 has."""
    pairs = np.array([[2, 3], [3, 2], [2, 4], [4, 3]])
    samples = Samples(jnp.arange(4), jnp.asarray(pairs), jnp.ones(4, bool))
    out = hold_out(samples, classes_mask([2, 3, 4]), 20, CLASSES * 2, None, jax.random.key(seed))
    rest = set(range(4)) - {row[0] for row in who(out)}
    assert {label for row in rest for label in pairs[row]} == {2, 3, 4}


def test_nobody_leaves_the_first_task():
    learner = small_learner(SETUP, [2, 3])
    memory, _ = jax.jit(TWENTY.begin_task)(TWENTY.init(KEY, learner), learner, SECOND, KEY)
    assert not np.any(memory.held_out.mask)
    assert who(TWENTY.epoch_data(memory, SECOND).samples) == who(TRAIN)


@pytest.mark.parametrize(("per_class", "leave"), [(20, 2), (3, 1), (50, 5)])
def test_as_many_slots_for_what_leaves_as_a_tenth_of_the_exemplars(per_class, leave):
    memory = bic(SETUP, per_class).init(KEY, small_learner(SETUP, []))
    assert memory.held_out.mask.shape == (leave * CLASSES,)
    assert memory.buffer.samples.mask.shape == (per_class * CLASSES,)
    assert not np.any(memory.held_out.mask)


@pytest.mark.parametrize("known", [[0], [0, 1], [0, 1, 2, 3]])
def test_with_a_fixed_total_a_new_class_gives_a_tenth_of_what_an_old_one_keeps(known):
    """Of 90 in all: old classes hold 40, 40 and 22, of which a tenth leaves."""
    strategy = bic(SETUP, buffer_size=90, labels=2)
    new = len(known)
    rng = np.random.default_rng(0)
    old = [(i, label) for label in known for i in range(90 // len(known)) if i < 40]
    index, label = np.array(old).T
    buffer = empty_exemplars(90, 2)
    slot = np.arange(len(old))
    held = Samples(
        buffer.samples.index.at[slot].set(index),
        buffer.samples.labels.at[slot].set(np.stack([label, np.full_like(label, -1)], axis=1)),
        buffer.samples.mask.at[slot].set(True),
    )
    learner = small_learner(SETUP, [*known, new])
    memory = strategy.init(KEY, learner)._replace(buffer=buffer._replace(samples=held))
    task = task_of(1, [new], labelled(rng.permutation(40), [new] * 40))
    memory, _ = strategy.begin_task(memory, learner, task, KEY)
    gone = np.array([row[1] for row in who(memory.held_out)])
    each = {1: 4, 2: 4, 4: 2}[len(known)]
    expected = np.where(np.isin(np.arange(CLASSES), [*known, new]), each, 0)
    np.testing.assert_array_equal(np.bincount(gone, minlength=CLASSES), expected)


# Stage 1.

# Classes 0, 1 and 4 were known before, 2 and 3 are new, 5 is still to come.
KNOWN, SEEN = np.isin(np.arange(CLASSES), [0, 1, 4]), np.arange(CLASSES) != 5
INDEX = np.array([0, 1, 2, 3, 12, 5, 9, 33, 8])
BATCH = filled(SETUP, labelled_batch(INDEX, [1] * 8 + [0], [1, 1, 0, 0, 0, 1, 0, 1, 0]))
KEPT = INDEX[:-1]
SCALE = np.array([0.7, 1.3, 1, 1, 0.5, 1])
SHIFT = np.array([0.4, -0.2, 0, 0, 0.9, 0])
CORRECTION = Correction(jnp.asarray(SCALE, jnp.float32), jnp.asarray(SHIFT, jnp.float32))


def memory_with(strategy, params, known, correction=CORRECTION):
    memory = strategy.init(KEY, small_learner(SETUP, []))
    teacher = Teacher(as_float32(params), {"passes": 0}, jnp.asarray(known))
    return memory._replace(teacher=teacher, correction=correction, old_correction=correction)


@pytest.mark.parametrize("given", [{}, {"temperature": 3.5}])
def test_stage_1_weighs_labels_and_the_old_network_by_the_number_of_their_classes(given):
    """w = 3/5. Temperature 2 by default; what was corrected stays so, in both networks."""
    strategy, temperature = bic(SETUP, per_class=2, labels=2, **given), given.get("temperature", 2)
    learner = small_learner(SETUP, np.flatnonzero(SEEN))
    memory = memory_with(strategy, OLD, KNOWN)
    gradient, info = jax.jit(strategy.grads)(memory, learner, BATCH, SECOND, KEY)
    logits = SCALE * forward(START, KEPT, train=True)[2] + SHIFT
    soft = expit((SCALE * teacher_logits(OLD, KEPT) + SHIFT) / temperature)
    targets = targets_of(PAIRS[KEPT])
    task = entropies(logits, targets)[:, SEEN].mean()
    kept = entropies(logits / temperature, soft)[:, KNOWN].mean()
    np.testing.assert_allclose(info.loss, 0.4 * task + 0.6 * kept, rtol=1e-5)
    slope = 0.4 * SEEN * (expit(logits) - targets) / 5
    slope += 0.6 * KNOWN * (expit(logits / temperature) - soft) / temperature / 3
    assert_trees_close(gradient, mean_gradient(START, KEPT, SCALE * slope), atol=1e-6)
    assert info.batch_stats["passes"] == 1


# Stage 2.


def written_fit(loss, ridge):
    """The minimum of a float64 loss of the pair and the ridge, and the two anywhere."""

    def objective(pair):
        return loss(pair) + ridge * ((pair[0] - 1) ** 2 + pair[1] ** 2)

    found = minimize(objective, [1.0, 0.0], method="BFGS", options={"gtol": 1e-9})
    return found.x, objective


def written_entropy(logits, targets, new):
    return lambda pair: entropies(pair[0] * logits + pair[1], targets)[:, new].mean()


NEW = np.isin(np.arange(CLASSES), [2, 3])
IDENTITY = Correction(jnp.ones(CLASSES), jnp.zeros(CLASSES))


def kept_mean(losses, samples):
    return jnp.sum(jnp.where(samples.mask, losses, 0)) / jnp.maximum(jnp.sum(samples.mask), 1)


@partial(jax.jit, static_argnums=3)
def fit(logits, samples, new, ridge):
    def loss(pair):
        corrected = correct_classes(IDENTITY, pair, new)(logits)
        return kept_mean(label_entropy(corrected, samples.labels, new), samples)

    return fit_pair(loss, ridge)


def held_out_samples(rng, count=40):
    """With up to two labels, old and new, every fifth masked."""
    labels = np.stack([rng.integers(0, 5, count), rng.integers(-1, 5, count)], axis=1)
    mask = np.arange(count) % 5 > 0
    return Samples(jnp.arange(count), jnp.asarray(labels), jnp.asarray(mask))


@pytest.mark.parametrize(
    ("spread", "bias", "signal"),
    [
        (1.0, 2.0, 1.0),
        (1.0, -3.0, 0.5),
        (4.0, 5.0, 0.0),
        # Logits far too large, as of a network that was never corrected.
        (30.0, 60.0, 20.0),
        # Samples that a threshold separates: only the ridge bounds the scale.
        (0.1, 0.5, 3.0),
    ],
)
def test_scale_and_shift_minimise_the_objective(spread, bias, signal):
    rng = np.random.default_rng(3)
    samples = held_out_samples(rng)
    targets = targets_of(samples.labels)
    logits = rng.normal(size=(40, CLASSES)) * spread + bias + signal * (2 * targets - 1)
    # What is masked does not count, nor do old classes.
    logits[::5] = 1e4
    logits[:, ~NEW] = 1e3
    logits = np.float64(np.float32(logits))
    found = fit(jnp.asarray(logits, jnp.float32), samples, jnp.asarray(NEW), 1e-3)
    kept = np.asarray(samples.mask)
    best, objective = written_fit(written_entropy(logits[kept], targets[kept], NEW), 1e-3)
    np.testing.assert_allclose(found, best, rtol=1e-4, atol=1e-4)
    assert objective(best) < 0.97 * objective([1.0, 0.0])


def test_without_samples_nothing_is_corrected():
    samples = held_out_samples(np.random.default_rng(0))
    nothing = samples._replace(mask=jnp.zeros(40, bool))
    found = fit(jnp.full((40, CLASSES), 7.0), nothing, jnp.asarray(NEW), 1e-3)
    np.testing.assert_array_equal(found, [1, 0])


def test_a_task_ends_with_its_own_classes_corrected_from_what_left_training():
    """Of the uncorrected logits of evaluation; earlier corrections stay to the bit."""
    index = np.array([0, 1, 2, 3, 4, 8, 9, 12, 14, 18, 39, 39])
    held_out = labelled(index, mask=np.arange(12) < 10)
    strategy = bic(SETUP, per_class=20, labels=2, ridge=0.01)
    memory = memory_with(strategy, START, KNOWN)._replace(held_out=held_out)
    learner = small_learner(SETUP, np.flatnonzero(SEEN), OLD)
    after, same = jax.jit(strategy.end_task)(memory, learner, SECOND, KEY)
    logits = forward(OLD, index[:10])[2]
    loss = written_entropy(logits, targets_of(PAIRS[index[:10]]), NEW)
    (scale, shift), _ = written_fit(loss, 0.01)
    assert abs(scale - 1) > 0.1
    np.testing.assert_allclose(after.correction.scale[NEW], scale, rtol=2e-3)
    np.testing.assert_allclose(after.correction.shift[NEW], shift, rtol=2e-3, atol=1e-3)
    np.testing.assert_array_equal(after.correction.scale[~NEW], CORRECTION.scale[~NEW])
    np.testing.assert_array_equal(after.correction.shift[~NEW], CORRECTION.shift[~NEW])
    assert_trees_close(same.params, learner.params, rtol=0.0, atol=0.0)
    inputs = SETUP.gather(jnp.asarray(index), None)
    expected = np.asarray(after.correction.scale) * forward(OLD, index)[2] + np.asarray(
        after.correction.shift
    )
    np.testing.assert_allclose(
        strategy.predict(after, same, inputs), expected, rtol=1e-4, atol=1e-5
    )


def test_three_tasks_through_the_engine():
    """Nothing leaves nor is corrected in the first one; each later one corrects its classes."""
    parts = [([0, 1], [0, 6, 12, 1, 7, 13]), ([2, 3], [2, 8, 14, 3, 9, 15]), ([4], [4, 10, 16])]
    parts[2][1].extend([22, 28, 34])
    tasks = [
        (task_of(number, classes, labelled(index)), [labelled_batch(index)] * 2)
        for number, (classes, index) in enumerate(parts)
    ]
    compiled = TWENTY._replace(
        begin_task=jax.jit(TWENTY.begin_task), end_task=jax.jit(TWENTY.end_task)
    )
    (first, learner), (second, _), (third, _) = run_tasks(SETUP, compiled, tasks)
    assert not np.any(first.held_out.mask)
    for leaf, value in zip(first.correction, (1, 0), strict=True):
        np.testing.assert_array_equal(leaf, np.full(CLASSES, value))
    params = START
    for _ in range(2):
        index = parts[0][1]
        slope = binary_gradient(params, index, targets_of(PAIRS[index]), classes_mask([0, 1]))
        params = {name: leaf - 0.2 * slope[name] for name, leaf in params.items()}
    assert_trees_close(learner.params, params, atol=1e-5)

    def changed(before, after):
        return np.flatnonzero(np.asarray(before.scale != after.scale)).tolist()

    assert changed(first.correction, second.correction) == [2, 3]
    assert changed(second.correction, third.correction) == [4]
    counts = [np.asarray(m.held_out.mask).reshape(CLASSES, 2).sum(axis=1) for m in (second, third)]
    np.testing.assert_array_equal(counts, [[2, 2, 2, 2, 0, 0], [2, 2, 2, 2, 2, 0]])
    # The last network before the task is the teacher, not the first one.
    np.testing.assert_array_equal(third.teacher.known, classes_mask([0, 1, 2, 3]))


# IIRC's other forms.


def test_labels_may_weigh_whole_beside_the_old_network():
    strategy = bic(SETUP, per_class=2, labels=2, weigh_labels=False)
    learner = small_learner(SETUP, np.flatnonzero(SEEN))
    gradient, info = jax.jit(strategy.grads)(
        memory_with(strategy, OLD, KNOWN), learner, BATCH, SECOND, KEY
    )
    logits = SCALE * forward(START, KEPT, train=True)[2] + SHIFT
    soft = expit((SCALE * teacher_logits(OLD, KEPT) + SHIFT) / 2)
    targets = targets_of(PAIRS[KEPT])
    losses = (
        entropies(logits, targets)[:, SEEN].mean()
        + 0.6 * entropies(logits / 2, soft)[:, KNOWN].mean()
    )
    np.testing.assert_allclose(info.loss, losses, rtol=1e-5)
    slope = SEEN * (expit(logits) - targets) / 5
    slope += 0.6 * KNOWN * (expit(logits / 2) - soft) / 2 / 3
    assert_trees_close(gradient, mean_gradient(START, KEPT, SCALE * slope), atol=1e-6)


def jaccard_by_hand(logits, pairs, shift):
    """Mean pw-JS of labels above 0 among the seen, new classes shifted."""
    scores = []
    for row, pair in zip(logits + shift * NEW, pairs, strict=True):
        predicted, true = set(np.flatnonzero((row > 0) & SEEN)), {c for c in pair if c in range(5)}
        both = len(predicted & true)
        scores.append(both / len(predicted | true) * both / max(len(predicted), 1))
    return np.mean(scores)


threshold = jax.jit(best_threshold, static_argnums=5)


@pytest.mark.parametrize("seed", range(4))
def test_no_shift_has_a_better_goodness_than_the_fitted_one(seed):
    """Against every threshold between two logits; what is masked and old classes' shifts aside."""
    rng = np.random.default_rng(seed)
    samples = held_out_samples(rng)
    targets = targets_of(samples.labels)
    logits = np.float64(np.float32(rng.normal(size=(40, CLASSES)) - 3 + 2 * targets))
    logits[::5] = 50
    pair = threshold(
        jnp.asarray(logits, jnp.float32),
        samples,
        CORRECTION,
        jnp.asarray(NEW),
        jnp.asarray(SEEN),
        binary_objective().goodness,
    )
    assert pair[0] == 1
    kept = np.asarray(samples.mask)
    corrected = np.where(NEW, logits, SCALE * logits + SHIFT)[kept]
    pairs = np.asarray(samples.labels)[kept]
    edges = np.sort(np.append(logits[kept][:, NEW].ravel(), [-20, 20]))
    tried = [jaccard_by_hand(corrected, pairs, -t) for t in (edges[1:] + edges[:-1]) / 2]
    found = jaccard_by_hand(corrected, pairs, float(pair[1]))
    np.testing.assert_allclose(found, max(tried), rtol=1e-9)
    assert found > jaccard_by_hand(corrected, pairs, 0.0) + 0.01


def test_without_a_label_that_holds_no_threshold_moves():
    samples = labelled([0, 1, 4])
    pair = threshold(
        jnp.ones((3, CLASSES)),
        samples._replace(labels=jnp.array([[0, -1], [1, -1], [4, -1]])),
        CORRECTION,
        jnp.asarray(NEW),
        jnp.asarray(SEEN),
        binary_objective().goodness,
    )
    np.testing.assert_array_equal(pair, [1, 0])


# Softmax, as published.

SINGLE = small_setup()


def log_softmax(logits, among):
    return logits - logsumexp(logits[:, among], axis=1, keepdims=True)


def begun(strategy, seen=SEEN):
    """Memory in the second task; the network before it is OLD, and was corrected."""
    learner = small_learner(SINGLE, np.flatnonzero(seen), OLD)
    memory = strategy.init(KEY, learner)._replace(correction=CORRECTION)
    task = task_of(1, [2, 3], samples_of([2, 8, 3, 9]))
    return strategy.begin_task(memory, learner, task, KEY)[0], task


@pytest.mark.parametrize(("given", "own"), [({}, 0), ({"corrections": "all"}, 1)])
def test_stage_1_with_softmax(given, own):
    """The old network is corrected in both forms, the one that learns in FACIL's alone.

    Of one label a sample; the old network's softmax runs over the classes it knew.
    """
    strategy = bic(SINGLE, per_class=2, **given)
    scale, shift = (SCALE, SHIFT) if own else (1.0, 0.0)
    learner = small_learner(SINGLE, np.flatnonzero(SEEN))
    index = KEPT[KEPT % CLASSES != 5]
    batch = filled(SINGLE, batch_of([*index, 8], [1] * len(index) + [0]))
    memory, task = begun(strategy)
    gradient, info = jax.jit(strategy.grads)(memory, learner, batch, task, KEY)
    logits = scale * forward(START, index, train=True)[2] + shift
    soft = softmax((SCALE * teacher_logits(OLD, index) + SHIFT)[:, KNOWN] / 2, axis=1)
    own = np.eye(CLASSES)[LABELS[index]]
    entropy = -np.sum(own * log_softmax(logits, SEEN), axis=1)
    kept = -np.sum(soft * log_softmax(logits / 2, KNOWN)[:, KNOWN], axis=1)
    np.testing.assert_allclose(info.loss, np.mean(0.4 * entropy + 0.6 * kept), rtol=1e-5)
    slope = 0.4 * (SEEN * np.exp(log_softmax(logits, SEEN)) - own)
    slope[:, KNOWN] += 0.6 * (softmax(logits[:, KNOWN] / 2, axis=1) - soft) / 2
    assert_trees_close(gradient, mean_gradient(START, index, scale * slope), atol=1e-6)


@pytest.mark.parametrize(
    ("given", "penalty"),
    [
        ({}, (0, 0.05)),
        ({"ridge": 0.2}, (0, 0.2)),
        ({"corrections": "all"}, (1e-3, 1e-3)),
        ({"corrections": "all", "ridge": 0.01}, (0.01, 0.01)),
    ],
)
def test_stage_2_with_softmax_weighs_new_classes_against_old_ones(given, penalty):
    """Old classes stand there as they are, in FACIL's form corrected; the shift alone is bounded."""
    # Labels that no scale and shift of two classes separate.
    index = np.array([0, 1, 2, 3, 4, 8, 9, 12, 14, 18, 39, 39])
    held_out = samples_of(index, np.arange(12) < 10)
    strategy = bic(SINGLE, per_class=20, **given)
    memory, task = begun(strategy)
    memory = memory._replace(held_out=held_out)
    learner = small_learner(SINGLE, np.flatnonzero(SEEN), OLD)
    after, _ = jax.jit(strategy.end_task)(memory, learner, task, KEY)
    logits, own = forward(OLD, index[:10])[2], np.eye(CLASSES)[LABELS[index[:10]]]
    every = "corrections" in given
    scales, shifts = (SCALE, SHIFT) if every else (np.ones(CLASSES), np.zeros(CLASSES))

    def objective(pair):
        z = np.where(NEW, pair[0] * logits + pair[1], scales * logits + shifts)
        entropy = -np.mean(np.sum(own * log_softmax(z, SEEN), axis=1))
        return entropy + penalty[0] * (pair[0] - 1) ** 2 + penalty[1] * pair[1] ** 2

    found = minimize(objective, [1.0, 0.0], method="BFGS", options={"gtol": 1e-9})
    scale, shift = found.x
    assert abs(scale - 1) > 0.1
    np.testing.assert_allclose(after.correction.scale[NEW], scale, rtol=2e-3)
    np.testing.assert_allclose(after.correction.shift[NEW], shift, rtol=2e-3, atol=1e-3)
    np.testing.assert_allclose(after.correction.scale[~NEW], np.float32(scales[~NEW]))
    np.testing.assert_allclose(after.correction.shift[~NEW], np.float32(shifts[~NEW]))
    inputs = SINGLE.gather(jnp.asarray(index), None)
    expected = np.where(NEW, scale, scales) * forward(OLD, index)[2] + np.where(NEW, shift, shifts)
    np.testing.assert_allclose(
        strategy.predict(after, learner, inputs), expected, rtol=5e-3, atol=5e-3
    )


def test_with_softmax_only_the_last_task_s_classes_are_corrected():
    """Through the engine; the correction before goes to the old network, and is then dropped."""
    parts = [([0, 1], [0, 6, 12, 18, 1, 7, 13, 19]), ([2, 3], [2, 8, 14, 20, 3, 9, 15, 21])]
    parts.append(([4], [4, 10, 16, 22, 28, 34]))
    tasks = [
        (task_of(number, classes, samples_of(index)), [batch_of(index)] * 2)
        for number, (classes, index) in enumerate(parts)
    ]
    strategy = bic(SINGLE, per_class=20)
    compiled = strategy._replace(
        begin_task=jax.jit(strategy.begin_task), end_task=jax.jit(strategy.end_task)
    )
    first, second, third = (memory for memory, _ in run_tasks(SINGLE, compiled, tasks))
    corrected = [
        np.flatnonzero(np.asarray(m.correction.scale) != 1) for m in (first, second, third)
    ]
    assert [row.tolist() for row in corrected] == [[], [2, 3], [4]]
    for found, expected in zip(third.old_correction, second.correction, strict=True):
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(second.old_correction.scale, 1)


def test_the_loss_is_that_of_the_number_of_labels():
    """Softmax for one label (Wu et al.); a gradient tells which loss it is."""
    learner = small_learner(SINGLE, np.flatnonzero(SEEN))
    batch = filled(SINGLE, batch_of(KEPT[KEPT % CLASSES != 5]))

    def gradient(strategy):
        memory, task = begun(strategy)
        return strategy.grads(memory, learner, batch, task, KEY)[0]

    by_default, binary = gradient(bic(SINGLE)), gradient(bic(SINGLE, loss="binary"))
    assert_trees_close(by_default, gradient(bic(SINGLE, loss="softmax")), rtol=0.0, atol=0.0)
    assert not np.allclose(by_default["head"], binary["head"])
    two = batch._replace(labels=jnp.pad(batch.labels, ((0, 0), (0, 1)), constant_values=-1))
    memory, task = begun(bic(SINGLE, labels=2))
    found = bic(SINGLE, labels=2).grads(memory, learner, two, task, KEY)[0]
    assert_trees_close(found, binary, rtol=1e-6, atol=1e-7)


def test_the_first_task_with_softmax_is_cross_entropy():
    logits, labels = jnp.asarray(forward(START, INDEX)[2], jnp.float32), LABELS[INDEX][:, None]
    strategy = bic(SINGLE, per_class=2, loss="softmax")
    learner = small_learner(SINGLE, range(CLASSES))
    memory = memory_with(strategy, OLD, np.zeros(CLASSES, bool), IDENTITY)
    batch = filled(SINGLE, batch_of(INDEX))
    gradient, _ = jax.jit(strategy.grads)(memory, learner, batch, SECOND, KEY)
    assert_trees_close(gradient, batch_gradient(START, INDEX, np.ones(CLASSES, bool)), atol=1e-6)
    expected = SINGLE.objective.loss(Outputs(logits, logits), jnp.asarray(labels), learner.seen)
    found = label_softmax(logits, jnp.asarray(labels), learner.seen)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"loss": "hinge"}, "loss='hinge'; choose 'binary' or 'softmax'"),
        ({"fit": "best"}, "fit='best'; choose 'entropy' or 'goodness'"),
        ({"corrections": "none"}, "corrections='none'; choose 'last' or 'all'"),
        ({"loss": "softmax", "fit": "goodness"}, "is for loss='binary'; choose fit='entropy'"),
    ],
)
def test_forms_that_there_are_not_are_refused(given, words):
    with pytest.raises(ValueError, match=words):
        bic(SINGLE, **given)
