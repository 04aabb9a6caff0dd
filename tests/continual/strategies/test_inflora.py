"""InfLoRA against the official procedure in float64, with the bases of DualGPM written out."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

from everlight.continual import StoredImages, flax_setup, inflora, softmax_objective
from everlight.continual.engine import train_step
from everlight.continual.engine.tasks import init_learner
from everlight.continual.strategies.inflora import free_directions
from everlight.models import MLP, with_layers, with_lora, with_merged_lora
from tests.continual.small_net import batch_of, samples_of, task_of
from tests.refusals import refused

INPUTS, HIDDEN, CLASSES, RATE, SCALE, RANK = 6, 6, 6, 0.1, 0.7, 2
THRESHOLD, TASKS, DECAY = 0.97, 3, 0.05
RNG = np.random.default_rng(4)
# Inputs of a task lie mostly in few directions, which overlap with those of the next task.
BASES = [RNG.normal(size=(3, INPUTS)) for _ in range(TASKS)]
DATA = np.concatenate(
    [RNG.normal(size=(20, 3)) @ basis + 0.1 * RNG.normal(size=(20, INPUTS)) for basis in BASES]
)
LABELS = np.repeat(np.arange(TASKS), 20) * 2 + np.arange(60) % 2
KERNEL, BIAS = RNG.normal(size=(INPUTS, HIDDEN)), RNG.normal(size=HIDDEN)
LAYERS = {"hidden1": {"kernel": jnp.float32(KERNEL), "bias": jnp.float32(BIAS)}}
STORED = StoredImages.of(jnp.float32(DATA), jnp.float32(0), jnp.float32(1))
# Weight decay would move the head's weights of other classes.
OPTIMIZER = optax.chain(optax.add_decayed_weights(DECAY), optax.sgd(RATE))
PLAIN = flax_setup(MLP(CLASSES, (HIDDEN,)), STORED, softmax_objective(), OPTIMIZER)
SETUP = with_merged_lora(PLAIN, LAYERS, ("hidden1",), RANK, SCALE)
PATH = ("hidden1", "kernel")


def tasks():
    for number in range(TASKS):
        index = np.arange(20 * number, 20 * number + 20)
        samples = samples_of(range(4))._replace(
            index=jnp.asarray([*index, 0, 1]),
            labels=jnp.asarray([*LABELS[index], 0, 0])[:, None],
            # Masked slots hold samples of the first task.
            mask=jnp.arange(22) < 20,
        )
        selected = jnp.arange(CLASSES) // 2 == number
        yield task_of(number, [], samples)._replace(classes=selected), index


class DualGPM:
    """A basis of what is removed, or of what is retained where it is smaller."""

    def __init__(self):
        self.basis, self.kind = np.zeros((INPUTS, 0)), "remove"

    def free_part(self, matrix):
        within = self.basis @ self.basis.T @ matrix
        return matrix - within if self.kind == "remove" else within

    def add(self, matrix, threshold):
        total = np.sum(matrix**2)
        rest = self.free_part(matrix)
        left, lengths, _ = np.linalg.svd(rest)
        spanned, count = (total - np.sum(lengths**2)) / total, 0
        while spanned < threshold:
            spanned += lengths[count] ** 2 / total
            count += 1
        new = left[:, :count]
        if self.kind == "remove":
            self.basis = np.hstack([self.basis, new])
        else:
            stored = self.basis.shape[1] - count
            self.basis = np.linalg.svd(self.basis - new @ new.T @ self.basis)[0][:, :stored]
        if self.kind == "remove" and self.basis.shape[1] > INPUTS / 2:
            self.basis = np.linalg.svd(self.basis)[0][:, self.basis.shape[1] :]
            self.kind = "retain"

    @property
    def projection(self):
        within = self.basis @ self.basis.T
        return within if self.kind == "remove" else np.eye(INPUTS) - within


def test_three_tasks_are_the_official_procedure():
    strategy = inflora(SETUP, TASKS, THRESHOLD)
    learner = init_learner(SETUP, CLASSES, jax.random.key(3))
    memory = strategy.init(jax.random.key(0), learner)
    start = jax.tree.map(np.float64, learner.params)
    kernel, head, bias = KERNEL, start["head"]["kernel"], start["head"]["bias"]
    gpm, kinds = DualGPM(), []
    for number, (task, index) in enumerate(tasks()):
        selected = np.arange(CLASSES) // 2 == number
        learner = learner._replace(seen=jnp.asarray(np.arange(CLASSES) // 2 <= number))
        memory, learner = strategy.begin_task(memory, learner, task, jax.random.key(1))
        products = DATA[index].T @ DATA[index]
        left = np.linalg.svd(gpm.free_part(products))[0]
        a, b = left[:, :RANK] / np.sqrt(3), np.zeros((RANK, HIDDEN))
        result = np.float64(learner.params["lora"]["hidden1"]["kernel"]["a"])
        # Singular vectors have a sign of their own.
        np.testing.assert_allclose(result @ result.T, a @ a.T, atol=2e-5)
        a = result
        for step in range(3):
            batch_index = index[step * 6 : step * 6 + 6]
            batch = batch_of([0] * 6)._replace(
                index=jnp.asarray(batch_index), labels=jnp.asarray(LABELS[batch_index])[:, None]
            )
            memory, learner, _ = train_step(
                SETUP, strategy, memory, learner, batch, task, jax.random.key(step)
            )
            rows, hot = DATA[batch_index], np.eye(CLASSES)[LABELS[batch_index]]
            hidden = np.maximum(rows @ (kernel + SCALE * a @ b) + BIAS, 0)
            powers = np.where(selected, np.exp(hidden @ head + bias), 0)
            error = (powers / powers.sum(axis=1, keepdims=True) - hot) / len(rows)
            of_kernel = rows.T @ ((error @ head.T) * (hidden > 0))
            b = b - RATE * (SCALE * a.T @ of_kernel + DECAY * b)
            moved = RATE * (hidden.T @ error + DECAY * head)
            head = head - np.where(selected, moved, 0)
            bias = bias - np.where(selected, RATE * (error.sum(axis=0) + DECAY * bias), 0)
        assert np.abs(a @ b).max() > 1e-3
        pair = learner.params["lora"]["hidden1"]["kernel"]
        np.testing.assert_allclose(pair["b"], b, rtol=1e-3, atol=1e-5)
        memory, learner = strategy.end_task(memory, learner, task, jax.random.key(1))
        kernel = kernel + SCALE * a @ b
        gpm.add(products, THRESHOLD + (1 - THRESHOLD) * number / TASKS)
        kinds.append(gpm.kind)
        np.testing.assert_allclose(memory.projections[PATH], gpm.projection, atol=1e-4)
        merged = learner.params["merged"]["hidden1"]["kernel"]
        np.testing.assert_allclose(SCALE * merged, kernel - KERNEL, rtol=1e-3, atol=1e-5)
        assert not np.any(learner.params["lora"]["hidden1"]["kernel"]["b"])
        np.testing.assert_allclose(learner.params["head"]["kernel"], head, rtol=1e-3, atol=1e-5)
        np.testing.assert_allclose(learner.params["head"]["bias"], bias, rtol=1e-3, atol=1e-5)
    assert kinds == ["remove", "retain", "retain"]


def test_merging_changes_no_output():
    strategy = inflora(SETUP, TASKS)
    learner = init_learner(SETUP, CLASSES, jax.random.key(3))
    pair = learner.params["lora"]["hidden1"]["kernel"]
    pair["b"] = jnp.float32(RNG.normal(size=(RANK, HIDDEN)))
    inputs = SETUP.gather(jnp.arange(9), None)
    before, _ = SETUP.apply(learner.params, {}, inputs, False, None)
    arguments = with_layers(PLAIN, LAYERS).init(jax.random.key(0))[0] | {
        "head": learner.params["head"]
    }
    plain, _ = PLAIN.apply(arguments, {}, inputs, False, None)
    assert np.abs(before.logits - plain.logits).max() > 0.1
    memory = strategy.init(jax.random.key(0), learner)
    task, _ = next(tasks())
    _, learner = strategy.end_task(memory, learner, task, jax.random.key(0))
    after, _ = SETUP.apply(learner.params, {}, inputs, False, None)
    np.testing.assert_allclose(after.logits, before.logits, rtol=1e-4, atol=1e-5)


def test_directions_without_inputs_are_0():
    rows = np.array([[3.0, 0, 0], [0, 2, 0]])
    result = free_directions(jnp.diag(jnp.array([1.0, 0, 0])), jnp.float32(rows.T @ rows), 2)
    np.testing.assert_allclose(np.abs(result), [[0, 0], [1 / np.sqrt(3), 0], [0, 0]], atol=1e-6)
    wide = free_directions(jnp.zeros((3, 3)), jnp.eye(3), 5)
    assert wide.shape == (3, 5)
    assert not np.any(wide[:, 3:])


def test_layers_that_cannot_be_merged_are_refused_in_one_line():
    lora = with_lora(PLAIN, LAYERS, ("hidden1",))
    refused("InfLoRA needs the inputs of every layer", lambda: inflora(lora, TASKS))
    learner = init_learner(PLAIN, CLASSES, jax.random.key(0))
    plain = inflora(PLAIN, TASKS)
    refused("InfLoRA needs merged additions", lambda: plain.init(jax.random.key(0), learner))
