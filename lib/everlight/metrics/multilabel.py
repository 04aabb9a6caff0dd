"""Multi-label metrics of IIRC: scores of samples, of tasks and of class types, and confusion.

`R_jk` is the mean score on task k's test samples after learning task j, `R_j` that on all test
samples of the tasks so far, each once. Predictions and true labels are those among the classes
seen by then (complete information): a class that is not seen counts on neither side. A sample
without a prediction scores 0; a mean over no sample is NaN. Arrays that differ in their number of
classes get ValueError, and so do tasks and classes that there are not.

Equations are those of Abdelsalam et al. 2021, "IIRC: Incremental Implicitly-Refined
Classification", section 4.2.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, UInt8

from everlight.checks import PositiveInt, check_range, checked


class Scores(NamedTuple):
    """The scores of samples, or their means, in [0, 1]; all fields have the same shape."""

    precision_weighted_jaccard: Float[Array, "*shape"]
    jaccard: Float[Array, "*shape"]
    exact_match: Float[Array, "*shape"]
    recall: Float[Array, "*shape"]


class TaskMeans(NamedTuple):
    """Means after learning a task j: `Scores`, or an array where it is of one score only.

    In a matrix every array has a leading axis over j.
    """

    by_task: Scores | Float[Array, "*j t"]
    """R_jk of every task k, `[t]`; NaN where k > j."""
    current: Scores | Float[Array, "*j"]
    """R_jj, `[]`."""
    union: Scores | Float[Array, "*j"]
    """R_j, `[]`."""


class _Counts(NamedTuple):
    both: Int[Array, "*shape"]
    predicted: Int[Array, "*shape"]
    true: Int[Array, "*shape"]


def _bits(*arrays: Bool[Array, "..."]) -> list[UInt8[Array, "..."]]:
    """Eight classes a byte: all that follows then reads an eighth of the memory."""
    classes = [array.shape[-1] for array in arrays]
    # Packed arrays would fit each other as soon as they have equally many bytes.
    if len(set(classes)) > 1:
        raise ValueError(f"arrays of {classes} classes; they must have equally many")
    return [jnp.packbits(array, axis=-1) for array in arrays]


def _counts(predicted: UInt8[Array, "*shape bytes"], true: UInt8[Array, "*shape bytes"]) -> _Counts:
    def size(bits: UInt8[Array, "*shape bytes"]) -> Int[Array, "*shape"]:
        return jnp.sum(jax.lax.population_count(bits), axis=-1, dtype=jnp.int32)

    return _Counts(size(predicted & true), size(predicted), size(true))


def _seen_counts(
    predicted: Bool[Array, "m c"], labels: Bool[Array, "m c"], seen: Bool[Array, "c"]
) -> _Counts:
    """Packed before they are masked, so that labels are packed once for all tasks of a matrix."""
    predicted_bits, label_bits, seen_bits = _bits(predicted, labels, seen)
    return _counts(predicted_bits & seen_bits, label_bits & seen_bits)


def _scores(counts: _Counts) -> Scores:
    both, predicted, true = counts
    jaccard = both / jnp.maximum(predicted + true - both, 1)
    return Scores(
        precision_weighted_jaccard=jaccard * (both / jnp.maximum(predicted, 1)),
        jaccard=jaccard,
        exact_match=((both == predicted) & (both == true) & (both > 0)).astype(jaccard.dtype),
        recall=both / jnp.maximum(true, 1),
    )


@checked
def sample_scores(predicted: Bool[Array, "c"], true: Bool[Array, "c"]) -> Scores:
    """All four scores of a sample, each `[]`."""
    return _scores(_counts(*_bits(predicted, true)))


@checked
def precision_weighted_jaccard(
    predicted: Bool[Array, "c"], true: Bool[Array, "c"]
) -> Float[Array, ""]:
    """pw-JS (inside eq. 1): Jaccard similarity times precision, `[]`."""
    return sample_scores(predicted, true).precision_weighted_jaccard


@checked
def jaccard_similarity(predicted: Bool[Array, "c"], true: Bool[Array, "c"]) -> Float[Array, ""]:
    """JS: labels both predicted and true over labels predicted or true, `[]`."""
    return sample_scores(predicted, true).jaccard


@checked
def exact_match(predicted: Bool[Array, "c"], true: Bool[Array, "c"]) -> Float[Array, ""]:
    """1 where exactly the true labels are predicted, else 0, `[]`; its mean is the paper's MR."""
    return sample_scores(predicted, true).exact_match


@checked
def recall(predicted: Bool[Array, "c"], true: Bool[Array, "c"]) -> Float[Array, ""]:
    """The predicted part of the true labels, `[]`. `batch_recall` is the authors' other mean."""
    return sample_scores(predicted, true).recall


def _sums(groups: Bool[Array, "g m"], scores: Scores) -> Float[Array, "g scores"]:
    weights = groups.astype(scores.jaccard.dtype)
    return jnp.matmul(weights, jnp.stack(scores).T, precision=jax.lax.Precision.HIGHEST)


