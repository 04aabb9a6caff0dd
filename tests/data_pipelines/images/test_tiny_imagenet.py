"""Tiny ImageNet at 32x32: sizes, colours, labels and choices of classes."""

import io
import json

import imagecodecs
import numpy as np
import pytest
from PIL import Image

from everlight_data.errors import DataError
from everlight_data.images.tiny_imagenet import load_tiny_imagenet_32

IMAGENET_MEAN = np.array([0.485, 0.456, 0.406]) * 255


@pytest.fixture(scope="module")
def full(real_data):
    real_data("tiny_imagenet_32x32/val.npz")
    return load_tiny_imagenet_32()


def test_the_set_has_the_sizes_of_cifar_100(full):
    assert full.images.shape == (60_000, 32, 32, 3)
    assert full.images.dtype == np.uint8
    np.testing.assert_array_equal(np.bincount(full.train_labels), [250] * 200)
    np.testing.assert_array_equal(np.bincount(full.test_labels), [50] * 200)
    assert {full.train_labels.dtype, full.test_labels.dtype} == {np.dtype(np.int32)}
    assert len(set(full.class_names)) == 200
    assert full.class_names[0] == "goldfish, Carassius auratus"


def test_the_colors_are_those_of_imagenet_in_their_order(full):
    """Tiny-ImageNet is a part of ImageNet, whose published channel means lie 8 levels apart."""
    for part in (full.images[:50_000], full.images[50_000:]):
        np.testing.assert_allclose(part.mean(axis=(0, 1, 2)), IMAGENET_MEAN, atol=2.5)
    goldfish = full.images[50_000:][full.test_labels == 0].mean(axis=(0, 1, 2))
    assert goldfish[0] > goldfish[2] + 30


def test_training_and_test_labels_mean_the_same_classes(full):
    """The nearest of 200 mean training images is the right one far above chance, 0.5%."""
    images = full.images.reshape(60_000, -1)[:, ::8].astype(np.float32)
    means = np.stack([images[:50_000][full.train_labels == label].mean(0) for label in range(200)])
    scores = 2 * images[50_000:] @ means.T - (means**2).sum(axis=1)
    assert (scores.argmax(axis=1) == full.test_labels).mean() > 0.02


def test_pixels_are_those_that_pillow_decodes(full, real_data):
    with np.load(real_data("tiny_imagenet_32x32/train_1.npz")) as arrays:
        content, offsets = arrays["jpeg_bytes"], arrays["offsets"]
    for sample in (0, 1, 12_345, 27_999):
        jpeg = content[offsets[sample] : offsets[sample + 1]].tobytes()
        expected = np.asarray(Image.open(io.BytesIO(jpeg)))
        np.testing.assert_array_equal(full.images[22_000 + sample], expected)


def test_chosen_classes_are_renumbered_in_the_given_order(full):
    classes = [7, 199, 0]
    part = load_tiny_imagenet_32(classes)
    assert part.class_names == tuple(full.class_names[label] for label in classes)
    original = np.array(classes)
    train = np.isin(full.train_labels, classes)
    test = np.isin(full.test_labels, classes)
    np.testing.assert_array_equal(original[part.train_labels], full.train_labels[train])
    np.testing.assert_array_equal(original[part.test_labels], full.test_labels[test])
    np.testing.assert_array_equal(part.images, full.images[np.concatenate([train, test])])


def jpeg(shape=(32, 32, 3)):
    return imagecodecs.jpeg8_encode(np.full(shape, 90, np.uint8))


