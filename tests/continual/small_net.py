"""A two-layer net written twice: as a `Setup`, and in float64 NumPy with its backward pass by hand.

Training differs from evaluation in two ways, so that whoever takes the wrong mode gets other
numbers: stored inputs are shifted (as if augmented), and the hidden layer is scaled (as by
dropout). The batch statistics count training passes.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax

from everlight.base import Batch, Outputs, Samples, Setup, Task
from everlight.continual.engine.keys import sequence_keys
from everlight.continual.engine.tasks import init_learner
from everlight.continual.engine.updates import train_step, with_inputs
from everlight.continual.objectives.softmax import softmax_objective

FEATURES, HIDDEN, CLASSES, STORED = 3, 5, 6, 40
RATE, SHIFT, GAIN = 0.2, 0.1, 1.25

_rng = np.random.default_rng(11)
START = {
    "hidden": _rng.normal(size=(FEATURES, HIDDEN)),
    "hidden_bias": _rng.normal(size=HIDDEN) * 0.3,
    "head": _rng.normal(size=(HIDDEN, CLASSES)) * 0.5,
    "head_bias": _rng.normal(size=CLASSES) * 0.3,
}
DATA = _rng.normal(size=(STORED, FEATURES))
LABELS = np.arange(STORED) % CLASSES


def as_float32(tree):
    return jax.tree.map(lambda leaf: jnp.float32(leaf), tree)


def small_setup(class_group=None):
    data = as_float32(DATA)

    def apply(params, batch_stats, inputs, train, key):
        hidden = jnp.tanh(inputs @ params["hidden"] + params["hidden_bias"])
        hidden = hidden * (GAIN if train else 1.0)
        logits = hidden @ params["head"] + params["head_bias"]
        passes = batch_stats["passes"] + (1 if train else 0)
        return Outputs(logits, hidden), {"passes": passes}

    return Setup(
        init=lambda key: (as_float32(START), {"passes": jnp.array(0)}),
        apply=apply,
        objective=softmax_objective(class_group),
        optimizer=optax.sgd(RATE),
        gather=lambda index, key: data[index] + (0.0 if key is None else SHIFT),
    )


def classes_mask(classes):
    return jnp.asarray(np.isin(np.arange(CLASSES), classes))


def seen_after(tasks, task):
    """Return the mask of the classes of the first tasks up to this one."""
    return classes_mask([c for classes in tasks[: task + 1] for c in classes])


def small_learner(setup, classes, params=START):
    learner = init_learner(setup, CLASSES, jax.random.key(0))
    return learner._replace(params=as_float32(params), seen=classes_mask(classes))


def samples_of(index, mask=None):
    """Return stored samples; slots with mask 0 contain any number."""
    index = np.asarray(index)
    mask = np.ones(len(index), bool) if mask is None else np.asarray(mask, bool)
    return jax.tree.map(jnp.asarray, Samples(index, LABELS[index][:, None], mask))


def batch_of(index, weight=None):
    index = np.asarray(index)
    weight = np.ones(len(index)) if weight is None else np.asarray(weight)
    return Batch(
        jnp.asarray(index),
        jnp.asarray(LABELS[index][:, None]),
        jnp.float32(weight),
        jnp.zeros(len(index), bool),
    )


def filled(setup, batch):
    """Fill in the batch's inputs, as the engine does."""
    return with_inputs(setup, batch, jax.random.key(0))


def task_of(number, classes, train):
    """Return a task of training samples or of the indices of stored ones."""
    train = train if isinstance(train, Samples) else samples_of(train)
    return Task(train, train, classes_mask(classes), jnp.array(number))


def run_tasks(setup, strategy, tasks, seed=0):
    """Drive the engine's step over `(Task, batches)`; return memory and learner after each task.

    A batch is given as such or by the indices of stored samples.
    """
    memory, learner = untrained(setup, strategy, seed)
    start = jax.jit(functools.partial(begin, setup, strategy))
    step = jax.jit(functools.partial(train_step, setup, strategy))
    end = strategy.end_task and jax.jit(strategy.end_task)
    after = []
    for task, batches in tasks:
        memory, learner = start(memory, learner, task)
        for number, part in enumerate(batches):
            batch = part if isinstance(part, Batch) else batch_of(part)
            memory, learner, _ = step(memory, learner, batch, task, jax.random.key(number))
        if end is not None:
            memory, learner = end(memory, learner, task, jax.random.key(3))
        after.append((memory, learner))
    return after


def compiled(strategy):
    """Compile each function of the strategy; without it, every operation is a program."""
    names = ("init", "begin_task", "grads", "end_task", "before_evaluation", "predict")
    functions = {name: getattr(strategy, name) for name in names}
    return strategy._replace(
        **{name: jax.jit(item) for name, item in functions.items() if item is not None}
    )


def untrained(setup, strategy, seed=0):
    """Return memory and learner before the first task."""
    keys = sequence_keys(jax.random.key(seed))
    learner = init_learner(setup, CLASSES, keys.learner)
    return strategy.init(keys.memory, learner), learner


