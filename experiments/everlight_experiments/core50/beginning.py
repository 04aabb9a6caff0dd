"""What every strategy begins with: the frames, a net's weights, and the frozen trunk's features."""

import dataclasses
import zlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from everlight.continual.base import Samples, Setup, Strategy
from everlight.continual.engine.evaluation import sample_features
from everlight.continual.engine.flax_setup import StoredImages, flax_setup
from everlight.continual.engine.protocol import Protocol
from everlight.continual.engine.tasks import init_learner
from everlight.continual.objectives.fixed_test import fixed_test_objective
from everlight.continual.strategies.naive import naive
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
from everlight.scenarios.class_incremental import class_incremental
from everlight.scenarios.core50 import TEST_SESSIONS
from everlight_data.errors import DataError, MissingDataError
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
from everlight_experiments.common.sequences import store_images
from everlight_experiments.core50.plans import Plan, Pretraining

OTHER_WORLD = 1_000
"""Added to the seed of the world whose objects the small net learns first."""
DRAWN_DEVIATION = 64.0
"""Of the channels, 0 to 255, about."""
FORWARD = 128
"""Frames a pass through the frozen trunk."""
HEADS = {"small": "Dense_1", "Mid-CaffeNet": "head", "Mid-VGG": "head"}

Layers = dict[str, dict[str, Array]]


class Beginning(NamedTuple):
    """Weights that all strategies start from, and the frames on the device as these take them."""

    layers: Layers
    """All but the head."""
    stored: StoredImages
    remark: str
    """Where the weights are from, for the report."""

    @property
    def fingerprint(self) -> int:
        """Tells these weights from others."""
        leaves = jax.tree.leaves(self.layers)
        return zlib.crc32(b"".join(np.asarray(leaf).tobytes() for leaf in leaves))


class Features(NamedTuple):
    """What the frozen trunk makes of every frame."""

    values: Float[Array, "n f"]
    operations: float
    """Floating-point operations of one frame."""


def load_frames(plan: Plan, seed: int, partial: bool = False) -> Core50:
    """The plan's frames; of an incomplete release only where `partial`.

    Raises:
      DataError: no frame at all of an object in a session, named.
    """
    if plan.data == "core50":
        frames = load_core50(plan.side, partial=partial)
        _check_recordings(frames)
        return frames
    return load_procedural_core50(plan.frames, WORLD._replace(size=plan.side, seed=seed))


def _check_recordings(frames: Core50) -> None:
    counts = count_frames(frames.session, frames.object)
    absent = np.argwhere(counts == 0)
    if len(absent):
        session, number = 1 + absent[0]
        raise DataError(
            f"{frames.name}: no frame in {len(absent)} of {counts.size} recordings, the first of "
            f"them s{session}/o{number}. A run needs some of every object in every session; "
            "prepare more of the release."
        )


def thin_test(frames: Core50, count: int | None) -> Core50:
    """The frames with at most `count`, evenly spaced, of each object in each test session.

    Raises:
      DataError: a count below 1.
    """
    kept = thinned(frames, TEST_SESSIONS, count)
    return frames._replace(
        images=frames.images[kept],
        session=frames.session[kept],
        object=frames.object[kept],
        frame=frames.frame[kept],
    )


def thinned(frames: Core50, sessions: Sequence[int], count: int | None) -> Int[np.ndarray, "k"]:
    """Places of all frames but of those that `thin_test` leaves out, in other sessions.

    Raises:
      DataError: a count below 1.
    """
    if count is None:
        return np.arange(len(frames.session))
    if count < 1:
        raise DataError(f"--test-frames {count}; give 1 or more")
    recording = frames.session * len(frames.object_names) + frames.object
    _, place, sizes = np.unique(recording, return_inverse=True, return_counts=True)
    # Frames lie in the order of their recordings.
    rank = np.arange(len(recording)) - np.concatenate([[0], np.cumsum(sizes)[:-1]])[place]
    chosen = (rank + 1) * count // sizes[place] > rank * count // sizes[place]
    return np.flatnonzero(chosen | ~np.isin(frames.session, sessions) | (sizes[place] < count))


def make_net(plan: Plan, classes: int, hidden: bool = True) -> nn.Module:
    """The plan's net, whole, or with the head right behind the trunk."""
    if plan.net == "small":
        units = plan.hidden if hidden else None
        still = (0.0, 0.0, 0.0)
        return SmallCNN(classes, plan.channels, units, still, CAFFE_HEAD.deviation, plan.dtype)
    kind = {"Mid-CaffeNet": MidCaffeNet, "Mid-VGG": MidVGG}[plan.net]
    of = partial(kind, classes, dtype=plan.dtype)
    return of() if hidden else of(hidden=())


def make_head(plan: Plan, classes: int) -> nn.Module:
    """The head alone, over the trunk's features, beginning as in the plan's net."""
    return LinearClassifier(classes, VGG_HEAD if plan.net == "Mid-VGG" else CAFFE_HEAD)


