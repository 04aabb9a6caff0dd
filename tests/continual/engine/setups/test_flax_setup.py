"""The setup of a Flax module: what is gathered, and when it is augmented."""

from functools import partial

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from everlight.base import Outputs
from everlight.continual.engine import Run, flax_setup, run_sequence
from everlight.continual.engine.sources import StoredImages, StreamedImages
from everlight.continual.engine.tasks import init_learner
from everlight.continual.objectives.softmax import (
    softmax_objective,
)
from everlight.continual.strategies.parts.importance import fisher_diagonal
from everlight.models import MLP, PlainCNN
from everlight.models.layers.convolution import convolve, patches
from everlight.scenarios.class_incremental import class_incremental
from tests.continual.engine.setups.image_strategies import PROTOCOL, STRATEGIES
from tests.refusals import refused
from tests.single_run import drive_run

IMAGES = np.random.default_rng(0).integers(0, 256, (6, 4, 4, 3), np.uint8)
MEAN, DEVIATION = np.array([120.0, 110, 100]), np.array([60.0, 50, 40])
STORED = StoredImages.of(jnp.asarray(IMAGES), jnp.float32(MEAN), jnp.float32(DEVIATION))


class Net(nn.Module):
    """Its feature is the mean of what comes in."""

    @nn.compact
    def __call__(self, images, train):
        features = jnp.mean(images, axis=(1, 2))
        return Outputs(nn.Dense(2)(features), features)


def setup_with(augment=None):
    return flax_setup(Net(), STORED, softmax_objective(), optax.sgd(0.1), augment)


def test_images_are_normalized_by_channel():
    result = setup_with().gather(jnp.array([4, 1]), jax.random.key(0))
    expected = (IMAGES[[4, 1]].astype(np.float64) - MEAN) / DEVIATION
    np.testing.assert_allclose(result, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    ("shape", "pieces"),
    [((4, 4, 3), (8, 6)), ((5, 5, 3), (1, 75)), ((6,), (2, 3)), ((16,), (8, 2)), ((), (1, 1))],
)
def test_images_stored_in_pieces_keep_their_values(shape, pieces):
    images = np.random.default_rng(3).integers(0, 256, (6, *shape), np.uint8)
    stored = StoredImages.of(images, jnp.float32(3), jnp.float32(2))
    assert (stored.shape, stored.pieces.shape) == (shape, (6, *pieces))
    np.testing.assert_array_equal(stored.images, images)
    np.testing.assert_array_equal(stored.take(jnp.array([4, 1]), None), images[[4, 1]])
    again = jax.tree.map(lambda leaf: leaf, stored.with_images(images[:2]))
    assert (again.mean, again.deviation) == (3, 2)
    np.testing.assert_array_equal(again.images, images[:2])
    assert jax.tree.structure(again) == jax.tree.structure(stored)


@pytest.mark.parametrize(
    ("mean", "deviation", "message"),
    [
        (3, 2, r"deviation is float32\[2\].*mean float32\[3\]"),
        # Two channels broadcast against neither three nor one, which JAX would say much later.
        (2, 2, r"StoredImages\.of: mean has shape \(2,\)"),
    ],
)
def test_channels_that_do_not_fit_are_refused(mean, deviation, message):
    with pytest.raises(ValueError, match=message):
        StoredImages.of(IMAGES, jnp.zeros(mean), jnp.ones(deviation))


def test_a_number_normalizes_all_channels():
    stored = StoredImages.of(IMAGES, mean=3.0, deviation=2.0)
    setup = flax_setup(Net(), stored, softmax_objective(), optax.sgd(0.1))
    np.testing.assert_array_equal(setup.gather(jnp.array([4]), None)[0], (IMAGES[4] - 3.0) / 2)


def test_a_module_without_a_training_mode_is_refused():
    class Plain(nn.Module):
        @nn.compact
        def __call__(self, images):
            return nn.Dense(2)(images)

    message = r"net is Plain, which cannot be called as net\(images, train\).*add the argument"
    refused(message, lambda: flax_setup(Plain(), STORED, softmax_objective(), optax.sgd(0.1)))


