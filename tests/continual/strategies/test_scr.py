"""SCR against a loop in float64 NumPy."""

import numpy as np
import optax

from everlight.continual.strategies.parts.replay_tricks import WithMeans
from everlight.continual.strategies.scr import scr
from tests.continual import small_net as net
from tests.continual.small_net import DATA, GAIN, LABELS, RATE, SHIFT, START

MOMENTUM, TEMPERATURE, WIDTH = 0.5, 0.4, 3
# Momentum gives the projection its own state.
SETUP = net.small_setup()._replace(optimizer=optax.sgd(RATE, MOMENTUM))
STREAM = [[0, 6, 1], [12, 7, 2], [8, 13, 3]]
WEIGHTS = [[1, 1, 1], [1, 1, 1], [1, 1, 0]]
"""The last batch is a partial one."""


def by_name(projection):
    """Return parameters by the names of the float64 loop."""
    hidden, output = projection.layers
    return {
        "p hidden": hidden.kernel,
        "p hidden_bias": hidden.bias,
        "p output": output.kernel,
        "p output_bias": output.bias,
    }


def contrastive_loss(params, index):
    """Compute the equation with loops, by features and projection in float64."""
    views = []
    for factor in (1.0, -0.5):
        inputs = factor * (DATA[index] + SHIFT)
        features = GAIN * np.tanh(inputs @ params["hidden"] + params["hidden_bias"])
        bent = np.maximum(features @ params["p hidden"] + params["p hidden_bias"], 0)
        outputs = bent @ params["p output"] + params["p output_bias"]
        views += [row / np.linalg.norm(row) for row in outputs]
    labels = [*LABELS[index], *LABELS[index]]
    total = 0.0
    for i, view in enumerate(views):
        near = [np.exp(view @ other / TEMPERATURE) for other in views]
        everything = sum(near) - near[i]
        logs = [
            np.log(near[j] / everything)
            for j in range(len(views))
            if j != i and labels[j] == labels[i]
        ]
        total -= np.mean(logs)
    return total / len(views)


def test_three_steps_are_the_loop_in_float64():
    strategy = scr(SETUP, 20, 20, TEMPERATURE, WIDTH, augment=lambda inputs, key: -0.5 * inputs)
    start = by_name(net.untrained(SETUP, strategy)[0].inner.projection)
    params = START | {name: np.asarray(leaf, float) for name, leaf in start.items()}
    task = net.task_of(0, [0, 1, 2], np.concatenate(STREAM))
    batches = [net.batch_of(*item) for item in zip(STREAM, WEIGHTS, strict=True)]
    ((memory, learner),) = net.run_tasks(SETUP, strategy, [(task, batches)])

    trace = {name: np.zeros_like(leaf) for name, leaf in params.items()}
    held = []
    for batch, weight in zip(STREAM, WEIGHTS, strict=True):
        selected = np.array(batch)[np.array(weight) > 0].tolist()

        def loss(params, index=(*selected, *held)):
            return contrastive_loss(params, list(index))

        gradient = net.finite_differences(loss, params)
        trace = {name: MOMENTUM * trace[name] + gradient[name] for name in params}
        params = {name: params[name] - RATE * trace[name] for name in params}
        held += selected

    result = dict(learner.params)
    assert isinstance(memory, WithMeans)
    result |= by_name(memory.inner.projection)
    net.assert_trees_close(result, params, rtol=1e-3, atol=2e-5)
    # The output layer of the network learns nothing.
    np.testing.assert_array_equal(result["head"], np.float32(START["head"]))
    np.testing.assert_array_equal(memory.inner.held.samples.index[:8], np.concatenate(STREAM)[:8])
    # Both views have a pass of their own.
    assert learner.batch_stats["passes"] == 6
