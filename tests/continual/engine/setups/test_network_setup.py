"""Networks of NNX and Equinox compared with the same ones of linen, which has tests of its own."""

import re
from dataclasses import replace
from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx

from everlight.continual import strategies, train
from everlight.continual.engine import Protocol, Run, network_setup, run_sequence
from everlight.continual.engine.setups.equinox_setup import import_equinox
from everlight.continual.engine.setups.network_setup import random_argument
from everlight.continual.engine.tasks import init_learner
from everlight.continual.objectives import softmax_objective
from everlight.metrics import diagnose_plasticity
from everlight.models import with_xavier
from everlight.scenarios import class_incremental
from everlight_data.runs.checkpoints import Checkpoints
from tests.refusals import refused
from tests.single_run import drive_run

pytest.importorskip("equinox", reason="Equinox is not installed (the extra equinox)")

from tests.continual.engine.setups import network_kinds as kinds

KINDS = ("linen", "nnx", "equinox")
STRATEGIES = {
    "naive": strategies.naive,
    "EWC": lambda setup: strategies.ewc(setup, 2.0, importance_samples=8),
    "ER": lambda setup: strategies.experience_replay(setup, 8),
}
LABELS = np.arange(kinds.NUMBER) % kinds.CLASSES
SEQUENCE = class_incremental(LABELS[:48], LABELS[48:], [[0, 1], [2, 3]], 4, valid_fraction=0.0)
PROTOCOL = Protocol(epochs=2, batch_size=8, select="last")


def run_of(kind, strategy, key=7, **changes):
    def build(stored):
        setup = kinds.setup_of(kind, stored)._replace(**changes)
        return setup, STRATEGIES[strategy](setup)

    return Run(build, PROTOCOL, kinds.STORED, SEQUENCE, jax.random.key(key))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_same_network_of_every_kind_has_the_same_losses(strategy):
    results = {kind: jax.jit(run_sequence)(run_of(kind, strategy)) for kind in KINDS}
    expected = results.pop("linen")
    assert np.ptp(expected.losses) > 0.1
    for actual in results.values():
        np.testing.assert_allclose(actual.losses, expected.losses, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(
            actual.evaluation.class_incremental, expected.evaluation.class_incremental
        )
        # Linen's layout has kernels [inputs, outputs] by the names of layers.
        close = partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5)
        jax.tree.map(close, actual.learner.params, expected.learner.params)


@pytest.mark.parametrize("kind", ["nnx", "equinox"])
def test_a_run_resumed_from_a_checkpoint_has_the_same_bits(kind, tmp_path):
    run = run_of(kind, "ER")
    states = list(drive_run(run))
    assert len(states) == 4
    Checkpoints(tmp_path).save(1, states[1])
    restored = Checkpoints(tmp_path).restore(1, like=states[0]).state
    *_, again = drive_run(run, state=restored)
    jax.tree.map(np.testing.assert_array_equal, again.result, states[-1].result)


@pytest.mark.parametrize("kind", ["nnx", "equinox"])
def test_vmapped_seeds_are_the_single_runs(kind):
    run = run_of(kind, "naive")
    many = jax.jit(jax.vmap(lambda key: run_sequence(replace(run, key=key)).losses))
    result = many(jnp.stack([jax.random.key(7), jax.random.key(8)]))
    for row, key in zip(result, (7, 8), strict=True):
        one = jax.jit(run_sequence)(run_of(kind, "naive", key)).losses
        np.testing.assert_allclose(row, one, rtol=1e-5, atol=1e-6)
    assert np.abs(result[0] - result[1]).max() > 1e-3


def made_by(net, **options):
    return network_setup(net, kinds.STORED, softmax_objective(), optax.sgd(0.1), **options)


def test_networks_start_from_every_key_and_have_the_names_of_attributes():
    for net in kinds.DROPOUT.values():
        setup = made_by(net)
        first, stats = setup.init(jax.random.key(0))
        second, _ = jax.jit(setup.init)(jax.random.key(1))
        again, _ = jax.jit(setup.init)(jax.random.key(0))
        assert stats == {}
        assert first["layers"]["0"]["kernel"].shape == (kinds.INPUTS, kinds.HIDDEN)
        assert first["head"]["kernel"].shape == (kinds.HIDDEN, kinds.CLASSES)
        assert np.all(np.asarray(first["head"]["kernel"] != second["head"]["kernel"]))
        jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-6), first, again)


