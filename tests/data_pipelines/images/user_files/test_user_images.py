"""Reading, counting and refusing a user's own images, with and without a test set."""

import re
import threading
import time

import numpy as np
import pytest
from PIL import Image

from everlight_data.errors import MissingDataError
from everlight_data.images.user_files import user_images
from tests.data_pipelines.images.user_files.user_folders import (
    COLORS,
    SIDE,
    folder_of,
    load,
    picture,
    refused,
)


def test_classes_are_sub_folders_and_every_nth_image_tests(tmp_path):
    images, note = load(folder_of(tmp_path / "mine", {"b": 10, "a": 4, "c": 6}))
    assert images.class_names == ("a", "b", "c")
    np.testing.assert_array_equal(images.train_labels, [0] * 3 + [1] * 8 + [2] * 5)
    # These are the fifth and tenth of b, the last of a, which is short, and the fifth of c.
    tests = images.images[len(images.train_labels) :, 0, 0].tolist()
    assert tests == [[50, 30, 0], [0, 40, 0], [0, 90, 0], [100, 40, 0]]
    np.testing.assert_array_equal(images.test_labels, [0, 1, 1, 2])
    assert note == (
        "mine: 20 images of 3 classes, of which 4 test (every 5th of a class); the middle square "
        "of each at 8×8 pixels"
    )


def test_the_middle_square_is_taken_upright(tmp_path):
    folder_of(tmp_path, {"a": 3, "b": 3})
    wide = Image.new("RGB", (60, 20), (255, 0, 0))
    wide.paste((0, 0, 255), (20, 0, 30, 20))
    wide.paste((0, 255, 0), (30, 0, 40, 20))
    # At orientation 6 the camera lay on its side, and the picture is turned clockwise.
    exif = Image.Exif()
    exif[0x0112] = 6
    for place in range(3):
        wide.save(tmp_path / "a" / f"{place:02d}.png", exif=exif)
    image = load(tmp_path).images.images[0]
    # Turned, left is above: blue in the upper half, green in the lower; red shines in at the edge.
    np.testing.assert_array_equal(image.argmax(axis=-1), [[2] * 8] * 4 + [[1] * 8] * 4)
    assert image[..., 0].max() < 40


def test_images_of_other_modes_are_converted_to_rgb_and_counted(tmp_path):
    folder_of(tmp_path, {"a": 3, "b": 8})
    gray, cmyk = Image.new("L", (9, 9), 77), Image.new("CMYK", (9, 9), (0, 0, 0, 255))
    gray.save(tmp_path / "a" / "00.png")
    cmyk.save(tmp_path / "a" / "01.jpg")
    (tmp_path / "a" / "01.png").unlink()
    Image.new("RGBA", (9, 9), (9, 9, 9, 51)).save(tmp_path / "a" / "02.png")
    picture((9, 9, 9)).convert("P").save(tmp_path / "a" / "03.png")
    frames = [picture(color) for color in COLORS.values()]
    frames[0].save(tmp_path / "a" / "04.gif", save_all=True, append_images=frames[1:])
    (tmp_path / ".DS_Store").write_text("x")
    (tmp_path / "a" / ".thumbs").write_text("x")
    (tmp_path / "readme.txt").write_text("x")
    images, note = load(tmp_path)
    assert note.endswith(
        "; converted to RGB: 1 CMYK, 1 grey, 2 palette; 1 with transparency, laid over white; "
        "1 with several frames, of which the first is used; files not read: 2 hidden, 1 beside the "
        "classes' folders"
    )
    np.testing.assert_array_equal(images.images[0], np.full((8, 8, 3), 77))
    assert np.all(images.images[1] < 30), "black ink"
    # White follows a fifth of 9.
    np.testing.assert_array_equal(images.images[2], np.full((8, 8, 3), 206))
    # The animation's first frame; the file's colours are exact.
    np.testing.assert_array_equal(images.images[len(images.train_labels), 0, 0], COLORS["blue"])


@pytest.mark.parametrize("ending", ["tif", "webp", "bmp"])
def test_other_formats_are_refused_with_the_formats_that_are_read(tmp_path, ending):
    folder_of(tmp_path, {"a": 3, "b": 3})
    Image.new("RGB", (8, 8)).save(tmp_path / "a" / f"00.{ending}")
    assert "not a complete 8-bit JPEG, PNG or GIF file): a/00." in refused(tmp_path)


@pytest.mark.parametrize("ending", ["CSV", "NPZ"])
def test_endings_may_be_in_upper_case(tmp_path, ending):
    folder_of(tmp_path, {"a": 3, "b": 3})
    rows = [f"{name}/{place:02d}.png,{name}" for name in "ab" for place in range(3)]
    path = write_csv(tmp_path, "file,label", *rows)
    if ending == "NPZ":
        path = npz(tmp_path, images=IMAGES, labels=np.array(list("aaabbb")))
    assert load(path.rename(path.with_suffix(f".{ending}")))[0].class_names == ("a", "b")


