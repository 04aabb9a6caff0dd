"""A net of two hidden layers written twice: as a `Setup`, and in float64 with Adam by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from everlight.base import Batch, Outputs, Samples, Setup, Task
from everlight.continual.engine.keys import update_keys
from everlight.continual.engine.tasks import init_learner
from everlight.continual.engine.updates import train_step
from everlight.continual.objectives.softmax import softmax_objective

LAYERS, SIZES = ("one", "two"), (3, 6, 5, 2)
WIDTHS = dict(zip(LAYERS, SIZES[1:], strict=False))
ABOVE = {"one": "two", "two": "head"}
BETAS, RATE, EPSILON = (0.8, 0.9), 0.05, 1e-8
_rng = np.random.default_rng(5)
INPUTS, TARGETS = _rng.normal(size=(40, SIZES[0])), _rng.normal(size=(40, SIZES[-1]))
# The first sample of a batch is padding; its inputs and target would change everything.
WEIGHT = np.array([0.0, 1, 1, 1])


def drawn(key):
    """Draw initial parameters; biases are drawn too, so that a wrong one shows."""
    names = (*LAYERS, "head")
    params = {}
    for name, inputs, units, part in zip(
        names, SIZES[:-1], SIZES[1:], jax.random.split(key, 3), strict=True
    ):
        kernel, bias = jax.random.split(part)
        params[name] = {
            "kernel": jax.random.normal(kernel, (inputs, units)),
            "bias": 0.1 * jax.random.normal(bias, (units,)),
        }
    return params


def deep_setup():
    inputs, targets = jnp.float32(INPUTS), jnp.float32(TARGETS)

    def apply(params, batch_stats, values, train, key):
        hidden = {}
        for name in LAYERS:
            values = jax.nn.relu(values @ params[name]["kernel"] + params[name]["bias"])
            hidden[name] = values
        logits = values @ params["head"]["kernel"] + params["head"]["bias"]
        return Outputs(logits, values, hidden), batch_stats

    def loss(outputs, labels, seen):
        return jnp.sum((outputs.logits - targets[labels[:, 0]]) ** 2, axis=1)

    return Setup(
        init=lambda key: (drawn(key), {}),
        apply=apply,
        objective=softmax_objective()._replace(loss=loss),
        optimizer=optax.adam(RATE, *BETAS, EPSILON),
        gather=lambda index, key: inputs[index],
    )


def batch_at(step):
    index = jnp.asarray((step * 7 + np.arange(4) * 3) % 40)
    return Batch(index, index[:, None], jnp.float32(WEIGHT), jnp.zeros(4, bool))


def train_steps(strategy, setup, count, params=None):
    """Return memory and learner after every step, and the parameters drawn from the step's key."""
    learner = init_learner(setup, SIZES[-1], jax.random.key(9))
    if params is not None:
        learner = learner._replace(params=params, opt_state=setup.optimizer.init(params))
    memory = strategy.init(jax.random.key(8), learner)
    none = Samples(jnp.zeros(1, int), jnp.zeros((1, 1), int), jnp.ones(1, bool))
    task = Task(none, none, jnp.ones(SIZES[-1], bool), jnp.int32(0))
    step = jax.jit(lambda *arguments: train_step(setup, strategy, *arguments))
    draw = jax.jit(lambda key: drawn(update_keys(key).after))
    after, fresh = [], []
    for number in range(count):
        key = jax.random.key(number)
        memory, learner, _ = step(memory, learner, batch_at(number), task, key)
        after.append((memory, learner))
        fresh.append(in_float64(draw(key)))
    return after, fresh


# This is the same in float64, with nothing of the library.


def in_float64(tree):
    return {
        name: {part: np.float64(leaf) for part, leaf in piece.items()}
        for name, piece in tree.items()
    }


def start():
    """Return the parameters and both of Adam's moments at the start."""
    learner = init_learner(deep_setup(), SIZES[-1], jax.random.key(9))
    params = in_float64(learner.params)
    zeros = {
        name: {part: 0 * leaf for part, leaf in piece.items()} for name, piece in params.items()
    }
    return params, zeros, in_float64(zeros)


def hidden_of(params, index):
    values, hidden = INPUTS[index], {}
    for name in LAYERS:
        values = np.maximum(values @ params[name]["kernel"] + params[name]["bias"], 0)
        hidden[name] = values
    return hidden


def adam_step(params, first, second, step):
    """Change arguments in place by one step on a batch; return the earlier hidden activations."""
    index = np.asarray(batch_at(step).index)[1:]
    hidden = hidden_of(params, index)
    logits = hidden["two"] @ params["head"]["kernel"] + params["head"]["bias"]
    below = 2 * (logits - TARGETS[index]) / len(index)
    gradient = {}
    for name, read in (("head", hidden["two"]), ("two", hidden["one"]), ("one", INPUTS[index])):
        gradient[name] = {"kernel": read.T @ below, "bias": below.sum(axis=0)}
        below = (below @ params[name]["kernel"].T) * (read > 0)
    for name, parts in gradient.items():
        for part, leaf in parts.items():
            for moments, beta, value in zip((first, second), BETAS, (leaf, leaf**2), strict=True):
                moments[name][part] = beta * moments[name][part] + (1 - beta) * value
            mean, square = (
                moments[name][part] / (1 - beta ** (step + 1))
                for moments, beta in zip((first, second), BETAS, strict=True)
            )
            params[name][part] -= RATE * mean / (np.sqrt(square) + EPSILON)
    return hidden


def replace(params, first, second, fresh, name, units, incoming_last):
    """Redraw the units' incoming weights; set outgoing weights and moments to 0."""
    for tree in (first, second):
        tree[name]["kernel"][:, units] = tree[name]["bias"][units] = 0
        tree[ABOVE[name]]["kernel"][units] = 0
    if incoming_last:
        params[ABOVE[name]]["kernel"][units] = 0
    params[name]["kernel"][:, units] = fresh[name]["kernel"][:, units]
    params[name]["bias"][units] = fresh[name]["bias"][units]
    if not incoming_last:
        params[ABOVE[name]]["kernel"][units] = 0


def assert_learner_close(learner, params, first, second):
    adam = learner.opt_state[0]
    for actual, expected in ((learner.params, params), (adam.mu, first), (adam.nu, second)):
        for name, parts in expected.items():
            for part, leaf in parts.items():
                np.testing.assert_allclose(
                    actual[name][part], leaf, rtol=2e-4, atol=2e-5, err_msg=f"{name} {part}"
                )
