"""Multi-label metrics by hand, and against loops over sets in float64."""

import inspect
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from everlight.metrics import multilabel
from everlight.metrics.multilabel import (
    Scores,
    batch_recall,
    class_type_scores,
    class_types,
    confusion_matrix,
    sample_scores,
    sequence_label_scores,
    task_score_matrix,
    task_scores,
)

NAMES = ("precision_weighted_jaccard", "jaccard_similarity", "exact_match", "recall")
TASKS, SAMPLES, CLASSES = 4, 150, 11
CLASS_TASK = np.array([0, 0, 0, 1, 1, 1, 2, 2, 3, 3, 3])
SEEN = np.arange(TASKS)[:, None] >= CLASS_TASK
SUPERCLASS = np.array([-1, -1, -1, 0, 1, -1, 0, 1, -1, 0, 1])

compiled_scores = jax.jit(jax.vmap(sample_scores))
compiled_matrix = jax.jit(task_score_matrix)
compiled_row = jax.jit(task_scores)
compiled_recall = jax.jit(batch_recall, static_argnums=5)
compiled_types = jax.jit(class_type_scores)
compiled_confusion = jax.jit(confusion_matrix)


def hot(*classes, size=CLASSES):
    return jnp.asarray(np.isin(np.arange(size), classes))


@pytest.mark.parametrize(
    ("predicted", "true", "expected"),
    [
        # Expected: pw-JS, JS, exact match, recall.
        ((0,), (0,), (1, 1, 1, 1)),
        ((0, 9), (0, 9), (1, 1, 1, 1)),
        ((0,), (0, 9), (1 / 2, 1 / 2, 0, 1 / 2)),
        ((0, 9), (9,), (1 / 4, 1 / 2, 0, 1)),
        ((0, 1), (1, 2), (1 / 6, 1 / 3, 0, 1 / 2)),
        ((0, 1, 2, 3), (3, 8), (1 / 20, 1 / 5, 0, 1 / 2)),
        ((0, 1, 2, 3), (1, 3), (1 / 4, 1 / 2, 0, 1)),
        ((4, 5), (6,), (0, 0, 0, 0)),
        ((), (6,), (0, 0, 0, 0)),
        ((), (6, 7), (0, 0, 0, 0)),
        ((), (), (0, 0, 0, 0)),
        ((3,), (), (0, 0, 0, 0)),
        (range(11), (2, 10), (4 / 121, 2 / 11, 0, 1)),
    ],
)
def test_a_sample_by_hand(predicted, true, expected):
    result = sample_scores(hot(*predicted), hot(*true))
    np.testing.assert_allclose(result, expected, rtol=1e-6)
    for name, value in zip(NAMES, expected, strict=True):
        one = getattr(multilabel, name)(hot(*predicted), hot(*true))
        assert one == pytest.approx(value, rel=1e-6)


def test_many_classes_do_not_overflow_and_are_not_lost_in_the_last_byte():
    """1083 classes, those of IIRC-ImageNet, fill their last byte but in part."""
    everything, last = hot(*range(1083), size=1083), hot(1082, size=1083)
    result = sample_scores(everything, last)
    np.testing.assert_allclose(result, (1 / 1083**2, 1 / 1083, 0, 1), rtol=1e-6)
    np.testing.assert_array_equal(sample_scores(everything, everything), 1)


def test_different_numbers_of_classes_are_refused_though_they_fill_equally_many_bytes():
    without_type_checks = inspect.unwrap(sample_scores)
    with pytest.raises(ValueError, match=r"\[11, 10\] classes"):
        without_type_checks(hot(1), hot(1, size=10))


label_sets = hnp.arrays(bool, (2, 6, CLASSES), elements=st.booleans())


@settings(max_examples=60)
@given(label_sets, st.permutations(range(CLASSES)))
def test_properties_of_a_sample_s_scores(sets, order):
    predicted, true = sets
    result = Scores(*map(np.asarray, compiled_scores(jnp.asarray(predicted), jnp.asarray(true))))
    assert np.all((np.array(result) >= 0) & (np.array(result) <= 1))
    assert np.all(result.precision_weighted_jaccard <= result.jaccard)
    assert np.all(result.jaccard <= result.recall)
    assert np.all(result.exact_match <= result.precision_weighted_jaccard)
    same = np.all(predicted == true, axis=1) & predicted.any(axis=1)
    for score in (result.exact_match, result.jaccard, result.precision_weighted_jaccard):
        np.testing.assert_array_equal(score == 1, same)
    # Exchanging predicted and true labels exchanges precision and recall.
    swapped = compiled_scores(jnp.asarray(true), jnp.asarray(predicted))
    np.testing.assert_allclose(swapped.jaccard, result.jaccard, rtol=1e-6)
    weighted = result.jaccard * np.asarray(swapped.recall)
    np.testing.assert_allclose(result.precision_weighted_jaccard, weighted, rtol=1e-6)
    moved = compiled_scores(jnp.asarray(predicted[:, order]), jnp.asarray(true[:, order]))
    np.testing.assert_array_equal(moved, result)


