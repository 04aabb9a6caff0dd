"""CIFAR-100 from a folder, an archive and TFDS; damaged files are named."""

import hashlib
import io
import os
import pickle
import re
import tarfile

import numpy as np
import pytest
import tensorflow_datasets as tfds
from PIL import Image

from everlight_data.errors import DataError, MissingDataError
from everlight_data.formats.originals import Original
from everlight_data.images import cifar100
from everlight_data.images.cifar100 import ARCHIVE, FOLDER, ORIGINALS, PREPARED, load_cifar100

SIZES = (6, 3, 4)
FINE = [3, 0, 2, 1, 0, 3, 2, 2, 1]
NAMES = ("apple", "aquarium_fish", "baby", "bear")


class Python2Pickler(pickle._Pickler):
    """Writes bytes and text as Python 2 did, in which the official files were written."""

    def save_string(self, value):
        content = value.encode("ascii") if isinstance(value, str) else value
        self.write(pickle.BINSTRING + len(content).to_bytes(4, "little") + content)

    dispatch = pickle._Pickler.dispatch | {str: save_string, bytes: save_string}


def pickled(value) -> bytes:
    stream = io.BytesIO()
    Python2Pickler(stream, 2).dump(value)
    return stream.getvalue()


@pytest.fixture
def images(rng):
    return rng.integers(0, 256, (9, 32, 32, 3)).astype(np.uint8)


@pytest.fixture
def members(images):
    """The three files as the official archive has them, with 6 and 3 images."""
    # Loops over pixels do not repeat the loader's transposition.
    places = [(y, x, channel) for channel in range(3) for y in range(32) for x in range(32)]
    rows = np.array([[image[place] for place in places] for image in images])
    split = {"train": slice(0, 6), "test": slice(6, 9)}
    meta = {"fine_label_names": list(NAMES), "coarse_label_names": ["fish", "fruit"]}
    contents = {"meta": pickled(meta)}
    for name, part in split.items():
        content = {"fine_labels": FINE[part], "coarse_labels": [1] * len(FINE[part])}
        content["filenames"] = [f"{name}_{index}.png" for index in range(len(FINE[part]))]
        content |= {"batch_label": f"{name} batch 1 of 1", "data": rows[part]}
        contents[name] = pickled(content)
    return contents


def write_folder(root, members, trust=lambda path: None):
    (root / FOLDER).mkdir()
    for name, content in members.items():
        (root / FOLDER / name).write_bytes(content)
        trust(root / FOLDER / name)


def write_archive(root, members):
    with tarfile.open(root / ARCHIVE, "w:gz") as archive:
        for name, content in members.items():
            entry = tarfile.TarInfo(f"{FOLDER}/{name}")
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))


def write_prepared(root, images):
    """A folder that TFDS itself prepared, from a builder with the features of its own cifar100."""

    class Cifar100(tfds.core.GeneratorBasedBuilder, skip_registration=True):
        VERSION = tfds.core.Version("3.0.2")

        def _info(self):
            features = {
                "id": tfds.features.Text(),
                "image": tfds.features.Image(shape=(32, 32, 3)),
                "label": tfds.features.ClassLabel(names=NAMES),
                "coarse_label": tfds.features.ClassLabel(num_classes=20),
            }
            features = tfds.features.FeaturesDict(features)
            return tfds.core.DatasetInfo(builder=self, features=features)

        def _split_generators(self, download_manager):
            parts = {"train": range(6), "test": range(6, 9)}
            return {name: self._generate_examples(part) for name, part in parts.items()}

        def _generate_examples(self, part):
            for index in part:
                # Images are bytes, because TFDS encodes arrays with TensorFlow.
                png = io.BytesIO()
                Image.fromarray(images[index]).save(png, "PNG")
                sample = {"id": f"{index:05}", "image": png.getvalue(), "coarse_label": 1}
                yield index, sample | {"label": FINE[index]}

    builder = Cifar100(data_dir=(root / PREPARED).parents[1], file_format="array_record")
    builder.download_and_prepare()


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setenv("EVERLIGHT_DATA", str(tmp_path))
    return tmp_path


@pytest.fixture
def trust(monkeypatch):
    """`trust(path)` makes a file's md5 the expected one."""

    def set_md5(path):
        known = Original(None, hashlib.md5(path.read_bytes()).hexdigest())
        monkeypatch.setitem(ORIGINALS, path.name, known)

    return set_md5


@pytest.fixture
def small(monkeypatch):
    """Lets a prepared set have this test's sizes."""
    monkeypatch.setattr(cifar100, "SIZES", SIZES)


