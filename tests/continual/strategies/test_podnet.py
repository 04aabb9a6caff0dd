"""PODNet's losses and proxies against the official code's steps and the paper's in float64."""

from functools import partial

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from everlight.base import Outputs
from everlight.continual.strategies.parts.clustering import k_means
from everlight.continual.strategies.parts.teacher import Teacher
from everlight.continual.strategies.podnet import (
    imprint_proxies,
    nca,
    nca_as_coded,
    podnet,
    pooled_distance,
)
from everlight.models.heads import LocalSimilarityHead, local_similarities
from tests.continual import small_net as net
from tests.continual.small_net import CLASSES, LABELS, RATE
from tests.continual.strategies.references import cosine_head
from tests.continual.strategies.references import podnet_by_hand as hand
from tests.continual.strategies.references.cosine_head import flat, nested
from tests.continual.strategies.references.podnet_by_hand import (
    LIFT,
    OLD,
    ONE,
    PROXIES,
    START,
    TWO,
    WIDTH,
)

KEY = jax.random.key(0)


def mapped_setup(optimizer=None):
    """Return a net of maps and a flat layer, whose features and maps training lifts."""

    def apply(params, batch_stats, inputs, train, key):
        lift = LIFT if train else 0.0
        one = jnp.tanh(inputs @ params["one"]) + lift
        two = jnp.tanh(one @ params["two"]) + lift
        features = two @ params["three"]
        maps = {"a": one.reshape(-1, *ONE), "b": two.reshape(-1, *TWO), "flat": 7 * one}
        head = params["head"]
        logits = head["scale"] * local_similarities(features, head["kernel"])
        passes = batch_stats["passes"] + (1 if train else 0)
        return Outputs(logits, features, maps), {"passes": passes}

    setup = net.small_setup()
    return setup._replace(
        init=lambda key: (nested(START), {"passes": jnp.array(0)}),
        apply=apply,
        optimizer=optimizer or setup.optimizer,
    )


SETUP = mapped_setup()


learner_of = partial(cosine_head.learner_of, SETUP)


KNOWN, NEW = [0, 1, 4], [2, 3]
INDEX = np.array([0, 12, 13, 2, 3, 8, 10, 15])
BATCH = net.filled(SETUP, net.batch_of([*INDEX, 30], [1] * 8 + [0]))
TASK = net.task_of(2, NEW, [2, 8, 3, 9])


def memory_of(strategy, known=KNOWN):
    memory = strategy.init(KEY, net.small_learner(SETUP, []))
    return memory._replace(teacher=Teacher(nested(OLD), {"passes": 0}, net.classes_mask(known)))


@pytest.mark.parametrize(
    ("inputs", "spatial_weight", "flat_weight", "own_loss"),
    [
        ({}, 3.0, 1.0, hand.official_nca),
        ({"form": "paper"}, 3.0, 1.0, hand.paper_nca),
        (
            {"form": "paper", "spatial_weight": 0.0, "flat_weight": 2.0, "margin": 0.0},
            *(0.0, 2.0, hand.paper_nca),
        ),
    ],
)
def test_the_gradient_is_that_of_the_written_loss(inputs, spatial_weight, flat_weight, own_loss):
    strategy = net.compiled(podnet(SETUP, exemplars_per_class=2, **inputs))
    learner = learner_of(START, [*KNOWN, *NEW])
    gradient, info = strategy.grads(memory_of(strategy), learner, BATCH, TASK, KEY)
    margin = inputs.get("margin", 0.6)
    arguments = (INDEX, KNOWN, NEW, spatial_weight, flat_weight, own_loss, margin)
    expected = net.finite_differences(lambda p: hand.written_loss(p, *arguments)[1], START)
    net.assert_trees_close(flat(gradient), expected, rtol=2e-4, atol=5e-6)
    # The loss that is reported is the task's own, and the old network counts no pass.
    np.testing.assert_allclose(info.loss, hand.written_loss(START, *arguments)[0], rtol=1e-5)
    assert info.batch_stats["passes"] == 1


def test_in_the_first_task_it_is_nca_and_nothing_is_imprinted():
    strategy = net.compiled(podnet(SETUP, exemplars_per_class=2))
    memory, learner = memory_of(strategy), learner_of(START, NEW)
    memory, begun = strategy.begin_task(memory, learner, TASK, KEY)
    net.assert_trees_close(flat(begun.params), flat(learner.params), rtol=0.0, atol=0.0)
    index = np.array([2, 3, 8, 15])
    gradient, _ = strategy.grads(memory, begun, net.filled(SETUP, net.batch_of(index)), TASK, KEY)
    expected = net.finite_differences(
        lambda p: hand.written_loss(p, index, [], NEW, 3.0, 1.0, hand.official_nca)[1], START
    )
    net.assert_trees_close(flat(gradient), expected, rtol=2e-4, atol=5e-6)


def test_nca_of_the_only_class_and_its_gradient_are_0():
    seen = jnp.array([False, True, False])
    value, slope = jax.value_and_grad(nca)(
        jnp.array([0.9, 0.1, 0.5]), jnp.int32(1), seen, jnp.float32(4.0), 0.6
    )
    assert value == 0
    np.testing.assert_array_equal(slope, 0)