def sets_of(rows):
    return [set(np.flatnonzero(row).tolist()) for row in rows]


def scores_by_definition(predicted, true):
    """Return pw-JS, JS, exact match and recall of one sample, from sets."""
    if not predicted:
        return np.zeros(4)
    both = len(predicted & true)
    jaccard = both / len(predicted | true)
    recall = both / len(true) if true else 0
    return np.array([jaccard * both / len(predicted), jaccard, predicted == true, recall])


def mean_by_definition(predicted, labels, seen, samples):
    seen = set(np.flatnonzero(seen).tolist())
    total = np.zeros(4)
    for i in samples:
        total += scores_by_definition(predicted[i] & seen, labels[i] & seen)
    return total / len(samples)


def batch_recall_by_definition(predicted, labels, seen, samples, size):
    seen = set(np.flatnonzero(seen).tolist())
    total = 0.0
    for begin in range(0, len(samples), size):
        batch = samples[begin : begin + size]
        hits = sum(len(predicted[i] & labels[i] & seen) for i in batch)
        total += len(batch) * hits / sum(len(labels[i] & seen) for i in batch)
    return total / len(samples)


def world(seed):
    """Return predictions, labels (one or two per sample) and each task's samples, ten padding."""
    rng = np.random.default_rng(seed)
    subclass = rng.choice([3, 4, 5, 6, 7, 8, 9, 10, 2], SAMPLES)
    labels = np.eye(CLASSES, dtype=bool)[subclass]
    with_super = SUPERCLASS[subclass] >= 0
    labels[with_super, SUPERCLASS[subclass[with_super]]] = True
    member = np.stack([labels[:, k == CLASS_TASK].any(axis=1) for k in range(TASKS)])
    member[:, -10:] = False
    # Predictions are nearly right, often empty, and never outside the seen classes.
    predicted = (labels ^ (rng.random((TASKS, SAMPLES, CLASSES)) < 0.12)) & SEEN[:, None]
    predicted &= rng.random((TASKS, SAMPLES, 1)) < 0.9
    return predicted, labels, member


@pytest.mark.parametrize("seed", range(3))
def test_the_matrix_of_all_tasks_against_loops_in_float64(seed):
    predicted, labels, member = world(seed)
    assert (member.sum(axis=0) == 2).any()
    result = compiled_matrix(*map(jnp.asarray, (predicted, labels, member, SEEN)))
    by_task, union = np.full((4, TASKS, TASKS), np.nan), np.zeros((4, TASKS))
    true = sets_of(labels)
    for j in range(TASKS):
        guess = sets_of(predicted[j])
        for k in range(j + 1):
            samples = np.flatnonzero(member[k])
            by_task[:, j, k] = mean_by_definition(guess, true, SEEN[j], samples)
        samples = np.flatnonzero(member[: j + 1].any(axis=0))
        union[:, j] = mean_by_definition(guess, true, SEEN[j], samples)
    np.testing.assert_allclose(result.by_task, by_task, rtol=2e-6)
    np.testing.assert_allclose(result.union, union, rtol=2e-6)
    np.testing.assert_allclose(result.current, [np.diag(scores) for scores in by_task], rtol=2e-6)
    for j in range(TASKS):
        row = compiled_row(
            *map(jnp.asarray, (predicted[j], labels, member, SEEN[j])), jnp.asarray(j)
        )
        for one, of_matrix in zip(jax.tree.leaves(row), jax.tree.leaves(result), strict=True):
            np.testing.assert_allclose(one, of_matrix[j], rtol=1e-6)


@pytest.mark.parametrize("size", [1, 16, 128, 1000])
def test_batch_recall_against_loops_in_float64(size):
    predicted, labels, member = world(3)
    true = sets_of(labels)
    for j in range(TASKS):
        arrays = map(jnp.asarray, (predicted[j], labels, member, SEEN[j], j))
        result = compiled_recall(*arrays, size)
        guess = sets_of(predicted[j])
        groups = [*member[: j + 1], member[: j + 1].any(axis=0)]
        *tasks, union = [
            batch_recall_by_definition(guess, true, SEEN[j], np.flatnonzero(group), size)
            for group in groups
        ]
        np.testing.assert_allclose(result.by_task[: j + 1], tasks, rtol=2e-6)
        assert np.all(np.isnan(result.by_task[j + 1 :]))
        np.testing.assert_allclose(result.union, union, rtol=2e-6)
        np.testing.assert_allclose(result.current, tasks[j], rtol=2e-6)


def test_batch_recall_differs_from_the_mean_of_samples_by_hand():
    """Recalls of 1/2, 1 and 0 of 2, 1 and 1 labels have mean 1/2, and 2/3 · 2/3 in batches."""
    labels = jnp.asarray([[1, 1, 0], [0, 1, 0], [0, 0, 1]], bool)
    predicted = jnp.asarray([[1, 0, 0], [0, 1, 1], [1, 0, 0]], bool)
    everything = (jnp.ones((1, 3), bool), jnp.ones(3, bool), jnp.asarray(0))
    assert compiled_row(predicted, labels, *everything).union.recall == pytest.approx(1 / 2)
    assert compiled_recall(predicted, labels, *everything, 2).union == pytest.approx(4 / 9)
    assert compiled_recall(predicted, labels, *everything, 3).union == pytest.approx(1 / 2)


