"""MIR against a loop in float64 NumPy."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from everlight.continual.methods.method import StrategyArguments
from everlight.continual.methods.registry import METHODS
from everlight.continual.strategies.experience_replay import Reservoir
from everlight.continual.strategies.mir import mir, most_interfered
from tests.continual import small_net as net
from tests.continual.small_net import CLASSES, LABELS, RATE, START

DECAY = 0.05
# Weight decay makes the virtual step the optimizer's and not the gradient alone.
SETUP = net.small_setup()._replace(
    optimizer=optax.chain(optax.add_decayed_weights(DECAY), optax.sgd(RATE))
)
STREAM = [[0, 6, 13], [12, 18, 25], [1, 7, 24], [19, 31, 30], [37, 36, 2]]
SIZE = 2
ALL = np.ones(CLASSES, bool)


def losses(params, index, active):
    probability = net.softmax(net.forward(params, index, train=True)[2], active)
    return -np.log(probability[np.arange(len(index)), LABELS[index]])


def after_step(params, gradient):
    return {name: params[name] - RATE * (gradient[name] + DECAY * params[name]) for name in params}


def train_by_hand(active):
    """Return parameters after steps that score the memory and replay its two greatest rises."""
    params, held, ranks = START, [], []
    for batch in STREAM:
        gradient = net.batch_gradient(params, batch, active)
        if held:
            virtual = after_step(params, gradient)
            rise = losses(virtual, held, active) - losses(params, held, active)
            order = np.argsort(-rise)
            assert rise[order[SIZE - 1]] - rise[order[SIZE]] > 1e-3, "rounding must not choose"
            ranks.append(sorted(order[:SIZE].tolist()))
            replayed = net.batch_gradient(params, np.array(held)[order[:SIZE]], active)
            gradient = {name: gradient[name] + replayed[name] for name in gradient}
        params = after_step(params, gradient)
        held += batch
    firsts = [list(range(SIZE)), *(list(range(n - SIZE, n)) for n in (3, 6, 9, 12))]
    assert sum(item not in firsts for item in ranks) > 1, "not the first or the last ones"
    return params


@pytest.mark.parametrize(("loss_over", "active"), [("seen", np.arange(CLASSES) < 3), ("all", ALL)])
def test_five_steps_are_the_loop_in_float64(loss_over, active):
    strategy = mir(SETUP, 20, 10, replay_batch_size=SIZE, loss_over=loss_over)
    task = net.task_of(0, [0, 1, 2], np.concatenate(STREAM))
    ((memory, learner),) = net.run_tasks(SETUP, strategy, [(task, STREAM)])
    net.assert_trees_close(learner.params, train_by_hand(active), rtol=2e-4, atol=2e-5)
    np.testing.assert_array_equal(memory.samples.index[:15], np.concatenate(STREAM))
    # The batch has one pass per step, the candidates and the replayed ones from step two on.
    assert learner.batch_stats["passes"] == 5 + 2 * 4


@pytest.mark.parametrize(("size", "ratio", "candidates"), [(None, 5, 15), (2, 5, 10), (4, 3, 12)])
def test_candidates_are_a_multiple_of_the_replayed_samples(size, ratio, candidates):
    """The number follows the batch of three; a smaller memory is drawn whole."""
    stored = np.concatenate(STREAM)
    for held in (len(stored), 7):
        options = {} if ratio == 5 else {"candidate_ratio": ratio}
        strategy = mir(SETUP, buffer_size=held, replay_batch_size=size, **options)
        memory = Reservoir(net.samples_of(stored[:held]), jnp.int32(held))
        task, batch = net.task_of(0, [0, 1, 2], stored), net.batch_of([30, 31, 32])
        drawn = strategy.draw(memory, batch, task, jax.random.key(0))
        index = np.asarray(drawn.index)[np.asarray(drawn.weight) > 0]
        assert len(set(index.tolist())) == len(index) == min(candidates, held)


def test_the_registry_replays_a_fifth_of_the_candidates_at_every_size():
    """Mai et al. 2022 do so; 32 samples out of 50 candidates were nearly random replay."""
    for size in (None, 10, 32, 64):
        arguments = StrategyArguments(2, 10, 20, replay_batch_size=size)
        assert METHODS["MIR"].arguments(arguments)["candidate_ratio"] == 5


def test_as_many_candidates_as_replayed_samples_are_refused():
    with pytest.raises(ValueError, match=r"candidate_ratio=1 replays every candidate.*; give 2"):
        mir(SETUP, candidate_ratio=1)


def test_padding_is_never_chosen_before_a_candidate():
    drawn = net.batch_of([0, 1, 2, 3], [1, 1, 0, 0])._replace(inputs=jnp.arange(8.0).reshape(4, 2))
    chosen = most_interfered(drawn, jnp.array([-3.0, -2, 5, jnp.nan]), 3)
    np.testing.assert_array_equal(chosen.index[:2], [1, 0])
    np.testing.assert_array_equal(chosen.weight, [1, 1, 0])
    np.testing.assert_array_equal(chosen.inputs[0], [2, 3])
