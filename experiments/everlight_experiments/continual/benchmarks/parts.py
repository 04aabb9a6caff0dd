"""Networks, optimizers and features that options name, including those of a user's files.

`--features efficientnet-lite0` computes features of a frozen trunk, once for all methods and seeds,
and keeps them next to the run folders, in `features/`. `--features FILE` takes an `.npz` of
`features`, numbers `[n, f]`, and `labels`, whole numbers or text `[n]`. It has a row per image of
the benchmark, the training images first (CORe50: the frames in the order of the release). Files in
the folder `features/` have this form. For the benchmark `images` without `--data`, the file is the
whole benchmark.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import flax.linen as nn
import numpy as np

from everlight.continual import Optimizer, StoredImages, named_optimizer
from everlight.continual.engine.setups.network_setup import Net
from everlight.continual.methods.method import Method, Requirement
from everlight.errors import ArgumentError
from everlight.models import MLP, Network, NetworkRequest, named_network, networks
from everlight_data.errors import DataError
from everlight_data.images.inputs.as_inputs import (
    DeviceStatistics,
    imagenet_statistics,
    store_features,
    store_images,
)
from everlight_data.images.inputs.jpeg_store import JpegStore
from everlight_data.images.user_files.feature_files import features_of_images
from everlight_data.names import check_name
from everlight_data.padded_blocks import PaddedBlock
from everlight_data.pretrained.trunk_features import LITE0, stored_features
from everlight_data.progress import progress
from everlight_data.sets.features import Features
from everlight_data.sets.image_set import ChannelStatistics, ImageSet
from everlight_data.user_code.objects import load_network
from everlight_experiments.run_folder.interruption import stop_if_requested

AS_THEY_COME = 32
"""Side up to which images of a data set reach the trunk unchanged."""
TRUNK_SIDE = 224
"""Side of a user's images for the trunk, at which it was trained."""


def network(text: str, request: NetworkRequest, shape: tuple[int, ...]) -> Network:
    """Return the network that `--net` names, as `named_network` does, or one of a user's file.

    Raises:
      DataError: there is no such network, it takes other numbers or inputs, or its outputs do not
        fit.
    """
    name, *_ = text.split(":")
    if name.endswith(".py"):
        if request.dropout or request.remat:
            raise DataError(f"--dropout and --remat are for networks with a name, not {text}")
        return load_network(text, "--net", request.classes, shape)
    check_name("network --net", name, list(networks()))
    try:
        return named_network(text, request)
    except ArgumentError as error:
        raise DataError(f"--net {text}: {error}") from error


def module_of(net: Network, method: Method, pretrained: bool = False) -> Net:
    """Return the network that a method trains, or a head over the inputs, unless `pretrained`."""
    if method.trains == "head" and not pretrained:
        return MLP(net.classes, (), method.head)
    return net.make(method.head)


def network_capabilities(net: Network) -> frozenset[Requirement]:
    """Return the requirements of methods that a network meets."""
    is_linen = isinstance(net.shape, nn.Module)
    is_head = isinstance(net.shape, MLP) and not net.shape.hidden
    has = {
        "named head": net.named,
        "head kinds": net.has_head_kinds,
        "hidden layers": net.layers,
        "layer inputs": is_linen,
        "layer outputs": is_linen and not is_head,
        "stages": is_linen and len(getattr(net.shape, "stages", ())) > 1,
    }
    return frozenset(name for name, is_met in has.items() if is_met)


def feature_head(note: str, classes: int) -> Network:
    """Return a linear head over features of a frozen network."""
    return Network(MLP(classes, ()), f"a linear head on {note}", classes=classes)


def optimizer(text: str, learning_rate: float, weight_decay: float = 0.0) -> Optimizer:
    """Return the optimizer that `--optimizer` names, as `named_optimizer` does.

    Raises:
      DataError: optax has no such factory, or it does not take the arguments.
    """
    try:
        return named_optimizer(text, learning_rate, weight_decay)
    except ArgumentError as error:
        form = "give a name of optax with arguments, as in sgd:momentum=0.9"
        raise DataError(f"--optimizer {text}: {error}; {form}") from error


def load_features(reference: str, images: ImageSet, runs: Path) -> Features:
    """Return the features of a benchmark's images: computed and kept in `runs`, or read.

    Raises:
      MissingDataError: the trunk's package, or the file, is missing.
      DataError: the file cannot be used, or is not of these images.
    """
    if reference != LITE0:
        return features_of_images(reference, images)
    return stored_features(images, runs / "features", _steps)


def _steps(blocks: Sequence[PaddedBlock]) -> Iterator[PaddedBlock]:
    """Yield the blocks of the trunk under a progress bar, until a signal asks to stop."""
    with progress(LITE0, len(blocks)) as bar:
        for block in blocks:
            stop_if_requested()
            yield block
            bar.update()


class Inputs(NamedTuple):
    """Images in memory, images streamed from files, or features, as networks read them."""

    stored: StoredImages | DeviceStatistics
    """Images or features on the device; of streamed images the channels alone."""
    store: JpegStore | None = None
    """Reader of streamed images."""
    features: Features | None = None

    @property
    def feature_arrays(self) -> list[np.ndarray]:
        """Arrays whose checksums identify features; none of images."""
        return [] if self.features is None else [self.features.values, *self.features.marks()]


def inputs_of(
    reference: str | None,
    images: ImageSet | JpegStore,
    runs: Path,
    normalization: ChannelStatistics | None = None,
) -> Inputs:
    """Return a benchmark's images, or the features that `--features` names in their place.

    The images are normalized as by `store_images`.

    Raises:
      DataError: features of streamed images, or features that cannot be used.
    """
    if reference is None:
        streamed = isinstance(images, JpegStore)
        stored = imagenet_statistics() if streamed else store_images(images, normalization)
        return Inputs(stored, images if streamed else None)
    if isinstance(images, JpegStore):
        raise DataError("--features is not for images that are streamed from files; leave it out")
    features = load_features(reference, images, runs)
    stored = store_features(features, slice(len(images.train_labels)))
    return Inputs(stored, features=features)
