"""LUCIR's terms against float64 NumPy, its frozen and its imprinted weights."""

from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from everlight.base import Outputs, Samples
from everlight.continual.objectives.softmax import softmax_objective
from everlight.continual.strategies.lucir import imprint, lucir, margin_ranking
from everlight.continual.strategies.parts.teacher import Teacher
from everlight.models.heads import cosines
from tests.continual import many_labels as many
from tests.continual import small_net as net
from tests.continual.many_labels import PAIRS
from tests.continual.small_net import CLASSES, DATA, HIDDEN, LABELS, RATE, SHIFT
from tests.continual.strategies.references import cosine_head
from tests.continual.strategies.references.cosine_head import flat, nested

KEY = jax.random.key(0)
LIFT = 0.3


def random_params(seed):
    """Return random parameters of a net with a cosine head, in a flat dictionary."""
    rng = np.random.default_rng(seed)
    return {
        "hidden": rng.normal(size=(DATA.shape[1], HIDDEN)),
        "hidden_bias": rng.normal(size=HIDDEN) * 0.3,
        "kernel": rng.normal(size=(HIDDEN, CLASSES)) * rng.uniform(0.5, 2, CLASSES),
        "scale": np.array(3.0),
    }


# Some true scores pass their rivals by more than the margins with this seed, some by less.
START, OLD = random_params(16), random_params(2)


def cosine_setup(optimizer=None):
    """Return the small net with a cosine head, which ignores a gain: training lifts features."""

    def apply(params, batch_stats, inputs, train, key):
        features = jnp.tanh(inputs @ params["hidden"] + params["hidden_bias"])
        features = features + (LIFT if train else 0.0)
        head = params["head"]
        passes = batch_stats["passes"] + (1 if train else 0)
        outputs = Outputs(head["scale"] * cosines(features, head["kernel"]), features)
        return outputs, {"passes": passes}

    setup = many.binary_setup()
    return setup._replace(
        init=lambda key: (nested(START), {"passes": jnp.array(0)}),
        apply=apply,
        optimizer=optimizer or setup.optimizer,
    )


SETUP = cosine_setup()


learner_of = partial(cosine_head.learner_of, SETUP)


# This is the same in float64, with nothing of the library.


def features_of(params, index, shift=SHIFT, lift=LIFT):
    return np.tanh((DATA[index] + shift) @ params["hidden"] + params["hidden_bias"]) + lift


def cosine(first, second):
    return first @ second / np.linalg.norm(first) / np.linalg.norm(second)


def written_ranking(scores, true, new, margin, rivals):
    """Return the ranking loss of one sample, loop by loop."""
    rival_scores = sorted((scores[c] for c in new), reverse=True)[:rivals]
    losses = [max(0.0, margin - scores[y] + r) for y in true for r in rival_scores]
    return np.mean(losses) if losses else 0.0


def binary_entropy(logits, pairs, seen):
    return many.entropies(logits, many.targets_of(pairs))[:, seen].mean()


def softmax_entropy(logits, labels, seen):
    rows = logits[np.arange(len(logits)), labels[:, 0]]
    return np.mean(np.log(np.exp(logits[:, seen]).sum(axis=1)) - rows)


def written_loss(
    params,
    batch,
    known,
    new,
    distillation,
    margin,
    rivals,
    entropy=binary_entropy,
    old=OLD,
    lift=LIFT,
):
    """Return cross-entropy, feature change and margin ranking of the samples of weight 1."""
    stored = np.asarray(batch.weight) > 0
    index, pairs = np.asarray(batch.index)[stored], np.asarray(batch.labels)[stored]
    features, old = features_of(params, index, lift=lift), features_of(old, index, lift=0.0)
    scores = np.array([[cosine(f, w) for w in params["kernel"].T] for f in features])
    seen = sorted({*known, *new})
    task = entropy(params["scale"] * scores, pairs, seen)
    moved = np.mean([1 - cosine(f, o) for f, o in zip(features, old, strict=True)])
    replayed = np.flatnonzero(np.asarray(batch.memory_mask)[stored])
    ranked = [
        written_ranking(scores[i], [y for y in pairs[i] if y in known], new, margin, rivals)
        for i in replayed
    ]
    ranking = np.mean(ranked) if len(ranked) else 0.0
    return task, task + distillation * np.sqrt(len(known) / len(new)) * moved + ranking


