"""Sets that TFDS itself prepared, read and refused; no TensorFlow is installed here."""

import importlib.util
import json
import re
import shutil

import imagecodecs
import numpy as np
import pytest
import tensorflow_datasets as tfds

from everlight_data.errors import DataError, MissingDataError
from everlight_data.images.published_forms.tfds_sets import find_prepared, load_tfds

NAMES = ("apple", "bear", "cat")
LABELS = {"train": [2, 0, 1, 1, 0], "validation": [1, 2]}


class SmallPictures(tfds.core.GeneratorBasedBuilder, skip_registration=True):
    """Grey images of several sizes."""

    VERSION = tfds.core.Version("1.10.0")

    def _info(self):
        features = {
            "image": tfds.features.Image(shape=(None, None, 1), encoding_format="png"),
            "label": tfds.features.ClassLabel(names=NAMES),
            "weight": tfds.features.Scalar(np.float32),
        }
        return tfds.core.DatasetInfo(builder=self, features=tfds.features.FeaturesDict(features))

    def _split_generators(self, download_manager):
        return {name: self._generate_examples(labels) for name, labels in LABELS.items()}

    def _generate_examples(self, labels):
        for place, label in enumerate(labels):
            image = np.full((10, 8 + 2 * place), 40 * label + place, np.uint8)
            yield place, {"image": imagecodecs.png_encode(image), "label": label, "weight": 1.0}


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """Prepare a folder of data sets with one of them."""
    assert importlib.util.find_spec("tensorflow") is None
    root = tmp_path_factory.mktemp("data")
    builder = SmallPictures(data_dir=root / "tensorflow_datasets", file_format="array_record")
    builder.download_and_prepare()
    return root


@pytest.fixture
def root(prepared, tmp_path, monkeypatch):
    """Copy the prepared folder, so that a test can change it."""
    monkeypatch.setenv("EVERLIGHT_DATA", str(tmp_path))
    shutil.copytree(prepared / "tensorflow_datasets", tmp_path / "tensorflow_datasets")
    return tmp_path / "tensorflow_datasets" / "small_pictures" / "1.10.0"


def test_gray_images_come_in_square_with_their_labels(root):
    result = load_tfds("small_pictures", 4)
    assert result.name == "small_pictures"
    assert result.class_names == NAMES
    assert result.images.shape == (7, 4, 4, 1)
    train, test = result.images[:5, 0, 0], result.images[5:, 0, 0]
    for pixels, labels, expected in (
        (train, result.train_labels, LABELS["train"]),
        (test, result.test_labels, LABELS["validation"]),
    ):
        assert sorted(labels.tolist()) == sorted(expected)
        # An image's grey is 40 times its label and its place, in whatever order they are stored.
        numbers = {(int(gray) // 40, int(gray) % 40) for gray in pixels[:, 0]}
        assert numbers == {(label, place) for place, label in enumerate(expected)}
        np.testing.assert_array_equal(pixels[:, 0] // 40, labels)


def test_the_newest_version_is_taken_unless_one_is_requested(root):
    shutil.copytree(root, root.parent / "1.9.0")
    assert find_prepared("small_pictures").name == "1.10.0"
    assert find_prepared("small_pictures:1.9.0").name == "1.9.0"
    message = r"small_pictures:2\.0\.0 is not prepared in .* has small_p"
    with pytest.raises(MissingDataError, match=message):
        find_prepared("small_pictures:2.0.0")
    with pytest.raises(DataError, match="not a TFDS name"):
        find_prepared("../small_pictures")


def change(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def as_tfrecord(root):
    path = root / "dataset_info.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"fileFormat": "tfrecord"}))


def without_test(root):
    change(root / "dataset_info.json", '"validation"', '"extra"')
    for path in root.glob("*-validation*"):
        path.rename(path.with_name(path.name.replace("validation", "extra")))


def fewer_classes(root):
    (root / "label.labels.txt").write_text("apple\nbear\n")
    change(root / "features.json", '"numClasses": "3"', '"numClasses": "2"')


def no_label(root):
    change(root / "features.json", '"label": {', '"kind": {')
    (root / "label.labels.txt").rename(root / "kind.labels.txt")


def lost(root):
    next(root.glob("*-train*")).unlink()


def cut_short(root):
    path = next(root.glob("*-train*"))
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def without_information(root):
    (root / "dataset_info.json").write_text('{"name"')


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (as_tfrecord, "is prepared as tfrecord, which only TensorFlow can read. Prepare it with"),
        (without_test, "has the splits extra, train; a split train and a split test "),
        (fewer_classes, "the split train has the label 2, not one of 2 classes"),
        (no_label, "has the features image, kind, weight; it needs an image and a class label"),
        (lost, "is not a set that TFDS can read"),
        (cut_short, "is not a set that TFDS can read"),
        (without_information, "is not a set that TFDS can read"),
    ],
)
def test_unusable_sets_of_tfds_are_named(root, damage, message):
    damage(root)
    with pytest.raises(DataError, match=re.escape(message)):
        load_tfds("small_pictures", 4)
