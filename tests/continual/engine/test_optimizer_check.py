"""Optimizers that steps can use, those that need more, and those of optax by name."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from optax import contrib

from everlight.continual import naive, named_optimizer, train
from everlight.continual.engine.optimizer_check import check_optimizer
from everlight.errors import ArgumentError
from tests.refusals import refused

PARAMS = {"a": {"kernel": jnp.zeros((3, 2)), "bias": jnp.zeros(2)}, "b": jnp.zeros(())}


def growing():
    """Return an optimizer whose state becomes longer with every update."""
    return optax.GradientTransformation(
        lambda params: (), lambda gradient, state, params=None: (gradient, (*state, gradient))
    )


def summing():
    """Return an optimizer that returns one number per parameter array."""
    return optax.GradientTransformation(
        lambda params: (),
        lambda gradient, state, params=None: (jax.tree.map(jnp.sum, gradient), state),
    )


@pytest.mark.parametrize(
    "optimizer",
    [
        optax.adam(1e-3),
        optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3)),
        optax.masked(optax.adam(1e-3), {"a": True, "b": False}),
        optax.multi_transform({"x": optax.sgd(0.1), "y": optax.adam(1e-3)}, {"a": "x", "b": "y"}),
        optax.MultiSteps(optax.adam(1e-3), 2).gradient_transformation(),
        optax.apply_if_finite(optax.adam(1e-3), 3),
        optax.inject_hyperparams(optax.adam)(learning_rate=1e-3),
        optax.lbfgs(1e-3, linesearch=None),
        optax.sgd(optax.cosine_decay_schedule(0.1, 10)),
        optax.with_extra_args_support(optax.sgd(0.1)),
    ],
)
def test_optimizers_of_gradients_and_parameters_are_taken(optimizer):
    check_optimizer(optimizer, PARAMS)
    jax.jit(lambda params: check_optimizer(optimizer, params))(PARAMS)


UNFIT = {
    "lbfgs": (optax.lbfgs(), "TypeError: .*value"),
    "polyak_sgd": (optax.polyak_sgd(), "TypeError: .*value"),
    "reduce_on_plateau": (
        optax.chain(optax.sgd(0.1), contrib.reduce_on_plateau()),
        "TypeError: .*value",
    ),
    "lookahead": (optax.lookahead(optax.sgd(0.1), 5, 0.5), "AttributeError|ValueError|TypeError"),
    "momo": (contrib.momo(), "Error"),
    "backtracking": (optax.scale_by_backtracking_linesearch(5), "TypeError: .*value"),
    "schedule-free": (contrib.schedule_free_sgd(0.1), "ScheduleFreeState predicts by other"),
    "schedule-free in a chain": (
        optax.chain(optax.clip(1.0), contrib.schedule_free_adamw(0.1)),
        "ScheduleFreeState predicts by other",
    ),
    "sam": (contrib.sam(optax.sgd(0.1), optax.sgd(0.05)), "SAMState predicts by other"),
    "growing": (growing(), "another kind of state"),
    "summing": (summing(), "do not have the shapes of the parameters"),
    "masked": (optax.masked(optax.adam(1e-3), {"c": True}), "cannot make an update"),
}


@pytest.mark.parametrize(("optimizer", "reason"), UNFIT.values(), ids=list(UNFIT))
def test_unfit_optimizers_are_refused_in_one_line_with_the_reason(optimizer, reason):
    refused(
        rf"^optimizer .*{reason}.*; give one that",
        lambda: check_optimizer(optimizer, PARAMS),
        ArgumentError,
    )


class Net(nn.Module):
    @nn.compact
    def __call__(self, images):
        return nn.Dense(4)(images)


def test_train_refuses_unfit_optimizers_before_a_step():
    images, labels = np.zeros((24, 2), np.float32), np.arange(24) % 4
    with pytest.raises(ArgumentError, match=r"^optimizer cannot make an update .*value"):
        train(Net(), images, labels, naive, tasks=2, seeds=1, optimizer=optax.lbfgs())


@pytest.mark.parametrize(
    ("text", "created", "implicit"),
    [
        ("sgd", optax.sgd(0.1), 0.1),
        ("sgd:momentum=0.9", optax.sgd(0.1, momentum=0.9), 1.0),
        ("sgd:momentum=0.9,nesterov=True", optax.sgd(0.1, 0.9, True), None),
        ("adam:b1=0.8,b2=0.99", optax.adam(0.1, b1=0.8, b2=0.99), None),
    ],
)
def test_the_optimizer_is_optaxs(text, created, implicit):
    params, gradients = {"w": np.float32(1.0)}, {"w": np.float32(0.5)}
    result = named_optimizer(text, 0.1)
    assert result.implicit_rate == (None if implicit is None else pytest.approx(implicit))
    actual, reference = (
        item.update(gradients, item.init(params), params)[0]
        for item in (result.transformation, created)
    )
    np.testing.assert_allclose(actual["w"], reference["w"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sdg", "did you mean 'sgd'"),
        ("apply_updates", "no optimizer of this name"),
        ("sgd:0.9", "has no name"),
        ("sgd:momentm=1", "momentm"),
        ("sgd:momentum", "NAME=NUMBER"),
        ("sgd:momentum='a'", "momentum='a'; give a number"),
        ("sgd:momentum=1", "^momentum=1; give less than 1$"),
        ("sgd:momentum=1.5,nesterov=True", "^momentum=1.5; give less than 1$"),
        ("polyak_sgd", "takes max_learning_rate first; give one that takes a learning_rate"),
        ("lookahead", "takes fast_optimizer first"),
        ("lbfgs", r"from only .* \(TypeError: .*'value'.*\); give one that needs no value"),
    ],
)
def test_unknown_names_and_arguments_of_optimizers_are_refused(text, message):
    refused(message, lambda: named_optimizer(text, 0.1))