KNOWN, NEW = [0, 1, 4], [2, 3]
TASK = net.task_of(2, NEW, many.labelled([2, 3]))
# Replayed sample 12 has the known labels 0 and 4; 24 has 0 and 2, only 0 is known; 30 only
# fills the batch. New samples of known classes (6; 3 has both kinds) are not ranked.
INDEX = np.array([0, 12, 13, 2, 3, 6, 10, 24, 30])
WEIGHT = [1, 1, 1, 1, 1, 1, 1, 1, 0]
REPLAYED = [1, 1, 1, 0, 0, 0, 1, 1, 1]
BATCH = net.filled(SETUP, many.labelled_batch(INDEX, WEIGHT, REPLAYED))


def memory_of(strategy, params, known):
    memory = strategy.init(KEY, net.small_learner(SETUP, []))
    return memory._replace(teacher=Teacher(nested(params), {"passes": 0}, net.classes_mask(known)))


@pytest.mark.parametrize(
    ("inputs", "distillation", "margin", "rivals"),
    [
        # The case is the paper's.
        ({}, 5.0, 0.5, 2),
        # One rival counts, then more than there are new classes.
        ({"distillation": 0.0, "margin": 0.2, "rivals": 1}, 0.0, 0.2, 1),
        ({"distillation": 0.7, "margin": 0.9, "rivals": 4}, 0.7, 0.9, 4),
    ],
)
def test_the_gradient_is_that_of_the_written_loss(inputs, distillation, margin, rivals):
    assert PAIRS[12].tolist() == [0, 4], "a replayed sample of two known labels"
    strategy = net.compiled(lucir(SETUP, exemplars_per_class=2, labels=2, **inputs))
    learner = learner_of(START, [*KNOWN, *NEW])
    memory = memory_of(strategy, OLD, KNOWN)
    gradient, info = strategy.grads(memory, learner, BATCH, TASK, KEY)
    arguments = (BATCH, KNOWN, NEW, distillation, margin, rivals)
    expected = net.finite_differences(lambda p: written_loss(p, *arguments)[1], START)
    net.assert_trees_close(flat(gradient), expected, rtol=1e-4, atol=3e-6)
    # The loss that is reported is the task's own, and the old network counts no pass.
    np.testing.assert_allclose(info.loss, written_loss(START, *arguments)[0], rtol=1e-5)
    assert info.batch_stats["passes"] == 1


def test_in_the_first_task_it_is_binary_cross_entropy_and_nothing_is_imprinted():
    strategy = net.compiled(lucir(SETUP, exemplars_per_class=2, labels=2))
    memory = memory_of(strategy, OLD, KNOWN)
    learner = learner_of(START, NEW)
    memory, begun = strategy.begin_task(memory, learner, TASK, KEY)
    net.assert_trees_close(flat(begun.params), flat(learner.params), rtol=0.0, atol=0.0)
    batch = BATCH._replace(memory_mask=jnp.zeros(len(INDEX), bool))
    gradient, _ = strategy.grads(memory, begun, batch, TASK, KEY)
    expected = net.finite_differences(
        lambda p: written_loss(p, batch, [], NEW, 0.0, 0.5, 2)[0], START
    )
    net.assert_trees_close(flat(gradient), expected, rtol=1e-4, atol=2e-6)


def test_with_a_softmax_objective_the_task_loss_is_cross_entropy():
    """The paper's loss is over the seen classes, at the one label of a sample."""
    setup = SETUP._replace(objective=softmax_objective())
    strategy = net.compiled(lucir(setup, exemplars_per_class=2))
    index = INDEX[LABELS[INDEX] != 5]
    batch = net.filled(setup, net.batch_of(index))
    batch = batch._replace(memory_mask=jnp.asarray(np.isin(LABELS[index], KNOWN)))
    learner = learner_of(START, [*KNOWN, *NEW])
    gradient, info = strategy.grads(memory_of(strategy, OLD, KNOWN), learner, batch, TASK, KEY)
    arguments = (batch, KNOWN, NEW, 5.0, 0.5, 2, softmax_entropy)
    expected = net.finite_differences(lambda p: written_loss(p, *arguments)[1], START)
    net.assert_trees_close(flat(gradient), expected, rtol=1e-4, atol=3e-6)
    np.testing.assert_allclose(info.loss, written_loss(START, *arguments)[0], rtol=1e-5)


ranking = jax.jit(margin_ranking, static_argnums=(3, 4))


