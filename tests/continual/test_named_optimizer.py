"""Optimizers of optax by name: their updates, and the rate of implicit steps."""

import numpy as np
import optax
import pytest

from everlight.continual import named_optimizer


@pytest.mark.parametrize(
    ("text", "made", "implicit"),
    [
        ("sgd", optax.sgd(0.1), 0.1),
        ("sgd:momentum=0.9", optax.sgd(0.1, momentum=0.9), 1.0),
        ("sgd:momentum=0.9,nesterov=True", optax.sgd(0.1, 0.9, True), None),
        ("adam:b1=0.8,b2=0.99", optax.adam(0.1, b1=0.8, b2=0.99), None),
    ],
)
def test_the_optimizer_is_optaxs(text, made, implicit):
    params, gradients = {"w": np.float32(1.0)}, {"w": np.float32(0.5)}
    found = named_optimizer(text, 0.1)
    assert found.implicit_rate == (None if implicit is None else pytest.approx(implicit))
    ours, theirs = (
        each.update(gradients, each.init(params), params)[0]
        for each in (found.transformation, made)
    )
    np.testing.assert_allclose(ours["w"], theirs["w"])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sdg", "did you mean 'sgd'"),
        ("apply_updates", "no optimizer of this name"),
        ("sgd:0.9", "has no name"),
        ("sgd:momentm=1", "momentm"),
        ("sgd:momentum", "NAME=NUMBER"),
        ("sgd:momentum='a'", "momentum='a'; give a number"),
        ("polyak_sgd", "takes max_learning_rate first; give one that takes a learning_rate"),
        ("lookahead", "takes fast_optimizer first"),
        (
            "lbfgs",
            r"only gradient, state and parameters \(TypeError: .*'value'.*\); give one that needs "
            "no value of the loss",
        ),
    ],
)
def test_other_names_and_arguments_are_refused(text, message):
    with pytest.raises(ValueError, match=message):
        named_optimizer(text, 0.1)
