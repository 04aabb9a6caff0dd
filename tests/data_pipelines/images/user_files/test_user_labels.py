"""Labels and copies of a user's images: what the note states, and what is refused."""

import struct

import numpy as np
import pytest
from PIL import Image, ImageCms

from everlight_data.errors import DataError
from everlight_data.images.user_files.class_names import class_numbers
from everlight_data.images.user_files.feature_files import (
    features_alone,
    features_of_images,
)
from everlight_data.images.user_files.image_lists import list_csv
from everlight_data.sets.image_set import ImageSet
from everlight_data.texts import printable
from tests.data_pipelines.images.user_files.user_folders import SIDE, folder_of, load, png_chunk


def arrays(path, images, **others):
    labels = np.array(["a", "b"]).repeat(len(images) // 2)
    np.savez(path, images=images, labels=labels, **others)
    return path


def pictures(rng, count=10):
    return rng.integers(0, 256, (count, SIDE, SIDE, 3)).astype(np.uint8)


@pytest.mark.parametrize(
    "names", [("big cat", "big\u00a0cat"), ("ab", "a\u200bb"), ("ab", "\ufeffab"), ("Cat", "cat")]
)
def test_names_that_look_the_same_are_refused(tmp_path, names):
    with pytest.raises(DataError, match="differ only in case, spaces, invisible characters"):
        class_numbers(tmp_path, names * 3)


@pytest.mark.parametrize(
    ("name", "shown"),
    [("Zoë <b>&", "Zoë <b>&"), ("a\nb", "a\\nb"), ("\udcff", "\\udcff"), ("\x1b[31m", "\\x1b[31m")],
)
def test_names_of_any_bytes_can_be_printed(tmp_path, name, shown):
    assert printable(name) == shown
    folder_of(tmp_path, {name: 3, "other": 3})
    images, _ = load(tmp_path)
    assert set(images.class_names) == {shown, "other"}


def test_single_letters_keep_their_case(tmp_path):
    names, numbers = class_numbers(tmp_path, ["a", "A", "b"] * 3)
    assert names == ("A", "a", "b")
    np.testing.assert_array_equal(numbers[:3], [1, 0, 2])


def test_numbers_have_their_order_however_they_are_written(tmp_path):
    """pandas writes integers beside missing values as 1.0, and "10.0" stood before "2.0"."""
    names, numbers = class_numbers(tmp_path, ["10.0", "2.0", "-1"] * 3)
    assert names == ("-1", "2.0", "10.0")
    np.testing.assert_array_equal(numbers[:3], [2, 1, 0])
    assert class_numbers(tmp_path, ["10", "2", "x"] * 3)[0] == ("10", "2", "x")


def test_a_space_before_a_quotation_mark_is_none_of_the_label(tmp_path):
    """The cell ` "cat"` gave the class `"cat"`, beside cat."""
    path = tmp_path / "list.csv"
    path.write_text('file,label\na.png,cat\nb.png, "cat"\n"c d.png", "a, b"\n')
    files = list_csv(path)
    assert files.labels == ["cat", "cat", "a, b"]
    assert [file.name for file in files.paths] == ["a.png", "b.png", "c d.png"]


def test_features_may_be_labelled_with_names_that_are_integers(tmp_path):
    path, values = tmp_path / "f.npz", np.arange(12.0).reshape(6, 2)
    numbers = np.arange(6) % 3
    images = ImageSet("a", np.zeros((6, 2, 2, 3), np.uint8), numbers, numbers[:0], ("1", "2", "3"))
    for labels in (numbers, numbers + 1, (numbers + 1).astype(str)):
        np.savez(path, features=values, labels=labels)
        np.testing.assert_array_equal(features_of_images(str(path), images).values, values)
    np.savez(path, features=values, labels=numbers + 2)
    with pytest.raises(DataError, match="row 0 is labelled '2', the image is '0'"):
        features_of_images(str(path), images)


@pytest.mark.parametrize("kind", ["f2", "f4", "f8"])
def test_infinite_features_are_refused_with_their_row(tmp_path, kind):
    """In 16 bits the limit is infinite, and so was the feature."""
    path, values = tmp_path / "f.npz", np.arange(12, dtype=kind).reshape(6, 2)
    np.savez(path, features=values, labels=np.array(["a", "b"] * 3))
    assert features_alone(str(path), 2).features.values.shape == (6, 2)
    values[3, 1] = np.inf
    np.savez(path, features=values, labels=np.array(["a", "b"] * 3))
    with pytest.raises(DataError, match=r"f\.npz: the features of row 3 are not all numbers"):
        features_alone(str(path), 2)


def test_test_images_that_train_are_counted(tmp_path, rng):
    training, tests = pictures(rng), pictures(rng)
    tests[[1, 7, 8]] = training[[0, 0, 9]]
    source = arrays(tmp_path / "own.npz", training)
    note = load(source, test_data=arrays(tmp_path / "tests.npz", tests)).note
    assert "3 test images equal training images" in note
    assert "equal training" not in load(source).note
    # Every fifth of a class tests: rows 4 and 9.
    training[4] = training[5]
    assert "1 test images equal training images" in load(arrays(source, training)).note


def test_images_of_several_classes_are_counted(tmp_path, rng):
    """Rows alternate between two classes."""
    images = pictures(rng)
    assert "another class" not in load(arrays(tmp_path / "own.npz", images)).note
    labels = np.arange(10) % 2
    images[[2, 4, 5]] = images[0]
    path = tmp_path / "own.npz"
    np.savez(path, images=images, labels=labels)
    assert "4 images equal an image of another class" in load(path).note
    images[5] = images[7]
    np.savez(path, images=images, labels=labels)
    assert "another class" not in load(path).note


def test_arrays_that_are_not_read_are_named(tmp_path, rng):
    images = pictures(rng)
    source = arrays(tmp_path / "own.npz", images, test_images=images, test_labels=np.arange(10))
    assert "arrays not read: test_images, test_labels" in load(source).note
    values = np.arange(20.0).reshape(10, 2)
    labels = np.array(["a", "b"]).repeat(5)
    np.savez(tmp_path / "f.npz", features=values, labels=labels, test_features=values)
    note = features_alone(str(tmp_path / "f.npz"), 5).note
    assert note.endswith("; arrays not read: test_features")


@pytest.mark.parametrize(
    ("kind", "count"), [("sRGB", 0), ("LAB", 6), ("gAMA 1/2.2", 0), ("gAMA 1", 6)]
)
def test_color_profiles_other_than_srgb_are_counted(tmp_path, rng, kind, count):
    for number, picture in enumerate(pictures(rng, 6)):
        path = tmp_path / "ab"[number % 2] / f"{number}.png"
        path.parent.mkdir(exist_ok=True)
        if kind.startswith("gAMA"):
            Image.fromarray(picture).save(path)
            # The chunk follows the signature and the header, 8 and 25 bytes; gamma is in 1/100,000.
            content, gamma = path.read_bytes(), 100_000 if kind == "gAMA 1" else 45_455
            gamma = png_chunk(b"gAMA", struct.pack(">I", gamma))
            path.write_bytes(content[:33] + gamma + content[33:])
        else:
            profile = ImageCms.ImageCmsProfile(ImageCms.createProfile(kind)).tobytes()
            Image.fromarray(picture).save(path, icc_profile=profile)
    note = load(tmp_path).note
    assert (f"{count} with a colour profile or gamma not named sRGB" in note) == bool(count)


def test_a_label_of_several_lines_is_refused_with_its_line(tmp_path):
    (tmp_path / "list.csv").write_text('file,label\na.png,ant\nb.png,"ant\nc.png,bee"\n')
    with pytest.raises(DataError, match=r"line \d: a label of several lines. Close its quotation"):
        load(tmp_path / "list.csv")


def test_a_class_with_the_name_of_a_missing_value_has_a_way_out(tmp_path, rng):
    (tmp_path / "list.csv").write_text("file,label\na.png,NA\nb.png,US\n")
    message = r"line 2, does not have .* give a class of that name another"
    with pytest.raises(DataError, match=message):
        load(tmp_path / "list.csv")
    np.savez(tmp_path / "own.npz", images=pictures(rng, 6), labels=np.array(["NA", "US"] * 3))
    with pytest.raises(DataError, match=r"row 0 has 'NA'.* if it is a class, give it another name"):
        load(tmp_path / "own.npz")
