"""PCR against the official loss of pairs in float64 NumPy, with a loop over all pairs."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from everlight.base import Outputs
from everlight.continual.strategies.pcr import pcr, proxy_losses
from everlight.models.heads import cosines
from tests.continual import small_net as net
from tests.continual.small_net import CLASSES, DATA, GAIN, HIDDEN, LABELS, RATE, SHIFT
from tests.continual.strategies.references import cosine_head

MOMENTUM, TEMPERATURE = 0.5, 0.4
STREAM = [[0, 6, 1], [12, 7, 2], [8, 13, 3]]
WEIGHTS = [[1, 1, 1], [1, 1, 1], [1, 1, 0]]
"""The last batch is a partial one."""
START = {
    "hidden": net.START["hidden"],
    "hidden_bias": net.START["hidden_bias"],
    "kernel": np.random.default_rng(4).normal(size=(HIDDEN, CLASSES)),
    "scale": np.array(3.0),
}


def apply(params, batch_stats, inputs, train, key):
    features = jnp.tanh(inputs @ params["hidden"] + params["hidden_bias"])
    features = features * (GAIN if train else 1.0)
    head = params["head"]
    passes = batch_stats["passes"] + (1 if train else 0)
    return Outputs(head["scale"] * cosines(features, head["kernel"]), features), {"passes": passes}


SETUP = net.small_setup()._replace(
    init=lambda key: (cosine_head.nested(START), {"passes": jnp.array(0)}),
    apply=apply,
    optimizer=optax.sgd(RATE, MOMENTUM),
)


def official_loss(params, index):
    """Compute `SupConLoss` with `contrast_mode="proxy"`: positives are pairs of equal labels."""
    features, labels = [], np.tile(LABELS[index], 2)
    for factor in (1.0, -0.5):
        inputs = factor * (DATA[index] + SHIFT)
        features += [*np.tanh(inputs @ params["hidden"] + params["hidden_bias"])]
    proxies = params["kernel"].T[labels]
    logs = net.unit(np.array(features)) @ net.unit(proxies).T / TEMPERATURE
    total = 0.0
    for i, row in enumerate(logs):
        everything = np.log(np.sum(np.exp(row)))
        total -= np.mean([row[j] - everything for j in range(len(row)) if labels[j] == labels[i]])
    return total / len(logs)


def test_three_steps_are_the_official_loss_in_float64():
    strategy = pcr(SETUP, 20, 20, TEMPERATURE, augment=lambda inputs, key: -0.5 * inputs)
    task = net.task_of(0, [0, 1, 2], np.concatenate(STREAM))
    batches = [net.batch_of(*item) for item in zip(STREAM, WEIGHTS, strict=True)]
    ((memory, learner),) = net.run_tasks(SETUP, strategy, [(task, batches)])

    params, held = {name: leaf for name, leaf in START.items() if name != "scale"}, []
    trace = {name: np.zeros_like(leaf) for name, leaf in params.items()}
    for batch, weight in zip(STREAM, WEIGHTS, strict=True):
        selected = np.array(batch)[np.array(weight) > 0].tolist()

        def loss(params, index=(*selected, *held)):
            return official_loss(params, list(index))

        gradient = net.finite_differences(loss, params)
        trace = {name: MOMENTUM * trace[name] + gradient[name] for name in params}
        params = {name: params[name] - RATE * trace[name] for name in params}
        held += selected

    result = cosine_head.flat(learner.params)
    # The scale and the proxies of classes without a view learn nothing.
    assert result.pop("scale") == START["scale"]
    net.assert_trees_close(result, params, rtol=1e-3, atol=2e-5)
    np.testing.assert_array_equal(
        learner.params["head"]["kernel"][:, 3:], np.float32(START["kernel"][:, 3:])
    )
    np.testing.assert_array_equal(memory.samples.index[:8], np.concatenate(STREAM)[:8])
    # Incoming and replayed samples have a pass each, the latter from the second step on.
    assert learner.batch_stats["passes"] == 5


def test_losses_of_padding_are_finite_and_without_effect():
    near, labels = jnp.array([[1.0, 2.0], [0.5, 0.0]]), jnp.array([1, 0])

    def total(near, weight):
        losses = proxy_losses(near, labels, weight)
        return jnp.sum(jnp.where(weight > 0, losses, 0))

    for weight in (jnp.array([1.0, 0.0]), jnp.zeros(2)):
        value, gradient = jax.value_and_grad(total)(near, weight)
        # The only class in the sum is the sample's own.
        assert value == 0
        assert bool(jnp.all(gradient == 0))


def test_classes_count_as_often_as_they_have_views():
    near, labels = jnp.array([[1.0, 3.0, 9.0]] * 3), jnp.array([0, 1, 1])
    expected = np.log(np.exp(1) + 2 * np.exp(3)) - np.array([1, 3, 3])
    np.testing.assert_allclose(proxy_losses(near, labels, jnp.ones(3)), expected, rtol=1e-6)
