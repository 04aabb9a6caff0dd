"""The call above the engine: against the engine itself, on labels and nets of any kind."""

import re
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import matplotlib as mpl
import numpy as np
import optax
import pytest
from flax import nnx

from everlight.base import Outputs
from everlight.continual import train
from everlight.continual.engine import Protocol, Run, StoredImages, flax_setup, run_sequence
from everlight.continual.objectives import softmax_objective
from everlight.continual.strategies import ewc, naive
from everlight.metrics import cl_score, forgetting, summarize_runs
from everlight.models import MLP
from everlight.scenarios import class_incremental, pad_sequences
from tests import refusals

CLASSES, PER_CLASS = 4, 12
NAMES = np.array(["pear", "apple", "fig", "date"])


NUMBER = np.arange(CLASSES * PER_CLASS) % CLASSES
TEXT = NAMES[NUMBER]
_noise = np.random.default_rng(0).normal(size=(len(NUMBER), 2)) * 0.3
# Each of four corners has a cloud of points.
IMAGES = (np.array([[2, 2], [2, -2], [-2, 2], [-2, -2]])[NUMBER] + _noise).astype(np.float32)


@pytest.fixture(scope="module")
def trained():
    """Train two seeds with a strategy of two copies, on text labels; the last 16 samples test."""
    return train(
        MLP(CLASSES, ()),
        IMAGES[:32],
        TEXT[:32],
        lambda setup: ewc(setup, 1.0),
        tasks=2,
        seeds=2,
        test=(IMAGES[32:], TEXT[32:].tolist()),
        epochs=2,
        batch_size=8,
        optimizer=optax.sgd(0.1),
    )


def test_train_equals_the_engine(trained):
    """Seed 1 is repeated by hand: text in its order, column statistics, the seed's task order."""
    assert trained.class_names == ("apple", "date", "fig", "pear")
    labels = np.array([3, 0, 2, 1])[NUMBER]
    orders = [np.random.default_rng(seed).permutation(CLASSES) for seed in range(2)]
    sequences = pad_sequences(
        [
            class_incremental(
                labels[:32], labels[32:], order.reshape(2, 2).tolist(), CLASSES, valid_fraction=0.0
            )
            for order in orders
        ]
    )
    stored = StoredImages.of(
        jnp.asarray(IMAGES),
        jnp.asarray(IMAGES[:32].mean(0, np.float64), jnp.float32),
        jnp.asarray(IMAGES[:32].std(0, np.float64), jnp.float32),
    )

    def build(stored):
        setup = flax_setup(MLP(CLASSES, ()), stored, softmax_objective(), optax.sgd(0.1))
        return setup, ewc(setup, 1.0)

    protocol = Protocol(epochs=2, batch_size=8, select="last")
    program = jax.jit(lambda key: run_sequence(Run(build, protocol, stored, sequences[1], key)))
    result = program(jax.random.key(1))
    np.testing.assert_array_equal(
        trained.class_incremental_matrices[1], result.evaluation.class_incremental
    )
    np.testing.assert_array_equal(trained.task_masked_matrices[1], result.evaluation.task_masked)
    np.testing.assert_array_equal(trained.class_task[1], sequences[1].class_task)
    for actual, reference in zip(
        jax.tree.leaves(trained.learner.params), jax.tree.leaves(result.learner.params), strict=True
    ):
        np.testing.assert_allclose(actual[1], reference, rtol=1e-5, atol=1e-6)