@pytest.mark.parametrize("kind", KINDS)
def test_batch_statistics_equal_a_computation_by_hand(kind):
    """Two steps are computed in float64; evaluation does not change the statistics."""
    setup = made_by(kinds.NORMS[kind])
    params, stats = setup.init(jax.random.key(3))
    mean, variance = np.zeros(kinds.HIDDEN), np.ones(kinds.HIDDEN)
    kernel, bias = (np.float64(params["hidden1"][name]) for name in ("kernel", "bias"))
    for start in (0, 8):
        inputs = setup.gather(jnp.arange(start, start + 8), None)
        outputs, stats = jax.jit(setup.apply, static_argnums=3)(
            params, stats, inputs, True, jax.random.key(0)
        )
        rows = np.float64(inputs) @ kernel + bias
        expected = (rows - rows.mean(axis=0)) / np.sqrt(rows.var(axis=0) + 1e-5)
        np.testing.assert_allclose(outputs.features, np.maximum(expected, 0), atol=1e-4)
        mean = 0.9 * mean + 0.1 * rows.mean(axis=0)
        variance = 0.9 * variance + 0.1 * rows.var(axis=0)
    if kind == "equinox":
        # Equinox divides both averages by 1 - 0.9 ** steps where it reads them.
        mean, variance = mean / (1 - 0.9**2), variance / (1 - 0.9**2)
    outputs, after = setup.apply(params, stats, inputs, False, None)
    expected = np.maximum((rows - mean) / np.sqrt(variance + 1e-5), 0)
    np.testing.assert_allclose(outputs.features, expected, rtol=1e-4, atol=1e-4)
    jax.tree.map(np.testing.assert_array_equal, after, stats)


@pytest.mark.parametrize("kind", KINDS)
def test_batch_statistics_are_carried_from_step_to_step(kind):
    def build(stored):
        setup = network_setup(kinds.NORMS[kind], stored, softmax_objective(), optax.sgd(0.1))
        return setup, strategies.naive(setup)

    run = Run(build, PROTOCOL, kinds.STORED, SEQUENCE, jax.random.key(1))
    result = jax.jit(run_sequence)(run)
    begun = build(kinds.STORED)[0].init(jax.random.key(1))[1]
    leaves = zip(jax.tree.leaves(begun), jax.tree.leaves(result.learner.batch_stats), strict=True)
    for before, after in leaves:
        assert before.dtype == after.dtype
        assert np.all(np.asarray(before != after))
    assert np.isfinite(result.losses).all()


@pytest.mark.parametrize("kind", kinds.DROPOUT)
def test_dropout_is_drawn_by_the_step_s_key_and_in_training_alone(kind):
    setup = made_by(kinds.DROPOUT[kind])
    params, stats = setup.init(jax.random.key(0))
    layer, head = params["layers"]["0"], params["head"]
    units = np.asarray(kinds.DATA) @ layer["kernel"] + layer["bias"]
    most = int((units > 0).sum(axis=1).argmax())
    inputs = jnp.tile(kinds.DATA[most], (32, 1))
    plain, _ = setup.apply(params, stats, inputs, False, None)
    hidden = np.maximum(np.tile(units[most], (32, 1)), 0)
    np.testing.assert_allclose(plain.logits, hidden @ head["kernel"] + head["bias"], rtol=1e-5)
    np.testing.assert_array_equal(plain.logits, plain.features)
    drawn = [setup.apply(params, stats, inputs, True, jax.random.key(n))[0].logits for n in (0, 1)]
    again = setup.apply(params, stats, inputs, True, jax.random.key(0))[0].logits
    np.testing.assert_array_equal(drawn[0], again)
    assert np.any(drawn[0] != drawn[1])
    # Every sample has a mask of its own.
    assert len(np.unique(np.asarray(drawn[0])[:, 0])) > 2


