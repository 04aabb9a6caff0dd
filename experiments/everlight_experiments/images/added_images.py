"""Images that came after the training of a run, as one more task of its benchmark."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from everlight.continual import StoredImages, TaskSequence
from everlight.continual.engine.sources import less_offset
from everlight.data_checks import repeated_samples
from everlight.models import NetworkRequest
from everlight.scenarios import append_task, without_validation
from everlight_data.errors import DataError
from everlight_data.image_requests import load_images
from everlight_data.images.user_files.class_names import check_distinct
from everlight_data.pretrained.trunk_features import LITE0
from everlight_data.sets.data_set import ImageRequest
from everlight_data.sets.features import Features
from everlight_data.sets.image_set import ImageSet, LoadedImages, as_rgb
from everlight_data.user_code.streams import Experiences
from everlight_experiments.continual.benchmarks.parts import feature_head, load_features, network
from everlight_experiments.continual.benchmarks.run_data import AddedData, Use
from everlight_experiments.images.config import Config
from everlight_experiments.images.data import AddedTask, ImageInputs, checksums_of_inputs
from everlight_experiments.images.user_stream import sequences_of_stream
from everlight_experiments.run_folder.config_options import changed_options

OF_EARLIER_IMAGES = (
    "per-class",
    "label-noise",
    "shots",
    "cycles",
    "imbalance",
    "blurry",
    "recurring",
)
"""Options that change the training images of a run, and not those that come after it."""


def options_of_earlier_images(config: Config) -> str:
    """Return the options of a run that do not apply to further images, as words; or ""."""
    changed = changed_options(Config(), config)
    return ", ".join(" ".join(changed[name]) for name in OF_EARLIER_IMAGES if name in changed)


def with_added_task(inputs: ImageInputs, added: AddedData, runs: Path) -> ImageInputs:
    """Return the inputs with one more task of further images, which change no class number.

    A class with the name of an earlier one is that class, and others are numbered after them. The
    statistics that normalize the inputs stay.

    Args:
      inputs: inputs of a benchmark whose tasks bring classes.
      added: further images, of any number of classes.
      runs: folder of run folders; computed features are kept there.

    Raises:
      DataError: images that cannot be read or are not of the benchmark's form, a class name that
        hardly differs from an earlier one, or a benchmark whose tasks are not divided by class.
    """
    config, images = inputs.config, inputs.images
    if config.stream != "classes":
        raise DataError(
            f"--data {added.data} cannot continue a run of --stream {config.stream}, whose tasks "
            "are drawn from one set; train a new run"
        )
    loaded = _load(added, images)
    _check_unknown(added, images, loaded.images)
    joined = join_image_sets(images, loaded.images)
    check_distinct(Path(added.data), joined.class_names)
    features = _joined_features(inputs, added, loaded.images, runs)
    stored = _stored_with(inputs.stored, joined if features is None else features)
    classes = len(joined.class_names)
    if features is None:
        shape = images.images.shape[1:]
        request = NetworkRequest(classes, shape[0], config.dtype, config.dropout)
        net = network(config.net, request, shape)
    else:
        net = feature_head(features.note, classes)
    is_known = np.isin(loaded.images.class_names, images.class_names)
    return inputs._replace(
        config=replace(config, tasks=(config.sequence_length + 1,), cycles=1),
        images=joined,
        note=f"{inputs.note}; added: {loaded.note}",
        stored=stored,
        net=net,
        checksums=checksums_of_inputs(joined, stored, inputs.layers, features),
        features=features,
        added=AddedTask(
            inputs, partial(_extended_sequence, images, joined, config), bool(is_known.any())
        ),
    )


def _extended_sequence(
    earlier: ImageSet, joined: ImageSet, config: Config, base: TaskSequence, use: Use
) -> TaskSequence:
    """Return a sequence on the earlier images with the task of the further ones at its end."""
    before, trained = len(earlier.train_labels), len(joined.train_labels)
    index = base.test.index
    # Test samples are stored after all training samples.
    moved = index + np.where(np.asarray(index) < before, 0, trained - before)
    base = base._replace(test=base.test._replace(index=moved))
    tested = trained + len(earlier.test_labels)
    samples = Experiences((np.arange(before, trained),), (np.arange(tested, len(joined.images)),))
    of_seed = sequences_of_stream(joined, samples, config.validation_fraction)
    task = of_seed(0, use == "validation")
    return append_task(base, task if config.protocol.validates else without_validation(task))


def _check_unknown(added: AddedData, images: ImageSet, further: ImageSet) -> None:
    """Raise DataError where an image trains on one side and is tested on the other."""
    trained, added_trained = len(images.train_labels), len(further.train_labels)
    pairs = (
        (further.images[:added_trained], images.images[trained:]),
        (images.images[:trained], further.images[added_trained:]),
    )
    tested, learned = (int(repeated_samples(train, test).sum()) for train, test in pairs)
    if tested or learned:
        raise DataError(
            f"--data {added.data} would train {tested:,} test images of the run, and would test "
            f"{learned:,} images that the run was trained on; leave out all images that the run "
            "has. Images that would be trained again are not counted"
        )


def join_image_sets(images: ImageSet, further: ImageSet) -> ImageSet:
    """Return both sets in one; classes of the first keep their numbers, equal names are one class.

    The training samples of the first come first, and so do its test samples.
    """
    names = images.class_names
    names = (*names, *(name for name in further.class_names if name not in names))
    numbers = np.array([names.index(name) for name in further.class_names], np.int32)
    trained, added = len(images.train_labels), len(further.train_labels)
    parts = [
        *(images.images[:trained], further.images[:added]),
        *(images.images[trained:], further.images[added:]),
    ]
    return ImageSet(
        images.name,
        np.concatenate(parts),
        np.concatenate([images.train_labels, numbers[further.train_labels]]),
        np.concatenate([images.test_labels, numbers[further.test_labels]]),
        names,
    )


def _load(added: AddedData, images: ImageSet) -> LoadedImages:
    """Return the further images in the form of the earlier ones."""
    _, side, _, channels = images.images.shape
    if not side:
        raise DataError(f"--data {added.data}: the run learned rows of numbers, and no images")
    loaded = load_images(
        ImageRequest(
            data=added.data,
            side=side,
            test_every=added.test_every,
            test_data=added.test_data,
            fewest_classes=1,
        )
    )
    other = loaded.images.images.shape[-1]
    if other == channels:
        return loaded
    if channels == 1:
        raise DataError(
            f"--data {added.data} has colour images, and the run learned grey ones; convert them"
        )
    return loaded._replace(
        images=loaded.images._replace(images=np.ascontiguousarray(as_rgb(loaded.images.images)))
    )


def _joined_features(
    inputs: ImageInputs, added: AddedData, further: ImageSet, runs: Path
) -> Features | None:
    """Return the features of all images, training samples first; None of a run on images."""
    features, reference = inputs.features, inputs.config.features
    if features is None:
        return None
    if reference != LITE0:
        raise DataError(
            f"--data {added.data}: the run learned the features of a file, which has none of these "
            f"images; only runs on images or on --features {LITE0} can be continued"
        )
    values = load_features(reference, further, runs).values
    trained, count = len(inputs.images.train_labels), len(further.train_labels)
    parts = features.values[:trained], values[:count], features.values[trained:], values[count:]
    return features._replace(values=np.concatenate(parts))


def _stored_with(stored: StoredImages, inputs: ImageSet | Features) -> StoredImages:
    """Return other images or features with the statistics of the stored ones."""
    values = inputs.values if isinstance(inputs, Features) else inputs.images
    return stored.with_images(less_offset(values, stored.offset, np.dtype(stored.pieces.dtype)))