def test_margins_by_hand():
    """The margin is 0.5, and the new classes are 2, 3 and 4."""
    scores = jnp.array([[0.9, 0.1, 0.2, 0.7, 0.3, 1.0]] * 4)
    true = jnp.zeros((4, 6), bool)
    # One true class gives 0.5 - 0.9 + 0.7 = 0.3 and 0.5 - 0.9 + 0.3 < 0.
    true = true.at[0, 0].set(True)
    # Another gives 0.5 - 0.1 + 0.7 = 1.1 and 0.5 - 0.1 + 0.3 = 0.7. Then both are true, and none.
    true = true.at[1, 1].set(True).at[2, :2].set(True)
    new = jnp.array([False, False, True, True, True, False])
    for rivals, expected in (
        (1, [0.3, 1.1, 0.7, 0]),
        (2, [0.15, 0.9, 0.525, 0]),
        # The third adds 0.5 - 0.1 + 0.2 = 0.6. Classes that are not new are not rivals.
        (3, [0.1, 0.8, 0.45, 0]),
        (9, [0.1, 0.8, 0.45, 0]),
    ):
        result = ranking(scores, true, new, 0.5, rivals)
        np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-7)


def test_without_new_classes_the_ranking_and_its_gradient_are_0():
    def total(scores):
        true = jnp.ones((2, 3), bool)
        return jnp.sum(ranking(scores, true, jnp.zeros(3, bool), 0.5, 2))

    value, slope = jax.value_and_grad(total)(jnp.array([[0.1, 0.2, 0.3], [0.3, 0.2, 0.1]]))
    assert value == 0
    np.testing.assert_array_equal(slope, 0)


def test_imprinted_weights_by_hand():
    """Unit features (0.6, 0.8) and (0, 1) have the mean (0.3, 0.9), of the direction (1, 3) ÷ √10.

    The known weights are 5 and 1 long, so the new ones are 3 long.
    """
    kernel = jnp.array([[3.0, 0.0, 7.0, 9.0, 11.0], [4.0, -1.0, 8.0, 9.0, 12.0]])
    features = jnp.array([[3.0, 4.0], [0.0, 0.2], [-5.0, 0.0], [jnp.nan, 1.0]])
    # The second sample belongs to class 2 and to the known class 1, the fourth is padding.
    labels = jnp.array([[2, -1], [1, 2], [3, -1], [2, 4]])
    samples = Samples(jnp.arange(4), labels, jnp.array([True, True, True, False]))
    # Class 4 is new too but has only the padding.
    new, known = jnp.array([0, 0, 1, 1, 1], bool), jnp.array([1, 1, 0, 0, 0], bool)
    result = imprint(kernel, features, samples, new, known)
    np.testing.assert_allclose(result[:, 2], 3 * np.array([1, 3]) / np.sqrt(10), rtol=1e-6)
    np.testing.assert_allclose(result[:, 3], [-3, 0], rtol=1e-6)
    np.testing.assert_array_equal(result[:, [0, 1, 4]], kernel[:, [0, 1, 4]])
    first = imprint(kernel, features, samples, new, jnp.zeros(5, bool))
    np.testing.assert_array_equal(first, kernel)


def test_a_task_begins_with_imprinted_weights_from_features_of_evaluation():
    """Each is the normalized mean of unit features; the teacher is the network before the task."""
    index = np.array([2, 8, 14, 3, 9, 15, 21, 26])
    train = many.labelled(index, mask=index != 21)
    strategy = net.compiled(lucir(SETUP, exemplars_per_class=2, labels=2))
    learner = learner_of(START, [*KNOWN, *NEW])
    memory = strategy.init(KEY, net.small_learner(SETUP, []))
    memory, after = strategy.begin_task(memory, learner, net.task_of(1, NEW, train), KEY)
    length = np.mean([np.linalg.norm(START["kernel"][:, c]) for c in KNOWN])
    kernel = START["kernel"].copy()
    for label in NEW:
        positions = [i for i in index if label in PAIRS[i] and i != 21]
        rows = features_of(START, positions, shift=0.0, lift=0.0)
        mean = np.mean([row / np.linalg.norm(row) for row in rows], axis=0)
        kernel[:, label] = length * mean / np.linalg.norm(mean)
    net.assert_trees_close(flat(after.params), {**START, "kernel": kernel}, rtol=1e-5)
    net.assert_trees_close(flat(memory.teacher.params), flat(learner.params), rtol=0.0, atol=0.0)
    np.testing.assert_array_equal(memory.teacher.known, net.classes_mask(KNOWN))


