"""Labels and copies of a user's images: what the note states, and what is refused."""

import struct

import numpy as np
import pytest
from PIL import Image, ImageCms

from everlight_data.errors import DataError
from everlight_data.images.user_files.class_names import class_numbers
from everlight_data.images.user_files.feature_files import features_alone
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
