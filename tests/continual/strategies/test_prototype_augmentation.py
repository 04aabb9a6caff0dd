"""PASS's loss, prototypes and radius against the official ones, written again in float64."""

import jax
import jax.numpy as jnp
import numpy as np
from scipy.special import log_softmax

from everlight.base import Outputs
from everlight.continual.strategies.prototype_augmentation import (
    draw_prototypes,
    feature_distance,
    form_logits,
    prototype_augmentation,
    quarter_turns,
)
from tests.continual import small_net as net
from tests.continual.many_labels import OLD
from tests.continual.small_net import CLASSES, DATA, GAIN, HIDDEN, LABELS, RATE, SHIFT, START

SETUP = net.layered_setup()
PROTOTYPES, DISTILLATION, TEMPERATURE = 0.7, 0.4, 0.5
FIRST = [0, 1, 6, 7, 12, 13, 18, 2, 8]
"""Samples of classes 0, 1 and 2."""
KEY = jax.random.key(5)


def forms(inputs):
    return jnp.stack([inputs, inputs[::-1], -inputs])


STRATEGY = net.compiled(
    prototype_augmentation(SETUP, PROTOTYPES, DISTILLATION, TEMPERATURE, forms=forms)
)
TASKS = net.task_of(0, [0, 1, 2], FIRST), net.task_of(1, [3, 4], [3, 4, 9, 10])


def features_of(params, inputs, train):
    bent = np.tanh(inputs @ params["hidden"] + params["hidden_bias"])
    return bent * (GAIN if train else 1.0)


def started():
    """Return memory and learner in the second task; the network before it is OLD."""
    learner = net.small_learner(SETUP, [0, 1, 2], OLD)
    learner = learner._replace(params=net.layered(learner.params))
    memory, _ = STRATEGY.begin_task(STRATEGY.init(KEY, learner), learner, TASKS[0], KEY)
    memory, _ = STRATEGY.end_task(memory, learner, TASKS[0], KEY)
    learner = learner._replace(seen=net.classes_mask([0, 1, 2, 3, 4]))
    memory, _ = STRATEGY.begin_task(memory, learner, TASKS[1], KEY)
    return memory, learner._replace(params=net.layered(net.as_float32(START)))


def official_prototypes():
    """Return the class means and the radius after the first task, as `protoSave` has them."""
    rows = features_of(OLD, DATA[FIRST], False)
    means, variances = {}, []
    for c in (0, 1, 2):
        class_rows = rows[LABELS[FIRST] == c]
        means[c] = class_rows.mean(axis=0)
        variances.append(np.trace(np.cov(class_rows.T)) / HIDDEN)
    return means, np.sqrt(np.mean(variances))


def test_prototypes_and_radius_are_the_official_ones():
    memory, _ = started()
    means, radius = official_prototypes()
    np.testing.assert_allclose(memory.means.mean[:3], list(means.values()), atol=1e-6)
    np.testing.assert_array_equal(memory.means.count > 0, np.arange(CLASSES) < 3)
    np.testing.assert_allclose(memory.radius, radius, rtol=1e-5)
    _, learner = started()
    later, _ = STRATEGY.end_task(memory, learner, TASKS[1], KEY)
    np.testing.assert_array_equal(later.radius, memory.radius)
    np.testing.assert_allclose(
        later.means.mean[3], features_of(START, DATA[[3, 9]], False).mean(axis=0), atol=1e-6
    )


def official_loss(params, index, drawn, noise, seen, later=True):
    """Return a step's loss; outputs are numbered 3 y + k, as the authors' are 4 y + k."""
    inputs = DATA[index] + SHIFT
    turned = np.stack([inputs, inputs[:, ::-1], -inputs], axis=1).reshape(-1, DATA.shape[1])
    targets = (LABELS[index][:, None] * 3 + np.arange(3)).reshape(-1)
    kernel = np.stack([params["head"], *np.moveaxis(params["turned"], 1, 0)], axis=2)
    bias = np.stack([params["head_bias"], *params["turned_bias"]], axis=1).reshape(-1)
    kernel = kernel.reshape(HIDDEN, -1)
    active = np.repeat(seen, 3)

    def entropy(rows, targets):
        logits = np.where(active, rows @ kernel + bias, -np.inf) / TEMPERATURE
        return -log_softmax(logits, axis=1)[np.arange(len(rows)), targets].mean()

    features = features_of(params, turned, True)
    loss = entropy(features, targets)
    if not later:
        return loss
    means, radius = official_prototypes()
    augmented = np.stack([means[c] for c in drawn]) + noise * radius
    distance = np.linalg.norm(features - features_of(OLD, turned, False))
    return loss + PROTOTYPES * entropy(augmented, 3 * drawn) + DISTILLATION * distance


