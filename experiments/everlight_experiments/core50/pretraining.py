"""Beginnings that all methods share: frames, a network's weights, its frozen trunk's features."""

import dataclasses
import zlib
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from everlight.continual import (
    Protocol,
    Samples,
    Setup,
    StoredImages,
    Strategy,
    fixed_test_objective,
    flax_setup,
    naive,
    sample_features,
)
from everlight.continual.engine.tasks import init_learner
from everlight.models.caffe_nets import (
    BGR_MEAN,
    CAFFE_HEAD,
    VGG_HEAD,
    LinearClassifier,
    MidCaffeNet,
    MidVGG,
    with_weights,
)
from everlight.models.small_cnn import SmallCNN
from everlight.scenarios import class_incremental
from everlight.scenarios.core50 import TEST_SESSIONS
from everlight_data.errors import DataError, MissingDataError
from everlight_data.images.as_inputs import store_images
from everlight_data.images.caffe_weights import load_caffe_weights
from everlight_data.images.core50 import Core50, load_core50
from everlight_data.images.core50_release import count_frames
from everlight_data.procedural.core50 import WORLD, load_procedural_core50
from everlight_data.procedural.world import load_procedural
from everlight_experiments.common.many_runs import (
    DIVERGED_AT,
    Unit,
    refuse_diverged,
    train_units,
)
from everlight_experiments.common.run_folder import RunFolder
from everlight_experiments.core50.config import Base

OTHER_WORLD = 1_000
"""Number added to the seed of the world whose objects the small network is pretrained on."""
DRAWN_DEVIATION = 64.0
"""Approximate standard deviation of the channels, 0 to 255."""
AT_ONCE = 128
"""Frames in one pass through the frozen trunk."""
CAFFE_NETS = {"Mid-CaffeNet": MidCaffeNet, "Mid-VGG": MidVGG}
SMALLEST_SIDE = 48
"""Smallest side of the images, in pixels, that the paper's networks are given."""

Layers = dict[str, dict[str, Array]]


class Beginning(NamedTuple):
    """Weights that all methods start from, and the frames on the device as networks read them."""

    layers: Layers
    """Weights of all layers but the head."""
    stored: StoredImages
    source: str
    """Source of the weights, for the report."""

    @property
    def fingerprint(self) -> int:
        """Checksum of the weights."""
        leaves = jax.tree.leaves(self.layers)
        return zlib.crc32(b"".join(np.asarray(leaf).tobytes() for leaf in leaves))


class TrunkFeatures(NamedTuple):
    """Features of every frame by the frozen trunk."""

    values: Float[Array, "n f"]
    operations: float
    """Floating-point operations per frame."""


def load_frames(config: Base, seed: int) -> Core50:
    """Return the frames of a configuration; those of an incomplete release only if it permits.

    Raises:
      DataError: no frame at all of an object in a session, named.
    """
    if config.data == "procedural":
        return load_procedural_core50(config.frames, WORLD._replace(size=config.side, seed=seed))
    frames = load_core50(config.side, partial=config.partial)
    counts = count_frames(frames.session, frames.object)
    absent = np.argwhere(counts == 0)
    if len(absent):
        session, number = 1 + absent[0]
        raise DataError(
            f"{frames.name}: no frame in {len(absent)} of {counts.size} recordings, the first of "
            f"them s{session}/o{number}. A run needs some of every object in every session; "
            "prepare more of the release."
        )
    return frames


def thin_test(frames: Core50, count: int | None) -> Core50:
    """Return the frames with at most `count`, evenly spaced, of each object and test session."""
    kept = thinned(frames, TEST_SESSIONS, count)
    return frames._replace(
        images=frames.images[kept],
        session=frames.session[kept],
        object=frames.object[kept],
        frame=frames.frame[kept],
    )


def thinned(frames: Core50, sessions: Sequence[int], count: int | None) -> Int[np.ndarray, "k"]:
    """Return the places of all frames but those left out of some sessions.

    Args:
      frames: in the order of their recordings.
      sessions: in which at most `count` frames per object are kept, evenly spaced.
      count: None keeps all.
    """
    if count is None:
        return np.arange(len(frames.session))
    recording = frames.session * len(frames.object_names) + frames.object
    _, place, sizes = np.unique(recording, return_inverse=True, return_counts=True)
    rank = np.arange(len(recording)) - np.concatenate([[0], np.cumsum(sizes)[:-1]])[place]
    chosen = (rank + 1) * count // sizes[place] > rank * count // sizes[place]
    return np.flatnonzero(chosen | ~np.isin(frames.session, sessions) | (sizes[place] < count))


def make_net(config: Base, classes: int, hidden: bool = True) -> nn.Module:
    """Return the whole network, or one with the head right behind the trunk."""
    if config.net == "small":
        units, still = config.hidden if hidden else None, (0.0, 0.0, 0.0)
        deviation = CAFFE_HEAD.deviation
        return SmallCNN(classes, config.channels, units, still, deviation, config.dtype)
    kind = partial(CAFFE_NETS[config.net], classes, dtype=config.dtype)
    return kind() if hidden else kind(hidden=())


def make_head(config: Base, classes: int) -> nn.Module:
    """Return the head alone, over the trunk's features, initialized as in the whole network."""
    return LinearClassifier(classes, VGG_HEAD if config.net == "Mid-VGG" else CAFFE_HEAD)


