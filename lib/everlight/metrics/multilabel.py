"""Multi-label metrics of IIRC: scores by sample, by task and by class type, and confusion.

`R_jk` is the mean score on task k's test samples after learning task j. `R_j` is the mean over all
test samples of the tasks so far, each counted once. Predictions and true labels are restricted to
the classes seen so far (complete information). A sample without a prediction scores 0; a mean over
no sample is NaN. ValueError is raised for arrays with different numbers of classes, and for unknown
tasks and classes.

Equations are those of Abdelsalam et al. 2021, "IIRC: Incremental Implicitly-Refined
Classification", section 4.2.
"""

from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, UInt8

from everlight.checks import NotEmpty, PositiveInt, check_range, checked
from everlight.errors import ArgumentError
from everlight.precision import matrix_product


class Scores(NamedTuple):
    """Scores of samples, or their means, in [0, 1]; all fields have the same shape."""

    precision_weighted_jaccard: Float[Array, "*shape"]
    jaccard: Float[Array, "*shape"]
    exact_match: Float[Array, "*shape"]
    recall: Float[Array, "*shape"]


class TaskMeans(NamedTuple):
    """Means after learning a task j: `Scores`, or an array for a single score.

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
    """Pack eight classes into a byte, which reduces later memory reads eightfold."""
    classes = [array.shape[-1] for array in arrays]
    # Packed arrays of different class counts may have the same number of bytes.
    if len(set(classes)) > 1:
        raise ArgumentError(f"arrays of {classes} classes; their numbers of classes must be equal")
    return [jnp.packbits(array, axis=-1) for array in arrays]


def _counts(predicted: UInt8[Array, "*shape bytes"], true: UInt8[Array, "*shape bytes"]) -> _Counts:
    def size(bits: UInt8[Array, "*shape bytes"]) -> Int[Array, "*shape"]:
        return jnp.sum(jax.lax.population_count(bits), axis=-1, dtype=jnp.int32)

    return _Counts(size(predicted & true), size(predicted), size(true))


def _seen_counts(
    predicted: Bool[Array, "m c"], labels: Bool[Array, "m c"], seen: Bool[Array, "c"]
) -> _Counts:
    """Pack before masking, so that labels are packed once for all tasks of a matrix."""
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
    """Return all four scores of a sample, each `[]`.

    Args:
      predicted: predicted labels of a sample, `[c]`.
      true: its true labels, `[c]`.
    """
    return _scores(_counts(*_bits(predicted, true)))


@checked
def precision_weighted_jaccard(
    predicted: Bool[Array, "c"], true: Bool[Array, "c"]
) -> Float[Array, ""]:
    """Return pw-JS (inside eq. 1): Jaccard similarity times precision, `[]`.

    It is 0 where no label is predicted, also where there is none.

    Args:
      predicted: predicted labels of a sample, `[c]`.
      true: its true labels, `[c]`.
    """
    return sample_scores(predicted, true).precision_weighted_jaccard


@checked
def jaccard_similarity(predicted: Bool[Array, "c"], true: Bool[Array, "c"]) -> Float[Array, ""]:
    """Return JS: number of labels both predicted and true, over those of either kind, `[]`.

    It is 0 where there is neither.
    """
    return sample_scores(predicted, true).jaccard


@checked
def exact_match(predicted: Bool[Array, "c"], true: Bool[Array, "c"]) -> Float[Array, ""]:
    """Return 1 if the predicted labels equal the true ones, else 0, `[]`; its mean is MR.

    Unlike the paper's MR, it is 0 where there are neither.
    """
    return sample_scores(predicted, true).exact_match


@checked
def recall(predicted: Bool[Array, "c"], true: Bool[Array, "c"]) -> Float[Array, ""]:
    """Return the share of true labels predicted, `[]`; `batch_recall` is the authors' variant."""
    return sample_scores(predicted, true).recall


def _sums(groups: Bool[Array, "g m"], scores: Scores) -> Float[Array, "g scores"]:
    weights = groups.astype(scores.jaccard.dtype)
    return matrix_product(weights, jnp.stack(scores).T)


