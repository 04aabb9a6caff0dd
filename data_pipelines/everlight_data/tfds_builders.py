"""TensorFlow Datasets builders for sets that TFDS lacks, for users of other libraries.

    import everlight_data.tfds_builders
    import tensorflow_datasets as tfds

    builder = tfds.builder("core50", data_dir=FOLDER, file_format="array_record")
    builder.download_and_prepare()
    train = builder.as_data_source("train")

Importing the module registers `core50`, `s20_two_camera` and `procedural_world`. Nothing is
downloaded: the first two read the data below EVERLIGHT_DATA (see `data prepare`). Only the format
tfrecord and `as_dataset` need TensorFlow.
"""

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import tensorflow_datasets as tfds
from jaxtyping import UInt8

from everlight.scenarios.core50 import TEST_SESSIONS
from everlight_data.color.s20 import load_s20
from everlight_data.images.core50.prepared import (
    CATEGORY_NAMES,
    OBJECT_NAMES,
    load_core50,
    object_category,
)
from everlight_data.images.core50.release import SIDE
from everlight_data.optional_packages import import_package
from everlight_data.procedural.render import World
from everlight_data.procedural.world import class_names, load_procedural, superclass_of
from everlight_data.sets.image_set import PerClass

Samples = Iterator[tuple[int | str, dict[str, Any]]]


class Core50(tfds.core.GeneratorBasedBuilder):
    """CORe50 (Lomonaco and Maltoni 2017) with objects as classes and its three test sessions."""

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES: ClassVar = {"1.0.0": "The release's 164,866 frames of 128x128."}

    def _info(self) -> tfds.core.DatasetInfo:
        features = {
            "image": tfds.features.Image(shape=(SIDE, SIDE, 3), encoding_format="png"),
            "label": tfds.features.ClassLabel(names=list(OBJECT_NAMES)),
            "category": tfds.features.ClassLabel(names=list(CATEGORY_NAMES)),
            "session": tfds.features.Scalar(np.int32),
            "frame": tfds.features.Scalar(np.int32),
        }
        return _dataset_info(self, features, "https://vlomonaco.github.io/core50")

    def _split_generators(self, download_manager: Any) -> dict[str, Samples]:
        return {"train": self._generate_examples(False), "test": self._generate_examples(True)}

    def _generate_examples(self, test: bool) -> Samples:
        frames = load_core50(partial=True)
        for place in np.flatnonzero(np.isin(frames.session, TEST_SESSIONS) == test).tolist():
            yield (
                place,
                {
                    "image": _png(frames.images[place]),
                    "label": int(frames.object[place]),
                    "category": int(object_category(frames.object[place])),
                    "session": int(frames.session[place]),
                    "frame": int(frames.frame[place]),
                },
            )


class S20TwoCamera(tfds.core.GeneratorBasedBuilder):
    """S20's image pairs (Abdelhamed et al. 2021): illuminants, transforms and official folds."""

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES: ClassVar = {"1.0.0": "The release's 162 pairs."}

    def _info(self) -> tfds.core.DatasetInfo:
        illuminant = tfds.features.Tensor(shape=(3,), dtype=np.float32)
        transform = tfds.features.Tensor(shape=(3, 3), dtype=np.float32)
        features = {
            "name": tfds.features.Text(),
            "fold": tfds.features.Scalar(np.int32),
            "illuminant_main": illuminant,
            "illuminant_second": illuminant,
            "transform_image": transform,
            "transform_chart": transform,
        }
        page = "https://github.com/SamsungLabs/two-camera-white-balance"
        return _dataset_info(self, features, page)

    def _split_generators(self, download_manager: Any) -> dict[str, Samples]:
        return {"train": self._generate_examples()}

    def _generate_examples(self) -> Samples:
        release = load_s20()
        tensors = [name for name in self.info.features if name not in ("name", "fold")]
        for place, name in enumerate(release.names):
            fold = next(number for number, fold in enumerate(release.folds) if place in fold)
            values = {field: getattr(release, field)[place] for field in tensors}
            yield name, {"name": name, "fold": fold} | values


class ProceduralWorld(tfds.core.GeneratorBasedBuilder):
    """Textured shapes: 20 classes in 4 superclasses, 500 training and 100 test images per class."""

    VERSION = tfds.core.Version("1.0.0")
    RELEASE_NOTES: ClassVar = {"1.0.0": "The world of seed 0."}
    WORLD: ClassVar = World(superclasses=4, subclasses=5)
    PER_CLASS: ClassVar = PerClass(train=500, test=100)

    def _info(self) -> tfds.core.DatasetInfo:
        shape = (self.WORLD.size, self.WORLD.size, 3)
        features = {
            "image": tfds.features.Image(shape=shape, encoding_format="png"),
            "label": tfds.features.ClassLabel(names=list(class_names(self.WORLD))),
            "superclass": tfds.features.ClassLabel(num_classes=self.WORLD.superclasses),
        }
        return _dataset_info(self, features, None)

    def _split_generators(self, download_manager: Any) -> dict[str, Samples]:
        images = load_procedural(self.WORLD, self.PER_CLASS)
        train = len(images.train_labels)
        return {
            "train": self._generate_examples(images.images[:train], images.train_labels),
            "test": self._generate_examples(images.images[train:], images.test_labels),
        }

    def _generate_examples(self, images: np.ndarray, labels: np.ndarray) -> Samples:
        superclasses = superclass_of(self.WORLD, labels)
        for place, (image, label) in enumerate(zip(images, labels, strict=True)):
            sample = {"image": _png(image), "label": int(label)}
            yield place, sample | {"superclass": int(superclasses[place])}


def _dataset_info(
    builder: tfds.core.DatasetBuilder, features: dict[str, Any], page: str | None
) -> tfds.core.DatasetInfo:
    return tfds.core.DatasetInfo(
        builder=builder,
        description=type(builder).__doc__,
        features=tfds.features.FeaturesDict(features),
        homepage=page,
    )


def _png(image: UInt8[np.ndarray, "h w 3"]) -> bytes:
    # The images are bytes, because TFDS encodes arrays with TensorFlow.
    return import_package("imagecodecs").png_encode(image)