def test_with_two_classes_the_papers_loss_is_0_at_scale_0():
    """The scores have no effect, so that the scale falls to 0; in the official code it does not."""
    seen, scores = jnp.array([True, True]), jnp.array([0.1, 0.3])
    slope = jax.grad(nca, 3)(scores, jnp.int32(1), seen, jnp.float32(2.0), 0.6)
    np.testing.assert_allclose(slope, 0.6 + 0.1 - 0.3, rtol=1e-5)
    assert nca(scores, jnp.int32(1), seen, jnp.float32(0.0), 0.6) == 0
    result = nca_as_coded(scores, jnp.int32(1), seen, jnp.float32(0.0))
    np.testing.assert_allclose(result, np.log(2), rtol=1e-6)


@pytest.mark.parametrize("label", [0, 2, 4])
def test_the_margin_of_the_official_code_has_no_effect(label):
    """The scores of class 4 are the greatest, and class 1 is not seen yet."""
    scores, seen = np.array([0.3, 2.0, -0.2, 0.1, 0.8]), [0, 2, 3, 4]
    mask = jnp.asarray(np.isin(np.arange(5), seen))
    result = nca_as_coded(jnp.float32(scores), jnp.int32(label), mask, jnp.float32(3.0))
    for margin in (0.0, 0.6):
        expected = hand.official_nca(scores, label, seen, 3.0, margin)
        np.testing.assert_allclose(result, expected, rtol=1e-5)


def test_equal_maps_have_no_distance_and_no_gradient(rng):
    maps = jnp.float32(rng.normal(size=(3, 4, 2)))
    value, slope = jax.value_and_grad(pooled_distance)(maps, maps)
    assert value == 0
    np.testing.assert_array_equal(slope, 0)
    other = pooled_distance(maps, jnp.float32(rng.normal(size=(3, 4, 2))))
    assert other > 0.1


def test_without_maps_pod_flat_alone_is_left():
    """The coefficient of POD-spatial has no effect without maps, for instance in an MLP."""

    def apply(*arguments):
        outputs, batch_stats = SETUP.apply(*arguments)
        return outputs._replace(hidden=None), batch_stats

    learner = learner_of(START, [*KNOWN, *NEW])
    arguments = (INDEX, KNOWN, NEW, 0.0, 1.0, hand.official_nca)
    expected = net.finite_differences(lambda p: hand.written_loss(p, *arguments)[1], START)
    strategy = net.compiled(podnet(SETUP._replace(apply=apply), exemplars_per_class=2))
    gradient, _ = strategy.grads(memory_of(strategy), learner, BATCH, TASK, KEY)
    net.assert_trees_close(flat(gradient), expected, rtol=2e-4, atol=5e-6)


