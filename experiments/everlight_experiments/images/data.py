"""Images or features of a configuration: loaded, divided into tasks, as networks read them."""

import functools
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import jax
import numpy as np

from everlight.continual import StoredImages, TaskSequence
from everlight.continual.methods.method import Method
from everlight.models import Network, NetworkRequest
from everlight.scenarios import (
    class_incremental_by_seed,
    long_tailed_samples,
    noisy_labels,
    validation_fractions,
    with_shots,
    without_validation,
)
from everlight.trees import checksums_of
from everlight_data.errors import DataError
from everlight_data.image_requests import load_images
from everlight_data.images.inputs.as_inputs import store_features, store_images
from everlight_data.images.user_files.feature_files import features_alone
from everlight_data.pretrained.trunk_features import LITE0
from everlight_data.registry import IMAGE_SETS
from everlight_data.sets.data_set import ImageRequest
from everlight_data.sets.features import Features
from everlight_data.sets.image_set import ImageSet, LoadedImages, PerClass, select_samples
from everlight_data.user_code.streams import Experiences, UserStream
from everlight_experiments.continual.benchmarks.benchmark import Data, Request
from everlight_experiments.continual.benchmarks.parts import (
    TRUNK_SIDE,
    feature_head,
    load_features,
    network,
)
from everlight_experiments.continual.benchmarks.run_data import Use
from everlight_experiments.images.config import DIVIDING, Config, config_of
from everlight_experiments.images.config_checks import check_division, check_sizes
from everlight_experiments.images.descriptions import data_counts, data_sections
from everlight_experiments.images.domain_streams import (
    STREAM_SEED,
    domain_sequences,
    draws_stream,
    number_of_labels,
)
from everlight_experiments.images.normalization import first_task_statistics
from everlight_experiments.images.pretrained import (
    RELEASED,
    Layers,
    Pretrained,
    is_released,
    load_layers,
)
from everlight_experiments.images.user_stream import classes_recur, sequences_of_stream


class AddedTask(NamedTuple):
    """The last task of inputs, which images brought that came later (`added_images.py`)."""

    earlier: "ImageInputs"
    """Inputs without it."""
    extended: Callable[[TaskSequence, Use], TaskSequence]
    """Function from a sequence of the earlier inputs and its use to the one with the task."""
    recurring: bool
    """True if the task has images of earlier classes."""


class ImageInputs(NamedTuple):
    """Images, stored inputs and network that a configuration loads before training."""

    config: Config
    images: ImageSet
    note: str
    stored: StoredImages
    """Images, or features, as networks read them."""
    net: Network
    checksums: tuple[int, ...]
    layers: Layers | None = None
    """Layers with which the network begins; None draws them."""
    features: Features | None = None
    """Features that replace the images."""
    experiences: Experiences | None = None
    """Samples of the tasks of a user's own stream; None divides them by the configuration."""
    added: AddedTask | None = None
    """The last task if later images brought it; the other tasks are those of its earlier inputs."""

    @property
    def classes_recur(self) -> bool:
        """True if several tasks train on one class."""
        if self.added is not None:
            return self.added.recurring or self.added.earlier.classes_recur
        if self.experiences is not None:
            return classes_recur(self.images, self.experiences)
        return self.config.cycles > 1 or bool(self.config.unevenness.shared)

    def network_of(self, method: Method) -> Network:
        """Return the network of a method: the benchmark's, unless its settings name another one."""
        config = config_of(self.config, method)
        if config.net == self.config.net:
            return self.net
        shape = self.images.images.shape[1:]
        request = NetworkRequest(self.net.classes, shape[0], config.dtype, config.dropout)
        return network(config.net, request, shape)

    @property
    def data(self) -> Data:
        """The data of the benchmark, the same in all settings."""
        config, images, stored = self.config, self.images, self.stored
        sequences = self.sequences()
        undivided = self.sequences(every_shot=True)(0, "evaluation")
        identity = {"data": list(self.checksums)}
        if self.added is not None:
            earlier = self.added.earlier.images
            identity["added_after"] = [len(earlier.train_labels), len(earlier.test_labels)]
        if self.experiences is not None:
            identity["experiences"] = list(
                checksums_of(*self.experiences.train, *self.experiences.test)
            )
        data = Data(
            note=self.note,
            checksums=self.checksums,
            fingerprint=identity,
            shared=lambda method: (
                stored if self.layers is None else Pretrained(stored, self.layers)
            ),
            sequence=lambda method, seq_id: sequences(seq_id.seed, seq_id.use),
            counts=data_counts(images, config, undivided, self._origin_of_tasks),
            images=images,
            sections=partial(data_sections, images=images),
            draws_stream=draws_stream(config),
            stream={"stream": config.stream, **config.unevenness.shared},
        )
        if config.normalization is None:
            return data
        statistics = first_task_statistics(images, self.features, stored.offset)
        return data._replace(normalization=statistics)

    @property
    def _origin_of_tasks(self) -> str:
        if self.added is not None:
            return "of the run and its updates"
        return "" if self.experiences is None else "of the file"

    def sequences(self, every_shot: bool = False) -> Callable[[int, Use], TaskSequence]:
        """Return the sequence of every seed and use; `every_shot` leaves `--shots` out."""
        config = replace(self.config, shots=None) if every_shot else self.config
        if self.added is None:
            return sequences_of(self.images, config, self.experiences)
        extended, earlier = self.added.extended, self.added.earlier.sequences(every_shot)
        return functools.cache(lambda seed, use: extended(earlier(seed, use), use))


