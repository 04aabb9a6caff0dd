"""OnPro's step against the official code's in float64 NumPy, given its draws."""

import inspect
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from everlight.continual.engine.keys import batch_keys, update_keys
from everlight.continual.engine.updates import train_step
from everlight.continual.strategies.experience_replay import Reservoir
from everlight.continual.strategies.ocm import ocm
from everlight.continual.strategies.onpro import onpro
from everlight.continual.strategies.parts.instance_losses import instance_losses
from everlight.continual.strategies.parts.projection import new_projection
from everlight.continual.strategies.parts.prototype_losses import prototype_loss
from everlight.continual.strategies.parts.prototype_mixing import Mixed, mixed_ids
from everlight.continual.strategies.parts.views import turned_forms
from everlight.continual.strategies.pcr import pcr
from everlight.continual.strategies.scr import scr
from tests.continual import small_net as net
from tests.continual.instance_reference import (
    BENT,
    cross_entropy,
    instance,
    normalized,
    projections_of,
    xent_n,
    xent_uni,
)
from tests.continual.small_net import CLASSES, DATA, HIDDEN, LABELS, RATE, SHIFT, START

KEY = jax.random.key(0)
MOMENTUM, TEMPERATURE, PROTOTYPES, SIMILARITY, WIDTH = 0.5, 0.4, 0.7, 0.6, 3
# Momentum gives the projection its own state.
SETUP = net.small_setup()._replace(optimizer=optax.sgd(RATE, MOMENTUM))


def strategy_of(**arguments):
    return onpro(
        SETUP,
        12,
        8,
        TEMPERATURE,
        PROTOTYPES,
        SIMILARITY,
        WIDTH,
        augment=lambda inputs, key: -0.5 * inputs,
        forms=lambda inputs: jnp.stack([inputs, inputs[::-1] * BENT]),
        **arguments,
    )


# The step is the official code's, with the second form and view of above for its own.


def ope(first, second, labels):
    """Return `OPELoss`, and the prototypes that it stores."""
    remote = sorted({*labels})
    means = [np.stack([z[labels == c].mean(axis=0) for c in remote]) for z in (first, second)]
    z = normalized(np.concatenate(means))
    logits = z @ z.T / PROTOTYPES
    count = len(remote)
    total = 0.0
    for i in range(2 * count):
        everything = sum(np.exp(logits[i, a]) for a in range(2 * count) if a != i)
        total -= np.log(np.exp(logits[i, (i + count) % (2 * count)]) / everything)
    stored = np.zeros((CLASSES, WIDTH))
    stored[remote] = (means[0] + means[1]) / 2
    return total / (2 * count), stored


def official_loss(params, index, draws, later, seen):
    """Compute `train_task0` or `train_other_tasks`; draws are indices, shares and starts."""
    inputs, labels = DATA[index] + SHIFT, LABELS[index]
    factor = SIMILARITY if later else 1.0
    incoming = partial(xent_n, temperature=TEMPERATURE)
    loss, z = instance(params, inputs, labels.astype(float), draws["starts"][0], factor, incoming)
    size = len(index)
    loss += ope(z[:size], z[2 * size : 3 * size], labels)[0]
    if len(draws["replayed"]):
        stored = DATA[draws["replayed"]] + SHIFT
        _, first = projections_of(params, stored)
        _, second = projections_of(params, -0.5 * stored)
        loss += ope(first, second, LABELS[draws["replayed"]])[0]
    if not later:
        return loss + np.mean(cross_entropy(params, -0.5 * inputs, labels, seen))
    one, two, share = draws["first"], draws["second"], draws["share"]
    mixed = (1 - share)[:, None] * (DATA[one] + SHIFT) + share[:, None] * (DATA[two] + SHIFT)
    soft = np.where(LABELS[one] == LABELS[two], LABELS[one], LABELS[one] * (1 - share))
    soft = soft + np.where(LABELS[one] == LABELS[two], 0, LABELS[two] * share)
    replayed = partial(xent_uni, temperature=TEMPERATURE)
    loss += instance(params, mixed, soft, draws["starts"][1], factor, replayed)[0]
    entropies = (cross_entropy(params, -0.5 * mixed, LABELS[item], seen) for item in (one, two))
    a, b = entropies
    return loss + np.mean((1 - share) * a + share * b)


def memory_of(strategy, stored, later):
    """Return a memory with these samples and a random prototype of every class."""
    held = net.samples_of(np.resize(stored, 12) if len(stored) else np.zeros(12, int))
    held = held._replace(mask=jnp.arange(12) < len(stored))
    return net.untrained(SETUP, strategy)[0]._replace(
        held=Reservoir(held, jnp.int32(len(stored))),
        later=jnp.array(later),
        prototypes=jnp.float32(np.random.default_rng(3).normal(size=(CLASSES, WIDTH))),
    )