def check_net(config: Base) -> None:
    """Refuse, before anything is loaded, networks and weights that cannot be used.

    Raises:
      DataError: images that are too small, weights for the small network, or no such file.
    """
    weights = config.weights
    if config.net in CAFFE_NETS and config.side < SMALLEST_SIDE:
        raise DataError(
            f"--net {config.net} at --side {config.side}; give --preset paper, or --side "
            f"{SMALLEST_SIDE} or more"
        )
    if weights is None:
        return
    if config.net == "small":
        raise DataError(f"--weights {weights}: the small net learns its own; use --preset paper")
    if not weights.is_file():
        raise MissingDataError(f"--weights {weights} does not exist; give an .npz")


def begin_with(folder: RunFolder, config: Base, frames: Core50, seed: int) -> Beginning:
    """Return the weights to begin with: learned on other objects, given by the user, or drawn.

    Raises:
      DataError: weights that are none of the network's; named.
    """
    if config.net == "small":
        return _pretrained(folder, config, frames, seed)
    layers = _drawn(config, seed)
    if config.weights is None:
        # Weights that are drawn are for inputs of deviation 1, given ones for Caffe's.
        deviation = DRAWN_DEVIATION
        source = (
            "drawn at random: no weights were given, so nothing is learnt before the first batch"
        )
    else:
        arrays, deviation = load_caffe_weights(config.weights), 1.0
        try:
            layers = with_weights(layers, arrays)
        except ValueError as error:
            raise DataError(f"{config.weights}: {error}; the head is always drawn") from error
        name = config.weights.name
        source = f"given by the user, {name}; layers that it does not name are drawn"
    # Blue first, as Caffe reads images.
    images = frames.images[..., ::-1]
    stored = StoredImages.of(images, jnp.array(BGR_MEAN), jnp.full(3, deviation))
    return Beginning(layers, stored, source)


def _drawn(config: Base, seed: int) -> Layers:
    net, image = make_net(config, classes=1), jnp.zeros((1, config.side, config.side, 3))
    init = jax.jit(lambda key: net.init(key, image, False)["params"])
    return _without_head(config, init(jax.random.key(seed)))


def _without_head(config: Base, layers: Layers) -> Layers:
    head = "Dense_1" if config.net == "small" else "head"
    return {name: layer for name, layer in layers.items() if name != head}


def _pretrained(folder: RunFolder, config: Base, frames: Core50, seed: int) -> Beginning:
    """Return the small network's weights after training on the procedural world's other objects."""
    training = config.pretraining
    world = WORLD._replace(
        superclasses=12, subclasses=training.subclasses, size=config.side, seed=OTHER_WORLD + seed
    )
    classes, tested = world.superclasses * world.subclasses, 10
    facts = {
        "world": world._asdict(),
        **dataclasses.asdict(training),
        "channels": config.channels,
        "hidden": config.hidden,
        "dtype": config.dtype,
    }
    images = load_procedural(world, training.images, tested)
    stored = store_images(images)
    net = make_net(config, classes)

    def build(data: StoredImages) -> tuple[Setup, Strategy]:
        optimizer = optax.adam(training.learning_rate)
        setup = flax_setup(net, data, fixed_test_objective(classes), optimizer)
        return setup, naive(setup)

    sequence = class_incremental(
        images.train_labels, images.test_labels, [range(classes)], classes, valid_fraction=0.0
    )
    # Several networks that share a folder have a name each.
    name = f"pretraining-{zlib.crc32(repr(facts).encode()):08x}"
    unit = Unit(name, facts, sequence, jax.random.key(OTHER_WORLD + seed))
    (arrays,) = train_units(
        folder,
        [unit],
        build,
        Protocol(epochs=training.epochs, select="last"),
        stored,
        lambda result: {
            "accuracy": result.evaluation.accuracy,
            **{
                f"{layer}/{leaf}": value
                for layer, leaves in result.learner.params.items()
                for leaf, value in leaves.items()
            },
        },
        one_by_one=True,
    )
    refuse_diverged([unit], [arrays])
    del arrays[DIVERGED_AT]
    accuracy = float(arrays.pop("accuracy")[0])
    layers: Layers = {}
    for name, value in arrays.items():
        layer, leaf = name.split("/")
        layers.setdefault(layer, {})[leaf] = jnp.asarray(value)
    source = (
        f"learnt on {classes} other objects of a procedural world of another seed, "
        f"{training.images} images each, of whose new images it names {accuracy:.0%}; this stands "
        "in for ILSVRC-2012"
    )
    return Beginning(_without_head(config, layers), stored.with_images(frames.images), source)


def trunk_features(beginning: Beginning, config: Base) -> TrunkFeatures:
    """Return the features of every frame by the convolutions, frozen."""
    net = make_net(config, classes=1, hidden=False)
    trunk = {name: layer for name, layer in beginning.layers.items() if layer["kernel"].ndim == 4}
    stored = beginning.stored
    count = len(stored.pieces)
    samples = Samples(jnp.arange(count), jnp.zeros((count, 1), int), jnp.ones(count, bool))

    def features(stored: StoredImages, trunk: Any, samples: Samples) -> Float[Array, "n f"]:
        setup = flax_setup(net, stored, fixed_test_objective(1), optax.identity())
        learner = init_learner(setup, 1, jax.random.key(0))
        learner = learner._replace(params={**learner.params, **trunk})
        return sample_features(setup, learner, samples, AT_ONCE)

    program = jax.jit(features).lower(stored, trunk, samples).compile()
    # The analysis counts one pass of the loop.
    operations = float(program.cost_analysis()["flops"]) / AT_ONCE
    return TrunkFeatures(program(stored, trunk, samples), operations)
