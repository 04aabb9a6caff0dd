"""L2P: prompts, features, loss and steps against NumPy in float64."""

import importlib
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.continual import l2p
from everlight.continual.engine.tasks import init_learner
from everlight.continual.methods.method import StrategyArguments
from everlight.continual.strategies.l2p import with_pool
from everlight.models import prompt_pool
from tests.continual.small_net import finite_differences, unit
from tests.continual.strategies.references import prompted_vit as vit
from tests.continual.strategies.references.prompted_vit import (
    ARRAYS,
    CLASSES,
    IMAGES,
    QUERIES,
    RATE,
    WIDTH,
)
from tests.models.released_vit import features_in_numpy
from tests.refusals import refused

SIZE, LENGTH, CHOSEN, PULL = 3, 2, 2, 0.7
POOL = prompt_pool(WIDTH, SIZE, LENGTH, CHOSEN, PULL)
SETUP = vit.prompted_setup(POOL)


@pytest.fixture
def params(rng):
    params = vit.in_float64(SETUP.init(jax.random.key(1))[0])
    params["prompts", "prompt"] = rng.normal(size=(SIZE, LENGTH, WIDTH))
    params["prompts", "key"] = rng.normal(size=(SIZE, WIDTH))
    return params


def features_and_cosines(params, index):
    cosines = unit(params["prompts", "key"]) @ unit(QUERIES[index])
    nearest = np.argsort(-cosines)[:CHOSEN]
    tokens = params["prompts", "prompt"][nearest].reshape(-1, WIDTH)
    return features_in_numpy(ARRAYS, IMAGES[index], prompts=tokens), cosines[nearest]


def loss(params, indices, classes):
    total = 0.0
    for index in indices:
        features, cosines = features_and_cosines(params, index)
        total += vit.cross_entropy(params, features, index, classes) - PULL * cosines.sum()
    return total / len(indices)


def test_features_are_the_mean_output_of_the_nearest_prompts(params):
    inputs = SETUP.gather(jnp.arange(6), None)
    result, _ = SETUP.apply(vit.as_params(params), {}, inputs, False, None)
    both = [features_and_cosines(params, index) for index in range(6)]
    features = np.array([item for item, _ in both])
    np.testing.assert_allclose(result.features, features, rtol=1e-4, atol=1e-5)
    expected = [-PULL * cosines.sum() for _, cosines in both]
    np.testing.assert_allclose(result.penalty, expected, rtol=1e-4)
    logits = features @ params["head", "kernel"] + params["head", "bias"]
    np.testing.assert_allclose(result.logits, logits, rtol=1e-4, atol=1e-5)


def test_three_steps_of_two_tasks_are_those_of_float64(params):
    strategy = l2p(SETUP)
    learner = init_learner(SETUP, CLASSES, jax.random.key(0))._replace(params=vit.as_params(params))
    steps = [([0, 1], [0, 1, 4]), ([0, 1], [5, 8, 9]), ([2, 3], [2, 3, 6])]
    for number, (classes, index) in enumerate(steps):
        seen = jnp.asarray(np.arange(CLASSES) <= max(classes))
        learner, task = learner._replace(seen=seen), vit.own_task(number // 2, classes)
        _, learner, value = vit.step_on(index, SETUP, strategy, (), learner, task)
        expected = loss(params, index, classes)
        np.testing.assert_allclose(value, expected, rtol=1e-4)
        change = finite_differences(
            lambda inputs, current=(index, classes): loss(inputs, *current), params
        )
        params = {path: leaf - RATE * change[path] for path, leaf in params.items()}
    vit.assert_close(learner.params, params)


def test_first_prompts_are_uniform_and_small_and_the_rest_of_the_network_is_not_trained():
    first = POOL.init(jax.random.key(0))
    assert {name: leaf.shape for name, leaf in first.items()} == {
        "prompt": (SIZE, LENGTH, WIDTH),
        "key": (SIZE, WIDTH),
    }
    drawn = prompt_pool(40, 50, 5).init(jax.random.key(0))
    for leaf in drawn.values():
        assert 0 <= leaf.min() < 1e-4
        np.testing.assert_allclose(leaf.max(), 0.01, rtol=0.01)
        np.testing.assert_allclose(leaf.mean(), 0.005, rtol=0.03)
    initial, _ = vit.plain_setup().init(jax.random.split(jax.random.key(4))[0])
    result, _ = SETUP.init(jax.random.key(4))
    assert set(result) == {"prompts", "head"}
    jax.tree.map(np.testing.assert_array_equal, result["head"], initial["head"])


def test_the_registry_has_the_values_of_the_official_configuration(monkeypatch):
    """`configs/cifar100_l2p.py` of google-research/l2p is the only source, not the paper's N = 5.

    It has pool_size 10, length 10, top_k 4 and pull_constraint_coeff 1.
    """
    requested = []
    monkeypatch.setattr(
        importlib.import_module("everlight.continual.strategies.l2p"),
        "with_prompts",
        lambda setup, net, layers, prompting: requested.append(prompting),
    )
    with_pool(vit.plain_setup(), SimpleNamespace(width=WIDTH), {}, StrategyArguments(10, 100, 0))
    (prompting,) = requested
    params = prompting.init(jax.random.key(0))
    assert params["prompt"].shape == (10, 10, WIDTH)
    query = jnp.float32(QUERIES[:2])
    prompts, penalty = prompting.choose(params, query)
    assert prompts.tokens.shape == (2, 4 * 10, WIDTH)
    cosines = unit(np.asarray(params["key"])) @ unit(QUERIES[:2]).T
    nearest = np.sort(cosines, axis=0)[-4:]
    np.testing.assert_allclose(penalty, -1.0 * nearest.sum(axis=0), rtol=1e-4)


def test_invalid_prompts_are_refused_in_one_line():
    refused("4 prompts of a pool of 3; choose 3", lambda: prompt_pool(WIDTH, 3, 2, 4))
    plain = vit.plain_setup()
    learner = init_learner(plain, CLASSES, jax.random.key(0))
    refused("L2P needs prompts", lambda: l2p(plain).init(jax.random.key(0), learner))