def load_inputs(
    request: Request[Config],
    images: LoadedImages | None = None,
    user_stream: UserStream | None = None,
) -> ImageInputs:
    """Return the inputs of a configuration; `images`, or a user's stream, replace its data set.

    Raises:
      DataError: data that cannot be read, or parts that do not fit together.
    """
    config = request.config
    images, note, features = _with_long_tail(config, _load(request, images, user_stream))
    if features is not None:
        rate, chosen = config.features_learning_rate, config.features_chosen
        config = replace(config, learning_rate=rate, chosen=chosen)
    classes = len(images.class_names)
    check_sizes(config, request.settings, np.bincount(images.train_labels, minlength=classes))
    if user_stream is None:
        check_division(config, classes)
    noisy = noisy_labels(images.train_labels, classes, config.label_noise, STREAM_SEED)
    images = images._replace(train_labels=noisy)
    layers = None
    labels = number_of_labels(config, classes)
    if features is None:
        shape = images.images.shape[1:]
        network_request = NetworkRequest(labels, shape[0], config.dtype, config.dropout)
        net = network(config.net, network_request, shape)
        stored, layers = _load_pretrained(config, images, net)
    else:
        net = feature_head(features.note, labels)
        stored = store_features(features, slice(len(images.train_labels)))
    checksums = checksums_of_inputs(images, stored, layers, features)
    if config.stream not in DIVIDING:
        stored = replace(stored, copies=config.sequence_length)
    experiences = None if user_stream is None else user_stream.experiences
    return ImageInputs(config, images, note, stored, net, checksums, layers, features, experiences)


def checksums_of_inputs(
    images: ImageSet,
    stored: StoredImages,
    layers: Layers | None,
    features: Features | None,
) -> tuple[int, ...]:
    """Return checksums of images and labels, and of given layers or features."""
    content = [images.images, images.train_labels, images.test_labels]
    if features is None:
        return checksums_of(*content, *map(np.asarray, jax.tree.leaves(layers)))
    return checksums_of(*content, np.asarray(stored.pieces), *features.marks())


class _Loaded(NamedTuple):
    """A data set before a configuration divides it."""

    images: ImageSet
    note: str
    features: Features | None = None
    """Features of all samples, of which networks learn in place of the images."""


def _load(
    request: Request[Config], loaded: LoadedImages | None, user_stream: UserStream | None
) -> _Loaded:
    config = request.config
    if user_stream is not None and user_stream.features is not None:
        return _Loaded(*user_stream.loaded, user_stream.features)
    loaded = loaded if user_stream is None else user_stream.loaded
    if loaded is None and not config.data and config.features not in (None, LITE0):
        _refuse_options_of_images(config)
        features, images, note = features_alone(config.features, config.test_every)
        return _Loaded(images, note, features)
    images, note = _load_images(config, request.seed) if loaded is None else loaded
    if config.features is None:
        return _Loaded(images, note)
    return _Loaded(images, note, load_features(config.features, images, request.runs))