def test_old_weights_stay_bit_for_bit_under_momentum_and_weight_decay():
    """All else moves: new weights, those to come (by decay), scale and hidden layer."""
    setup = cosine_setup(optax.chain(optax.add_decayed_weights(0.1), optax.sgd(0.3, momentum=0.9)))
    first, second, third = [0, 6, 7, 1], [2, 8, 3, 9], [4, 10, 16, 22]
    old = [0] * 4 + [1] * 2
    tasks = [
        (net.task_of(0, [0, 1], many.labelled(first)), [many.labelled_batch([*first, 12, 13])] * 2),
        (
            net.task_of(1, [2, 3], many.labelled(second)),
            [many.labelled_batch([*second, 0, 7], None, old)] * 3,
        ),
        (
            net.task_of(2, [4], many.labelled(third)),
            [many.labelled_batch([*third, 1, 8], None, old)] * 3,
        ),
    ]
    strategy = net.compiled(lucir(setup, exemplars_per_class=2, labels=2))
    states = [flat(learner.params) for _, learner in net.run_tasks(setup, strategy, tasks)]
    begun = {name: np.asarray(leaf, np.float32) for name, leaf in START.items()}
    for known, before, after in zip(
        ([], [0, 1], [0, 1, 2, 3]), [begun, *states], states, strict=False
    ):
        moved = np.any(before["kernel"] != after["kernel"], axis=0)
        np.testing.assert_array_equal(moved, ~np.isin(np.arange(CLASSES), known))
        for name in ("hidden", "hidden_bias", "scale"):
            assert np.all(before[name] != after[name])


# The tests below are of class-balanced finetuning.


def finetuned(optimizer, epochs, known):
    """Return the buffer, and the learner before and after finetuning on the whole buffer."""
    setup = cosine_setup(optimizer)
    finetuning = {"finetuning_epochs": epochs, "finetuning_batch_size": 50}
    strategy = net.compiled(
        lucir(setup, exemplars_per_class=2, labels=2, distillation=1.0, **finetuning)
    )
    learner = learner_of(START, [*KNOWN, *NEW])
    learner = learner._replace(opt_state=setup.optimizer.init(learner.params))
    task = net.task_of(1, NEW, many.labelled(np.arange(30)[np.arange(30) % CLASSES != 5]))
    memory, after = strategy.end_task(memory_of(strategy, OLD, known), learner, task, KEY)
    return memory.buffer.samples, learner, after


def test_finetuning_descends_the_loss_of_the_exemplars_by_the_heads_weights():
    """One step per epoch runs at a tenth of the rate, then a hundredth, in evaluation mode."""
    buffer, learner, after = finetuned(None, 3, KNOWN)
    held = np.flatnonzero(buffer.mask)
    index, pairs = np.asarray(buffer.index)[held], np.asarray(buffer.labels)[held]
    assert np.any(np.all(~np.isin(pairs, KNOWN), axis=1)), "exemplars that are not ranked"
    batch = many.labelled_batch(index)._replace(
        labels=pairs, memory_mask=np.isin(pairs, KNOWN).any(axis=1)
    )
    kernel = START["kernel"]
    for rate in (0.1, 0.1, 0.01):

        def loss(head):
            arguments = (batch, KNOWN, NEW, 1.0, 0.5, 2)
            return written_loss({**START, **head}, *arguments, lift=0.0)[1]

        kernel = kernel - RATE * rate * net.finite_differences(loss, {"kernel": kernel})["kernel"]
    assert np.abs(kernel - START["kernel"])[:, KNOWN].max() > 1e-3
    net.assert_trees_close(flat(after.params), {**START, "kernel": kernel}, rtol=1e-5, atol=1e-6)
    assert after.step == learner.step + 3
    assert after.batch_stats["passes"] == learner.batch_stats["passes"]


def test_finetuning_moves_nothing_but_seen_weights_and_nothing_in_the_first_task():
    """Weights stay bit for bit under momentum and weight decay; the optimizer's state stays too."""
    optimizer = optax.chain(optax.add_decayed_weights(0.1), optax.sgd(0.3, momentum=0.9))
    _, before, after = finetuned(optimizer, 4, KNOWN)
    moved = np.any(flat(before.params)["kernel"] != flat(after.params)["kernel"], axis=0)
    np.testing.assert_array_equal(moved, np.arange(CLASSES) != 5)
    for name in ("hidden", "hidden_bias", "scale"):
        np.testing.assert_array_equal(flat(before.params)[name], flat(after.params)[name])
    chex.assert_trees_all_equal(before.opt_state, after.opt_state)
    chex.assert_trees_all_equal(before.schedule, after.schedule)
    _, before, after = finetuned(optimizer, 4, [])
    chex.assert_trees_all_equal(before, after)
