"""A network that lacks what a row of the registry requires of it is refused in one line."""

import functools

import jax
import jax.numpy as jnp
import pytest

from everlight.continual.engine.tasks import init_learner
from everlight.continual.methods.registry import METHODS
from tests.contracts.strategies import CLASSES, DATA, KEY, STRATEGIES, build_with
from tests.refusals import refused

BY_THE_STEPS = {"PCR", "LUCIR", "PODNet", "WA"}
"""Methods that need a named head and do not read it when they begin."""
LINEAR = ("CoFiMA", "SLCA", "PASS", "FeTrIL", "expandable DER", "MEMO")
"""Methods that compute logits of features in memory, by `linear_head`."""
NAMES = {"CoFiMA": "SLCA", "expandable DER": "DER"}
"""Names in messages, where they are not the row's."""


def rows_with(requirement):
    return [
        name for name in STRATEGIES if name in METHODS and requirement in METHODS[name].requirements
    ]


@functools.cache
def strategy_and_learner(name):
    setup, strategy = build_with(f"{name}, refused", name)(DATA)
    return setup, strategy, jax.eval_shape(lambda key: init_learner(setup, CLASSES, key), KEY)


def begin(name, params):
    _, strategy, learner = strategy_and_learner(name)
    return jax.eval_shape(strategy.init, KEY, learner._replace(params=params))


@pytest.mark.parametrize(
    "name", [row for row in ("CWR", *rows_with("named head")) if row not in BY_THE_STEPS]
)
def test_a_network_without_a_layer_named_head_is_refused(name):
    params = dict(strategy_and_learner(name)[2].params)
    begin(name, params)
    params["out"] = params.pop("head")
    refused(r"\bout\b.*; (name|\S+ needs) ", lambda: begin(name, params))


@pytest.mark.parametrize("name", LINEAR)
def test_a_head_of_cosines_is_refused(name):
    params = strategy_and_learner(name)[2].params
    params = {**params, "head": {**params["head"], "scale": jnp.ones(())}}
    message = f"^the head computes cosines; {NAMES.get(name, name)} needs a linear layer named head"
    refused(message, lambda: begin(name, params))


@pytest.mark.parametrize("name", rows_with("layer inputs"))
def test_a_network_without_inputs_of_its_layers_is_refused(name):
    setup, _, _ = strategy_and_learner(name)
    message = (
        f"^{name} needs the inputs of every layer, but the setup has no layer_inputs; make it by "
        "flax_setup$"
    )
    refused(message, lambda: STRATEGIES[name].make(setup._replace(layer_inputs=None)))
