"""Continual backpropagation against the equations in float64 NumPy, on the same draws."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.base import Outputs
from everlight.continual.strategies.continual_backprop import continual_backprop, least_useful
from everlight.continual.strategies.parts.hidden_units import weights_of_units
from everlight.models import MLP, PlainCNN
from tests.continual.strategies.references import deep_net as net

ETA, MATURITY, RHO, STEPS = 0.7, 2, 0.15, 14
SETUP = net.deep_setup()


def official_steps(fresh, adaptable):
    """Return parameters, moments and records after every step, and the units replaced in it."""
    params, first, second = net.start()
    records = {
        name: {"u": np.zeros(width), "f": np.zeros(width), "a": np.zeros(width), "c": 0.0}
        for name, width in net.WIDTHS.items()
    }
    removed = []
    for step in range(STEPS):
        hidden = net.adam_step(params, first, second, step)
        chosen = {}
        for name, piece in records.items():
            values = hidden[name]
            piece["a"] += 1
            corrected = 1 - ETA ** piece["a"]
            piece["f"] = ETA * piece["f"] + (1 - ETA) * values.mean(axis=0)
            outgoing = np.abs(params[net.ABOVE[name]]["kernel"]).mean(axis=1)
            if adaptable:
                centered = np.abs(values - piece["f"] / corrected).mean(axis=0)
                new = outgoing * centered / np.abs(params[name]["kernel"]).mean(axis=0)
            else:
                new = outgoing * np.abs(values).mean(axis=0)
            piece["u"] = ETA * piece["u"] + (1 - ETA) * new
            mature = np.flatnonzero(piece["a"] > MATURITY)
            piece["c"] += RHO * len(mature)
            count = int(piece["c"])
            piece["c"] -= count
            ranked = mature[np.argsort((piece["u"] / corrected)[mature], kind="stable")]
            chosen[name] = ranked[:count]
        for name, units in chosen.items():
            net.replace(params, first, second, fresh[step], name, units, incoming_last=True)
            for part in "ufa":
                records[name][part][units] = 0
        removed.append(chosen)
    return params, first, second, records, removed


@pytest.mark.parametrize("utility", ["contribution", "adaptable contribution"])
def test_fourteen_steps_are_the_equations_in_float64(utility):
    strategy = continual_backprop(SETUP, net.LAYERS, RHO, ETA, MATURITY, utility)
    after, fresh = net.train_steps(strategy, SETUP, STEPS)
    *learned, records, removed = official_steps(fresh, utility != "contribution")
    both = [step for step in removed if all(len(units) for units in step.values())]
    assert both, "a weight between two new units must be tested"
    assert sum(len(units) for step in removed for units in step.values()) > 10
    memory, learner = after[-1]
    net.assert_learner_close(learner, *learned)
    for name, part in records.items():
        close = {"rtol": 2e-4, "atol": 2e-5}
        np.testing.assert_allclose(memory.utility[name], part["u"], **close)
        np.testing.assert_allclose(memory.mean_activation[name], part["f"], **close)
        np.testing.assert_array_equal(memory.age[name], part["a"])
        np.testing.assert_allclose(memory.due[name], part["c"], atol=1e-5)


def test_the_least_useful_mature_units_are_chosen():
    utility = jnp.array([0.3, 0.1, 0.2, 0.1, 0.0])
    mature = jnp.array([True, True, True, True, False])
    chosen = [np.flatnonzero(least_useful(utility, mature, jnp.float32(n))) for n in (0, 1, 3, 9)]
    assert [item.tolist() for item in chosen] == [[], [1], [1, 2, 3], [0, 1, 2, 3]]


@pytest.mark.parametrize(
    ("module", "shape", "name", "read"),
    [
        # A head of three reads five units; five read four with two parts;
        # seven read five channels of 2x2 pixels.
        (MLP(3, (4, 5)), (6,), "hidden2", 5 * 3),
        (MLP(3, (4, 5), crelu=True), (6,), "hidden1", 4 * 2 * 5),
        (PlainCNN(3, (4, 5), 7), (8, 8, 2), "convolution2", 5 * 2 * 2 * 7),
    ],
)
def test_units_without_outgoing_weights_have_no_effect(module, shape, name, read):
    inputs = jax.random.normal(jax.random.key(1), (16, *shape))
    params = module.init(jax.random.key(2), inputs, False)["params"]
    layers = tuple(item for item in params if item != "head")
    assert {*module.apply({"params": params}, inputs, False).hidden} == {*layers}
    everyone = {item: jnp.full(params[item]["bias"].shape, item == name) for item in layers}
    result = weights_of_units(params, layers, everyone)
    assert sum(int(jnp.sum(leaf)) for leaf in jax.tree.leaves(result.outgoing)) == read
    one = {item: part & (jnp.arange(len(part)) == 1) for item, part in everyone.items()}
    result = weights_of_units(params, layers, one)
    without = jax.tree.map(
        lambda current, leaf: jnp.where(current, 0, leaf), result.outgoing, params
    )
    other = jax.tree.map(
        lambda current, leaf: jnp.where(current, leaf + 9, leaf), result.incoming, without
    )

    def logits(params):
        return module.apply({"params": params}, inputs, False).logits

    np.testing.assert_array_equal(logits(other), logits(without))
    assert np.abs(logits(without) - logits(params)).max() > 1e-3
    # Incoming weights are a kernel's of one unit and its bias.
    kernel = params[name]["kernel"]
    taken = sum(int(jnp.sum(leaf)) for leaf in jax.tree.leaves(result.incoming))
    assert taken == kernel.size // kernel.shape[-1] + 1


def test_a_network_without_activations_or_with_other_layers_is_refused():
    with pytest.raises(ValueError, match=r"the parameters are one, two, head.*before a layer name"):
        net.train_steps(continual_backprop(SETUP, ("three",)), SETUP, 1)

    def apply(*arguments):
        outputs, stats = SETUP.apply(*arguments)
        return Outputs(outputs.logits, outputs.features), stats

    bare = SETUP._replace(apply=apply)
    with pytest.raises(ValueError, match=r"no activations of one, two; give `Outputs.hidden`"):
        net.train_steps(continual_backprop(bare, net.LAYERS), bare, 1)
