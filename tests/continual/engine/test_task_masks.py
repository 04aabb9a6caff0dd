"""Accuracy where the task is known: among the classes of each test set."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from everlight.base import Outputs, Predictions
from everlight.continual.engine import Protocol, Run, StoredImages, flax_setup, run_sequence
from everlight.continual.objectives import softmax_objective
from everlight.continual.strategies import naive
from everlight.models import MLP
from everlight.scenarios import class_incremental, experience_sequence

CLASSES, PIXELS = 4, 8


def learned(images, sequence):
    stored = StoredImages.of(jnp.asarray(images), jnp.zeros(PIXELS), jnp.ones(PIXELS))

    def build(stored):
        net = MLP(CLASSES, hidden=(16,))
        setup = flax_setup(net, stored, softmax_objective(), optax.sgd(0.1))
        return setup, naive(setup)

    protocol = Protocol(epochs=5, batch_size=10, select="last")
    program = jax.jit(lambda inputs, key: run_sequence(Run(build, protocol, inputs, sequence, key)))
    return program(stored, jax.random.key(0))


def test_a_repeated_class_is_scored_in_each_of_its_tasks():
    """Tasks have classes 0 and 1, then 1 and 2, so that their masks differ."""
    places, labels = np.arange(8), np.array([0, 1, 1, 2, 0, 1, 1, 2])
    train, test = [places[:2], places[2:4]], [places[4:6], places[6:8]]
    sequence = experience_sequence(
        train, [labels[t] for t in train], test, [labels[t] for t in test], 3
    )
    assert np.asarray(sequence.test_classes).tolist() == [[True, True, False], [False, True, True]]
    scores = jnp.array([[0.0, 1.0, 2.0], [0.0, 1.0, 2.0], [2.0, 1.0, 0.0], [0.0, 1.0, 2.0]])
    objective = softmax_objective()
    task_of_class = jnp.argmax(sequence.test_member, axis=0)
    predictions = Predictions(
        scores,
        scores,
        sequence.test.labels,
        task_of_class,
        sequence.class_task,
        sequence.test_classes[task_of_class],
    )
    seen = jnp.ones(3, bool)
    row = objective.evaluate(sequence, objective.per_sample_metrics(predictions, seen), seen)
    # Samples of labels 0, 1 are 1, 1 among {0, 1}; those of labels 1, 2 are 1, 2 among {1, 2}.
    np.testing.assert_allclose(row.task_masked, [0.5, 1.0])
    np.testing.assert_allclose(row.class_incremental, [0.0, 0.5])


def small_sequence(**changes):
    labels = np.arange(4).repeat(3)
    sequence = class_incremental(labels, np.arange(4), [[0, 1], [2, 3]], 4, 0.0)
    return sequence._replace(**changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"test_classes": None}, "test_classes is None; give the classes of each test set"),
        ({"test_classes": jnp.zeros((2, 4), bool)}, "leave out the label of a sample"),
        ({"test_member": jnp.ones((2, 4), bool)}, "differ between test sets that share a sample"),
        ({"test_classes": jnp.ones((3, 4), bool)}, r"test_classes is bool\[3, 4\]"),
    ],
)
def test_sequences_without_scores_are_refused(changes, message):
    images = np.zeros((16, PIXELS), np.float32)
    with pytest.raises(ValueError, match=message):
        learned(images, small_sequence(**changes))


def test_a_sample_without_a_label_is_refused():
    sequence = small_sequence()
    train = sequence.tasks.train
    train = train._replace(labels=train.labels.at[1, 2].set(-1))
    images = np.zeros((16, PIXELS), np.float32)
    with pytest.raises(
        ValueError, match=r"sequence.tasks.train holds the sample 8 without a label"
    ):
        learned(images, sequence._replace(tasks=sequence.tasks._replace(train=train)))


def test_a_label_of_minus_one_trains_no_class():
    logits = jnp.array([[0.3, -0.2, 0.9], [0.1, 0.4, -0.7]])
    labels = jnp.array([[-1], [1]])

    def total(logits):
        losses = softmax_objective().loss(Outputs(logits, logits), labels, jnp.ones(3, bool))
        return jnp.sum(losses)

    gradient = jax.grad(total)(logits)
    np.testing.assert_array_equal(gradient[0], 0)
    probability = np.exp(logits[1]) / np.exp(logits[1]).sum()
    np.testing.assert_allclose(gradient[1], probability - [0, 1, 0], rtol=1e-6)