def begin(setup, strategy, memory, learner, task):
    """Begin a task: mark its classes as seen and renew the optimizer's state."""
    learner = learner._replace(seen=learner.seen | task.classes)
    if strategy.begin_task is not None:
        memory, learner = strategy.begin_task(memory, learner, task, jax.random.key(2))
    return memory, learner._replace(opt_state=setup.optimizer.init(learner.params))


# This is the same in float64, with nothing of the library.


def forward(params, index, train=False):
    inputs = DATA[np.asarray(index)] + (SHIFT if train else 0.0)
    bent = np.tanh(inputs @ params["hidden"] + params["hidden_bias"])
    return inputs, bent, bent * (GAIN if train else 1.0) @ params["head"] + params["head_bias"]


def backward(params, index, logit_gradient, train=False):
    """Return gradients `[n, *shape]` of every sample, from those of its logits."""
    inputs, bent, _ = forward(params, index, train)
    gain = GAIN if train else 1.0
    below = (logit_gradient @ params["head"].T) * gain * (1 - bent**2)
    return {
        "hidden": inputs[:, :, None] * below[:, None, :],
        "hidden_bias": below,
        "head": gain * bent[:, :, None] * logit_gradient[:, None, :],
        "head_bias": logit_gradient,
    }


def unit(rows):
    return rows / np.linalg.norm(rows, axis=-1, keepdims=True)


def joined(params):
    """Join all leaves in one vector, by their names."""
    return np.concatenate([np.ravel(params[name]) for name in sorted(params)])


def softmax(logits, active):
    powers = np.where(active, np.exp(logits), 0.0)
    return powers / powers.sum(axis=-1, keepdims=True)


def cross_entropy_gradients(params, index, active, train=False):
    """Return gradients of every sample's cross-entropy over the active classes."""
    index = np.asarray(index)
    probability = softmax(forward(params, index, train)[2], np.asarray(active))
    return backward(params, index, probability - np.eye(CLASSES)[LABELS[index]], train)


def batch_gradient(params, index, active, weight=None):
    """Return the gradient of a batch's mean cross-entropy; samples of weight 0 do not count."""
    stored = np.asarray(index) if weight is None else np.asarray(index)[np.asarray(weight) > 0]
    contribution = cross_entropy_gradients(params, stored, active, train=True)
    return {name: leaf.mean(axis=0) for name, leaf in contribution.items()}


def descend(params, batches, active, penalty_gradient, settle=lambda params: params):
    """Descend the gradient; return the last parameters and the task loss's path integral.

    `settle` is what becomes of the parameters after each step.
    """
    path = {name: np.zeros_like(leaf) for name, leaf in params.items()}
    for batch in batches:
        gradient = batch_gradient(params, batch.index, active, batch.weight)
        penalty = penalty_gradient(params)
        step = {name: -RATE * (gradient[name] + penalty[name]) for name in params}
        moved = settle({name: params[name] + step[name] for name in params})
        path = {name: path[name] - gradient[name] * (moved[name] - params[name]) for name in params}
        params = moved
    return params, path


def proximal_point(regularization, stored):
    """Map θ to argmin_x regularization Σ ω (x − θ*)² + (x − θ)² / 2 RATE of stored `(ω, θ*)`."""

    def settle(theta):
        settled = {}
        for name, leaf in theta.items():
            scale = 2 * RATE * regularization
            pull = sum(scale * importance[name] * anchor[name] for importance, anchor in stored)
            weight = sum(scale * importance[name] for importance, _ in stored)
            settled[name] = (leaf + pull) / (1 + weight)
        return settled

    return settle


def no_penalty(params):
    return {name: np.zeros_like(leaf) for name, leaf in params.items()}


def finite_differences(function, params, step=1e-5):
    """Return central differences of a float64 function of the parameters."""
    result = {}
    for name, leaf in params.items():
        result[name] = np.zeros_like(leaf)
        for place in np.ndindex(leaf.shape):
            moved = []
            for sign in (1, -1):
                changed = leaf.copy()
                changed[place] += sign * step
                moved.append(function({**params, name: changed}))
            result[name][place] = (moved[0] - moved[1]) / (2 * step)
    return result


def assert_trees_close(actual, expected, rtol=1e-4, atol=1e-6):
    assert actual.keys() == expected.keys()
    for name, leaf in expected.items():
        np.testing.assert_allclose(actual[name], leaf, rtol=rtol, atol=atol, err_msg=name)


def flat(params):
    """Return parameters of `layered_setup` by the names of the small network."""
    return {
        "hidden": params["hidden"]["kernel"],
        "hidden_bias": params["hidden"]["bias"],
        "head": params["head"]["kernel"],
        "head_bias": params["head"]["bias"],
    }


def layered(params):
    """Return parameters of the small network with kernel and bias by layer, as Flax has them."""
    return {
        name: {"kernel": params[name], "bias": params[f"{name}_bias"]}
        for name in ("hidden", "head")
    }


def layered_setup():
    plain = small_setup()
    return plain._replace(
        init=lambda key: (layered(as_float32(START)), {"passes": jnp.array(0)}),
        apply=lambda params, *arguments: plain.apply(flat(params), *arguments),
    )
