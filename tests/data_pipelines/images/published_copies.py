"""A published set of three classes in every form, made from pixels that a test draws."""

import io
import pickle

import numpy as np
import pytest
from PIL import Image

from everlight_data.images.published_forms.prepared_sets import PublishedSet, prepare_images
from everlight_data.sets.data_set import DataSet, PreparationRequest

NAMES = ("apple", "aquarium_fish", "baby")
TRAIN, TEST = [2, 0, 1, 1, 0, 2, 0], [1, 2, 0, 0]
LABELS = [*TRAIN, *TEST]
SPLITS = {"train": range(7), "test": range(7, 11)}


def drawn(rng, side=32, channels=3):
    return rng.integers(0, 256, (len(LABELS), side, side, channels)).astype(np.uint8)


def constants(images):
    """Return mean and deviation of the training pixels, in float64."""
    pixels = images[: len(TRAIN)].astype(np.float64) / 255
    return pixels.mean((0, 1, 2)), pixels.std((0, 1, 2))


def published(images, **changes):
    known = PublishedSet(
        name="Fruit",
        shape=images.shape[1:],
        class_names=NAMES,
        train_counts=(3, 2, 2),
        test_counts=(2, 1, 1),
        statistics=tuple(map(tuple, constants(images))),
    )
    return known._replace(**changes)


def data_set(known, read_official=lambda source: None, **changes):
    row = DataSet(
        "Fruit",
        files=tuple(f"fruit/{file}" for file in known.files),
        owner="somebody",
        source="fruit.tar.gz",
        size_bytes=1000,
        prepare=prepare_images(known, read_official),
    )
    return row._replace(**changes)


def prepared(row, source, folder):
    return row.prepare(row, PreparationRequest(source, folder))


def png(image, mode=None, **options):
    stream = io.BytesIO()
    picture = Image.fromarray(image.squeeze())
    (picture if mode is None else picture.convert(mode)).save(stream, "PNG", **options)
    return stream.getvalue()


def class_folders(images, numbered=False):
    """Return files of class folders; the letters of their names are in another order."""
    files = {}
    for split, places in SPLITS.items():
        for place in places:
            stem = str(place - places[0]) if numbered else f"{'hgfedcbakji'[place]}_s_{place:06}"
            files[f"{split}/{NAMES[LABELS[place]]}/{stem}.png"] = png(images[place])
    return files


def by_name():
    """Return the places of the samples in the order of classes and file names."""
    letters = "hgfedcbakji"
    return [
        place
        for places in SPLITS.values()
        for place in sorted(places, key=lambda place: (LABELS[place], letters[place]))
    ]


def write(folder, files):
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


class Python2Pickler(pickle._Pickler):
    """Writes bytes and text as Python 2 did, in which the official files were written."""

    def save_string(self, value):
        content = value.encode("ascii") if isinstance(value, str) else value
        self.write(pickle.BINSTRING + len(content).to_bytes(4, "little") + content)

    dispatch = pickle._Pickler.dispatch | {str: save_string, bytes: save_string}


def pickled(value):
    stream = io.BytesIO()
    Python2Pickler(stream, 2).dump(value)
    return stream.getvalue()


def rows(images):
    """Return rows of an official file, by loops over pixels instead of a transposition."""
    side = images.shape[1]
    places = [(y, x, channel) for channel in range(3) for y in range(side) for x in range(side)]
    return np.array([[image[place] for place in places] for image in images])


def write_tfds(root, images):
    """Prepare a folder with TFDS itself, from a builder with the features of its cifar100."""
    # Its import takes seconds, and most users of this module do without.
    tfds = pytest.importorskip("tensorflow_datasets")

    class Fruit(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        VERSION = tfds.core.Version("3.0.2")

        def _info(self):
            features = {
                "id": tfds.features.Text(),
                "image": tfds.features.Image(shape=images.shape[1:]),
                "label": tfds.features.ClassLabel(names=NAMES),
                "coarse_label": tfds.features.ClassLabel(num_classes=20),
            }
            features = tfds.features.FeaturesDict(features)
            return tfds.core.DatasetInfo(builder=self, features=features)

        def _split_generators(self, download_manager):
            return {name: self._generate_examples(part) for name, part in SPLITS.items()}

        def _generate_examples(self, part):
            for index in part:
                # TFDS encodes arrays with TensorFlow, so the images are bytes.
                sample = {"id": f"{index:05}", "image": png(images[index]), "coarse_label": 1}
                yield index, sample | {"label": LABELS[index]}

    builder = Fruit(data_dir=root, file_format="array_record")
    builder.download_and_prepare()
    return root / "fruit" / "3.0.2"


def assert_is_the_set(result, images, order=None):
    """Check that the set has these images and labels, in the drawn order or that of `order`."""
    order = list(range(len(LABELS))) if order is None else order
    assert result.images.dtype == np.uint8
    assert result.images.flags.c_contiguous
    np.testing.assert_array_equal(result.images, images[order])
    labels = np.array(LABELS)[order]
    np.testing.assert_array_equal(result.train_labels, labels[: len(TRAIN)])
    np.testing.assert_array_equal(result.test_labels, labels[len(TRAIN) :])
    assert {result.train_labels.dtype, result.test_labels.dtype} == {np.dtype(np.int32)}
    assert result.class_names == NAMES