def _with_long_tail(config: Config, loaded: _Loaded) -> _Loaded:
    """Return images and features with the training samples that `--imbalance` keeps."""
    imbalance = config.unevenness.imbalance
    if imbalance == 1:
        return loaded
    images, features = loaded.images, loaded.features
    classes, fewest = len(images.class_names), 2 if config.validation_fraction else 1
    chosen = long_tailed_samples(images.train_labels, classes, imbalance, STREAM_SEED, fewest)
    tested = np.ones(len(images.test_labels), bool)
    if features is not None:
        features = features._replace(values=features.values[np.concatenate([chosen, tested])])
    return loaded._replace(images=select_samples(images, chosen, tested), features=features)


def _load_images(config: Config, seed: int) -> LoadedImages:
    if not config.data:
        raise DataError(
            "give --data: the name of an image set, tfds:NAME, a folder with one sub-folder per "
            "class, a .csv of file and label, an .npz of images and labels, or a folder of IDX "
            "files"
        )
    side, per_class = config.side, config.per_class
    if config.features is not None:
        # A pretrained network has its own size, to which it enlarges small images.
        side = None if config.data in IMAGE_SETS else side or TRUNK_SIDE
    return load_images(
        ImageRequest(
            data=config.data,
            side=side,
            classes=config.classes,
            per_class=None if per_class is None else PerClass(*per_class),
            test_every=config.test_every,
            test_data=config.test_data,
            seed=seed,
            first_class=config.first_class,
        )
    )


def _refuse_options_of_images(config: Config) -> None:
    """Refuse options that a file of features without images does not have."""
    options = ("test_data", "classes", "first_class", "per_class", "side")
    values = [name for name in options if getattr(config, name) != getattr(Config(), name)]
    if values:
        names = ", ".join("--" + name.replace("_", "-") for name in values)
        raise DataError(
            f"{names} with only the features of {config.features}; leave out {names}, and put the "
            "selected rows into the file, of which --test-every sets the test rows"
        )


def _load_pretrained(
    config: Config, images: ImageSet, net: Network
) -> tuple[StoredImages, Layers | None]:
    """Return the images as the network reads them, and its layers if they are given."""
    unit, path = config.pixels == "unit", config.pretrained
    if path is None:
        return store_images(images, unit=unit), None
    layers = load_layers(path, net, images.images.shape[1:])
    channels = RELEASED if is_released(path, config.net) else None
    return store_images(images, channels, unit=unit), layers


def _by_seed(images: ImageSet, config: Config) -> Callable[[int, bool], TaskSequence]:
    """Return the function from a seed, and whether it selects, to the divided classes."""
    classes, fraction = len(images.class_names), config.validation_fraction
    train, test = images.train_labels, images.test_labels
    natural = config.order == "natural"
    fractions = fraction and validation_fractions(train, classes, fraction)
    return class_incremental_by_seed(
        train,
        test,
        config.task_sizes or config.number_of_tasks,
        classes,
        natural,
        fractions,
        config.cycles,
        within_tasks=config.stream == "split-domains",
        **config.unevenness.shared,
    )


def sequences_of(
    images: ImageSet, config: Config, experiences: Experiences | None = None
) -> Callable[[int, Use], TaskSequence]:
    """Return the sequence of every seed and use, all of one shape."""
    if config.stream not in DIVIDING:
        return domain_sequences(images, config)
    fraction = config.validation_fraction
    if experiences is None:
        by_seed = _by_seed(images, config)
    else:
        by_seed = sequences_of_stream(images, experiences, fraction)

    @functools.cache
    def sequence(seed: int, use: Use) -> TaskSequence:
        if use == "validation" and not fraction:
            raise DataError(
                "--validation-fraction 0 leaves nothing to select hyper-parameters on; give each "
                "method's value, as in --hyperparameters EWC=100, or a fraction"
            )
        tasks_of_seed = by_seed(seed, use == "validation")
        if config.shots is not None:
            tasks_of_seed = with_shots(tasks_of_seed, config.shots, seed)
        return tasks_of_seed if config.protocol.validates else without_validation(tasks_of_seed)

    return sequence