BATCH, TASK = net.batch_of([0, 6, 1, 8, 3], [1, 1, 1, 1, 0]), net.task_of(0, [0, 1, 2], [0, 1, 2])


@pytest.mark.parametrize(
    ("later", "stored", "loss_over"),
    [(False, [], "seen"), (False, (10, 11, 12, 13, 16), "all"), (True, range(8, 13), "seen")],
)
def test_a_step_is_the_official_one_given_its_draws(later, stored, loss_over):
    strategy = strategy_of(loss_over=loss_over)
    memory = memory_of(strategy, stored, later)
    learner = net.small_learner(SETUP, [0, 1, 2, 3, 4, 5] if later else [0, 1, 2])
    learner = learner._replace(opt_state=SETUP.optimizer.init(learner.params))
    # This key mixes some samples, in both ways, and others not.
    key = jax.random.key(11)
    drawn = strategy.draw(memory, BATCH, TASK, batch_keys(update_keys(key).batch).draw)

    def indices(batch):
        return np.asarray(batch.index)[np.asarray(batch.weight) > 0]

    index = indices(BATCH)
    draws = {
        "replayed": indices(drawn.replayed),
        "first": indices(drawn.mixed.first),
        "second": indices(drawn.mixed.second),
        "share": np.float64(drawn.mixed.share)[np.asarray(drawn.mixed.first.weight) > 0],
        "starts": [int(start) for start in drawn.starts],
    }
    if later:
        assert draws["starts"] == [0, 1]
        # One of six slots for samples of the draw is empty; two are for pairs of classes.
        assert [len(draws[name]) for name in ("replayed", "first", "second")] == [5, 7, 7]
        assert 0 < np.count_nonzero(draws["share"][:5]) < 5
        assert draws["share"][5:].any()
    seen = range(CLASSES) if loss_over == "all" else np.flatnonzero(learner.seen)
    seen = [int(label) for label in seen]
    (layer,) = memory.projection.layers
    projection = {
        "p kernel": np.asarray(layer.kernel, float),
        "p bias": np.asarray(layer.bias, float),
    }
    params = START | projection
    slope = net.finite_differences(lambda p: official_loss(p, index, draws, later, seen), params)
    after, learned, loss = jax.jit(
        lambda m, n: train_step(SETUP, strategy, m, n, BATCH, TASK, key)
    )(memory, learner)
    np.testing.assert_allclose(loss, official_loss(params, index, draws, later, seen), rtol=1e-5)
    expected = {name: params[name] - RATE * slope[name] for name in params}
    result = dict(learned.params)
    (layer,) = after.projection.layers
    result |= {"p kernel": layer.kernel, "p bias": layer.bias}
    net.assert_trees_close(result, expected, rtol=1e-4, atol=2e-5)
    # Both batches of samples, the cross-entropy and the replayed samples have a pass each.
    assert learned.batch_stats["passes"] == 2 + (len(stored) > 0)
    remaining = np.zeros((CLASSES, WIDTH))
    if len(stored):
        inputs = DATA[draws["replayed"]] + SHIFT
        views = [projections_of(params, item)[1] for item in (inputs, -0.5 * inputs)]
        remaining = ope(*views, LABELS[draws["replayed"]])[1]
    np.testing.assert_allclose(after.prototypes, remaining, rtol=1e-4, atol=1e-5)
    assert int(after.held.arrived) == len(stored) + 4


def test_arguments_of_mixing_reach_its_draws():
    """A share of Beta(α, α) is near one half for a large α."""
    strategy = strategy_of(base_share=0.5, mix_probability=1.0, mix_share=0.1, concentration=1e6)
    drawn = strategy.draw(memory_of(strategy, range(8, 20), True), BATCH, TASK, KEY)
    np.testing.assert_array_equal(drawn.mixed.first.index[:4], drawn.replayed.index[:4])
    share = np.asarray(drawn.mixed.share)
    assert np.all((share[:4] > 0) & (share[:4] < 0.1))
    np.testing.assert_allclose(share[4:], 0.5, atol=0.01)


@pytest.mark.parametrize(("classes", "index"), [([2, 3], [2, 8, 3]), ([0, 1], [7, 12, 13])])
def test_later_tasks_begin_with_the_second_one_and_momentum_goes_on(classes, index):
    """The official `train` takes the first form for `task_id == 0` alone, whatever the classes."""
    tasks = [
        (net.task_of(0, [0, 1], [0, 6, 1]), [[0, 6, 1]] * 2),
        (net.task_of(1, classes, index), [index]),
    ]
    (first, _), (second, learner) = net.run_tasks(SETUP, strategy_of(), tasks)
    assert not first.later
    assert second.later
    trace = jax.tree.leaves(second.projection.opt_state)
    assert all(np.any(np.asarray(leaf) != 0) for leaf in trace)
    np.testing.assert_array_equal(learner.seen, net.classes_mask([0, 1, *classes]))


