"""The layers that strategies read by name are found in networks of any kind."""

import flax.linen as nn
import pytest
from flax import nnx

from everlight.continual import Outputs
from everlight.continual.training.adapted_net import NamedLayers, check_outputs
from everlight.models import MLP, CosineHead, PlainCNN

WIDTHS = {"zeta": 6, "alpha": 6, "hidden10": 6, "hidden2": 6}
"""Layers in the order of their computation, which is that of no sorting."""


class Chain(nn.Module):
    """The widths as a chain; `form` changes what is returned or what stands between."""

    form: str = "whole"

    @nn.compact
    def __call__(self, values, train):
        hidden = {}
        for name, width in WIDTHS.items():
            values = hidden[name] = nn.relu(nn.Dense(width, name=name)(values))
        if self.form == "one is not returned":
            del hidden["alpha"]
        if self.form == "a mean is returned":
            hidden["alpha"] = hidden["alpha"].mean(axis=-1, keepdims=True)
        if self.form == "a layer between":
            values = nn.LayerNorm(name="norm")(values)
        if self.form == "another width":
            values = nn.relu(nn.Dense(5, name="narrow")(values[:, :4]))
            hidden["narrow"] = values
        head = CosineHead(3, name="head") if self.form == "cosines" else nn.Dense(3, name="head")
        return Outputs(head(values), values, hidden)


class NnxChain(nnx.Module):
    def __init__(self, rngs):
        self.alpha = nnx.Linear(6, 6, rngs=rngs)
        self.zeta = nnx.Linear(4, 6, rngs=rngs)
        self.head = nnx.Linear(6, 3, rngs=rngs)

    def __call__(self, values):
        first = nnx.relu(self.zeta(values))
        second = nnx.relu(self.alpha(first))
        return Outputs(self.head(second), second, {"zeta": first, "alpha": second})


def equinox_chain(key):
    import equinox as eqx
    import jax

    class Module(eqx.Module):
        zeta: eqx.nn.Linear
        alpha: eqx.nn.Linear
        head: eqx.nn.Linear

        def __call__(self, values):
            first = jax.nn.relu(self.zeta(values))
            second = jax.nn.relu(self.alpha(first))
            return Outputs(self.head(second), second, {"zeta": first, "alpha": second})

    keys = jax.random.split(key, 3)
    sizes = ((4, 6), (6, 6), (6, 3))
    return Module(*(eqx.nn.Linear(*size, key=part) for size, part in zip(sizes, keys, strict=True)))


@pytest.mark.parametrize(
    ("form", "result"),
    [
        ("whole", (True, tuple(WIDTHS))),
        ("one is not returned", (True, ())),
        ("a mean is returned", (True, ())),
        ("a layer between", (True, ())),
        ("another width", (True, ())),
        ("cosines", (False, ())),
    ],
)
def test_layers_of_a_linen_chain_are_in_the_order_of_their_activations(form, result):
    assert check_outputs(Chain(form), (4,), 3) == NamedLayers(*result)


@pytest.mark.parametrize(
    ("net", "layers"),
    [
        (MLP(3, (5, 4)), ("hidden1", "hidden2")),
        (PlainCNN(3, (4, 4), 6), ("convolution1", "convolution2", "hidden")),
    ],
    ids=["mlp", "cnn"],
)
def test_layers_of_built_in_networks_are_those_that_their_rows_name(net, layers):
    assert check_outputs(net, (8, 8, 1), 3) == NamedLayers(True, layers)


@pytest.mark.parametrize("net", [NnxChain, equinox_chain])
def test_layers_of_other_chains_are_in_the_order_of_their_activations_or_attributes(net):
    pytest.importorskip("equinox", reason="Equinox is not installed (the extra equinox)")
    assert check_outputs(net, (4,), 3) == NamedLayers(True, ("zeta", "alpha"))


def test_a_network_without_a_layer_named_head_has_none():
    class Logits(nn.Module):
        @nn.compact
        def __call__(self, values, train):
            return nn.Dense(3)(values)

    assert check_outputs(Logits(), (4,), 3) == NamedLayers(False, ())