@pytest.mark.parametrize("kind", ["nnx", "equinox"])
def test_the_setup_determines_frozen_parts_features_and_measures(kind):
    def trainable(params):
        return jax.tree.map(lambda leaf: False, params) | {"head": {"kernel": True, "bias": True}}

    def measure(params, outputs):
        return diagnose_plasticity(params, outputs._replace(hidden={"hidden1": outputs.features}))

    run = run_of(kind, "naive", trainable=trainable, measure=measure)
    result = jax.jit(run_sequence)(run)
    trained, begun = result.learner.params, kinds.WEIGHTS
    jax.tree.map(np.testing.assert_array_equal, trained["hidden1"], begun["hidden1"])
    assert np.all(np.asarray(trained["head"]["bias"] != begun["head"]["bias"]))
    norm = np.sqrt(sum(np.sum(np.float64(leaf) ** 2) for leaf in jax.tree.leaves(trained)))
    np.testing.assert_allclose(result.evaluation.measured.weight_norm[-1], norm, rtol=1e-5)


@pytest.mark.parametrize("kind", ["nnx", "equinox"])
@pytest.mark.parametrize(
    "strategy",
    [
        lambda setup: strategies.packnet(setup, 0.5, 1, 8),
        lambda setup: strategies.hat(setup, 2, ("hidden1",)),
        lambda setup: strategies.cwr(setup),
    ],
    ids=["PackNet", "HAT", "CWR"],
)
def test_strategies_read_layers_by_name(kind, strategy):
    def losses(kind):
        def build(stored):
            setup = kinds.setup_of(kind, stored)
            return setup, strategy(setup)

        run = Run(build, PROTOCOL, kinds.STORED, SEQUENCE, jax.random.key(4))
        return jax.jit(run_sequence)(run).losses

    np.testing.assert_allclose(losses(kind), losses("linen"), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["nnx", "equinox"])
def test_missing_parts_of_a_network_are_refused_in_one_line(kind):
    setup = kinds.setup_of(kind)
    refused(r"^GPM needs [^\n]*; make it by flax_setup$", lambda: strategies.gpm(setup))

    def headless():
        net = {"nnx": lambda rngs: nnx.Linear(3, 4, rngs=rngs)}.get(kind)
        return made_by(net or (lambda key: import_equinox().nn.Linear(3, 4, key=key)))

    learner = init_learner(headless(), 4, jax.random.key(0))
    for strategy in (
        strategies.packnet,
        strategies.cwr,
        lambda setup: strategies.hat(setup, 2, ("a",)),
    ):
        with pytest.raises(ValueError, match=r"^the parameters are [^\n]*$"):
            strategy(headless()).init(jax.random.key(0), learner)

    def build(stored):
        return headless(), strategies.lucir(headless(), 2)

    run = Run(build, PROTOCOL, kinds.STORED, SEQUENCE, jax.random.key(0))
    refused("name the network's last layer head", lambda: jax.eval_shape(run_sequence, run))


def test_kernels_of_every_kind_can_be_drawn_as_xavier_s():
    drawn = [with_xavier(kinds.setup_of(kind)).init(jax.random.key(5))[0] for kind in KINDS]
    jax.tree.map(np.testing.assert_array_equal, *drawn[:2])
    jax.tree.map(np.testing.assert_array_equal, *drawn[1:])

    class Scale(nnx.Module):
        def __init__(self, rngs):
            self.scale = nnx.Param(jnp.ones(3))

        def __call__(self, images):
            return images * self.scale.value

    with pytest.raises(ValueError, match="the parameters are scale, none of them a kernel; give"):
        with_xavier(made_by(Scale)).init(jax.random.key(0))


def test_convolutions_of_equinox_have_linen_s_kernels():
    eqx = import_equinox()
    images = np.random.default_rng(0).normal(size=(3, 6, 5, 4)).astype(np.float32)

    def make(key):
        conv = eqx.nn.Conv2d(4, 6, 3, padding=1, groups=2, key=key)
        move = eqx.nn.Lambda(lambda image: jnp.moveaxis(image, -1, 0))
        return eqx.nn.Sequential(
            [move, conv, eqx.nn.Lambda(lambda maps: jnp.moveaxis(maps, 0, -1))]
        )

    stored = kinds.StoredImages.of(images, jnp.float32(0), jnp.float32(1))
    setup = network_setup(make, stored, softmax_objective(), optax.sgd(0.1))
    params, _ = setup.init(jax.random.key(0))
    layer = params["layers"]["1"]
    assert layer["kernel"].shape == (3, 3, 2, 6)
    linen = nn.Conv(6, (3, 3), feature_group_count=2)
    current = {"kernel": layer["kernel"], "bias": layer["bias"][:, 0, 0]}
    expected = linen.apply({"params": current}, images)
    result, _ = setup.apply(params, {}, jnp.asarray(images), False, None)
    np.testing.assert_allclose(result.logits, expected, atol=1e-5)