def test_imprinted_proxies_are_the_centers_of_a_classs_unit_features():
    """They are scaled by the mean length of the known proxies, as `add_imprinted_classes` does."""
    rng = np.random.default_rng(4)
    features = rng.normal(size=(36, WIDTH)) * rng.uniform(0.5, 3, (36, 1))
    features[17] = np.nan
    samples = net.samples_of(np.arange(36), np.arange(36) != 17)
    kernel, key = jnp.float32(START["kernel"]), jax.random.key(5)
    new, known = net.classes_mask([2, 5]), net.classes_mask([0, 3])
    imprint = jax.jit(imprint_proxies)
    result = np.asarray(imprint(kernel, jnp.float32(features), samples, new, known, key))
    length = np.mean([np.linalg.norm(START["kernel"][:, k, c]) for k in range(3) for c in (0, 3)])
    for label in (2, 5):
        rows = [
            hand.unit(f)
            for f, y, i in zip(features, LABELS[:36], range(36), strict=True)
            if y == label and i != 17
        ]
        centers = result[:, :, label].T / length
        # A fixed point of k-means has the mean of its nearest rows at each centre.
        nearest = np.argmin([[np.sum((r - c) ** 2) for c in centers] for r in rows], axis=1)
        assert set(nearest) == {0, 1, 2}
        for number, center in enumerate(centers):
            mean = np.mean([r for r, n in zip(rows, nearest, strict=True) if n == number], axis=0)
            np.testing.assert_allclose(center, mean, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(result[:, :, [0, 1, 3, 4]], kernel[:, :, jnp.array([0, 1, 3, 4])])
    first = imprint(kernel, jnp.float32(features), samples, new, net.classes_mask([]), key)
    np.testing.assert_array_equal(first, kernel)


def test_a_task_begins_with_proxies_from_features_of_evaluation():
    """The network before the task is kept, and its clusters are those of every class's key."""
    strategy = net.compiled(podnet(SETUP, exemplars_per_class=2))
    index = np.array([2, 8, 14, 20, 26, 3, 9, 15, 21, 27])
    learner = learner_of(START, [*KNOWN, *NEW])
    task = net.task_of(1, NEW, index)
    memory, after = strategy.begin_task(
        strategy.init(KEY, net.small_learner(SETUP, [])), learner, task, KEY
    )
    features = hand.forward_of(START, index, lift=0.0, shift=0.0)[2]
    rows = jnp.float32([hand.unit(f) for f in features])
    length = np.mean([np.linalg.norm(START["kernel"][:, k, c]) for k in range(3) for c in KNOWN])
    kernel = START["kernel"].copy()
    for label in NEW:
        selected = jnp.asarray(LABELS[index] == label)
        centers = k_means(rows, selected, PROXIES, jax.random.fold_in(KEY, label))
        kernel[:, :, label] = length * np.asarray(centers).T
    net.assert_trees_close(flat(after.params), {**START, "kernel": kernel}, rtol=1e-4, atol=1e-5)
    net.assert_trees_close(flat(memory.teacher.params), flat(learner.params), rtol=0.0, atol=0.0)
    np.testing.assert_array_equal(memory.teacher.known, net.classes_mask(KNOWN))


def test_known_proxies_stay_bit_for_bit_under_momentum_and_weight_decay():
    """All else moves; finetuning, which would move them, is off."""
    optimizer = optax.chain(optax.add_decayed_weights(0.1), optax.sgd(0.3, momentum=0.9))
    setup = mapped_setup(optimizer)
    strategy = net.compiled(podnet(setup, exemplars_per_class=2, finetuning_epochs=0))
    first, second = [0, 6, 1, 7], [2, 8, 3, 9]
    tasks = [
        (net.task_of(0, [0, 1], first), [[*first, 12, 13]] * 2),
        (net.task_of(1, [2, 3], second), [[*second, 0, 7]] * 3),
    ]
    before, after = (flat(learner.params) for _, learner in net.run_tasks(setup, strategy, tasks))
    moved = np.any(before["kernel"] != after["kernel"], axis=(0, 1))
    np.testing.assert_array_equal(moved, ~np.isin(np.arange(CLASSES), [0, 1]))
    for name in ("one", "two", "three", "scale"):
        assert np.all(before[name] != after[name])


def test_finetuning_descends_the_loss_of_the_exemplars_by_the_proxies():
    """One step per epoch at half the rate, in evaluation mode, has all exemplars at once."""
    strategy = net.compiled(
        podnet(SETUP, exemplars_per_class=2, finetuning_epochs=3, finetuning_batch_size=50)
    )
    learner = learner_of(START, [*KNOWN, *NEW])
    learner = learner._replace(opt_state=SETUP.optimizer.init(learner.params))
    index = np.arange(30)[np.arange(30) % CLASSES != 5]
    task = net.task_of(1, NEW, index)
    memory, after = strategy.end_task(memory_of(strategy), learner, task, KEY)
    held = np.asarray(memory.buffer.samples.index)[np.asarray(memory.buffer.samples.mask)]
    assert len(held) == 2 * len([*KNOWN, *NEW])
    kernel = START["kernel"]
    for _ in range(3):

        def loss(head):
            params = {**START, **head}
            features = hand.forward_of(params, held, lift=0.0)[2]
            current = [
                hand.official_nca(
                    hand.official_similarities(params, f),
                    y,
                    sorted([*KNOWN, *NEW]),
                    START["scale"],
                    0.6,
                )
                for f, y in zip(features, LABELS[held], strict=True)
            ]
            return np.mean(current)

        kernel = kernel - RATE * 0.5 * net.finite_differences(loss, {"kernel": kernel})["kernel"]
    assert np.abs(kernel - START["kernel"])[:, :, KNOWN].max() > 1e-3
    net.assert_trees_close(flat(after.params), {**START, "kernel": kernel}, rtol=1e-4, atol=1e-5)
    assert after.step == learner.step + 3
    _, first = strategy.end_task(memory_of(strategy, []), learner, task, KEY)
    chex.assert_trees_all_equal(first.params, learner.params)


@pytest.mark.parametrize(
    ("form", "similarities"),
    [("code", hand.official_similarities), ("paper", hand.paper_similarities)],
)
def test_predictions_have_the_similarities_of_the_loss(form, similarities):
    """The network's own head has no effect; the package's head has the code's form."""
    features = hand.forward_of(START, np.arange(8), lift=0.0, shift=0.0)[2]
    expected = [similarities(START, f) for f in features]
    kernel = jnp.float32(START["kernel"])
    result = local_similarities(jnp.float32(features), kernel, form)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
    head = {"params": {"kernel": kernel, "scale": jnp.float32(8)}}
    logits = LocalSimilarityHead(CLASSES, PROXIES).apply(head, jnp.float32(features))
    official = [8 * hand.official_similarities(START, f) for f in features]
    np.testing.assert_allclose(logits, official, rtol=1e-4, atol=1e-5)
    strategy = net.compiled(podnet(SETUP, exemplars_per_class=2, form=form))
    learner = learner_of(START, [*KNOWN, *NEW])
    scores = strategy.predict(memory_of(strategy), learner, SETUP.gather(jnp.arange(8), None))
    np.testing.assert_allclose(scores, 8 * np.array(expected), rtol=1e-4, atol=1e-5)