def test_training_images_alone_are_augmented_each_by_its_own_key():
    def shifted(image, key):
        return image + jax.random.randint(key, (), 1, 200).astype(jnp.uint8)

    setup, index = setup_with(shifted), jnp.array([2, 2, 2])
    plain = setup.gather(index, None)
    np.testing.assert_array_equal(plain, setup_with().gather(index, jax.random.key(1)))
    changed = np.asarray(setup.gather(index, jax.random.key(1)))
    assert len(np.unique(changed[:, 0, 0, 0])) == 3
    assert np.all(np.any(changed != plain, axis=(1, 2, 3)))


# --- Streamed from the host ---------------------------------------------------------------------


def read(index, keys=None):
    """Return the stored images, in training shifted by each sample's key."""
    assert isinstance(index, np.ndarray)
    images = IMAGES[index]
    if keys is None:
        return images
    assert isinstance(keys, np.ndarray)
    return images + (keys[..., -1] % 199 + 1).astype(np.uint8)[..., None, None, None]


def streamed_setup(function):
    source = StreamedImages(function, IMAGES.shape[1:], STORED.mean, STORED.deviation)
    return flax_setup(Net(), source, softmax_objective(), optax.sgd(0.1))


def test_streamed_images_are_read_by_place_and_key():
    setup, index = streamed_setup(read), jnp.array([4, 1, 1])
    gather = jax.jit(setup.gather)
    plain = setup_with().gather(index, None)
    np.testing.assert_array_equal(gather(index, None), plain)
    key = jax.random.key(7)
    words = jax.random.key_data(jax.random.split(key, 3))
    expected = (read(np.array([4, 1, 1]), np.asarray(words)).astype(np.float64) - MEAN) / DEVIATION
    np.testing.assert_allclose(gather(index, key), expected, rtol=1e-6, atol=1e-6)
    assert np.any(expected[1] != expected[2])


def test_a_vmapped_step_reads_once():
    calls = []

    def counted(index, keys=None):
        calls.append(index.shape)
        return read(index, keys)

    gather = jax.jit(jax.vmap(streamed_setup(counted).gather, (None, 0)))
    keys, index = jax.random.split(jax.random.key(0), 3), jnp.array([5, 0])
    result = gather(index, keys)
    assert calls == [(3, 2)]
    for images, key in zip(result, keys, strict=True):
        np.testing.assert_array_equal(images, streamed_setup(read).gather(index, key))


MANY = np.random.default_rng(1).integers(0, 256, (60, 4, 4, 3), np.uint8)
SEQUENCE = class_incremental(np.arange(48) % 4, np.arange(12) % 4, ((0, 2), (1, 3)), 4, 0.25)


def read_stored(index, keys=None):
    return MANY[index]


def build_from(name, read=None):
    objective, strategy = STRATEGIES[name]

    def build(data):
        images, *channels = data
        source = StoredImages.of(images, *channels)
        if read is not None:
            source = StreamedImages(read, (4, 4, 3), *channels)
        setup = flax_setup(MLP(4, (5,)), source, objective, optax.sgd(0.1))
        return setup, strategy(setup)

    return build


DATA = (jnp.asarray(MANY), STORED.mean, STORED.deviation)


def driven(name, read=None, announce=None):
    parts = (build_from(name, read), PROTOCOL, DATA, SEQUENCE, jax.random.key(3))
    return list(drive_run(Run(*parts), announce=announce))[-1].result


def test_the_order_of_every_epoch_is_announced_before_it_is_read():
    events, unread = [], []

    def announce(order):
        assert not unread
        events.append(order)
        unread.extend(order.tolist())

    def read(index, keys=None):
        if keys is not None:
            # A partial batch is filled up with the epoch's first samples.
            new = [unread.pop(0) for _ in index[: len(unread)]]
            assert index[: len(new)].tolist() == new
        return MANY[index]

    result = driven("experience replay", read, announce)
    assert np.all(np.isfinite(result.losses))
    # The task has 18 samples, later two exemplars of each of two classes beside them.
    assert [len(order) for order in events] == [18, 18, 22, 22]
    index, mask = np.asarray(SEQUENCE.tasks.train.index), np.asarray(SEQUENCE.tasks.train.mask)
    for task in range(2):
        first, second = events[2 * task : 2 * task + 2]
        assert set(index[task][mask[task]]) <= set(first)
        np.testing.assert_array_equal(np.sort(first), np.sort(second))
        assert np.any(first != second)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["experience replay", "icarl"])