def test_losses_of_padding_are_finite_and_have_no_effect():
    rng = np.random.default_rng(1)
    near = jnp.float32(rng.normal(size=(8, 8)))
    ids, weight = jnp.array([0, 1, 0, 0]), jnp.float32([1, 1, 1, 0])
    stored = jnp.array([0, 1, 2, 4, 5, 6])
    for replayed in (True, False):
        losses = instance_losses(near, ids, weight, 0.4, replayed)
        assert np.all(np.isfinite(losses))
        single = instance_losses(near[stored][:, stored], ids[:3], weight[:3], 0.4, replayed)
        np.testing.assert_allclose(losses[stored], single, rtol=1e-5)
        slope = jax.grad(
            lambda near, form=replayed: jnp.sum(instance_losses(near, ids, weight * 0, 0.4, form))
        )
        assert np.all(np.isfinite(slope(near)))


def test_prototypes_of_no_sample_and_of_one_class_have_no_loss():
    rng = np.random.default_rng(2)
    first, second = (jnp.float32(normalized(rng.normal(size=(3, 4)))) for _ in range(2))
    labels = jnp.array([1, 1, 0])

    def value(first, weight):
        return prototype_loss(first, second, labels, weight, 3, 0.5)[0]

    for weight in (jnp.zeros(3), jnp.float32([1, 1, 0])):
        loss, slope = jax.value_and_grad(value)(first, weight)
        np.testing.assert_allclose(loss, 0, atol=1e-6)
        np.testing.assert_allclose(slope, 0, atol=1e-6)
    assert value(first, jnp.ones(3)) > 0.1


def test_mixed_samples_are_classes_of_their_own():
    one, two = net.batch_of([0, 1, 2, 3]), net.batch_of([1, 7, 8, 4])
    mixed = Mixed(one, two, jnp.float32([0.3, 0.3, 0.0, 0.0]))
    np.testing.assert_array_equal(mixed_ids(mixed, 6), [6, 1, 2, 3])


def test_forms_are_those_of_the_official_rotations():
    """The forms of `rot_inner_all` and `Rotation` have images first, and channels before rows."""
    rng = np.random.default_rng(0)
    images = rng.normal(size=(2, 6, 6, 3))
    x = images.transpose(0, 3, 1, 2)
    halves = x.transpose(0, 1, 3, 2).reshape(2, 3, 2, 3, 6)
    one, two = halves[:, :, 0], halves[:, :, 1]
    turned = [np.rot90(half, 2, (2, 3)) for half in (one, two)]

    def joined(first, second):
        return np.stack([first, second], axis=2).reshape(2, 3, 6, 6).transpose(0, 1, 3, 2)

    inner = [x, joined(turned[0], two), joined(*turned), joined(one, turned[1])]
    complete = [np.rot90(item, k, (2, 3)) for k in (0, 2, 1, 3) for item in inner]
    result = jax.vmap(turned_forms)(jnp.float32(images))
    np.testing.assert_allclose(
        result, np.stack(complete, axis=1).transpose(0, 1, 3, 4, 2), rtol=1e-6
    )
    for other in (jnp.ones(4), jnp.ones((4, 6, 1)), jnp.ones((5, 5, 1))):
        np.testing.assert_array_equal(turned_forms(other), other[None])


def test_second_views_and_projections():
    """Official crops have the scale (0.2, 1) in SCR and (0.3, 1) in OCM. The image shows its own
    coordinates."""
    image = jnp.float32(np.mgrid[:8, :8].transpose(1, 2, 0))
    for least_area, (first, second) in ((0.2, (scr, pcr)), (0.3, (ocm, onpro))):
        view = inspect.signature(first).parameters["augment"].default
        assert inspect.signature(second).parameters["augment"].default is view
        views = jax.vmap(lambda key, view=view: view(image, key))(jax.random.split(KEY, 1000))
        sides = views[:, 4, 4] - views[:, 3, 3]
        areas = np.abs(np.prod(np.asarray(sides, float), axis=1))
        assert least_area - 1e-4 < areas.min() < least_area + 0.01
        np.testing.assert_array_equal(view(image[0], KEY), image[0])
    (layer,) = new_projection(SETUP, (HIDDEN, 2000), KEY).layers
    bound = HIDDEN**-0.5
    assert jnp.abs(layer.kernel).max() <= bound
    np.testing.assert_allclose(layer.kernel.std(), bound / 3**0.5, rtol=0.03)
    np.testing.assert_allclose(layer.bias.std(), bound / 3**0.5, rtol=0.1)