def test_trained_networks_predict_and_describe_themselves(trained):
    """One layer is computed in NumPy, normalized by the training images; the largest is scored."""
    predicted = trained.predict(IMAGES[32:].tolist())
    learned, tests = IMAGES[:32].astype(np.float64), IMAGES[32:].astype(np.float64)
    (layer,) = trained.learner.params.values()
    for seed in (0, 1):
        kernel, bias = (np.float64(layer[name][seed]) for name in ("kernel", "bias"))
        expected = (tests - learned.mean(0)) / learned.std(0) @ kernel + bias
        np.testing.assert_allclose(predicted[seed], expected, rtol=1e-4, atol=1e-5)
    estimated = np.array(trained.class_names)[predicted.argmax(axis=-1)]
    right = np.mean(estimated == TEXT[32:], axis=1)
    np.testing.assert_allclose(right, trained.class_incremental.accuracy, rtol=1e-6)
    assert re.fullmatch(
        r"Trained\(4 classes in 2 tasks, 2 seeds; accuracy [\d.]+ ± [\d.]+ class-incremental, "
        r"[\d.]+ ± [\d.]+ task-masked; .*\)",
        repr(trained),
    )
    removed = trained._replace(diverged=np.array([False, True]))
    np.testing.assert_array_equal(np.isnan(removed.predict(tests)).all(axis=(1, 2)), [False, True])
    for wrong in (IMAGES[:, :1], IMAGES[:0], IMAGES.astype(np.uint8), IMAGES.astype(str)):
        with pytest.raises(ValueError, match=r"give numbers of shape \(n, 2\), as in training"):
            trained.predict(wrong)
    with pytest.raises(ValueError, match="images holds 1 values that are not finite"):
        trained.predict([[1.0, np.nan]])


def test_costs_are_counted_as_by_hand(trained):
    """16 samples per task in steps of 8 take two steps per epoch, four per task; none is stored."""
    costs = trained.costs
    np.testing.assert_array_equal(costs.model_memory, [[12, 36]] * 2)  # 2 x 4 + 4, and two copies
    np.testing.assert_array_equal(costs.sample_memory, np.zeros((2, 2)))
    np.testing.assert_array_equal(costs.lifetime_memory, [32, 32])
    # A task takes two passes with equal operations per step, apart from EWC's penalty.
    assert np.all(costs.operations >= 2 * costs.pass_operations)
    np.testing.assert_array_equal(costs.operations[:, 0], costs.operations[:, 1])


def test_scores_are_those_of_the_metrics(trained):
    matrices = trained.class_incremental_matrices
    scores = trained.class_incremental
    np.testing.assert_allclose(scores.accuracy, matrices[:, -1].mean(axis=1), rtol=1e-6)
    np.testing.assert_allclose(
        scores.forgetting,
        [float(forgetting(jnp.asarray(per_class))) for per_class in matrices],
        rtol=1e-6,
    )
    # The score is linear in the criteria, so its mean is the score of their means.
    mean = summarize_runs(jnp.asarray(matrices), trained.costs).mean
    alike = dict.fromkeys(mean, 1 / 7)
    np.testing.assert_allclose(scores.cl_score.mean(), float(cl_score(mean, alike)), rtol=1e-5)
    assert np.all(trained.task_masked.accuracy >= scores.accuracy)


def test_the_table_and_the_picture_agree(trained):
    head, current, masked = trained.table().splitlines()
    assert head.split() == ["setting", "accuracy", "forgetting", "cl", "score"]
    accuracy = trained.class_incremental.accuracy
    assert f"{accuracy.mean():.3f} ± {accuracy.std(ddof=1):.3f}" in current
    assert masked.startswith("task-masked ")
    mpl.use("Agg")
    axes = trained.plot()
    curve = axes.lines[0].get_ydata()
    np.testing.assert_allclose(curve[-1], accuracy.mean(), rtol=1e-6)
    np.testing.assert_allclose(
        curve[0], trained.class_incremental_matrices[:, 0, 0].mean(), rtol=1e-6
    )


class Logits(nn.Module):
    """A net that gives logits alone, with another word for `train`."""

    @nn.compact
    def __call__(self, images, deterministic):
        return nn.Dense(CLASSES, name="head")(nn.Dropout(0.5, deterministic=deterministic)(images))


class Plain(nn.Module):
    outputs: int = CLASSES

    @nn.compact
    def __call__(self, images):
        return nn.Dense(self.outputs)(images)


