"""Training on targets that are no classes: closed forms, seeds, and strategies that are refused."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from everlight.continual import ewc, experience_replay, gdumb, lwf, naive, ranpac, train_targets
from everlight.continual.engine import Protocol, Run, StoredImages, flax_setup, run_sequence
from everlight.continual.methods.method import StrategyArguments
from everlight.continual.methods.registry import METHODS
from everlight.continual.objectives import target_objective
from everlight.models import MLP
from everlight.scenarios import experience_sequence
from tests.refusals import refused

TASK = np.repeat(["a", "b"], 20)
IMAGES = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
BYTES = np.arange(120, dtype=np.uint8).reshape(40, 3, 1)
TRUE = np.array([[1.0, -2.0], [0.5, 0.0], [0.0, 3.0]], np.float32)


def squared_error(outputs, target):
    return jnp.sum((outputs - target) ** 2)


def fitted(features, targets):
    """Return the least-squares outputs of an affine function in float64."""
    design = np.concatenate([features, np.ones((len(features), 1))], axis=1).astype(np.float64)
    return design @ np.linalg.lstsq(design[:20], targets[:20], rcond=None)[0]


def trained(targets, objective=squared_error, strategy=naive, **options):
    settings = {"seeds": 2, "epochs": 100, "batch_size": 20, "optimizer": optax.sgd(0.2)}
    # Equal rows in another order: equal arrays are refused.
    tests = (IMAGES[::-1], jax.tree.map(lambda values: values[::-1], targets), TASK[::-1])
    return train_targets(
        MLP(2, ()), IMAGES, targets, TASK, strategy, objective, test=tests, **settings | options
    )


def test_finetuning_ends_at_the_last_tasks_least_squares():
    """The optimum of full batches does not depend on the first task nor on the seed."""
    rng = np.random.default_rng(1)
    targets = (IMAGES @ TRUE + rng.normal(size=(40, 2))).astype(np.float32)
    result = trained(targets)
    expected = fitted(np.roll(IMAGES, 20, 0), np.roll(targets, 20, 0))
    expected = np.roll(expected, 20, 0)
    for outputs in result.predict(IMAGES):
        np.testing.assert_allclose(outputs, expected, atol=2e-3)
    errors = ((expected - targets) ** 2).sum(axis=1)
    np.testing.assert_allclose(
        result.losses[:, 1], [[errors[:20].mean(), errors[20:].mean()]] * 2, rtol=5e-3
    )
    after_first = ((fitted(IMAGES, targets) - targets) ** 2).sum(axis=1)
    np.testing.assert_allclose(result.losses[:, 0, 0], [after_first[:20].mean()] * 2, rtol=5e-3)
    np.testing.assert_allclose(result.final_loss, [errors.mean()] * 2, rtol=5e-3)
    assert result.task_names == ("a", "b")


def test_a_linear_function_common_to_the_tasks_is_not_forgotten():
    """Both tasks have the same solution, which replay and EWC reach as finetuning does."""
    targets = IMAGES @ TRUE
    for strategy in (naive, partial(ewc, regularization=1.0), experience_replay):
        assert np.all(trained(targets, strategy=strategy).losses[:, 1] < 1e-4)


def test_several_labels_reach_the_logits_of_their_frequencies():
    """Images without information: the best logits of sigmoid cross-entropy are log p / (1 - p)."""
    images = np.zeros((40, 3), np.float32)
    targets = np.tile([[1, 1], [1, 0], [1, 0], [0, 0]], (10, 1))
    task = np.arange(40) // 4 % 2

    def cross_entropy(outputs, target):
        return jnp.sum(optax.sigmoid_binary_cross_entropy(outputs, target))

    result = train_targets(
        MLP(2, ()),
        images,
        targets,
        task,
        naive,
        cross_entropy,
        test=(images[:8], targets[:8], task[:8]),
        seeds=1,
        epochs=100,
        batch_size=20,
        optimizer=optax.sgd(0.5),
    )
    expected = np.log([0.75 / 0.25, 0.25 / 0.75])
    np.testing.assert_allclose(result.predict(images[:8])[0], [expected] * 8, atol=5e-3)


def test_targets_may_be_a_tree():
    """A weight beside the target that is 0 for the second task leaves the network unchanged."""
    weight = (TASK == "a").astype(np.float32)
    tree = {"value": IMAGES @ TRUE, "weight": weight}
    result = trained(
        tree, lambda out, to: to["weight"] * squared_error(out, to["value"]), epochs=20
    )
    np.testing.assert_array_equal(result.losses[:, 0, 0], result.losses[:, 1, 0])
    np.testing.assert_array_equal(result.losses[:, :, 1], np.zeros((2, 2)))


@pytest.mark.parametrize(
    ("strategy", "name"), [(lwf, "LwF"), (gdumb, "GDumb"), (ranpac, "RanPAC or ACIL")]
)
def test_strategies_that_read_classes_are_refused_by_name(strategy, name):
    with pytest.raises(ValueError, match=f"strategy is {name}.*give one of naive, .*, EWC, .*own$"):
        trained(IMAGES @ TRUE, strategy=strategy)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"objective": lambda out, target: out - target}, r"float32 of shape \(2,\) for one image"),
        ({"objective": lambda out: out.sum()}, "objective cannot be called"),
        ({"targets": np.zeros((39, 2))}, "hold 40, 39, 40; give one target and one task"),
        ({"targets": np.full((40, 2), np.nan)}, "targets holds 80 values that are not finite"),
        ({"targets": np.full((40, 2), "x")}, "give numbers"),
        (
            {"targets": {"count": 2**32 + np.arange(40)}},
            "^targets holds 4294967296; give integers from -2147483648 to 2147483647$",
        ),
        (
            {"targets": np.full((40, 2), -(2**31) - 1)},
            "^targets holds -2147483649; give integers from -2147483648",
        ),
        (
            {"test": (IMAGES, np.full((40, 2), 2**32, np.uint64), TASK)},
            "^test's targets holds 4294967296; give integers from 0 to 4294967295$",
        ),
        ({"targets": np.full((40, 2), 1e39)}, r"^targets holds 1e\+39; scale it to at most 1e\+37"),
        ({"tasks": np.zeros(40)}, "tasks holds 1 task; give two or more"),
        ({"tasks": np.arange(40)}, "task 0 has no image to test"),
        ({"test": (IMAGES, IMAGES)}, "tuple of 2; give test="),
        ({"test": (IMAGES[:, :2], np.zeros((40, 2)), TASK)}, "differ in form"),
        (
            {"images": np.ma.masked_equal(IMAGES, IMAGES[7, 1])},
            "^images has 1 masked entries, the first in row 7; leave these rows out$",
        ),
        (
            {
                "targets": {
                    "value": np.ma.array(np.zeros((40, 2)), mask=IMAGES[:, :2] == IMAGES[3, 1])
                }
            },
            "^targets has 1 masked entries, the first in row 3; leave these rows out$",
        ),
        (
            {"tasks": np.ma.array(TASK, mask=TASK == "b")},
            "^tasks has 20 masked .* in row 20; leave",
        ),
        (
            {"test": (np.ma.masked_less(IMAGES, 9), np.zeros((40, 2)), TASK)},
            "^test's images has 120 masked entries",
        ),
        (
            {"tasks": np.where(TASK == "a", 1.0, np.nan)},
            "^tasks holds nan in row 20, the first of 20 missing tasks; give every image",
        ),
        ({"tasks": [None, *TASK[1:]]}, "^tasks holds None in row 0, the first of 1 missing tasks"),
        (
            {"tasks": [(5, 10, "x")[row % 3] for row in range(40)]},
            "^tasks cannot be sorted .*; give numbers alone, or text alone, in the test data too$",
        ),
        ({"tasks": np.zeros((40, 1))}, r"^tasks has shape \(40, 1\); give one task per image$"),
        (
            {"test": (IMAGES.copy(), np.ones((40, 2)), TASK)},
            "^test's images holds the same samples as images; give test samples that do not train$",
        ),
        (
            {"test": (IMAGES / 255, np.zeros((40, 2)), TASK)},
            "^test's images holds float32 from .* images float32 from .* on one scale$",
        ),
        (
            {
                "images": BYTES,
                "test": (BYTES[::-1] / 255, np.zeros((40, 2)), TASK),
            },
            "^test's images holds float64 from 0 to 0.466667, images uint8 from 0 to 119; give",
        ),
        ({"test": 0.0}, "test=0.0; give more than 0, and less than 1$"),
        ({"test": 1.0}, "test=1.0; give more than 0, and less than 1$"),
    ],
)
def test_unfit_arguments_are_refused_in_one_line(change, message):
    arguments = {"images": IMAGES, "targets": np.zeros((40, 2)), "tasks": TASK}
    arguments |= {"strategy": naive, "objective": squared_error, **change}
    refused(message, lambda: train_targets(MLP(2, ()), **arguments))


def test_a_shared_draw_splits_every_task():
    result = train_targets(
        MLP(2, ()), IMAGES, IMAGES @ TRUE, TASK, naive, squared_error, seeds=1, epochs=1
    )
    assert result.losses.shape == (1, 2, 2)
    assert jax.tree.leaves(result.learner.params)[0].shape[0] == 1
    assert "TrainedTargets(2 tasks, 1 seeds; final loss" in repr(result)


TAKERS = [name for name, row in METHODS.items() if row.takes_targets]


def build_named(name):
    """Return the build of a strategy of the registry, on targets that are among the data."""

    def build(data):
        objective = target_objective(squared_error, lambda label: data[1][label])
        setup = flax_setup(MLP(2, (4,)), data[0], objective, optax.sgd(0.02))
        arguments = {"fisher": "empirical"} if name == "IMM mode" else {}
        options = {"layers": ("hidden1",), "buffer_size": 8, "arguments": arguments}
        return setup, METHODS[name].make(setup, StrategyArguments(2, 40, 1, 0.5, **options))

    return build


def losses_with_labels(build, label):
    """Train one seed with a label for each of the targets; images and masks stay as they are."""
    targets = np.zeros((40, 2), np.float32)
    targets[label] = IMAGES @ TRUE
    rows = np.split(np.arange(40), [15, 20, 35])
    train, test = rows[::2], rows[1::2]
    sequence = experience_sequence(train, train, test, test, classes=40)
    labels = [label[part] for part in rows]
    relabelled = experience_sequence(train, labels[::2], test, labels[1::2], classes=40)
    sequence = sequence._replace(
        tasks=sequence.tasks._replace(train=relabelled.tasks.train),
        test=relabelled.test,
        test_classes=None,
    )
    data = StoredImages.of(IMAGES, jnp.zeros(()), jnp.ones(())), jnp.asarray(targets)
    protocol = Protocol(epochs=2, batch_size=5, select="last")
    run = Run(build, protocol, data, sequence, jax.random.key(0))
    return jax.jit(run_sequence)(run).evaluation


@pytest.mark.parametrize("name", [*TAKERS, "GDumb"])
def test_strategies_that_take_targets_read_no_class(name):
    """Other labels for the same targets change nothing; in GDumb they change the memory."""
    build, order = build_named(name), np.random.default_rng(0).permutation(40)
    losses, others = (losses_with_labels(build, label) for label in (np.arange(40), order))
    assert np.all(np.isfinite(losses))
    assert np.array_equal(losses, others) == (name != "GDumb")
