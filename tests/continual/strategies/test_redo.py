"""ReDo against the procedure in float64 NumPy, on the same draws."""

import jax
import jax.numpy as jnp
import numpy as np

from everlight.continual.strategies.redo import redo
from tests.continual.strategies.references import deep_net as net

TAU, PERIOD, STEPS = 0.6, 3, 8
SETUP = net.deep_setup()


def test_eight_steps_are_the_procedure_in_float64():
    """Two replacements renew units of both layers and a weight between two of them."""
    after, fresh = net.train_steps(redo(SETUP, net.LAYERS, TAU, PERIOD), SETUP, STEPS)
    params, first, second = net.start()
    total, replaced = dict.fromkeys(net.LAYERS, 0.0), []
    for step in range(STEPS):
        hidden = net.adam_step(params, first, second, step)
        total = {name: total[name] + np.abs(hidden[name]).mean(axis=0) for name in total}
        if (step + 1) % PERIOD == 0:
            chosen = {
                name: np.flatnonzero(leaf / leaf.mean() <= TAU) for name, leaf in total.items()
            }
            replaced.append([len(units) for units in chosen.values()])
            # Layers are taken from the last on, so that a weight between two new units stays 0.
            for name in reversed(net.LAYERS):
                units = chosen[name]
                net.replace(params, first, second, fresh[step], name, units, incoming_last=False)
            total = dict.fromkeys(net.LAYERS, 0.0)
    assert min(replaced[0]) > 0
    assert len(replaced) == 2
    memory, learner = after[-1]
    net.assert_learner_close(learner, params, first, second)
    for name, leaf in total.items():
        np.testing.assert_allclose(memory.total[name], leaf, rtol=2e-4, atol=2e-5)
    assert int(memory.steps) == STEPS % PERIOD


def test_units_that_never_respond_are_replaced_without_a_change_of_the_outputs():
    """No gradient moves anything; the samples are those of the step, without its padding."""
    params = net.start()[0]
    params["one"]["bias"][2], params["two"]["bias"][[0, 4]] = -99, -99
    start = jax.tree.map(np.float32, params)
    still = SETUP._replace(
        objective=SETUP.objective._replace(
            loss=lambda outputs, labels, seen: jnp.zeros(len(labels))
        )
    )
    strategy = redo(still, net.LAYERS, threshold=0.0, period=1)
    ((_, learner),), _ = net.train_steps(strategy, still, 1, start)
    index = net.batch_at(0).index[1:]
    silent = {name: (leaf == 0).all(axis=0) for name, leaf in net.hidden_of(params, index).items()}
    assert {0, 4} <= {*np.flatnonzero(silent["two"])}
    for name, units in silent.items():
        np.testing.assert_array_equal(learner.params[name]["bias"] != start[name]["bias"], units)
    inputs = SETUP.gather(index, None)
    before, now = (
        SETUP.apply(item, {}, inputs, False, None)[0] for item in (start, learner.params)
    )
    np.testing.assert_allclose(now.logits, before.logits, rtol=1e-5)
    assert (np.asarray(now.hidden["two"])[:, silent["two"]] > 0).any()
