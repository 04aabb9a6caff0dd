"""Training against Adam written in float64 NumPy, and what a diverging or noisy net may not do."""

import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.illuminant.illuminant_net import IlluminantNet
from everlight.illuminant.illuminant_training import (
    IlluminantModel,
    Problem,
    Trainer,
    TrainingSettings,
    chromaticity_loss,
    make_trainer,
    predict_chromaticity,
    predict_illuminant,
)

KEY = jax.random.key(3)
NET = IlluminantNet(2)
SETTINGS = TrainingSettings(40, batch_size=8, validate_every=10)
LAYERS = ("hidden_0", "hidden_1", "chromaticity")


def problem_of(seed, samples=30, valid=12):
    """Draw features far from standardized, and targets that are smooth in them."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(samples + valid, 9)) * rng.uniform(0.1, 3, 9) + rng.normal(size=9)
    targets = np.exp(0.3 * np.tanh(features @ rng.normal(size=(9, 2))))
    arrays = [np.float32(a) for a in (features, targets)]
    return Problem(*[a[:samples] for a in arrays], *[a[samples:] for a in arrays])


@functools.cache
def compiled(settings):
    trainer = make_trainer(NET, settings)
    return Trainer(jax.jit(trainer.init), jax.jit(trainer.advance))


def trained(settings, problem, blocks):
    """Return the states after every block and their losses."""
    trainer = compiled(settings)
    state = trainer.init(KEY, problem)
    states, losses = [state], []
    for _ in range(blocks):
        state, loss = trainer.advance(KEY, state, problem)
        states.append(state)
        losses.append(loss)
    return states, losses


def weights_of(params):
    named = params["params"]
    return {
        f"{layer}_{part}": np.float64(named[f"{layer}_{part}"])
        for layer in LAYERS
        for part in ("kernel", "bias")
    }


def forward(weights, inputs):
    """Return activations of every layer; the last is the chromaticity."""
    activations = [inputs]
    for layer in LAYERS:
        affine = activations[-1] @ weights[f"{layer}_kernel"] + weights[f"{layer}_bias"]
        activations.append(np.exp(affine) if layer == "chromaticity" else np.maximum(affine, 0))
    return activations


def mean_absolute_error(weights, inputs, targets):
    """Return the mean over (r, 1, b), the constant included."""
    estimate = np.insert(forward(weights, inputs)[-1], 1, 1, axis=1)
    return np.abs(estimate - np.insert(targets, 1, 1, axis=1)).mean()


def gradient(weights, inputs, targets):
    """Return the gradient by backpropagation through exp and ReLU, written by hand."""
    activations = forward(weights, inputs)
    signal = np.sign(activations[-1] - targets) / (3 * len(targets)) * activations[-1]
    result = {}
    for index in reversed(range(len(LAYERS))):
        result[f"{LAYERS[index]}_kernel"] = activations[index].T @ signal
        result[f"{LAYERS[index]}_bias"] = signal.sum(0)
        signal = signal @ weights[f"{LAYERS[index]}_kernel"].T * (activations[index] > 0)
    return result


def adam(weights, problem, rates):
    """Train by algorithm 1 of Kingma and Ba 2015; return weights, and losses before the steps."""
    inputs = np.float64(problem.features)
    inputs = (inputs - inputs.mean(0)) / inputs.std(0)
    targets = np.float64(problem.targets)
    first = {name: np.zeros_like(value) for name, value in weights.items()}
    second = {name: np.zeros_like(value) for name, value in weights.items()}
    losses = []
    for step, rate in enumerate(rates, start=1):
        losses.append(mean_absolute_error(weights, inputs, targets))
        slopes = gradient(weights, inputs, targets)
        first = {n: 0.9 * first[n] + 0.1 * slopes[n] for n in weights}
        second = {n: 0.999 * second[n] + 0.001 * slopes[n] ** 2 for n in weights}
        weights = {
            n: weights[n]
            - rate * (first[n] / (1 - 0.9**step)) / (np.sqrt(second[n] / (1 - 0.999**step)) + 1e-8)
            for n in weights
        }
    return weights, losses


@pytest.mark.parametrize("schedule", ["constant", "cosine"])
@pytest.mark.parametrize("steps", [1, 5, 40])
def test_steps_are_those_of_adam_in_float64(steps, schedule):
    settings = TrainingSettings(
        steps=steps, batch_size=0, learning_rate=0.01, schedule=schedule, validate_every=steps
    )
    problem = problem_of(0)
    (start, end), (loss,) = trained(settings, problem, 1)
    rises = steps // 20
    up, down = np.arange(rises) / max(rises, 1), np.arange(steps - rises) / (steps - rises)
    factors = np.concatenate([up, 0.5 * (1 + np.cos(np.pi * down))])
    rates = 0.01 * (factors if schedule == "cosine" else np.ones(steps))
    expected, losses = adam(weights_of(start.model.params), problem, rates)
    for name, value in weights_of(end.model.params).items():
        np.testing.assert_allclose(value, expected[name], atol=3e-6, err_msg=name)
    assert loss.train == pytest.approx(np.mean(losses), rel=1e-5)
    features = np.float64(problem.features)
    valid = (np.float64(problem.valid_features) - features.mean(0)) / features.std(0)
    expected_valid = mean_absolute_error(expected, valid, np.float64(problem.valid_targets))
    assert loss.valid == pytest.approx(expected_valid, rel=1e-4)


def test_the_loss_is_two_thirds_of_the_two_vectors():
    estimate, target = jnp.array([[1.0, 2.0], [0.5, 0.5]]), jnp.array([[1.5, 1.0], [0.5, 0.75]])
    # |differences| 0.5, 0, 1 and 0, 0, 0.25 over (r, 1, b).
    assert chromaticity_loss(estimate, target) == pytest.approx(1.75 / 6)


def test_the_best_state_is_that_of_the_least_validation_loss():
    settings = TrainingSettings(
        200, batch_size=4, learning_rate=0.1, schedule="constant", validate_every=5
    )
    states, losses = trained(settings, problem_of(1), 40)
    valid = [float(loss.valid) for loss in losses]
    least = int(np.argmin(valid))
    assert 0 < least < 39, "the test needs a best state that is not the last"
    assert states[-1].best_loss == valid[least]
    chex.assert_trees_all_equal(states[-1].best, states[least + 1].model)
    assert states[-1].step == 200


def test_nan_never_becomes_best():
    problem = problem_of(2)
    states, _ = trained(SETTINGS, problem, 2)
    spoiled = problem._replace(features=np.full_like(problem.features, np.nan))
    after, loss = compiled(SETTINGS).advance(KEY, states[-1], spoiled)
    assert np.isnan(loss.train)
    assert np.isnan(loss.valid)
    assert after.best_loss == states[-1].best_loss
    chex.assert_trees_all_equal(after.best, states[-1].best)


def test_overflow_never_becomes_best():
    settings = TrainingSettings(
        20, batch_size=0, learning_rate=1e30, schedule="constant", validate_every=10
    )
    states, losses = trained(settings, problem_of(2), 2)
    assert not np.isfinite(losses[-1].valid)
    assert states[-1].best_loss == np.inf
    chex.assert_trees_all_equal(states[-1].best, states[0].model)


def test_inputs_are_standardized_by_training_statistics_that_stay():
    problem = problem_of(3)
    features = problem.features.copy()
    features[:, 4] = 0.25
    states, _ = trained(SETTINGS, problem._replace(features=features), 1)
    np.testing.assert_allclose(states[0].model.mean, np.float64(features).mean(0), rtol=2e-5)
    expected = np.where(np.arange(9) == 4, 1, np.float64(features).std(0))
    np.testing.assert_allclose(states[0].model.scale, expected, rtol=1e-5)
    np.testing.assert_array_equal(states[1].model.mean, states[0].model.mean)
    np.testing.assert_array_equal(states[1].model.scale, states[0].model.scale)


def test_training_learns():
    settings = TrainingSettings(1000, batch_size=32, learning_rate=0.02, validate_every=500)
    problem = problem_of(4, samples=400)
    states, losses = trained(settings, problem, 2)
    constant = chromaticity_loss(
        jnp.full_like(problem.valid_targets, 1), jnp.asarray(problem.valid_targets)
    )
    assert losses[-1].train < 0.3 * constant
    assert states[-1].best_loss < 0.6 * constant


def test_batches_are_keyed_by_step():
    """Two blocks of ten steps draw what one block of twenty draws; another key draws others."""
    problem = problem_of(5)
    halves, _ = trained(SETTINGS, problem, 2)
    full, _ = trained(dataclasses.replace(SETTINGS, validate_every=20), problem, 1)
    chex.assert_trees_all_close(halves[-1].model, full[-1].model, atol=1e-5)
    other, _ = compiled(SETTINGS).advance(jax.random.key(4), halves[0], problem)
    deviations = jax.tree.map(
        lambda a, b: np.abs(a - b).max(), other.model.params, halves[1].model.params
    )
    assert max(jax.tree.leaves(deviations)) > 1e-3


def test_compiled_once():
    trained(SETTINGS, problem_of(6), 3)
    assert compiled(SETTINGS).advance._cache_size() == 1


def test_a_transform_is_read_by_rows_and_printed_as_an_illuminant(rng):
    params = jax.jit(NET.init)(KEY, jnp.zeros(9))
    mean, scale = np.float32(rng.normal(size=9)), np.float32(rng.uniform(0.5, 2, 9))
    model = IlluminantModel(params, jnp.asarray(mean), jnp.asarray(scale))
    transform = np.float32(rng.normal(size=(3, 3)))
    rows = [entry for row in transform for entry in row]
    expected = forward(weights_of(params), (np.float64(rows) - mean) / scale)[-1]
    illuminant = predict_illuminant(NET, model, jnp.asarray(transform))
    np.testing.assert_allclose(illuminant, [expected[0], 1, expected[1]], rtol=1e-5)
    batch = jnp.asarray(np.stack([rows] * 4), jnp.float32)
    np.testing.assert_allclose(predict_chromaticity(NET, model, batch), [expected] * 4, rtol=1e-5)