@checked
def task_scores(
    predicted: Bool[Array, "m c"],
    labels: Bool[Array, "m c"],
    test_member: Annotated[Bool[Array, "t m"], NotEmpty],
    seen: Bool[Array, "c"],
    task: Int[Array, ""],
) -> TaskMeans:
    """Return R_jk for every k <= j and R_j (eqs. 1 and 2) from predictions on all test samples.

    Args:
      predicted: labels predicted after learning task j, `[m, c]`.
      labels: all labels, including those of future tasks, `[m, c]`.
      test_member: mask of each task's test samples, `[t, m]`; a sample may belong to several tasks,
        and padding to none.
      seen: mask of the classes of tasks 0 to j, `[c]`.
      task: index j, from 0.

    Returns:
      Mean `Scores` over samples in each field.
    """
    check_range("task", task, 0, test_member.shape[0] - 1)
    scores = _scores(_seen_counts(predicted, labels, seen))
    tasks = jnp.arange(test_member.shape[0])
    # A sample joins the union with its first task, so that the sums count it once.
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
    """Compute `task_scores` after every task: `by_task` is `[t, t]`, the others `[t]`.

    Args:
      predicted: labels predicted after each task, `[t, m, c]`.
      labels: all labels, `[m, c]`.
      test_member: mask of each task's test samples, `[t, m]`.
      seen: mask of the classes seen after each task, `[t, c]`.
    """
    rows = jax.vmap(task_scores, in_axes=(0, None, None, 0, 0))
    return rows(predicted, labels, test_member, seen, jnp.arange(test_member.shape[0]))


