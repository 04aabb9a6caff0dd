"""Frames and networks of CORe50, and the weights that all methods begin with."""

import dataclasses
import functools
import zlib
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax.traverse_util import flatten_dict, unflatten_dict
from jaxtyping import Array

from everlight.continual import (
    Protocol,
    SequenceResult,
    Setup,
    StoredImages,
    Strategy,
    fixed_test_objective,
    flax_setup,
    naive,
)
from everlight.continual.engine.frozen_features import FrozenFeatures, frozen_features
from everlight.models import caffe_nets
from everlight.models.small_cnn import SmallCNN
from everlight.scenarios import class_incremental
from everlight.scenarios.core50 import TEST_SESSIONS, Level
from everlight_data.errors import DataError, MissingDataError
from everlight_data.images.core50.frames import LabelledFrames, load_release, thin_test
from everlight_data.images.core50.prepared import Core50
from everlight_data.images.inputs.as_inputs import store_images
from everlight_data.pretrained.caffe_weights import load_caffe_layers
from everlight_data.procedural.core50 import WORLD, load_procedural_core50
from everlight_data.procedural.world import load_procedural
from everlight_data.sets.image_set import PerClass
from everlight_experiments.continual.training.runs import (
    DIVERGED_AT,
    SharedTraining,
    TrainingRun,
    has_diverged,
    train_runs,
)
from everlight_experiments.core50.config import Base
from everlight_experiments.run_folder.folder import RunFolder

Layers = dict[str, dict[str, Array]]
OTHER_WORLD = 1_000
"""Number added to the seed of the world whose objects the small network is pretrained on."""
DRAWN_DEVIATION = 64.0
"""Approximate standard deviation of the channels, 0 to 255."""
CAFFE_NETS = {"Mid-CaffeNet": caffe_nets.MidCaffeNet, "Mid-VGG": caffe_nets.MidVGG}
MIN_SIDE = 48
"""Smallest side of the images, in pixels, that the paper's networks are given."""


class InitialWeights(NamedTuple):
    """Weights that all methods start from, and the frames on the device as networks read them."""

    layers: Layers
    """Weights of all layers but the head."""
    stored: StoredImages
    source: str
    """Source of the weights, for the report."""
    features: Callable[[], FrozenFeatures] | None = None
    """Features of every frame by the frozen convolutions; None where the frames are features."""
    checksums: tuple[int, ...] = ()
    """Checksums of features in the frames' place."""

    @property
    def fingerprint(self) -> int:
        """Checksum of the weights."""
        leaves = jax.tree.leaves(self.layers)
        return zlib.crc32(b"".join(np.asarray(leaf).tobytes() for leaf in leaves))


def load_material(config: Base, level: Level, seed: int) -> LabelledFrames:
    """Return the frames of a configuration, with a thinned test set, and their classes.

    Raises:
      DataError: the release cannot be read, or lacks an object in a session; or more test frames
        are requested than any recording has.
    """
    if config.data == "procedural":
        world = WORLD._replace(size=config.side, seed=seed)
        frames = load_procedural_core50(config.frames, world)
    else:
        frames = load_release(config.side, config.partial)
    _refuse_more_test_frames(frames, config.test_frames)
    return LabelledFrames(thin_test(frames, config.test_frames), level, config.test_frames)


def _refuse_more_test_frames(frames: Core50, limit: int | None) -> None:
    tested = np.isin(frames.session, TEST_SESSIONS)
    recording = frames.session[tested] * len(frames.object_names) + frames.object[tested]
    longest = int(np.bincount(recording).max())
    if limit is not None and limit > longest:
        raise DataError(
            f"--test-frames {limit}; the longest recording of a test session has {longest} frames: "
            f"give {longest} or fewer, or None for all"
        )


def make_net(
    config: Base, classes: int, hidden: bool = True, head_name: str | None = None
) -> nn.Module:
    """Return the whole network, or one with the head right behind the trunk.

    Args:
      config: sizes of the network.
      classes: outputs of the head.
      hidden: true for hidden layers between trunk and head.
      head_name: name of the small network's head; that of the others is head.
    """
    if config.net == "small":
        units, still = config.hidden if hidden else None, (0.0, 0.0, 0.0)
        deviation = caffe_nets.CAFFE_HEAD.deviation
        return SmallCNN(classes, config.channels, units, still, deviation, config.dtype, head_name)
    kind = partial(CAFFE_NETS[config.net], classes, dtype=config.dtype)
    return kind() if hidden else kind(hidden=())


def make_head(config: Base, classes: int) -> nn.Module:
    """Return the head alone, over the trunk's features, initialized as in the whole network."""
    return caffe_nets.LinearClassifier(
        classes, caffe_nets.VGG_HEAD if config.net == "Mid-VGG" else caffe_nets.CAFFE_HEAD
    )


def check_net(config: Base) -> None:
    """Refuse, before anything is loaded, networks and weights that cannot be used.

    Raises:
      DataError: images that are too small, weights for the small network, or no such file.
    """
    weights = config.weights
    if config.net in CAFFE_NETS and config.side < MIN_SIDE:
        raise DataError(
            f"--net {config.net} at --side {config.side}; give --preset paper, or --side "
            f"{MIN_SIDE} or more"
        )
    if weights is None:
        return
    if config.net == "small":
        raise DataError(f"--weights {weights}: the small net learns its own; use --preset paper")
    if not weights.is_file():
        raise MissingDataError(f"--weights {weights} does not exist; give an .npz")