def test_a_class_of_zeros_in_front_is_a_class(tmp_path):
    images, _ = load(npz(tmp_path, images=IMAGES, labels=np.array(["007", "8"] * 3)))
    assert images.class_names == ("007", "8")


def test_test_images_of_another_scale_are_refused(tmp_path, rng):
    values = rng.integers(0, 256, (6, SIDE, SIDE, 3), dtype=np.uint8)
    train = npz(tmp_path, images=values, labels=np.array(list("aaabbb")))
    (tmp_path / "test").mkdir()
    test = npz(tmp_path / "test", images=values // 128, labels=np.array(list("aaabbb")))
    message = refused(train, test_data=test)
    assert "mine.npz holds uint8 from 0 to 1, mine.npz uint8 from 0 to 255; give both in" in message


def test_a_photograph_keeps_its_mean(tmp_path, rng):
    """The reduced decoding of a large JPEG is compared with the mean of all its pixels."""
    folder_of(tmp_path, {"a": 3, "b": 3})
    ramp = np.linspace(0, 255, 400)
    image = np.stack(np.broadcast_arrays(ramp[:, None], ramp, 100), axis=-1).astype(np.uint8)
    Image.fromarray(image).save(tmp_path / "a" / "00.jpg", quality=95)
    read = load(tmp_path).images.images[0].astype(float)
    blocks = image.reshape(8, 50, 8, 50, 3).mean(axis=(1, 3))
    np.testing.assert_allclose(read, blocks, atol=6)


def write_csv(root, *rows):
    path = root / "list.csv"
    path.write_text("\n".join(rows), encoding="utf-8")
    return path


@pytest.mark.parametrize("folder", ["all/x", "all/y/../x"])
def test_a_csv_names_files_and_labels(tmp_path, folder):
    folder_of(tmp_path / "all", {"x": 6})
    rows = [f"{folder}/{place:02d}.png,{'even' if place % 2 == 0 else 'odd'}" for place in range(6)]
    images, note = load(write_csv(tmp_path, "file,label", *rows))
    assert images.class_names == ("even", "odd")
    np.testing.assert_array_equal(images.images[:, 0, 0, 1], [0, 10, 20, 30, 40, 50])
    np.testing.assert_array_equal(images.train_labels, [0, 1, 0, 1])
    assert note.startswith("list.csv: 6 images of 2 classes, of which 2 test")


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ((), r"does not begin with file,label"),
        (("a.png,1",), r"does not begin with file,label"),
        (("file,label",), r"names no image"),
        (("file,label", "00.png"), r"line 2, does not have a file and a label"),
        (("file,label", "00.png,"), r"line 2, does not have a file and a label, the only such row"),
        (
            ("file,label", "a,1", "b, ", "c,nan", "d,1"),
            r"line 3, does not .*, the first of 2 such rows",
        ),
        (("file,label", "a,1", "b,NA", "d,None"), r"line 3, does not .*, the first of 2 such rows"),
        (("file,label", "00.png,1", "00.png,2"), r"line 3, names '00.png' again, after line 2"),
        (("file,label", "00.png,1", "./00.png,1"), r"line 3, names './00.png' again"),
        (("file,label", "00.png,1", "a/../00.png,1"), r"line 3, names 'a/../00.png' again"),
        (("file,label", "a/../../secret,1"), r"line 2: 'a/../../secret' leads out"),
        (("file,label", "/etc/passwd,1"), r"leads out of the csv's folder"),
        (
            ("file,label", "none.png,1"),
            r"1 of 1 files cannot be used \(missing, .*: none.png\. Repair",
        ),
    ],
)
def test_a_csv_that_cannot_be_used_is_refused(tmp_path, rows, message):
    picture((0, 0, 0)).save(tmp_path / "00.png")
    assert re.search(message, refused(write_csv(tmp_path, *rows)))


def npz(root, **arrays):
    np.savez(root / "mine.npz", **arrays)
    return root / "mine.npz"


@pytest.mark.parametrize("labels", [[10, 2, 10, 2, 10, 2], list("babaab")])
def test_an_npz_holds_images_and_labels(tmp_path, rng, labels):
    values = rng.integers(0, 256, (6, SIDE, SIDE, 3), dtype=np.uint8)
    images, _ = load(npz(tmp_path, images=values, labels=np.array(labels)))
    # Whole numbers have their order, not that of their text.
    assert images.class_names == (("2", "10") if labels[0] == 10 else ("a", "b"))
    number = [images.class_names.index(str(label)) for label in labels]
    last = [max(np.flatnonzero(np.array(number) == label)) for label in (0, 1)]
    order = [*np.setdiff1d(np.arange(6), last), *sorted(last)]
    np.testing.assert_array_equal(images.images, values[order])
    np.testing.assert_array_equal(
        np.concatenate([images.train_labels, images.test_labels]), np.array(number)[order]
    )


