"""DualPrompt: general and expert prompts, features and steps against NumPy in float64."""

import importlib
from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from everlight.continual import StoredImages, dual_prompt, flax_setup, softmax_objective
from everlight.continual.engine.tasks import init_learner
from everlight.continual.methods.method import StrategyArguments
from everlight.continual.strategies.dual_prompt import with_dual_prompts
from everlight.models import dual_prompts, prompt_pool, vit_layers, with_prompts
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
from tests.models.released_vit import features_in_numpy, released_arrays
from tests.refusals import refused

EXPERTS, LENGTH, PULL, TASKS = 3, 2, 0.7, 2
PROMPTING = dual_prompts(WIDTH, EXPERTS, LENGTH, 1, 1, PULL)
DECAY = 0.01
# Weight decay would move experts of other tasks.
OPTIMIZER = optax.chain(optax.add_decayed_weights(DECAY), optax.sgd(RATE))
SETUP = vit.prompted_setup(PROMPTING, OPTIMIZER)
GENERAL, EXPERT, KEY = (
    ("prompts", "general", "block0"),
    ("prompts", "expert", "block1"),
    ("prompts", "key"),
)


@pytest.fixture
def params(rng):
    params = vit.in_float64(SETUP.init(jax.random.key(1))[0])
    return {path: leaf + rng.normal(size=leaf.shape) for path, leaf in params.items()}


def features_with(params, index, expert):
    prefixes = [params[GENERAL], params[EXPERT][expert]]
    return features_in_numpy(ARRAYS, IMAGES[index], prefixes=prefixes)


def cosines(params, index):
    return unit(params[KEY]) @ unit(QUERIES[index])


def loss(params, indices, classes, expert):
    total = 0.0
    for index in indices:
        features = features_with(params, index, expert)
        total += vit.cross_entropy(params, features, index, classes)
        total -= PULL * cosines(params, index)[expert]
    return total / len(indices)


def test_blocks_attend_to_the_general_prompt_and_the_expert_of_the_nearest_key(params):
    inputs = SETUP.gather(jnp.arange(12), None)
    result, _ = SETUP.apply(vit.as_params(params), {}, inputs, False, None)
    nearest = [int(np.argmax(cosines(params, index))) for index in range(12)]
    assert len(set(nearest)) > 1
    features = np.array([features_with(params, *pair) for pair in enumerate(nearest)])
    np.testing.assert_allclose(result.features, features, rtol=1e-4, atol=1e-5)
    penalty = [-PULL * np.max(cosines(params, index)) for index in range(12)]
    np.testing.assert_allclose(result.penalty, penalty, rtol=1e-4)