def initial_weights(folder: RunFolder, config: Base, frames: Core50, seed: int) -> InitialWeights:
    """Return the weights to begin with: learned on other objects, given by the user, or drawn.

    Raises:
      DataError: weights do not fit the network; the message names them. Or the pretraining
        diverges.
    """
    begin = _pretrain_weights if config.net == "small" else _load_or_draw_weights
    weights = begin(folder, config, frames, seed)
    return weights._replace(features=functools.cache(partial(trunk_features, weights, config)))


def _load_or_draw_weights(
    folder: RunFolder, config: Base, frames: Core50, seed: int
) -> InitialWeights:
    layers = _draw_layers(config, seed)
    if config.weights is None:
        # Weights that are drawn are for inputs of deviation 1, given ones for Caffe's.
        deviation = DRAWN_DEVIATION
        source = (
            "drawn at random: no weights were given, so nothing is learned before the first batch"
        )
    else:
        layers, deviation = load_caffe_layers(config.weights, layers), 1.0
        name = config.weights.name
        source = f"given by the user, {name}; layers that it does not name are drawn"
    # Blue first, as Caffe reads images.
    images = frames.images[..., ::-1]
    stored = StoredImages.of(images, jnp.array(caffe_nets.BGR_MEAN), jnp.full(3, deviation))
    return InitialWeights(layers, stored, source)


def _draw_layers(config: Base, seed: int) -> Layers:
    net, image = make_net(config, classes=1), jnp.zeros((1, config.side, config.side, 3))
    init = jax.jit(lambda key: net.init(key, image, False)["params"])
    return _remove_head(config, init(jax.random.key(seed)))


def _remove_head(config: Base, layers: Layers) -> Layers:
    head = "Dense_1" if config.net == "small" else "head"
    return {name: layer for name, layer in layers.items() if name != head}


def _pretrain_weights(folder: RunFolder, config: Base, frames: Core50, seed: int) -> InitialWeights:
    """Return the small network's weights after training on the procedural world's other objects."""
    pretraining = config.pretraining
    world = WORLD._replace(
        superclasses=12,
        subclasses=pretraining.subclasses,
        size=config.side,
        seed=OTHER_WORLD + seed,
    )
    fingerprint = {
        "world": world._asdict(),
        **dataclasses.asdict(pretraining),
        "channels": config.channels,
        "hidden": config.hidden,
        "dtype": config.dtype,
    }
    images = load_procedural(world, PerClass(pretraining.images, test=10))
    classes, stored = len(images.class_names), store_images(images)
    net = make_net(config, classes)

    def build(data: StoredImages) -> tuple[Setup, Strategy]:
        optimizer = optax.adam(pretraining.learning_rate)
        setup = flax_setup(net, data, fixed_test_objective(classes), optimizer)
        return setup, naive(setup)

    def keep(result: SequenceResult) -> dict[str, Array]:
        layers = flatten_dict(result.learner.params, sep="/")
        return {"accuracy": result.evaluation.accuracy, **layers}

    sequence = class_incremental(
        images.train_labels, images.test_labels, [range(classes)], classes, valid_fraction=0.0
    )
    # Several networks that share a folder have a name each.
    name = f"pretraining-{zlib.crc32(repr(fingerprint).encode()):08x}"
    run = TrainingRun(name, fingerprint, sequence, jax.random.key(OTHER_WORLD + seed))
    protocol = Protocol(epochs=pretraining.epochs, select="last")
    training = SharedTraining(build, protocol, stored, keep, one_by_one=True)
    (arrays,) = train_runs(folder, [run], training)
    if has_diverged(arrays):
        raise DataError("the loss of the pretraining is not finite; lower its learning rate")
    del arrays[DIVERGED_AT]
    accuracy = float(arrays.pop("accuracy")[0])
    layers = unflatten_dict({name: jnp.asarray(array) for name, array in arrays.items()}, sep="/")
    source = (
        f"learned on {classes} other objects of a procedural world of another seed, "
        f"{pretraining.images} images each, of whose new images it names {accuracy:.0%}; this "
        "stands in for ILSVRC-2012"
    )
    return InitialWeights(_remove_head(config, layers), stored.with_images(frames.images), source)


def trunk_features(weights: InitialWeights, config: Base) -> FrozenFeatures:
    """Return the features of every frame by the convolutions, frozen."""
    net = make_net(config, classes=1, hidden=False)
    trunk = {name: layer for name, layer in weights.layers.items() if layer["kernel"].ndim == 4}
    return frozen_features(net, trunk, weights.stored)


def net_note(config: Base) -> str:
    """Return a description of the network, for the report."""
    small = f"small CNN, channels {config.channels}, {config.hidden} hidden units"
    precision = "" if config.dtype == "float32" else f", computed in {config.dtype} below its head"
    return (small if config.net == "small" else config.net) + precision