def test_a_driven_sequence_is_the_same_streamed(name):
    """Validation, herding, replay and evaluation stream too."""
    close = partial(np.testing.assert_allclose, rtol=1e-5, atol=1e-6)
    jax.tree.map(close, driven(name, read_stored), driven(name))


def test_importance_takes_streamed_samples_in_vmapped_chunks():
    task = jax.tree.map(lambda leaf: leaf[0], SEQUENCE.tasks)

    def importance(read):
        setup, _ = build_from("ewc", read)(DATA)
        learner = init_learner(setup, 4, jax.random.key(0))._replace(seen=task.classes)
        return fisher_diagonal(setup, learner, task.train, 12, jax.random.key(1), 3)

    streamed, stored = (jax.jit(importance, static_argnums=0)(read) for read in (read_stored, None))
    jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-7), streamed, stored)
    assert np.max(stored["head"]["kernel"]) > 1e-4


@pytest.mark.slow
def test_a_compiled_vmapped_sequence_is_the_same_streamed():
    def run(read=None):
        build = build_from("ewc", read)

        def one(key):
            return run_sequence(Run(build, PROTOCOL, DATA, SEQUENCE, key))

        return jax.jit(jax.vmap(one))(jax.random.split(jax.random.key(3)))

    close = partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5)
    jax.tree.map(close, run(read_stored), run())


class CalledTwice(nn.Module):
    """A layer that multiplies its own outputs too, and a head."""

    @nn.compact
    def __call__(self, images, train):
        layer = nn.Dense(3, name="layer")
        features = layer(layer(jnp.mean(images, axis=(1, 2))))
        return Outputs(nn.Dense(2, name="head")(features), features)


def layer_inputs_of(net):
    """Return logits, and each kernel's inputs with its kernel as a matrix and its bias."""
    setup = flax_setup(net, STORED, softmax_objective(), optax.sgd(0.1))
    params, batch_stats = setup.init(jax.random.key(0))
    images = setup.gather(jnp.arange(6), None)
    result = setup.layer_inputs(params, batch_stats, images)
    layers = {}
    for (name, leaf), rows in result.items():
        kernel = np.float64(params[name][leaf])
        matrix = kernel.reshape(-1, kernel.shape[-1])
        layers[name] = np.float64(rows), matrix, np.float64(params[name]["bias"])
    return setup.apply(params, batch_stats, images, False, None)[0].logits, layers


def test_every_layer_multiplies_the_inputs_that_the_setup_gives():
    logits, layers = layer_inputs_of(PlainCNN(5, (4,), 7))
    assert {name: rows.shape for name, (rows, *_) in layers.items()} == {
        "convolution1": (6, 16, 27),
        "hidden": (6, 1, 16),
        "head": (6, 1, 7),
    }
    outputs = {name: rows @ matrix + bias for name, (rows, matrix, bias) in layers.items()}
    maps = np.maximum(outputs["convolution1"], 0).reshape(6, 2, 2, 2, 2, 4).max(axis=(2, 4))
    np.testing.assert_allclose(layers["hidden"][0][:, 0], maps.reshape(6, -1), atol=1e-5)
    np.testing.assert_allclose(layers["head"][0], np.maximum(outputs["hidden"], 0), atol=1e-5)
    np.testing.assert_allclose(outputs["head"][:, 0], logits, atol=1e-5)


def test_a_layer_that_is_called_twice_has_the_inputs_of_both_calls():
    rows, matrix, bias = layer_inputs_of(CalledTwice())[1]["layer"]
    assert rows.shape == (6, 2, 3)
    np.testing.assert_allclose(rows[:, 1], rows[:, 0] @ matrix + bias, atol=1e-5)


@pytest.mark.parametrize("stride", [1, 2])
def test_patches_times_a_kernel_are_a_convolution(stride):
    rng = np.random.default_rng(0)
    images, kernel = rng.normal(size=(2, 5, 4, 3)), rng.normal(size=(3, 3, 3, 2))
    images, kernel = jnp.float32(images), jnp.float32(kernel)
    result = patches(images, 3, stride) @ kernel.reshape(-1, 2)
    np.testing.assert_allclose(result, convolve(images, kernel, stride), atol=1e-5)
