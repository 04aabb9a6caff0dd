"""Importances against per-sample gradients written by hand in float64."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.continual.strategies.importance import fisher_diagonal, memory_aware_importance
from tests.continual.small_net import (
    START,
    STORED,
    assert_trees_close,
    backward,
    classes_mask,
    cross_entropy_gradients,
    finite_differences,
    forward,
    samples_of,
    small_learner,
    small_setup,
)

SEEN = [0, 1, 3, 4]
# Of classes seen: 14 samples, between them slots of padding that hold samples of other classes.
INDEX = np.array([0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 8, 12, 13, 15, 16, 18, 19, 11])
MASK = np.isin(INDEX % 6, SEEN)
VALID = INDEX[MASK]


def fisher_by_hand(index, active=None):
    active = classes_mask(SEEN) if active is None else active
    each = cross_entropy_gradients(START, index, active)
    return {name: np.mean(leaf**2, axis=0) for name, leaf in each.items()}


def memory_aware_by_hand(index):
    logits = np.where(classes_mask(SEEN), forward(START, index)[2], 0.0)
    each = backward(START, index, 2 * logits)
    return {name: np.mean(np.abs(leaf), axis=0) for name, leaf in each.items()}


@functools.cache
def program(importance, limit, chunk):
    setup = small_setup()
    return jax.jit(lambda learner, samples: importance(setup, learner, samples, limit, chunk=chunk))


def compute(importance, samples, limit=1024, chunk=4):
    return program(importance, limit, chunk)(small_learner(small_setup(), SEEN), samples)


# Softmax draws nothing.
fisher = functools.partial(fisher_diagonal, key=jax.random.key(0))
BOTH = pytest.mark.parametrize(
    ("importance", "by_hand"),
    [(fisher, fisher_by_hand), (memory_aware_importance, memory_aware_by_hand)],
    ids=["fisher", "mas"],
)


def test_the_backward_pass_by_hand_is_the_finite_difference():
    def loss(params):
        powers = np.where(classes_mask(SEEN), np.exp(forward(params, [7], True)[2]), 0.0)
        return -np.log(powers[0, 1] / powers.sum())

    each = cross_entropy_gradients(START, [7], classes_mask(SEEN), train=True)
    by_hand = {name: leaf[0] for name, leaf in each.items()}
    assert_trees_close(finite_differences(loss, START), by_hand, rtol=1e-6, atol=1e-9)


def spaced(limit):
    count = min(limit, len(VALID))
    return [VALID[position * len(VALID) // count] for position in range(count)]


@BOTH
@pytest.mark.parametrize(("limit", "chunk"), [(1024, 4), (13, 64), (8, 1)])
def test_mean_over_valid_samples_evenly_spaced(importance, by_hand, limit, chunk):
    """14 in fours, which do not divide them; 13 in a chunk that exceeds them; 8 one by one."""
    assert len(VALID) == 14
    found = compute(importance, samples_of(INDEX, MASK), limit, chunk)
    assert_trees_close(found, by_hand(spaced(limit)), atol=1e-7)


@BOTH
def test_padding_may_hold_anything(importance, by_hand):
    """Also an index outside the data and a label outside the classes."""
    samples = samples_of(INDEX, MASK)
    ruined = samples._replace(
        index=jnp.where(samples.mask, samples.index, STORED + 9),
        labels=jnp.where(samples.mask[:, None], samples.labels, -1),
    )
    for limit, chunk in ((1024, 4), (13, 64)):
        found = compute(importance, ruined, limit, chunk)
        assert_trees_close(found, by_hand(spaced(limit)), atol=1e-7)


@BOTH
def test_unseen_classes_matter_to_nothing(importance, by_hand):
    found = compute(importance, samples_of(INDEX, MASK))
    unseen = ~np.asarray(classes_mask(SEEN))
    assert np.all(found["head"][:, unseen] == 0)
    assert np.all(found["head_bias"][unseen] == 0)
    assert np.all(found["head"][:, ~unseen] > 0)


@BOTH
def test_nothing_gives_zero(importance, by_hand):
    found = compute(importance, samples_of(INDEX, np.zeros(len(INDEX))))
    assert all(np.all(leaf == 0) for leaf in found.values())


def test_with_a_head_per_task_fisher_runs_over_the_sample_s_own():
    group = np.array([0, 0, 0, 1, 1, 1])
    setup = small_setup(jnp.asarray(group))
    found = fisher(setup, small_learner(setup, SEEN), samples_of(VALID), 1024)
    active = group == group[VALID % 6][:, None]
    assert_trees_close(found, fisher_by_hand(VALID, active), atol=1e-7)
