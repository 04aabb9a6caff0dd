"""CODA-Prompt: components, features, penalty and steps against NumPy in float64."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from everlight.continual import coda_prompt
from everlight.continual.engine.tasks import init_learner
from everlight.models import prompt_components
from everlight.models.prompts import new_components
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

COUNT, LENGTH, BLOCKS, ORTHOGONALITY, TASKS = 5, 4, 2, 0.3, 2
"""Components, of which each of the two tasks has two."""
COMPONENTS = prompt_components(WIDTH, COUNT, LENGTH, BLOCKS, ORTHOGONALITY)
DECAY = 0.01
KEY = jax.random.key(7)
# Weight decay would move components of earlier tasks.
OPTIMIZER = optax.chain(optax.add_decayed_weights(DECAY), optax.sgd(RATE))
SETUP = vit.prompted_setup(COMPONENTS, OPTIMIZER)


def prefixes_and_penalty(params, index, used):
    prefixes, penalty = [], 0.0
    for number in range(BLOCKS):
        prompt, key, attention = (
            params["prompts", f"block{number}", name][:used]
            for name in ("prompt", "key", "attention")
        )
        requested = unit(QUERIES[index] * attention)
        share = np.sum(requested * unit(key), axis=1)
        both = np.tensordot(share, prompt, 1)
        prefixes.append((both[: LENGTH // 2], both[LENGTH // 2 :]))
        for rows in (prompt.reshape(used, -1), key, attention):
            penalty += ORTHOGONALITY * np.mean((rows @ rows.T - np.eye(used)) ** 2)
    return prefixes, penalty


def loss(params, indices, classes, used):
    total = 0.0
    for index in indices:
        prefixes, penalty = prefixes_and_penalty(params, index, used)
        features = features_in_numpy(ARRAYS, IMAGES[index], prefixes=prefixes)
        total += vit.cross_entropy(params, features, index, classes) + penalty
    return total / len(indices)


def test_blocks_attend_to_weighted_sums_of_components(rng):
    params = vit.in_float64(SETUP.init(jax.random.key(1))[0])
    params = {path: leaf + rng.normal(size=leaf.shape) for path, leaf in params.items()}
    inputs = SETUP.gather(jnp.arange(6), None)
    result, _ = SETUP.apply(vit.as_params(params), {}, inputs, False, None)
    for index in range(6):
        prefixes, penalty = prefixes_and_penalty(params, index, COUNT)
        expected = features_in_numpy(ARRAYS, IMAGES[index], prefixes=prefixes)
        np.testing.assert_allclose(result.features[index], expected, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(result.penalty[index], penalty, rtol=1e-4)


def test_two_tasks_are_the_official_procedure():
    strategy = coda_prompt(SETUP, TASKS)
    learner = init_learner(SETUP, CLASSES, jax.random.key(0))
    memory = strategy.init(jax.random.key(0), learner)
    tasks = [([0, 1], [[0, 1, 4], [5, 8, 9]]), ([2, 3], [[2, 3, 6], [7, 10]])]
    for number, (classes, batches) in enumerate(tasks):
        task = vit.own_task(number, classes)
        learner = learner._replace(seen=jnp.asarray(np.arange(CLASSES) <= max(classes)))
        before = vit.in_float64(learner.params)
        memory, learner = strategy.begin_task(memory, learner, task, jax.random.key(number))
        params, used = vit.in_float64(learner.params), 2 * (number + 1)
        for path, leaf in params.items():
            if path[0] == "prompts":
                np.testing.assert_array_equal(leaf[: used - 2], before[path][: used - 2])
                np.testing.assert_allclose(np.linalg.norm(leaf[used - 2 : used]), 2**0.5, rtol=1e-5)
                assert not np.any(leaf[used:])
        for index in batches:
            memory, learner, value = vit.step_on(index, SETUP, strategy, memory, learner, task)
            np.testing.assert_allclose(value, loss(params, index, classes, used), rtol=1e-4)
            change = finite_differences(
                lambda inputs, current=(index, classes, used): loss(inputs, *current), params
            )
            for path, leaf in params.items():
                moved = leaf - RATE * (change[path] + DECAY * leaf)
                if path[0] == "prompts":
                    # Prompts of earlier tasks stay, and prompts of later tasks are 0.
                    moved[: used - 2] = leaf[: used - 2]
                    moved[used:] = 0
                params[path] = moved
        vit.assert_close(learner.params, params)


def test_new_components_are_gram_schmidt_on_all_before_them(rng):
    """The given ones are not orthogonal, and their projections are subtracted one by one."""
    inputs = rng.normal(size=(6, 2, 4))
    result = np.asarray(new_components(jnp.float32(inputs), jnp.int32(2), jnp.int32(5), KEY))
    rows = [*inputs[:2].reshape(2, -1)]
    drawn = np.float64(jax.random.normal(KEY, (6, 8)))
    for place in range(2, 5):
        vector = drawn[place]
        rows.append(vector - sum((vector @ row) / (row @ row) * row for row in rows))
    rows[2:] = [row / np.linalg.norm(row) for row in rows[2:]]
    np.testing.assert_allclose(result[:5].reshape(5, -1), rows, rtol=1e-4, atol=1e-5)
    assert not np.any(result[5])


def test_components_begin_orthonormal():
    for block in COMPONENTS.init(jax.random.key(0)).values():
        for leaf in block.values():
            rows = leaf.reshape(COUNT, -1)
            np.testing.assert_allclose(rows @ rows.T, np.eye(COUNT), atol=1e-5)


def test_without_a_coefficient_nothing_is_added_to_the_loss(rng):
    """The official scripts have 0, and had 1e-7 before; 0.1 is an error of the paper."""
    params = vit.in_float64(SETUP.init(jax.random.key(1))[0])
    moved = vit.as_params(
        {path: leaf + rng.normal(size=leaf.shape) for path, leaf in params.items()}
    )
    plain = prompt_components(WIDTH, COUNT, LENGTH, BLOCKS)
    for prompting, none in ((plain, True), (COMPONENTS, False)):
        _, penalty = prompting.choose(moved["prompts"], jnp.float32(QUERIES))
        assert np.all(np.asarray(penalty) == 0) == none


def test_components_of_zeros_have_no_gradient():
    params, _ = SETUP.init(jax.random.key(0))
    zeros = jax.tree.map(jnp.zeros_like, params["prompts"])
    inputs = SETUP.gather(jnp.arange(3), None)

    def total(prompts):
        outputs, _ = SETUP.apply({**params, "prompts": prompts}, {}, inputs, True, None)
        labels = jnp.zeros((3, 1), int)
        return jnp.sum(SETUP.objective.loss(outputs, labels, jnp.ones(CLASSES, bool)))

    gradient = jax.grad(total)(zeros)
    assert all(not np.any(leaf) for leaf in jax.tree.leaves(gradient))


def test_invalid_prompts_are_refused_in_one_line():
    refused("7 components of width 6 are not orthogonal", lambda: prompt_components(WIDTH, 7))
    refused("length 3; half of the tokens", lambda: prompt_components(WIDTH, 5, 3))
    learner = init_learner(SETUP, CLASSES, jax.random.key(0))
    six = coda_prompt(SETUP, 6)
    refused("5 components for 6 tasks; give 6", lambda: six.init(KEY, learner))
    plain = vit.plain_setup()
    learner = init_learner(plain, CLASSES, jax.random.key(0))
    refused("CODA-Prompt needs prompts", lambda: coda_prompt(plain, 2).init(KEY, learner))