@checked
def batch_recall(
    predicted: Bool[Array, "m c"],
    labels: Bool[Array, "m c"],
    test_member: Annotated[Bool[Array, "t m"], NotEmpty],
    seen: Bool[Array, "c"],
    task: Int[Array, ""],
    batch_size: PositiveInt,
) -> TaskMeans:
    """Return the authors' recall: true positives over true labels per batch, averaged.

    The samples of each task, and of the union, are split into batches in their stored order. The
    mean is weighted by batch size, and depends on order and batch size. All arguments but the last
    are those of `task_scores`.

    Returns:
      Recalls as arrays; NaN also where a batch has no true label.
    """
    check_range("task", task, 0, test_member.shape[0] - 1)
    counts = _seen_counts(predicted, labels, seen)
    learned = jnp.arange(test_member.shape[0]) <= task
    batches = -(-predicted.shape[0] // batch_size)

    def mean(member: Bool[Array, "m"]) -> Float[Array, ""]:
        batch = jnp.where(member, (jnp.cumsum(member) - 1) // batch_size, batches)

        def totals(values: Int[Array, "m"]) -> Int[Array, "batches"]:
            # Samples outside have the index `batches`, which is out of range and dropped.
            return jax.ops.segment_sum(values, batch, batches)

        sizes = totals(member.astype(jnp.int32))
        recalls = totals(counts.both) / totals(counts.true)
        return jnp.sum(sizes * recalls, where=sizes > 0) / jnp.sum(sizes)

    by_task = jnp.where(learned, jax.vmap(mean)(test_member), jnp.nan)
    return TaskMeans(by_task, by_task[task], mean(jnp.any(test_member & learned[:, None], axis=0)))


@checked
def class_types(superclass: Annotated[Int[Array, "c"], NotEmpty]) -> Bool[Array, "3 c"]:
    """Return masks of superclasses, subclasses with a superclass, and subclasses without one.

    Args:
      superclass: superclass of each class, `[c]`; -1 for none.

    Raises:
      ValueError: a superclass is not a class, or a class is above itself.
    """
    check_range("superclass", superclass, -1, superclass.shape[0] - 1)
    _check_no_cycle(superclass)
    classes = jnp.arange(superclass.shape[0])
    is_super = jnp.any(superclass[:, None] == classes, axis=0)
    has_super = superclass >= 0
    return jnp.stack([is_super, has_super, ~is_super & ~has_super])


def _check_no_cycle(superclass: Int[Array, "c"]) -> None:
    if isinstance(superclass, jax.core.Tracer):
        return
    above = parent = np.asarray(superclass)
    for _ in range(len(parent)):
        if (above < 0).all():
            return
        above = np.where(above >= 0, parent[above], -1)
    raise ArgumentError(
        f"superclass: class {above.max()} is above itself; give a hierarchy without a cycle"
    )


@checked
def class_type_scores(
    predicted: Bool[Array, "m c"],
    labels: Bool[Array, "m c"],
    seen: Bool[Array, "c"],
    types: Bool[Array, "types c"],
) -> Scores:
    """Return mean scores over the samples with a seen label of each class type, `[types]`.

    Only labels of the type count, as predictions and as truth, which separates coarse and fine
    labels. With the identity as `types`, these are means per class: each class's recall.

    Args:
      predicted: predicted labels of the samples, `[m, c]`.
      labels: their true labels, `[m, c]`.
      seen: True for the classes learned so far, `[c]`.
      types: True where a class is of a type, `[types, c]`.
    """

    def type_scores(classes: Bool[Array, "c"]) -> Scores:
        carried = jnp.any(labels & seen & classes, axis=1)
        scores = _scores(_seen_counts(predicted, labels, seen & classes))
        return Scores(*(jnp.mean(score, where=carried) for score in scores))

    return jax.vmap(type_scores)(types)


@checked
def confusion_matrix(
    predicted: Bool[Array, "m c"], labels: Bool[Array, "m c"], shown: Int[Array, "s"]
) -> Float[Array, "s s"]:
    """Return the share of samples with one label for which another is predicted (figure 6).

    With the true labels as predictions it is the ground truth, figure 6(a).

    Args:
      predicted: predicted labels, `[m, c]`.
      labels: true labels, `[m, c]`; padding has none.
      shown: classes of rows and columns, `[s]`; in IIRC the seen ones in order of introduction.

    Returns:
      Fractions at `[true, predicted]`; rows may sum to more than 1, and are NaN without samples.
    """
    check_range("shown", shown, 0, labels.shape[1] - 1)
    true = labels[:, shown].astype(float)
    together = matrix_product(true.T, predicted[:, shown].astype(float))
    return together / jnp.sum(true, axis=0)[:, None]


class LabelScores(NamedTuple):
    """Every score of the labels that are predicted after each task of a sequence."""

    means: TaskMeans
    """`Scores` after every task: of each earlier task, of the newest, and of all so far."""
    batch_recall: Float[Array, ""]
    """The authors' recall after the last task on the samples of all tasks."""
    counts: Float[Array, "t 2"]
    """Mean numbers of predicted and of true labels per sample of the tasks so far.

    Predicted labels count whether seen or not.
    """
    by_class_type: Scores
    """Means after the last task by type of class, `[3]` each: `class_types`."""
    confusion: Float[Array, "c c"]
    """`confusion_matrix` of all classes after the last task, whether seen or not."""


@checked
def sequence_label_scores(
    predicted: Bool[Array, "t m c"],
    labels: Bool[Array, "m c"],
    test_member: Bool[Array, "t m"],
    task_classes: Bool[Array, "t c"],
    superclass: Int[Array, "c"],
    batch_size: PositiveInt = 128,
) -> LabelScores:
    """Return all scores of a sequence of tasks (sections 4.2 and 6, figures 3 to 6).

    Args:
      predicted: labels predicted after each task, `[t, m, c]`.
      labels: all labels, `[m, c]`.
      test_member: mask of each task's test samples, `[t, m]`.
      task_classes: mask of the classes that each task introduces, `[t, c]`.
      superclass: superclass of each class, `[c]`; -1 for none.
      batch_size: samples per batch of `batch_recall`.
    """
    seen, tested = (jnp.cumsum(mask, axis=0) > 0 for mask in (task_classes, test_member))
    last, task = predicted[-1], jnp.asarray(len(predicted) - 1)

    def per_sample(mask: Bool[Array, "t m c"]) -> Float[Array, "t"]:
        return jnp.sum(jnp.sum(mask, axis=2) * tested, axis=1) / jnp.sum(tested, axis=1)

    recall = batch_recall(last, labels, test_member, seen[-1], task, batch_size)
    counts = jnp.stack([per_sample(predicted), per_sample(labels & seen[:, None])], axis=-1)
    return LabelScores(
        means=task_score_matrix(predicted, labels, test_member, seen),
        batch_recall=recall.union,
        counts=counts,
        by_class_type=class_type_scores(last, labels, seen[-1], class_types(superclass)),
        confusion=confusion_matrix(last, labels, jnp.arange(labels.shape[1])),
    )