class Buffered(nnx.Module):
    def __init__(self, rngs):
        self.layer = nnx.Linear(kinds.INPUTS, kinds.CLASSES, rngs=rngs)
        self.seen = nnx.Cache(jnp.zeros(2))

    def __call__(self, images):
        return self.layer(images)


def equinox_with(value):
    eqx = import_equinox()

    class Holding(eqx.Module):
        value: object

        def __call__(self, image):
            return image

    return lambda key: Holding(value)


class Two(nnx.Module):
    def __init__(self, width, rngs, depth=1):
        self.width = width


@pytest.mark.parametrize(
    ("net", "argument"),
    [
        (partial(Two, 3), "rngs"),
        (partial(Two, width=3, depth=2), "rngs"),
        (partial(lambda width, key: width, 3), "key"),
        (partial(lambda key, rngs: key, rngs=None), "key"),
    ],
)
def test_a_partial_takes_the_argument_that_it_does_not_pass(net, argument):
    assert random_argument(net) == argument


def two_axes(key):
    eqx = import_equinox()
    return eqx.nn.make_with_state(eqx.nn.Sequential)(
        [eqx.nn.BatchNorm(3, name, mode="batch") for name in ("one", "two")]
    )


@pytest.mark.parametrize(
    ("net", "message"),
    [
        (Buffered, r"the module's seen is Cache; give variables that are nnx.Param \(trained\) or"),
        (lambda rngs: 3, "function of rngs returned int; give one that returns an nnx.Module"),
        (lambda key: nn.Dense(3), "function of key returned Dense; give one that returns an equi"),
        (equinox_with(jnp.arange(3)), r"the module's value is int32\[3\], which cannot be trained"),
        (two_axes, "batch norms have the axes one, two; give all one name, as in axis_name="),
        (lambda: 3, "without the argument rngs or key; give a linen module, a function of rngs"),
        (lambda rngs, key: 3, "without the argument rngs or key; give a linen module"),
    ],
)
def test_other_objects_than_networks_are_refused_in_one_line(net, message):
    refused(message, lambda: made_by(net))


def test_modules_are_refused_with_the_functions_to_give_instead():
    message = r"net is a module, NnxMLP; give .* lambda rngs: Net\(rngs=rngs"
    test_other_objects_than_networks_are_refused_in_one_line(kinds.NnxMLP(nnx.Rngs(0)), message)
    message = r"a module, EquinoxMLP; give .* lambda key: Net\(key"
    net = kinds.EquinoxMLP(jax.random.key(0))
    test_other_objects_than_networks_are_refused_in_one_line(net, message)


def test_a_missing_equinox_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "equinox", None)
    with pytest.raises(ImportError, match=re.escape("pip install 'everlight[equinox]'")):
        made_by(lambda key: None)


@pytest.mark.parametrize("net", [kinds.NnxMLP, kinds.EquinoxMLP])
def test_train_takes_networks_of_every_kind(net):
    images = np.asarray(kinds.DATA) + 3 * np.eye(4)[LABELS][:, :3]
    result = train(net, images, LABELS, strategies.naive, 2, seeds=2, epochs=1, batch_size=8)
    kernels = result.learner.params["head"]["kernel"]
    assert kernels.shape == (2, kinds.HIDDEN, kinds.CLASSES)
    assert np.all(np.asarray(kernels[0] != kernels[1]))
    assert result.predict(images[:3]).shape == (2, 3, kinds.CLASSES)


def test_train_refuses_an_equinox_network_with_the_form_to_give():
    def net(key):
        return import_equinox().nn.Linear(2, 4, key=key)

    message = r"called with images of shape \(3,\) \(.*function of key that returns an Equinox"
    refused(message, lambda: train(net, np.asarray(kinds.DATA), LABELS, strategies.naive, 2))