def check_weights(plan: Plan, weights: Path | None) -> None:
    """Refuses, before anything is loaded, weights that cannot be used.

    Raises:
      DataError: the plan's net learns its own, or there is no such file.
    """
    if weights is None:
        return
    if plan.pretraining is not None:
        raise DataError(f"--weights {weights}: the small net learns its own; use --preset paper")
    if not weights.is_file():
        raise MissingDataError(f"--weights {weights} does not exist; give an .npz")


def begin_with(
    folder: RunFolder, plan: Plan, frames: Core50, seed: int, weights: Path | None
) -> Beginning:
    """The plan's beginning: learnt on other objects, given by the user, or drawn.

    Raises:
      DataError: weights that are none of the net's; named.
    """
    if plan.pretraining is not None:
        return _learn_other_objects(folder, plan, plan.pretraining, frames, seed)
    net, image = make_net(plan, classes=1), jnp.zeros((1, plan.side, plan.side, 3))
    layers = dict(jax.jit(lambda key: net.init(key, image, False)["params"])(jax.random.key(seed)))
    del layers[HEADS[plan.net]]
    if weights is None:
        # Weights that are drawn are for inputs of deviation 1, given ones for Caffe's.
        deviation = DRAWN_DEVIATION
        remark = (
            "drawn at random: no weights were given, so nothing is learnt before the first batch"
        )
    else:
        arrays, deviation = load_caffe_weights(weights), 1.0
        try:
            layers = with_weights(layers, arrays)
        except ValueError as error:
            raise DataError(f"{weights}: {error}; the head is always drawn") from error
        remark = f"given by the user, {weights.name}; layers that it does not name are drawn"
    # Blue first, as Caffe reads images.
    images = frames.images[..., ::-1]
    stored = StoredImages.of(images, jnp.array(BGR_MEAN), jnp.full(3, deviation))
    return Beginning(layers, stored, remark)


def _learn_other_objects(
    folder: RunFolder, plan: Plan, pretraining: Pretraining, frames: Core50, seed: int
) -> Beginning:
    world = WORLD._replace(
        superclasses=12,
        subclasses=pretraining.subclasses,
        size=plan.side,
        seed=OTHER_WORLD + seed,
    )
    classes, tested = world.superclasses * world.subclasses, 10
    facts = {
        "world": world._asdict(),
        **dataclasses.asdict(pretraining),
        "channels": plan.channels,
        "hidden": plan.hidden,
        "dtype": plan.dtype,
    }
    images = load_procedural(world, pretraining.images, tested)
    stored = store_images(images)
    net = make_net(plan, classes)

    def build(data: StoredImages) -> tuple[Setup, Strategy]:
        optimizer = optax.adam(pretraining.learning_rate)
        setup = flax_setup(net, data, fixed_test_objective(classes), optimizer)
        return setup, naive(setup)

    sequence = class_incremental(
        images.train_labels, images.test_labels, [range(classes)], classes, valid_fraction=0.0
    )
    # Of several nets that share a folder each has its own.
    name = f"pretraining-{zlib.crc32(repr(facts).encode()):08x}"
    unit = Unit(name, facts, sequence, jax.random.key(OTHER_WORLD + seed))
    protocol = Protocol(epochs=pretraining.epochs, select="last")
    (arrays,) = train_units(
        folder,
        [unit],
        build,
        protocol,
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
    del layers[HEADS[plan.net]]
    remark = (
        f"learnt on {classes} other objects of a procedural world of another seed, "
        f"{pretraining.images} images each, of whose new images it names {accuracy:.0%}; this "
        "stands in for ILSVRC-2012"
    )
    return Beginning(layers, stored.with_images(frames.images), remark)


def trunk_features(beginning: Beginning, plan: Plan) -> Features:
    """What the convolutions, frozen, make of every frame; computed here and nowhere else."""
    net = make_net(plan, classes=1, hidden=False)
    trunk = {name: layer for name, layer in beginning.layers.items() if layer["kernel"].ndim == 4}
    stored = beginning.stored
    count = len(stored.pieces)
    samples = Samples(jnp.arange(count), jnp.zeros((count, 1), int), jnp.ones(count, bool))

    def features(stored: StoredImages, trunk: Any, samples: Samples) -> Float[Array, "n f"]:
        setup = flax_setup(net, stored, fixed_test_objective(1), optax.identity())
        learner = init_learner(setup, 1, jax.random.key(0))
        learner = learner._replace(params={**learner.params, **trunk})
        return sample_features(setup, learner, samples, FORWARD)

    program = jax.jit(features).lower(stored, trunk, samples).compile()
    # Of the loop over the passes the analysis counts one.
    operations = float(program.cost_analysis()["flops"]) / FORWARD
    return Features(program(stored, trunk, samples), operations)