@pytest.mark.parametrize("channels", [(), (1,)])
def test_gray_arrays_keep_one_channel(tmp_path, rng, channels):
    values = rng.integers(0, 256, (6, SIDE, SIDE, *channels), dtype=np.uint8)
    images, note = load(npz(tmp_path, images=values, labels=np.arange(6) % 2))
    np.testing.assert_array_equal(images.images[0], values[0].reshape(SIDE, SIDE, 1))
    assert note.endswith("; grey, in one channel")


def test_a_folder_of_gray_images_keeps_one_channel(tmp_path):
    folder_of(tmp_path, {"a": 3, "b": 3})
    colored = load(tmp_path).images.images
    for path in tmp_path.glob("*/*.png"):
        Image.open(path).convert("1" if path.name == "00.png" else "L").save(path)
    images, note = load(tmp_path)
    assert images.images.shape == (6, 8, 8, 1)
    assert note.endswith("; grey, in one channel")
    # Its luminance is Pillow's, ITU-R 601.
    weights = np.array([0.299, 0.587, 0.114])
    np.testing.assert_allclose(images.images[3, 0, 0, 0], colored[3, 0, 0] @ weights, atol=1)


IMAGES = np.zeros((6, SIDE, SIDE, 3), np.uint8)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"images": IMAGES}, r"lacks \['labels'\]"),
        ({"images": IMAGES / 255, "labels": np.arange(6)}, r"images have dtype float64"),
        (
            {"images": IMAGES[..., :2], "labels": np.arange(6)},
            r"images have dtype uint8 and shape \(6, 8, 8, 2",
        ),
        ({"images": IMAGES, "labels": np.arange(5)}, r"labels have dtype int64 and shape \(5,\)"),
        ({"images": IMAGES, "labels": np.arange(6.0)}, r"labels have dtype float64"),
        ({"images": IMAGES[:0], "labels": np.arange(0)}, r"holds no image"),
        ({"images": IMAGES, "labels": np.array(["a"] * 3 + [" "] * 3)}, r"an empty label"),
        (
            {"images": IMAGES, "labels": np.array(["a", "", "a", "b", "nan", "b"])},
            r"row 1 has '', an empty label or a missing value, the first of 2 such rows",
        ),
        ({"images": IMAGES, "labels": np.zeros(6, int)}, r"holds one class\. Give two"),
        *(
            (
                {"images": IMAGES, "labels": np.array(["1", other] * 3)},
                rf"the classes '1' and '{re.escape(other)}' are one number\. Write it in one way",
            )
            for other in ("01", "1.0", "+1", "1e0")
        ),
        ({"images": IMAGES, "labels": np.array(list("abbbbb"))}, r"class 'a' has 1 image; a class"),
        (
            {"images": IMAGES, "labels": np.array(list("aabbcc"))},
            r"class 'a' has 2 images, and 2 more have too few; a class needs 3",
        ),
        (
            {"images": IMAGES, "labels": np.array(["Cat"] * 3 + ["cat "] * 3)},
            r"the classes 'Cat' and 'cat ' differ only in case",
        ),
        (
            {"images": IMAGES, "labels": np.array(["é"] * 3 + ["e\u0301"] * 3)},
            r"differ only in case, spaces, invisible characters or the encoding of accents",
        ),
    ],
)
def test_an_npz_that_cannot_be_used_is_refused(tmp_path, arrays, message):
    assert re.search(message, refused(npz(tmp_path, **arrays)))


def test_a_folder_without_classes_is_refused(tmp_path):
    with pytest.raises(MissingDataError, match=r"nowhere does not exist\. For --data give a"):
        load(tmp_path / "nowhere")
    assert "holds no sub-folder with images" in refused(tmp_path)
    picture((0, 0, 0)).save(tmp_path / "alone.png")
    assert "holds no sub-folder with images" in refused(tmp_path)
    assert "is not a folder" in refused(tmp_path / "alone.png")
    (tmp_path / "empty").mkdir()
    assert "empty holds no image" in refused(tmp_path)
    folder_of(tmp_path / "whole" / "train", {"a": 3, "b": 3})
    assert "train/a is a folder in a class's folder" in refused(tmp_path / "whole")


@pytest.mark.parametrize("inside", ["", "a folder"])
def test_a_refusal_of_a_folder_with_a_strange_name_is_one_line_of_text(tmp_path, inside):
    folder_of(tmp_path, {"a": 3})
    (tmp_path / "\x1b[31m\n\udcff" / inside).mkdir(parents=True)
    message = refused(tmp_path)
    assert message.isprintable()
    assert f"{tmp_path}/\\x1b[31m\\n\\udcff" in message