def test_prompts_of_several_blocks_are_their_keys_and_values(rng):
    net = vit.NET.clone(depth=4)
    arrays = released_arrays(net, vit.SIDE // net.patch, rng)
    images = StoredImages.of(jnp.float32(IMAGES[:3]), jnp.zeros(3), jnp.ones(3))
    plain = flax_setup(net, images, softmax_objective(), optax.sgd(RATE))
    layers, prompting = vit_layers(net, arrays, vit.SIDE), dual_prompts(WIDTH, 2, 5, 2, 2)
    setup = with_prompts(plain, net, layers, prompting)
    drawn = vit.in_float64(setup.init(jax.random.key(1))[0])
    params = {path: leaf + rng.normal(size=leaf.shape) for path, leaf in drawn.items()}
    inputs = setup.gather(jnp.arange(3), None)
    result, _ = setup.apply(vit.as_params(params), {}, inputs, False, None)
    for index in range(3):
        query = features_in_numpy(arrays, IMAGES[index])
        expert = int(np.argmax(unit(params[KEY]) @ unit(query)))
        prefixes = [params["prompts", "general", f"block{number}"] for number in (0, 1)]
        prefixes += [params["prompts", "expert", f"block{number}"][expert] for number in (2, 3)]
        features = features_in_numpy(arrays, IMAGES[index], prefixes=prefixes)
        np.testing.assert_allclose(result.features[index], features, rtol=1e-3, atol=1e-4)


def test_two_tasks_are_those_of_float64_and_later_keys_are_no_candidates(params):
    # The first expert is the nearest of an image of the second task, which trains its own one.
    params[KEY][0] = 20 * unit(QUERIES[2])
    strategy = dual_prompt(SETUP, TASKS)
    learner = init_learner(SETUP, CLASSES, jax.random.key(0))._replace(params=vit.as_params(params))
    memory = strategy.init(jax.random.key(0), learner)
    tasks = [([0, 1], [[0, 1, 4], [5, 8, 9]]), ([2, 3], [[2, 3, 6], [7, 10]])]
    for number, (classes, batches) in enumerate(tasks):
        task = vit.own_task(number, classes)
        learner = learner._replace(seen=jnp.asarray(np.arange(CLASSES) <= max(classes)))
        memory, learner = strategy.begin_task(memory, learner, task, jax.random.key(number))
        if number:
            params[EXPERT][number] = params[EXPERT][number - 1]
        vit.assert_close(learner.params, params)
        nearest = [np.argmax(cosines(params, index)[: number + 1]) for index in batches[0]]
        assert 0 in nearest
        for index in batches:
            memory, learner, value = vit.step_on(index, SETUP, strategy, memory, learner, task)
            np.testing.assert_allclose(value, loss(params, index, classes, number), rtol=1e-4)
            change = finite_differences(
                lambda inputs, current=(index, classes, number): loss(inputs, *current), params
            )
            before = params
            params = {
                path: leaf - RATE * (change[path] + DECAY * leaf) for path, leaf in before.items()
            }
            others = np.arange(EXPERTS) != number
            for path in (EXPERT, KEY):
                params[path][others] = before[path][others]
        vit.assert_close(learner.params, params)
        scores = strategy.predict(memory, learner, SETUP.gather(jnp.arange(12), None))
        for index in range(12):
            expert = int(np.argmax(cosines(params, index)[: number + 1]))
            features = features_with(params, index, expert)
            logits = features @ params["head", "kernel"] + params["head", "bias"]
            np.testing.assert_allclose(scores[index], logits, rtol=1e-3, atol=1e-4)


def test_the_registry_has_the_values_of_the_official_configuration(monkeypatch):
    """`configs/cifar100_dualprompt.py` of google-research/l2p is the only source.

    It has g_prompt_layer_idx [0, 1], e_prompt_layer_idx [2, 3, 4], lengths 5, pool_size 10 on ten
    tasks and pull_constraint_coeff 1.
    """
    requested = []
    monkeypatch.setattr(
        importlib.import_module("everlight.continual.strategies.dual_prompt"),
        "with_prompts",
        lambda setup, net, layers, prompting: requested.append(prompting),
    )
    for depth in (12, 1):
        net = SimpleNamespace(width=WIDTH, depth=depth)
        with_dual_prompts(vit.plain_setup(), net, {}, StrategyArguments(10, 100, 0))
    full, shallow = (prompting.init(jax.random.key(0)) for prompting in requested)
    assert {name: leaf.shape for name, leaf in full["general"].items()} == dict.fromkeys(
        ("block0", "block1"), (2, 5, WIDTH)
    )
    assert {name: leaf.shape for name, leaf in full["expert"].items()} == dict.fromkeys(
        ("block2", "block3", "block4"), (10, 2, 5, WIDTH)
    )
    assert full["key"].shape == (10, WIDTH)
    assert all(leaf.min() >= 0 and leaf.max() < 0.01 for leaf in jax.tree.leaves(full))
    assert set(shallow) == {"expert", "key"}
    assert set(shallow["expert"]) == {"block0"}
    query = jnp.float32(QUERIES[:2])
    _, penalty = requested[0].choose(full, query)
    nearest = (unit(np.asarray(full["key"])) @ unit(QUERIES[:2]).T).max(axis=0)
    np.testing.assert_allclose(penalty, -1.0 * nearest, rtol=1e-4)


def test_invalid_prompts_are_refused_in_one_line():
    def start(setup, tasks=TASKS):
        learner = init_learner(setup, CLASSES, jax.random.key(0))
        return dual_prompt(setup, tasks).init(jax.random.key(0), learner)

    refused("DualPrompt needs prompts", lambda: start(vit.plain_setup()))
    pool = vit.prompted_setup(prompt_pool(WIDTH, 3, 2, 1))
    refused("make those of DualPrompt by models.dual_prompts", lambda: start(pool))
    refused("3 experts for 4 tasks; give 4 or more", lambda: start(SETUP, 4))