class Masked(nn.Module):
    @nn.compact
    def __call__(self, images, mask):
        return nn.Dense(CLASSES)(images * mask)


class Fixed(nn.Module):
    def __call__(self, images, train):
        return images


class Images(nn.Module):
    """Reads pictures only."""

    @nn.compact
    def __call__(self, images, train):
        batch, _, _, _ = images.shape
        return Outputs(nn.Dense(CLASSES)(images.reshape(batch, -1)), images)


class Changed(nn.Module):
    """Returns what a function makes of logits."""

    change: Callable[..., Any]

    @nn.compact
    def __call__(self, images, train):
        return self.change(nn.Dense(CLASSES)(images), train)


@pytest.mark.slow
def test_a_net_of_another_signature_and_mixed_labels_learn_too():
    """Parameters keep their names; a fifth of each class tests; numbers stand beside text."""
    labels = [(1, "none", True and 2.5, "b")[label] for label in NUMBER]
    result = train(Logits(), IMAGES, labels, naive, 2, seeds=1, epochs=1, batch_size=16)
    assert set(result.learner.params) == {"head"}
    assert set(result.class_names) == {1, "none", 2.5, "b"}
    assert result.class_incremental_matrices.shape == (1, 2, 2)
    # Two of 12 images test: accuracies are halves of halves.
    np.testing.assert_array_equal(result.task_masked_matrices * 4 % 1, 0)
    assert "±" not in result.table()


class Missing:
    """Like the NA of pandas: comparisons with it are neither true nor false."""

    __hash__ = object.__hash__

    def __eq__(self, other):
        return self

    def __ne__(self, other):
        return self

    def __bool__(self):
        raise TypeError("boolean value of NA is ambiguous")

    def __repr__(self):
        return "<NA>"


TIMES = np.array(["2000-01-01", "2001-01-01", "2002-01-01", "NaT"], "M8[ns]")


def refused(**changed):
    options = {"net": Plain(), "images": IMAGES, "labels": NUMBER, "strategy": naive, "tasks": 2}
    return refusals.refused(None, lambda: train(**(options | changed)))


