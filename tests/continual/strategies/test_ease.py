"""EASE: adapters, prototypes, their mapping and the scores against NumPy in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax.traverse_util import flatten_dict

import everlight.models.adapters
from everlight.continual import ease
from everlight.continual.engine.tasks import init_learner
from everlight.models import with_adapters
from everlight.models.adapters import adapter_output
from tests.continual.small_net import finite_differences, task_of, unit
from tests.continual.strategies.references import prompted_vit as vit
from tests.continual.strategies.references.prompted_vit import (
    ARRAYS,
    CLASSES,
    IMAGES,
    LABELS,
    RATE,
    WIDTH,
)
from tests.models.released_vit import features_in_numpy
from tests.refusals import refused

HIDDEN, SCALE, WEIGHT, TASKS = 3, 0.5, 0.3, 3


def setup_with(head):
    net, plain = vit.NET.clone(head=head), vit.plain_setup(head=head)
    return with_adapters(plain, net, vit.LAYERS, HIDDEN, SCALE, 0.0)


SETUP = setup_with("linear")
INPUTS = SETUP.gather(jnp.arange(12), None)


def adapters_in_numpy(params):
    def function(number):
        down, up = (
            [params["adapters", f"block{number}", layer, leaf] for leaf in ("kernel", "bias")]
            for layer in ("down", "up")
        )
        return lambda x: SCALE * (np.maximum(x @ down[0] + down[1], 0) @ up[0] + up[1])

    return [function(number) for number in range(vit.NET.depth)]


def features_with(params, index):
    return features_in_numpy(ARRAYS, IMAGES[index], parallel=adapters_in_numpy(params))


def moved(params, rng):
    return {
        path: np.asarray(leaf + 0.5 * rng.normal(size=leaf.shape)) for path, leaf in params.items()
    }


@pytest.mark.parametrize("head", ["linear", "cosine"])
def test_adapters_are_added_to_the_mlps_and_a_step_is_that_of_float64(head, rng):
    setup = setup_with(head)
    params = moved(vit.in_float64(setup.init(jax.random.key(1))[0]), rng)
    strategy = ease(setup, TASKS)
    learner = init_learner(setup, CLASSES, jax.random.key(0))._replace(params=vit.as_params(params))
    memory = strategy.init(jax.random.key(0), learner)
    index, classes = [2, 3, 6], [2, 3]
    learner = learner._replace(seen=jnp.ones(CLASSES, bool))
    task = vit.own_task(1, classes)
    _, learner, value = vit.step_on(index, setup, strategy, memory, learner, task)

    def loss(params):
        losses = [
            vit.cross_entropy(params, features_with(params, place), place, classes)
            for place in index
        ]
        return np.mean(losses)

    np.testing.assert_allclose(value, loss(params), rtol=1e-4)
    change = finite_differences(loss, params)
    vit.assert_close(
        learner.params, {path: leaf - RATE * change[path] for path, leaf in params.items()}
    )


def scores_in_numpy(all_features, means, task_of_class, count):
    """Return the scores of all images; classes without samples have −∞."""
    scores = np.full((12, CLASSES), -np.inf)
    for image in range(12):
        for number in range(CLASSES):
            if task_of_class[number] < 0:
                continue
            total = 0.0
            for subspace in range(count + 1):
                weight = 1 if subspace == task_of_class[number] else WEIGHT / max(count, 1)
                features = unit(all_features[subspace][image])
                total += weight * features @ unit(means[number, subspace])
            scores[image, number] = total
    return scores


def test_old_prototypes_are_mapped_to_every_later_subspace(rng):
    strategy = ease(SETUP, TASKS, WEIGHT)
    learner = init_learner(SETUP, CLASSES, jax.random.key(0))
    memory = strategy.init(jax.random.key(0), learner)
    features, means = [], {}
    task_of_class = np.full(CLASSES, -1)
    for count, classes in enumerate(([0, 1], [2], [3])):
        index = np.flatnonzero(np.isin(LABELS, classes))
        task = task_of(count, classes, index)
        task = task._replace(
            classes=jnp.asarray(np.isin(np.arange(CLASSES), classes)),
            train=task.train._replace(labels=jnp.asarray(LABELS[index])[:, None]),
        )
        memory, learner = strategy.begin_task(memory, learner, task, jax.random.key(count))
        assert int(memory.count) == count
        # This stands for the training of the task.
        params = moved(vit.in_float64(learner.params), rng)
        learner = learner._replace(params=vit.as_params(params))
        memory, learner = strategy.end_task(memory, learner, task, jax.random.key(9))
        features.append([features_with(params, image) for image in range(12)])
        task_of_class[classes] = count
        for number in classes:
            for subspace in range(count + 1):
                rows = [features[subspace][image] for image in np.flatnonzero(number == LABELS)]
                means[number, subspace] = np.mean(rows, axis=0)
        for subspace in range(1, count + 1):
            for number in np.flatnonzero((task_of_class >= 0) & (task_of_class < subspace)):
                first = task_of_class[number]
                later = np.flatnonzero(task_of_class >= subspace)
                similar = [unit(means[number, first]) @ unit(means[k, first]) for k in later]
                weights = np.exp(similar) / np.exp(similar).sum()
                means[number, subspace] = sum(
                    weight * means[k, subspace] for weight, k in zip(weights, later, strict=True)
                )
        expected = scores_in_numpy(features, means, task_of_class, count)
        result = strategy.predict(memory, learner, INPUTS)
        np.testing.assert_allclose(result, expected, rtol=1e-3, atol=1e-4)


def test_every_task_begins_with_a_new_head_and_an_adapter_without_effect():
    strategy = ease(SETUP, TASKS)
    learner = init_learner(SETUP, CLASSES, jax.random.key(0))
    memory = strategy.init(jax.random.key(0), learner)
    memory, first = strategy.begin_task(memory, learner, vit.own_task(0, [0]), jax.random.key(1))
    jax.tree.map(np.testing.assert_array_equal, first.params, learner.params)
    memory, second = strategy.begin_task(memory, first, vit.own_task(1, [1]), jax.random.key(2))
    assert not np.array_equal(second.params["head"]["kernel"], first.params["head"]["kernel"])
    assert not np.any(second.params["adapters"]["block0"]["up"]["kernel"])
    for path, leaf in flatten_dict(memory.finished[0]["adapters"]).items():
        np.testing.assert_array_equal(leaf[0], flatten_dict(first.params["adapters"])[path])
        assert not np.any(leaf[1])
    outputs, _ = SETUP.apply(second.params, {}, INPUTS, False, None)
    np.testing.assert_allclose(outputs.features, vit.QUERIES, rtol=1e-4, atol=1e-5)


def test_first_kernels_are_uniform_below_the_inverse_root_of_the_width():
    params, _ = with_adapters(vit.plain_setup(), vit.NET, vit.LAYERS, 4000).init(jax.random.key(0))
    first, second = (params["adapters"][f"block{number}"]["down"] for number in (0, 1))
    bound = 1 / np.sqrt(WIDTH)
    kernel = np.asarray(first["kernel"])
    assert 0.999 * bound < np.abs(kernel).max() <= bound
    np.testing.assert_allclose(kernel.std(), bound / np.sqrt(3), rtol=0.02)
    assert not np.allclose(kernel, second["kernel"])
    assert not np.any(first["bias"])


def test_a_share_of_the_hidden_values_is_dropped_in_training_alone(rng):
    adapter = {
        "down": {"kernel": jnp.zeros((2, 4000)), "bias": jnp.ones(4000)},
        "up": {"kernel": jnp.ones((4000, 2)), "bias": jnp.zeros(2)},
    }
    tokens = jnp.zeros((1, 1, 2))
    trained = adapter_output(adapter, 1.0, 0.1, jax.random.key(0), tokens)
    assert 3900 < float(trained[0, 0, 0]) < 4100
    assert float(trained[0, 0, 0]) != 4000
    np.testing.assert_allclose(adapter_output(adapter, 1.0, 0.1, None, tokens), 4000, rtol=1e-6)
    setup = with_adapters(vit.plain_setup(), vit.NET, vit.LAYERS, 8, 1.0, 0.5)
    params = vit.as_params(moved(vit.in_float64(setup.init(jax.random.key(1))[0]), rng))

    def logits(train, seed):
        return setup.apply(params, {}, INPUTS, train, jax.random.key(seed))[0].logits

    assert not np.allclose(logits(True, 0), logits(True, 1))
    np.testing.assert_array_equal(logits(False, 0), logits(False, 1))


def test_every_block_drops_values_of_a_different_key(monkeypatch):
    keys = []

    def recorded(adapter, scale, dropout, key, tokens):
        keys.append(jax.random.key_data(key))
        return jnp.zeros_like(tokens)

    monkeypatch.setattr(everlight.models.adapters, "adapter_output", recorded)
    setup = with_adapters(vit.plain_setup(), vit.NET, vit.LAYERS)
    params, _ = setup.init(jax.random.key(1))
    setup.apply(params, {}, INPUTS, True, jax.random.key(0))
    assert len(keys) == vit.NET.depth
    assert not np.array_equal(*keys)


def test_setups_without_adapters_or_head_or_with_frozen_parameters_are_refused():
    def start(setup):
        learner = init_learner(setup, CLASSES, jax.random.key(0))
        ease(setup, 2).init(jax.random.key(0), learner)

    plain = vit.plain_setup()
    learner = init_learner(plain, CLASSES, jax.random.key(0))
    refused("EASE trains adapters and a head", lambda: start(plain))
    layers = {**vit.LAYERS, "head": learner.params["head"]}
    headless = with_adapters(plain, vit.NET, layers)
    refused("whose layers have no head", lambda: start(headless))
    frozen = vit.plain_setup(optax.sgd(0.1))._replace(trainable=lambda params: params)
    refused("frozen parameters", lambda: with_adapters(frozen, vit.NET, vit.LAYERS))
    refused("dropout is 1.0", lambda: with_adapters(plain, vit.NET, vit.LAYERS, dropout=1.0))
