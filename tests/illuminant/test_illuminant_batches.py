"""Many networks in one program: which one is kept of restarts and of learning rates."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.illuminant.illuminant_batches import (
    TrainedNetworks,
    best_of_rates,
    best_of_restarts,
    index_of_lowest,
    make_batch_trainer,
    predict_batch,
    stack_problems,
)
from everlight.illuminant.illuminant_net import IlluminantNet
from everlight.illuminant.illuminant_training import (
    IlluminantModel,
    Losses,
    Problem,
    TrainingSettings,
    make_trainer,
    predict_chromaticity,
)


def planted(losses, number):
    """Return trainings of one depth, whose models are their own number and problem."""
    marks = 100 * number + jnp.arange(losses.shape[1])
    return TrainedNetworks(
        {2: IlluminantModel({"k": marks[:, None]}, marks, marks)}, {2: Losses(losses, losses + 1)}
    )


def test_every_group_takes_the_rate_with_the_least_mean_of_its_best_validations():
    """Two groups have two problems each; of a step's losses the best counts."""
    slow = np.array([[4.0, 4, 9, 9], [2, 3, 8, 5]])
    fast = np.array([[1.0, 5, 4, np.nan], [9, 9, 7, 6]])
    # Best validations less 1 are slow (2, 3), (8, 5); fast (1, 5), (4, 6).
    choice = best_of_rates({0.1: planted(slow, 0), 0.3: planted(fast, 1)}, 2)
    assert choice.chosen[2].tolist() == [0.1, 0.3]
    assert choice.networks.models[2].mean.tolist() == [0, 1, 102, 103]
    assert choice.networks.models[2].params["k"].tolist() == [[0], [1], [102], [103]]
    expected = np.column_stack([slow[:, :2], fast[:, 2:]])
    np.testing.assert_array_equal(choice.networks.losses[2].train, expected)
    np.testing.assert_array_equal(choice.networks.losses[2].valid, expected + 1)


def test_of_restarts_the_one_with_the_least_loss_is_kept_and_never_a_diverged_one():
    nan = np.nan
    valid = np.array([[3.0, 4, nan, 9, 5, nan], [2, 1, nan, 8, nan, 7]])  # two restarts of three
    models = {2: IlluminantModel({"w": np.arange(6)}, np.arange(6), np.arange(6))}
    best = best_of_restarts(TrainedNetworks(models, {2: Losses(10 * valid, valid)}), 2)
    np.testing.assert_array_equal(best.models[2].params["w"], [1, 3, 4])
    np.testing.assert_array_equal(best.losses[2].valid, [[4, 9, 5], [1, 8, nan]])
    np.testing.assert_array_equal(best.losses[2].train, [[40, 90, 50], [10, 80, nan]])


def test_problems_of_unequal_sizes_do_not_stack(rng):
    one, other = (Problem(*[np.zeros((n, k)) for k in (9, 2, 9, 2)]) for n in (3, 4))
    with pytest.raises(ValueError, match="same shape"):
        stack_problems([one, other])
    assert stack_problems([one, one]).features.dtype == np.float32


def test_nan_is_never_the_lowest():
    losses = np.array([[np.nan, 2.0, np.nan], [3.0, 1.0, np.nan]])
    assert index_of_lowest(losses).tolist() == [1, 1, 0]


def test_a_batch_trains_each_network_as_it_would_train_alone(rng):
    """The keys of the two problems are those of depth and place; rounding may differ."""

    def problem():
        arrays = (rng.normal(size=(n, 9)) for n in (20, 6))
        (train, valid) = arrays
        return Problem(train, np.exp(train[:, :2] / 5), valid, np.exp(valid[:, :2] / 5))

    settings = TrainingSettings(20, batch_size=8, validate_every=5)
    together = stack_problems([problem(), problem()])
    key = jax.random.key(4)
    trainer = make_batch_trainer(key, (2,), settings, 2, validations=2)
    states, losses = trainer.advance(trainer.init(together), together)
    assert losses[2].valid.shape == (2, 2)
    single, net = make_trainer(IlluminantNet(2), settings), IlluminantNet(2)
    for place in range(2):
        current = jax.tree.map(lambda leaf, p=place: jnp.asarray(leaf[p]), together)
        own_key = jax.random.fold_in(jax.random.fold_in(key, 2), place)
        state = single.init(own_key, current)
        for _ in range(2):
            state, _ = jax.jit(single.advance)(own_key, state, current)
        trained = jax.tree.map(lambda leaf, p=place: leaf[p], states[2].best)
        chex.assert_trees_all_close(trained.params, state.best.params, atol=1e-4)
        predicted = predict_batch(2, states[2].best, jnp.asarray(together.valid_features))[place]
        expected = predict_chromaticity(net, trained, current.valid_features)
        np.testing.assert_allclose(predicted, expected, rtol=1e-5)