def assert_is_the_set(result, images, order=slice(None)):
    assert result.name == "CIFAR-100"
    assert result.images.dtype == np.uint8
    assert result.images.flags.c_contiguous
    np.testing.assert_array_equal(result.images, images[order])
    np.testing.assert_array_equal(result.train_labels, np.array(FINE)[order][:6])
    np.testing.assert_array_equal(result.test_labels, np.array(FINE)[order][6:])
    assert {result.train_labels.dtype, result.test_labels.dtype} == {np.dtype(np.int32)}
    assert result.class_names == NAMES


def test_the_folder_is_read_in_its_order(root, members, images, trust):
    write_folder(root, members, trust)
    assert_is_the_set(load_cifar100(), images)


def test_the_archive_is_read_in_its_order_and_leaves_no_file(root, members, images, trust):
    write_archive(root, members)
    trust(root / ARCHIVE)
    assert_is_the_set(load_cifar100(), images)
    assert [path.name for path in root.iterdir()] == [ARCHIVE]


@pytest.mark.usefixtures("small")
def test_a_set_prepared_by_tfds_is_read_in_the_order_tfds_gave_it(root, images):
    write_prepared(root, images)
    result = load_cifar100()
    order = [
        int(np.flatnonzero((images == image).all(axis=(1, 2, 3))).item()) for image in result.images
    ]
    assert sorted(order[:6]) == [0, 1, 2, 3, 4, 5]
    assert_is_the_set(result, images, order)


@pytest.mark.usefixtures("small")
def test_the_folder_precedes_the_archive_and_that_precedes_tfds(root, members, images, trust):
    write_prepared(root, images)
    assert load_cifar100().class_names == NAMES
    write_archive(root, members)
    with pytest.raises(DataError, match=re.escape(str(root / ARCHIVE))):
        load_cifar100()
    trust(root / ARCHIVE)
    assert_is_the_set(load_cifar100(), images)
    write_folder(root, members)
    with pytest.raises(DataError, match=re.escape(str(root / FOLDER / "train"))):
        load_cifar100()


@pytest.mark.parametrize("is_set", [True, False])
def test_without_any_of_them_all_three_are_named(root, monkeypatch, is_set):
    if not is_set:
        monkeypatch.delenv("EVERLIGHT_DATA")
    with pytest.raises(MissingDataError) as caught:
        load_cifar100()
    state = f"EVERLIGHT_DATA={root} lacks it" if is_set else "EVERLIGHT_DATA is not set"
    for part in (
        state,
        f"<folder>/{FOLDER},",
        ARCHIVE,
        PREPARED,
        "(169.0 MB) from Krizhevsky 2009",
        "187.0 MB",
        "cs.toronto.edu/~kriz",
    ):
        assert part in str(caught.value)


@pytest.mark.parametrize("name", ["train", "test", "meta"])
def test_a_folder_without_one_of_its_files_names_it(root, members, trust, name):
    write_folder(root, members, trust)
    (root / FOLDER / name).unlink()
    with pytest.raises(MissingDataError, match=rf"{FOLDER}/{name} does not exist"):
        load_cifar100()


@pytest.mark.parametrize("name", ["train", "test", "meta"])
def test_a_changed_byte_in_the_folder_is_reported_with_both_md5s(root, members, trust, name):
    write_folder(root, members, trust)
    path = root / FOLDER / name
    path.write_bytes(path.read_bytes()[:-2] + b"!.")
    result, digest = hashlib.md5(path.read_bytes()).hexdigest(), ORIGINALS[name].digest
    with pytest.raises(DataError, match=rf"{name} has md5 {result}, expected {digest}: .* Unpack"):
        load_cifar100()


def test_a_pickle_that_calls_something_is_refused_even_with_the_right_md5(root, members, trust):
    witness = root / "witness"

    class Attack:
        def __reduce__(self):
            return os.system, (f"touch {witness}",)

    attack = pickle.dumps({b"data": Attack()}, 2)
    write_archive(root, members | {"test": attack})
    trust(root / ARCHIVE)
    with pytest.raises(DataError, match=rf"{ARCHIVE}: test names posix\.system"):
        load_cifar100()
    assert not witness.exists()


def test_a_prepared_set_of_another_size_is_refused(root, images):
    write_prepared(root, images)
    with pytest.raises(DataError, match=r"3\.0\.2 holds .*\(6, 3, 4\), expected \(50000, 10000, 1"):
        load_cifar100()