def part(jpegs, labels):
    ends = np.cumsum([len(content) for content in jpegs])
    return {
        "jpeg_bytes": np.frombuffer(b"".join(jpegs), np.uint8),
        "offsets": np.array([0, *ends]),
        "label": np.array(labels, np.uint8),
    }


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Write a set of two classes and two images in every file."""
    monkeypatch.setenv("EVERLIGHT_DATA", str(tmp_path))
    folder = tmp_path / "tiny_imagenet_32x32"
    folder.mkdir()
    classes = {"wnids": ["n01", "n02"], "names": ["goldfish", "newt"]}
    (folder / "classes.json").write_text(json.dumps(classes))
    for file in ("train_0.npz", "train_1.npz", "val.npz"):
        np.savez(folder / file, **part([jpeg(), jpeg()], [1, 0]))
    return folder


def test_the_two_training_files_follow_each_other(folder):
    np.savez(folder / "train_1.npz", **part([jpeg()], [0]))
    result = load_tiny_imagenet_32()
    assert result.name == "Tiny-ImageNet 32x32"
    assert result.train_labels.tolist() == [1, 0, 0]
    assert result.test_labels.tolist() == [1, 0]
    assert result.class_names == ("goldfish", "newt")
    np.testing.assert_allclose(result.images, 90, atol=1)


@pytest.mark.parametrize("classes", [[], [0, 0], [-1], [0, 2], [0.5]])
def test_classes_that_are_not_distinct_labels_are_refused(folder, classes):
    with pytest.raises(DataError, match=r"classes=.* are not distinct labels from 0 to 1"):
        load_tiny_imagenet_32(classes)


def test_only_the_images_of_the_chosen_classes_are_decoded(folder):
    np.savez(folder / "train_1.npz", **part([b"not a JPEG", jpeg()], [1, 0]))
    assert load_tiny_imagenet_32([0]).train_labels.tolist() == [0, 0]
    with pytest.raises(DataError, match=r"train_1\.npz\[0\]"):
        load_tiny_imagenet_32([1])


@pytest.mark.parametrize("text", ["", '{"names": ', "[]", '{"wnids": []}', '{"names": 5}'])
def test_names_that_cannot_be_read_are_named(folder, text):
    (folder / "classes.json").write_text(text)
    with pytest.raises(
        DataError, match=r"classes\.json is .* lists wnids and names of equal length"
    ):
        load_tiny_imagenet_32()


SIZE = len(jpeg())


def pair(second):
    """Return a file with another second image."""
    return part([jpeg(), second], [0, 1])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"offsets": np.array([0, SIZE, 2 * SIZE + 1])}, "offsets do not increase from 0"),
        ({"offsets": np.array([0, SIZE, 2 * SIZE - 1])}, "offsets do not increase from 0"),
        ({"offsets": np.array([0, 2 * SIZE + 1, 2 * SIZE])}, "offsets do not increase from 0"),
        ({"offsets": np.array([1, SIZE, 2 * SIZE])}, "offsets do not increase from 0"),
        ({"offsets": np.array([0, SIZE - 1, 2 * SIZE])}, r"\[0\] does not end like a JPEG"),
        ({"offsets": np.array([0, 0, 2 * SIZE])}, r"\[0\] does not end like a JPEG"),
        ({"offsets": np.array([0, 2 * SIZE])}, r"labels \(2,\), offsets \(2,\)"),
        ({"offsets": np.array([0.0, SIZE, 2 * SIZE])}, "float64, uint8 are not bytes and integers"),
        ({"jpeg_bytes": np.zeros(2 * SIZE, np.int8)}, "types int8"),
        ({"label": np.array([0, 2])}, "label 2 is not one of the 2 classes"),
        ({"label": np.array([-1, 0])}, "label -1 is not one of the 2 classes"),
        ({"label": np.array([0])}, r"labels \(1,\), offsets \(3,\)"),
        ({"label": np.array(0)}, r"labels \(\), offsets \(3,\)"),
        (pair(jpeg()[: SIZE // 2]), r"\[1\] does not end like a JPEG"),
        (pair(b"GIF89a\xff\xd9"), r"\[1\] is .*not a JPEG"),
        (pair(jpeg((32, 48, 3))), r"\[1\] is an image of \(32, 48, 3\), not \(32, 32, 3\)"),
        (pair(jpeg((32, 32))), r"\[1\] is an image of \(32, 32\), not \(32, 32, 3\)"),
    ],
)
def test_arrays_that_contradict_each_other_and_other_images_are_named(folder, changes, message):
    np.savez(folder / "val.npz", **part([jpeg(), jpeg()], [0, 1]) | changes)
    with pytest.raises(DataError, match=rf"val\.npz.*{message}"):
        load_tiny_imagenet_32()