def test_unseen_classes_count_on_neither_side():
    predicted, labels, member = world(4)
    rest = (jnp.asarray(member), jnp.asarray(SEEN[1]), jnp.asarray(1))
    plain = compiled_row(jnp.asarray(predicted[1]), jnp.asarray(labels), *rest)
    noise = np.random.default_rng(0).random((2, SAMPLES, CLASSES)) < 0.5
    noisy = np.where(SEEN[1], (predicted[1], labels), noise)
    noisy = compiled_row(*map(jnp.asarray, noisy), *rest)
    np.testing.assert_array_equal(noisy.by_task, plain.by_task)
    np.testing.assert_array_equal(noisy.union, plain.union)


def test_a_task_without_samples_is_nan_and_leaves_the_union_alone():
    predicted, labels, member = world(5)
    member[1] = False
    result = compiled_matrix(*map(jnp.asarray, (predicted, labels, member, SEEN)))
    assert np.all(np.isnan(result.by_task.jaccard[:, 1]))
    assert np.isnan(result.current.jaccard[1])
    np.testing.assert_allclose(result.union.jaccard[1], result.by_task.jaccard[1, 0], rtol=1e-6)


def test_types_of_classes():
    """Classes 0 and 1 are superclasses; class 2 is neither super- nor subclass, like 5 and 8."""
    expected = [hot(0, 1), hot(3, 4, 6, 7, 9, 10), hot(2, 5, 8)]
    np.testing.assert_array_equal(jax.jit(class_types)(jnp.asarray(SUPERCLASS)), expected)


@pytest.mark.parametrize("task", [0, 2, 3])
def test_scores_by_class_type_and_by_class_against_loops_in_float64(task):
    predicted, labels, _ = world(6)
    labels[-10:] = False
    seen, guess, true = SEEN[task], sets_of(predicted[task]), sets_of(labels)
    types = np.asarray(class_types(jnp.asarray(SUPERCLASS)))
    for groups in (types, np.eye(CLASSES, dtype=bool)):
        result = compiled_types(*map(jnp.asarray, (predicted[task], labels, seen, groups)))
        for g, group in enumerate(groups):
            samples = np.flatnonzero((labels & group & seen).any(axis=1))
            scores = [score[g] for score in result]
            if len(samples):
                expected = mean_by_definition(guess, true, seen & group, samples)
                np.testing.assert_allclose(scores, expected, rtol=2e-6)
            else:
                assert np.all(np.isnan(scores))


def test_confusion_against_counting():
    predicted, labels, _ = world(7)
    labels[-10:] = False
    shown = np.array([10, 0, 3, 4])
    result = compiled_confusion(*map(jnp.asarray, (predicted[3], labels, shown)))
    for row, true in enumerate(shown):
        samples = [i for i in range(SAMPLES) if labels[i, true]]
        for column, guess in enumerate(shown):
            part = np.mean([predicted[3, i, guess] for i in samples])
            np.testing.assert_allclose(result[row, column], part, rtol=1e-6)


def test_confusion_of_the_truth_is_the_share_of_each_subclass_in_its_superclass():
    """In figure 6(a) one of a superclass's two subclasses has three quarters; class 3 is empty."""
    labels = jnp.asarray([[1, 1, 0, 0]] * 3 + [[1, 0, 1, 0]] + [[0] * 4], bool)
    result = compiled_confusion(labels, labels, jnp.arange(4))
    np.testing.assert_array_equal(result[:3], [[1, 0.75, 0.25, 0], [1, 1, 0, 0], [1, 0, 1, 0]])
    assert np.all(np.isnan(result[3]))


def test_a_sequence_has_the_scores_of_its_parts():
    predicted, labels, member = map(jnp.asarray, world(4))
    introduced = jnp.asarray(np.arange(TASKS)[:, None] == CLASS_TASK)
    result = sequence_label_scores(
        predicted, labels, member, introduced, jnp.asarray(SUPERCLASS), batch_size=16
    )
    seen, last = jnp.asarray(SEEN), (predicted[-1], labels)
    task = jnp.asarray(TASKS - 1)
    for actual, part in (
        (result.means, compiled_matrix(predicted, labels, member, seen)),
        (result.batch_recall, compiled_recall(*last, member, seen[-1], task, 16).union),
        (
            result.by_class_type,
            class_type_scores(*last, seen[-1], class_types(jnp.asarray(SUPERCLASS))),
        ),
        (result.confusion, compiled_confusion(*last, jnp.arange(CLASSES))),
    ):
        jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-6), actual, part)
    for number, tested in enumerate(np.cumsum(member, axis=0) > 0):
        true = (labels & SEEN[number])[tested].sum(axis=1).mean()
        means = predicted[number][tested].sum(axis=1).mean(), true
        np.testing.assert_allclose(result.counts[number], means, rtol=1e-6)