def test_files_that_are_no_whole_images_are_named_together(tmp_path):
    folder_of(tmp_path, {"a": 4, "b": 4})
    full = (tmp_path / "a" / "00.png").read_bytes()
    (tmp_path / "a" / "00.png").write_bytes(full[: len(full) // 2])
    (tmp_path / "a" / "notes.txt").write_text("no image")
    (tmp_path / "a" / "empty.jpg").write_bytes(b"")
    Image.new("I;16", (8, 8), 40_000).save(tmp_path / "b" / "deep.png")
    message = refused(tmp_path)
    for part in (
        "4 of 11 files cannot be used (missing, above 100,000,000 pixels, or not a complete 8-bit "
        "JPEG, PNG or GIF file)",
        "a/00.png, a/empty.jpg, a/notes.txt and 1 more. Repair, convert or remove them. 1 of them "
        "has 16 bits: save with 8 bits, scaled by the greatest value that the camera gives.",
    ):
        assert part in message


def test_one_large_image_is_decoded_at_a_time(tmp_path, monkeypatch):
    """Each of several threads would need a gigabyte for an image of 100 megapixels."""
    lock, at_once, most, square = threading.Lock(), [0], [0], user_images.square

    def watched(image, side):
        with lock:
            at_once[0] += 1
            most[0] = max(most[0], at_once[0])
        time.sleep(0.01)
        with lock:
            at_once[0] -= 1
        return square(image, side)

    monkeypatch.setattr(user_images, "square", watched)
    monkeypatch.setattr(user_images.os, "cpu_count", lambda: 4)
    folder_of(tmp_path, {"a": 10, "b": 10})
    load(tmp_path)
    assert most[0] > 1
    most[0] = 0
    monkeypatch.setattr(user_images, "LARGE_PIXELS", SIDE * SIDE - 1)
    load(tmp_path)
    assert most == [1]


def test_pillow_does_not_warn_of_a_size_within_the_limit(tmp_path, recwarn):
    folder_of(tmp_path, {"a": 3, "b": 3})
    Image.new("L", (9_500, 9_500)).save(tmp_path / "a" / "large.png")
    load(tmp_path)
    assert not recwarn


def test_training_images_are_no_test_images(tmp_path):
    folder_of(tmp_path / "mine", {"a": 3, "b": 3})
    message = refused(tmp_path / "mine", test_data=tmp_path / "mine" / ".." / "mine")
    assert "Leave out --test-data" in message


def test_more_than_fits_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("everlight_data.images.user_files.user_images.MAX_BYTES", 1000)
    assert "give a smaller --side" in refused(folder_of(tmp_path, {"a": 3, "b": 3}))


def test_another_source_gives_the_test_images(tmp_path):
    """Every image of the first trains; labels follow its order of the classes."""
    train = folder_of(tmp_path / "train", {"b": 2, "a": 3})
    test = folder_of(tmp_path / "test", {"a": 1, "b": 2}, blue=7)
    images, note = load(train, test_data=test)
    np.testing.assert_array_equal(images.train_labels, [0, 0, 0, 1, 1])
    np.testing.assert_array_equal(images.test_labels, [0, 1, 1])
    assert images.images[5:, 0, 0].tolist() == [[0, 0, 7], [50, 0, 7], [50, 10, 7]]
    assert note == (
        "train: 8 images of 2 classes, of which 3 test (all from test); the middle square of each "
        "at 8×8 pixels"
    )


def test_gray_test_images_are_brought_to_the_channels_of_the_others(tmp_path, rng):
    train = folder_of(tmp_path / "train", {"a": 3, "b": 3})
    values = rng.integers(0, 256, (4, SIDE, SIDE), dtype=np.uint8)
    test = npz(tmp_path, images=values, labels=np.array(list("abab")))
    images, note = load(train, test_data=test)
    np.testing.assert_array_equal(images.images[-1], np.repeat(values[3][..., None], 3, -1))
    assert note.endswith("; test: grey, in one channel; all converted to RGB")


@pytest.mark.parametrize(
    ("train", "test", "blue", "message"),
    [
        (
            {"a": 3, "b": 3},
            {"a": 3, "c": 3},
            0,
            "than the training images: b, c are only in one of",
        ),
        # Copies have other names, and there are fewer of them.
        ({"a": 3, "b": 4}, {"a": 1, "b": 2}, 0, "test holds the same samples as train; give test"),
        ({"a": 3, "b": 1}, {"a": 1, "b": 1}, 7, "the class 'b' has 1 training and 1 test images"),
    ],
)
def test_a_test_set_that_does_not_fit_is_refused(tmp_path, train, test, blue, message):
    test_data = folder_of(tmp_path / "test", test, blue=blue)
    assert message in refused(folder_of(tmp_path / "train", train), test_data=test_data)