@pytest.mark.parametrize(
    ("net", "message"),
    [
        (Plain(5), "returns outputs of shape (2, 5) for 2 images of 4 classes; give one whose"),
        (Masked(), "net needs mask besides its images; give a Flax module called as"),
        (Fixed(), "net has no parameters; give one that can be trained"),
        (
            Changed(lambda y, train: (y, y)),
            "shape (2, 4); several values are returned as Outputs(logits, features)",
        ),
        (
            Changed(lambda y, train: y.squeeze()),
            "returns outputs of shape (4,) for a single image of 4 classes; give one",
        ),
        (Images(), "cannot be called with images of shape (2,) (ValueError: not enough values"),
        (
            lambda rngs: nnx.Linear(3, 4, rngs=rngs),
            "; give a function of rngs that returns an NNX module called as net(images)",
        ),
        (Changed(lambda y, train: y if train else y[:, :2]), "returns outputs of shape (2, 2)"),
        (Changed(lambda y, train: jnp.int32(y)), "returns logits of dtype int32, which cannot be"),
        (
            Changed(lambda y, train: Outputs(y, None)),
            "returns features NoneType for 2 images; give",
        ),
        (
            Changed(lambda y, train: Outputs(y, y.sum(0))),
            "returns features (4,) for 2 images; give",
        ),
    ],
)
def test_nets_that_do_not_fit_are_refused(net, message):
    assert message in refused(net=net)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"images": IMAGES[:36]},
            "images holds 36, labels 48; give one label per image, test images included, or",
        ),
        ({"labels": NUMBER[:, None]}, "labels has shape (48, 1)"),
        ({"labels": NUMBER * 0}, "labels holds 1 class; give two or more"),
        ({"labels": [*NUMBER[:-1], 9]}, "labels holds 9 once; give two"),
        ({"labels": [*NUMBER[:-1], float("nan")]}, "labels holds nan"),
        (
            {"labels": [None, *NUMBER[1:-1], None]},
            "labels holds None in row 0, the first of 2 missing labels; give every image a label",
        ),
        ({"labels": [*TEXT.tolist()[:-1], " "]}, "holds ' ' in row 47"),
        ({"labels": ["", *TEXT[1:]]}, "labels holds '' in row 0"),
        ({"labels": [*NUMBER[:-1], Missing()]}, "labels holds <NA> in row 47"),
        (
            {"labels": np.array([*TEXT[1:], np.nan])},
            "labels holds 'nan' in row 47, the first of 1 missing labels",
        ),
        (
            {"labels": TIMES[np.minimum(NUMBER, 3)]},
            ".datetime64('NaT','ns') in row 3, the first of 12 missing labels",
        ),
        (
            {"labels": np.ma.array(NUMBER, mask=NUMBER == 2)},
            "labels has 12 masked entries, the first in row 2; leave these rows out",
        ),
        (
            {"images": np.ma.masked_equal(IMAGES, IMAGES.max())},
            "images has 1 masked entries, the first in row",
        ),
        (
            {"labels": np.array(["1", "01", "2", "3"])[NUMBER]},
            "labels holds '1' and '01', which are one number; give one class one label",
        ),
        (
            {"labels": [("1", 1, "a", "b")[label] for label in NUMBER]},
            "labels holds '1' and 1, which are one number",
        ),
        ({"test": (IMAGES * 255, NUMBER)}, "give both in one type and on one scale"),
        ({"test": (IMAGES / 255, NUMBER)}, "give both in one type and on one scale"),
        ({"labels": [*NUMBER[:-1], [1]]}, "labels holds [1], which cannot"),
        ({"images": IMAGES[:, 0]}, "images is float32 of shape (48,)"),
        ({"images": np.full_like(IMAGES, np.inf)}, "images holds 96 values that are not"),
        ({"tasks": 5}, "tasks=5 of 4 classes; give 4 or fewer"),
        ({"test": (IMAGES, [9] * 48)}, "test[1] holds 9, which is not"),
        ({"test": (IMAGES,)}, "test is a tuple of 1; give test=(images"),
        ({"test": (IMAGES[:, :1], NUMBER)}, "shape (1,), images those of"),
        ({"test": (IMAGES[:0], NUMBER[:0])}, "test[1] holds no label; give test images of every"),
        (
            {"tasks": 2, "test": (IMAGES[NUMBER != 2], NUMBER[NUMBER != 2])},
            "test[1] lacks 2; give every class of labels a test image, or leave its training",
        ),
        (
            {"labels": np.arange(48) % 12, "test": (IMAGES[:5], np.arange(5))},
            "test[1] lacks 5, 6, 7 and 4 more; give every class",
        ),
        ({"test": 0.0}, "test=0.0; give more than 0, and less than 1"),
        ({"test": 1}, "test=1; give more than 0, and less than 1"),
        ({"strategy": lambda setup: 3}, "strategy returned int; give a function"),
        ({"strategy": ewc}, "argument: 'regularization'; give a function of the Setup"),
    ],
)
def test_invalid_training_data_are_refused_in_one_line(change, message):
    assert message in refused(**change)


def test_predictions_of_features_at_a_great_offset_are_those_without_it():
    """The offset is subtracted in float64 before training and before predicting."""
    shift = 2.0**27

    def predicted(values):
        result = train(
            Plain(), values, NUMBER, naive, 2, seeds=1, epochs=1, batch_size=16, test=0.25
        )
        return result.predict(values)

    # The values have 20 bits, which float64 holds exactly beside the offset.
    rounded = np.round(IMAGES.astype(np.float64) * 2**16) / 2**16
    np.testing.assert_allclose(predicted(rounded + shift), predicted(rounded), atol=1e-4)


def test_the_training_images_are_no_test_images():
    text = "test[0] holds the same samples as images; give test samples that do not train"
    assert text in refused(test=(IMAGES, NUMBER))