def with_turned(memory):
    turned = jax.tree.map(np.float64, memory.turned_head.params)
    return {**START, "turned": turned["kernel"], "turned_bias": turned["bias"]}


def test_a_step_is_the_gradient_of_the_official_loss():
    memory, learner = started()
    index = np.array([3, 4, 9])
    batch = net.filled(SETUP, net.batch_of([*index, 5], [1, 1, 1, 0]))
    gradient, info = STRATEGY.grads(memory, learner, batch, TASKS[1], KEY)
    drawn, noise = draw_prototypes(net.classes_mask([0, 1, 2]), 4, HIDDEN, jax.random.split(KEY)[1])
    seen = np.arange(CLASSES) < 5
    expected = net.finite_differences(
        lambda params: official_loss(params, index, np.asarray(drawn), np.float64(noise), seen),
        with_turned(memory),
    )
    turned = info.aux
    actual = {
        **net.flat(gradient),
        "turned": turned["kernel"],
        "turned_bias": turned["bias"],
    }
    net.assert_trees_close(actual, expected, rtol=1e-4, atol=1e-5)


def test_the_first_task_has_the_cross_entropy_of_all_forms_alone():
    learner = net.small_learner(SETUP, [0, 1, 2])
    learner = learner._replace(params=net.layered(learner.params))
    memory, _ = STRATEGY.begin_task(STRATEGY.init(KEY, learner), learner, TASKS[0], KEY)
    index = np.array(FIRST[:4])
    batch = net.filled(SETUP, net.batch_of(index))
    gradient, info = STRATEGY.grads(memory, learner, batch, TASKS[0], KEY)
    seen = np.arange(CLASSES) < 3

    def loss(params):
        return official_loss(params, index, None, None, seen, later=False)

    expected = net.finite_differences(loss, with_turned(memory))
    net.assert_trees_close(
        net.flat(gradient), {name: expected[name] for name in START}, rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(info.loss, loss(with_turned(memory)), rtol=1e-5)
    after, _ = STRATEGY.after_step(memory, learner, info, KEY)
    np.testing.assert_allclose(
        after.turned_head.params["kernel"],
        with_turned(memory)["turned"] - RATE * expected["turned"],
        rtol=1e-4,
        atol=1e-6,
    )


def test_known_classes_are_drawn_equally_often_and_no_other_ones():
    known = net.classes_mask([1, 4, 5])
    drawn, noise = draw_prototypes(known, 3000, 2, KEY)
    counts = np.bincount(drawn, minlength=CLASSES)
    assert counts[[0, 2, 3]].sum() == 0
    # Four standard deviations of a third of 3,000 draws.
    assert np.abs(counts[[1, 4, 5]] - 1000).max() < 4 * np.sqrt(3000 * 2 / 9)
    np.testing.assert_allclose(noise.std(), 1, atol=0.05)
    assert not np.any(draw_prototypes(net.classes_mask([]), 5, 2, KEY)[0])


def test_a_square_image_has_four_turns_and_other_inputs_are_their_only_form():
    image = np.arange(9.0).reshape(3, 3, 1)
    turned = quarter_turns(jnp.asarray(image))
    for turns in range(4):
        np.testing.assert_array_equal(turned[turns, ..., 0], np.rot90(image[..., 0], turns))
    for shape in ((3,), (2, 3, 1)):
        assert quarter_turns(jnp.zeros(shape)).shape == (1, *shape)
    # Inputs without turns have no logits beside the network's.
    outputs = Outputs(jnp.arange(6.0).reshape(2, 3), jnp.ones((2, 5)))
    unturned = {"kernel": jnp.ones((5, 0, 3)), "bias": jnp.ones((0, 3))}
    np.testing.assert_array_equal(form_logits(outputs, unturned)[:, 0], outputs.logits)


def test_equal_features_have_distance_and_gradient_0():
    rows = jnp.ones((2, 3))
    value, slope = jax.value_and_grad(lambda rows: feature_distance(rows, rows, jnp.ones(2)))(rows)
    assert value == 0
    np.testing.assert_array_equal(slope, 0)
