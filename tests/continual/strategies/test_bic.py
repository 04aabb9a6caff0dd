"""BiC with many labels: stage 1 against float64 NumPy, stage 2 against SciPy's minimizer."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit

from everlight.base import Samples
from everlight.continual.objectives.multilabel import binary_objective
from everlight.continual.strategies.bic import bic
from everlight.continual.strategies.parts.bias_correction import (
    best_threshold,
    correct_classes,
    fit_pair,
)
from everlight.continual.strategies.parts.distillation import label_entropy
from tests.continual import many_labels as many
from tests.continual import small_net as net
from tests.continual.many_labels import OLD, PAIRS
from tests.continual.small_net import CLASSES, START
from tests.continual.strategies.references.bic_second_task import (
    BATCH,
    CORRECTION,
    IDENTITY,
    KEY,
    KNOWN,
    NEW,
    SCALE,
    SEEN,
    SETUP,
    SHIFT,
    STORED,
    memory_with,
)

SECOND = net.task_of(1, [2, 3], many.labelled([2, 8, 3, 9]))
TWENTY = net.compiled(bic(SETUP, exemplars_per_class=20, labels=2))


# The tests below are of stage 1.


@pytest.mark.parametrize(
    ("inputs", "temperature", "share"),
    [({}, 2, 0.4), ({"temperature": 3.5}, 3.5, 0.4), ({"weigh_labels": False}, 2, 1)],
)
def test_stage_1_weighs_labels_and_the_old_network(inputs, temperature, share):
    """The weight of distillation is the share of known classes, w = 3/5, or labels count fully.

    Corrections stay in both networks. The temperature is 2 by default.
    """
    strategy = net.compiled(bic(SETUP, exemplars_per_class=2, labels=2, **inputs))
    learner = net.small_learner(SETUP, np.flatnonzero(SEEN))
    memory = memory_with(strategy, OLD, KNOWN)
    gradient, info = strategy.grads(memory, learner, BATCH, SECOND, KEY)
    logits = SCALE * net.forward(START, STORED, train=True)[2] + SHIFT
    soft = expit((SCALE * many.teacher_logits(OLD, STORED) + SHIFT) / temperature)
    targets = many.targets_of(PAIRS[STORED])
    task = many.entropies(logits, targets)[:, SEEN].mean()
    stored = many.entropies(logits / temperature, soft)[:, KNOWN].mean()
    np.testing.assert_allclose(info.loss, share * task + 0.6 * stored, rtol=1e-5)
    slope = share * SEEN * (expit(logits) - targets) / 5
    slope += 0.6 * KNOWN * (expit(logits / temperature) - soft) / temperature / 3
    net.assert_trees_close(gradient, many.mean_gradient(START, STORED, SCALE * slope), atol=1e-6)
    assert info.batch_stats["passes"] == 1


# The tests below are of stage 2.


def written_fit(loss, ridge):
    """Minimize a float64 loss of the pair plus the ridge; return the pair and the objective."""

    def objective(pair):
        return loss(pair) + ridge * ((pair[0] - 1) ** 2 + pair[1] ** 2)

    result = minimize(objective, [1.0, 0.0], method="BFGS", options={"gtol": 1e-9})
    return result.x, objective


def written_entropy(logits, targets, new):
    return lambda pair: many.entropies(pair[0] * logits + pair[1], targets)[:, new].mean()


def kept_mean(losses, samples):
    return jnp.sum(jnp.where(samples.mask, losses, 0)) / jnp.maximum(jnp.sum(samples.mask), 1)


@partial(jax.jit, static_argnums=3)
def fit(logits, samples, new, ridge):
    def loss(pair):
        corrected = correct_classes(IDENTITY, pair, new)(logits)
        return kept_mean(label_entropy(corrected, samples.labels, new), samples)

    return fit_pair(loss, ridge)


def held_out_samples(rng, count=40):
    """Return samples with up to two labels, old and new; every fifth sample is masked."""
    labels = np.stack([rng.integers(0, 5, count), rng.integers(-1, 5, count)], axis=1)
    mask = np.arange(count) % 5 > 0
    return Samples(jnp.arange(count), jnp.asarray(labels), jnp.asarray(mask))


@pytest.mark.parametrize(
    ("spread", "bias", "signal"),
    [
        (1.0, 2.0, 1.0),
        (1.0, -3.0, 0.5),
        (4.0, 5.0, 0.0),
        # Logits are far too large, as of a network without correction.
        (30.0, 60.0, 20.0),
        # A threshold separates the samples: only the ridge bounds the scale.
        (0.1, 0.5, 3.0),
    ],
)
def test_scale_and_shift_minimize_the_objective(spread, bias, signal):
    rng = np.random.default_rng(3)
    samples = held_out_samples(rng)
    targets = many.targets_of(samples.labels)
    logits = rng.normal(size=(40, CLASSES)) * spread + bias + signal * (2 * targets - 1)
    # Masked samples and old classes do not count.
    logits[::5] = 1e4
    logits[:, ~NEW] = 1e3
    logits = np.float64(np.float32(logits))
    result = fit(jnp.float32(logits), samples, jnp.asarray(NEW), 1e-3)
    stored = np.asarray(samples.mask)
    best, objective = written_fit(written_entropy(logits[stored], targets[stored], NEW), 1e-3)
    np.testing.assert_allclose(result, best, rtol=1e-4, atol=1e-4)
    assert objective(best) < 0.97 * objective([1.0, 0.0])


def test_without_samples_nothing_is_corrected():
    samples = held_out_samples(np.random.default_rng(0))
    nothing = samples._replace(mask=jnp.zeros(40, bool))
    result = fit(jnp.full((40, CLASSES), 7.0), nothing, jnp.asarray(NEW), 1e-3)
    np.testing.assert_array_equal(result, [1, 0])


def test_a_task_ends_with_its_own_classes_corrected_from_what_left_training():
    """Uncorrected logits of evaluation are corrected; earlier corrections keep their bits."""
    index = np.array([0, 1, 2, 3, 4, 8, 9, 12, 14, 18, 39, 39])
    held_out = many.labelled(index, mask=np.arange(12) < 10)
    strategy = net.compiled(bic(SETUP, exemplars_per_class=20, labels=2, ridge=0.01))
    memory = memory_with(strategy, START, KNOWN)._replace(held_out=held_out)
    learner = net.small_learner(SETUP, np.flatnonzero(SEEN), OLD)
    after, same = strategy.end_task(memory, learner, SECOND, KEY)
    logits = net.forward(OLD, index[:10])[2]
    loss = written_entropy(logits, many.targets_of(PAIRS[index[:10]]), NEW)
    (scale, shift), _ = written_fit(loss, 0.01)
    assert abs(scale - 1) > 0.1
    np.testing.assert_allclose(after.correction.scale[NEW], scale, rtol=2e-3)
    np.testing.assert_allclose(after.correction.shift[NEW], shift, rtol=2e-3, atol=1e-3)
    np.testing.assert_array_equal(after.correction.scale[~NEW], CORRECTION.scale[~NEW])
    np.testing.assert_array_equal(after.correction.shift[~NEW], CORRECTION.shift[~NEW])
    net.assert_trees_close(same.params, learner.params, rtol=0.0, atol=0.0)
    inputs = SETUP.gather(jnp.asarray(index), None)
    expected = np.asarray(after.correction.scale) * net.forward(OLD, index)[2] + np.asarray(
        after.correction.shift
    )
    np.testing.assert_allclose(
        strategy.predict(after, same, inputs), expected, rtol=1e-4, atol=1e-5
    )


def test_three_tasks_through_the_engine():
    """No sample is held out in the first task; each later task corrects its classes."""
    parts = [([0, 1], [0, 6, 12, 1, 7, 13]), ([2, 3], [2, 8, 14, 3, 9, 15]), ([4], [4, 10, 16])]
    parts[2][1].extend([22, 28, 34])
    tasks = [
        (net.task_of(number, classes, many.labelled(index)), [many.labelled_batch(index)] * 2)
        for number, (classes, index) in enumerate(parts)
    ]
    (first, learner), (second, _), (third, _) = net.run_tasks(SETUP, TWENTY, tasks)
    assert not np.any(first.held_out.mask)
    for leaf, value in zip(first.correction, (1, 0), strict=True):
        np.testing.assert_array_equal(leaf, np.full(CLASSES, value))
    params = START
    for _ in range(2):
        index = parts[0][1]
        slope = many.binary_gradient(
            params, index, many.targets_of(PAIRS[index]), net.classes_mask([0, 1])
        )
        params = {name: leaf - 0.2 * slope[name] for name, leaf in params.items()}
    net.assert_trees_close(learner.params, params, atol=1e-5)

    def changed(before, after):
        return np.flatnonzero(np.asarray(before.scale != after.scale)).tolist()

    assert changed(first.correction, second.correction) == [2, 3]
    assert changed(second.correction, third.correction) == [4]
    counts = [np.asarray(m.held_out.mask).reshape(CLASSES, 2).sum(axis=1) for m in (second, third)]
    np.testing.assert_array_equal(counts, [[1, 1, 1, 1, 0, 0], [1, 1, 1, 1, 1, 0]])
    # The last network before the task is the teacher, not the first one.
    np.testing.assert_array_equal(third.teacher.known, net.classes_mask([0, 1, 2, 3]))


# The tests below are of IIRC's other forms.


def jaccard_by_hand(logits, pairs, shift):
    """Return the mean pw-JS of labels above 0 among the seen, new classes shifted."""
    scores = []
    for row, pair in zip(logits + shift * NEW, pairs, strict=True):
        predicted, true = set(np.flatnonzero((row > 0) & SEEN)), {c for c in pair if c in range(5)}
        both = len(predicted & true)
        scores.append(both / len(predicted | true) * both / max(len(predicted), 1))
    return np.mean(scores)


threshold = jax.jit(best_threshold, static_argnums=5)


@pytest.mark.parametrize("seed", range(4))
def test_no_shift_has_a_better_metric_than_the_fitted_one(seed):
    """The fit is compared with every threshold between two logits, apart from masked classes."""
    rng = np.random.default_rng(seed)
    samples = held_out_samples(rng)
    targets = many.targets_of(samples.labels)
    logits = np.float64(np.float32(rng.normal(size=(40, CLASSES)) - 3 + 2 * targets))
    logits[::5] = 50
    pair = threshold(
        jnp.float32(logits),
        samples,
        CORRECTION,
        jnp.asarray(NEW),
        jnp.asarray(SEEN),
        binary_objective().metric,
    )
    assert pair[0] == 1
    stored = np.asarray(samples.mask)
    corrected = np.where(NEW, logits, SCALE * logits + SHIFT)[stored]
    pairs = np.asarray(samples.labels)[stored]
    edges = np.sort(np.append(logits[stored][:, NEW].ravel(), [-20, 20]))
    tried = [jaccard_by_hand(corrected, pairs, -t) for t in (edges[1:] + edges[:-1]) / 2]
    result = jaccard_by_hand(corrected, pairs, float(pair[1]))
    np.testing.assert_allclose(result, max(tried), rtol=1e-9)
    assert result > jaccard_by_hand(corrected, pairs, 0.0) + 0.01


def test_without_a_label_that_holds_no_threshold_moves():
    samples = many.labelled([0, 1, 4])
    pair = threshold(
        jnp.ones((3, CLASSES)),
        samples._replace(labels=jnp.array([[0, -1], [1, -1], [4, -1]])),
        CORRECTION,
        jnp.asarray(NEW),
        jnp.asarray(SEEN),
        binary_objective().metric,
    )
    np.testing.assert_array_equal(pair, [1, 0])


def test_the_threshold_of_a_metric_needs_the_binary_loss():
    with pytest.raises(ValueError, match="is for loss='binary'; choose fit='entropy'"):
        bic(SETUP, loss="softmax", fit="metric")