@checked
def task_scores(
    predicted: Bool[Array, "m c"],
    labels: Bool[Array, "m c"],
    test_member: Bool[Array, "t m"],
    seen: Bool[Array, "c"],
    task: Int[Array, ""],
) -> TaskMeans:
    """R_jk for every k <= j and R_j (eqs. 1 and 2), from one forward pass over all test samples.

    Args:
      predicted: labels predicted after learning task j, `[m, c]`.
      labels: all labels, also those to come, `[m, c]`.
      test_member: the test samples of each task, `[t, m]`; a sample may belong to several, and
        padding to none.
      seen: the classes of tasks 0 to j, `[c]`.
      task: j, from 0.

    Returns:
      `Scores` each, their means over samples.
    """
    check_range("task", task, 0, test_member.shape[0] - 1)
    scores = _scores(_seen_counts(predicted, labels, seen))
    tasks = jnp.arange(test_member.shape[0])
    # A sample joins the union with its first task: sums over these groups hold it once.
    first = test_member & (jnp.argmax(test_member, axis=0) == tasks[:, None])
    sizes, new_samples = jnp.sum(test_member, axis=1), jnp.sum(first, axis=1)
    sums, new_sums = jnp.split(_sums(jnp.concatenate([test_member, first]), scores), 2)
    learned = tasks <= task
    by_task = jnp.where(learned[:, None], sums / sizes[:, None], jnp.nan)
    union = jnp.sum(new_sums, axis=0, where=learned[:, None])
    union = union / jnp.sum(new_samples, where=learned)
    return TaskMeans(Scores(*by_task.T), Scores(*by_task[task]), Scores(*union))


@checked
def task_score_matrix(
    predicted: Bool[Array, "t m c"],
    labels: Bool[Array, "m c"],
    test_member: Bool[Array, "t m"],
    seen: Bool[Array, "t c"],
) -> TaskMeans:
    """`task_scores` after every task: `by_task` is `[t, t]`, `current` and `union` are `[t]`.

    Args:
      predicted: labels predicted after each task, `[t, m, c]`.
      labels: all labels, `[m, c]`.
      test_member: the test samples of each task, `[t, m]`.
      seen: the classes seen after each task, `[t, c]`.
    """
    rows = jax.vmap(task_scores, in_axes=(0, None, None, 0, 0))
    return rows(predicted, labels, test_member, seen, jnp.arange(test_member.shape[0]))


@checked
def batch_recall(
    predicted: Bool[Array, "m c"],
    labels: Bool[Array, "m c"],
    test_member: Bool[Array, "t m"],
    seen: Bool[Array, "c"],
    task: Int[Array, ""],
    batch_size: PositiveInt,
) -> TaskMeans:
    """The authors' recall: true positives over true labels of a batch, batches weighted by size.

    Each task's samples, and the union's, are cut into batches in the order in which they stand,
    so the number depends on both. Arguments but the last are those of `task_scores`.

    Returns:
      Arrays of recalls; NaN also where a batch has no true label.
    """
    check_range("task", task, 0, test_member.shape[0] - 1)
    counts = _seen_counts(predicted, labels, seen)
    learned = jnp.arange(test_member.shape[0]) <= task
    batches = -(-predicted.shape[0] // batch_size)

    def mean(member: Bool[Array, "m"]) -> Float[Array, ""]:
        batch = jnp.where(member, (jnp.cumsum(member) - 1) // batch_size, batches)

        def totals(values: Int[Array, "m"]) -> Int[Array, "batches"]:
            # Batch `batches`, of the samples outside, is out of range and so dropped.
            return jax.ops.segment_sum(values, batch, batches)

        sizes = totals(member.astype(jnp.int32))
        recalls = totals(counts.both) / totals(counts.true)
        return jnp.sum(sizes * recalls, where=sizes > 0) / jnp.sum(sizes)

    by_task = jnp.where(learned, jax.vmap(mean)(test_member), jnp.nan)
    return TaskMeans(by_task, by_task[task], mean(jnp.any(test_member & learned[:, None], axis=0)))


@checked
def class_types(superclass: Int[Array, "c"]) -> Bool[Array, "3 c"]:
    """Superclasses, subclasses with a superclass, and subclasses without one.

    Args:
      superclass: each class's superclass, `[c]`; -1 where it has none.
    """
    check_range("superclass", superclass, -1, superclass.shape[0] - 1)
    classes = jnp.arange(superclass.shape[0])
    is_super = jnp.any(superclass[:, None] == classes, axis=0)
    has_super = superclass >= 0
    return jnp.stack([is_super, has_super, ~is_super & ~has_super])


@checked
def class_type_scores(
    predicted: Bool[Array, "m c"],
    labels: Bool[Array, "m c"],
    seen: Bool[Array, "c"],
    types: Bool[Array, "types c"],
) -> Scores:
    """Means over the samples that carry a seen label of each type of classes, `[types]`.

    Only labels of the type count, on both sides, so that coarse and fine ones are told apart. With
    the identity as `types` these are means by class, each the share that is found.
    """

    def of_type(classes: Bool[Array, "c"]) -> Scores:
        carried = jnp.any(labels & seen & classes, axis=1)
        scores = _scores(_seen_counts(predicted, labels, seen & classes))
        return Scores(*(jnp.mean(score, where=carried) for score in scores))

    return jax.vmap(of_type)(types)


@checked
def confusion_matrix(
    predicted: Bool[Array, "m c"], labels: Bool[Array, "m c"], shown: Int[Array, "s"]
) -> Float[Array, "s s"]:
    """Figure 6: the part of the samples that carry one label for which another is predicted.

    With the true labels as predictions it is the ground truth, figure 6(a).

    Args:
      predicted: predicted labels, `[m, c]`.
      labels: true labels, `[m, c]`; padding carries none.
      shown: the classes of rows and columns, `[s]`, in IIRC those seen, in order of introduction.

    Returns:
      `[true, predicted]`; rows may add up to more than 1, and are NaN without a sample.
    """
    check_range("shown", shown, 0, labels.shape[1] - 1)
    true = labels[:, shown].astype(float)
    together = jnp.matmul(
        true.T, predicted[:, shown].astype(float), precision=jax.lax.Precision.HIGHEST
    )
    return together / jnp.sum(true, axis=0)[:, None]
