"""IDX files: small ones written here, damaged ones, and the real Fashion-MNIST."""

import gzip
import hashlib

import numpy as np
import pytest

from everlight_data.errors import DataError, MissingDataError
from everlight_data.formats import idx
from everlight_data.formats.originals import Original
from everlight_data.images.fashion_mnist import load_fashion_mnist
from everlight_data.images.published_forms.idx_folders import is_idx_folder, load_idx
from everlight_data.images.user_files.user_images import load_user_images
from tests.refusals import refused

TRAIN_LABELS, TEST_LABELS = [1, 3, 1, 3, 4, 4], [4, 1, 3]
IMAGES, LABELS = "train-images-idx3-ubyte", "train-labels-idx1-ubyte"


def encoded(array):
    array = np.asarray(array, np.uint8)
    return bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">u4").tobytes() + array.tobytes()


def pixels(count, first):
    return np.arange(first, first + 16 * count, dtype=np.uint8).reshape(count, 4, 4)


@pytest.fixture
def folder(tmp_path):
    """Write six training images, and three test images in compressed files."""
    files = {
        IMAGES: encoded(pixels(6, 0)),
        LABELS: encoded(TRAIN_LABELS),
        "t10k-images-idx3-ubyte.gz": gzip.compress(encoded(pixels(3, 100))),
        "t10k-labels-idx1-ubyte.gz": gzip.compress(encoded(TEST_LABELS)),
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


def test_files_are_read_in_order_plain_or_compressed(folder):
    images = load_idx(folder)
    assert images.images.shape == (9, 4, 4, 1)
    np.testing.assert_array_equal(images.images[..., 0], [*pixels(6, 0), *pixels(3, 100)])
    # Labels with gaps are numbered, and named by their own numbers.
    assert images.class_names == ("1", "3", "4")
    np.testing.assert_array_equal(images.train_labels, [0, 1, 0, 1, 2, 2])
    np.testing.assert_array_equal(images.test_labels, [2, 0, 1])
    assert images.name == folder.name


def test_a_folder_of_them_is_data_of_a_user(folder, tmp_path):
    assert is_idx_folder(folder)
    assert not is_idx_folder(folder / IMAGES)
    images, note = load_user_images(str(folder), None, 5)
    np.testing.assert_array_equal(images.images, load_idx(folder).images)
    assert note.endswith(
        "9 images of 3 classes, of which 3 test; each at 4×4 pixels; grey, in one channel"
    )
    half, _ = load_user_images(str(folder), 2, 5)
    # The mean of 0, 1, 4 and 5 is 2.5, which rounds to even.
    np.testing.assert_array_equal(half.images[0, ..., 0], [[2, 4], [10, 12]])


def test_published_test_images_can_test_other_images(folder, tmp_path):
    arrays = tmp_path / "mine.npz"
    np.savez(arrays, images=pixels(6, 50), labels=np.array(TRAIN_LABELS))
    images, note = load_user_images(str(arrays), 4, 5, folder)
    np.testing.assert_array_equal(images.images[6:, ..., 0], pixels(3, 100))
    np.testing.assert_array_equal(images.test_labels, [2, 0, 1])
    assert note.endswith("not used")
    assert ": 9 images of 3 classes" in note
    assert "6 training images of" in note
    # The other way round, the folder has the training images and the npz the test images.
    images, note = load_user_images(str(folder), None, 5, arrays)
    np.testing.assert_array_equal(images.images[:6, ..., 0], pixels(6, 0))
    np.testing.assert_array_equal(images.images[6:, ..., 0], pixels(6, 50))
    assert f"3 test images of {folder.name} not used" in note


def colored(folder, name, array):
    """Replace the images of a part by those of four dimensions."""
    for path in folder.glob(f"{name}-images-*"):
        path.unlink()
    (folder / f"{name}-images-idx4-ubyte").write_bytes(encoded(array))


def test_images_of_four_dimensions_have_channels(folder):
    images = np.arange(6 * 48).reshape(6, 4, 4, 3) % 251
    colored(folder, "train", images)
    refused("test images have the shapes 4x4x3 and 4x4x1", lambda: load_idx(folder), DataError)
    colored(folder, "t10k", images[:3] + 1)
    assert is_idx_folder(folder)
    result = load_idx(folder)
    np.testing.assert_array_equal(result.images, [*images, *(images[:3] + 1)])
    _, note = load_user_images(str(folder), None, 5)
    assert note.endswith("9 images of 3 classes, of which 3 test; each at 4×4 pixels")
    colored(folder, "train", images[..., :2])
    with pytest.raises(DataError, match=r"idx4-ubyte: 2 channels\. Give images of one or three"):
        load_idx(folder)


@pytest.mark.parametrize("shape", [(5,), (2, 3, 4), (2, 3, 3, 3)])
def test_what_is_written_is_read_again(tmp_path, shape, rng):
    array = rng.integers(0, 256, shape).astype(np.uint8)
    (tmp_path / "a").write_bytes(idx.idx_bytes(array))
    assert (tmp_path / "a").read_bytes() == encoded(array)
    np.testing.assert_array_equal(idx.read_idx(tmp_path / "a", len(shape)), array)
    # The view has another order of bytes.
    assert idx.idx_bytes(array.T) == encoded(array.T.copy())


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (IMAGES, encoded(pixels(6, 0))[:-1], r"111 bytes, but \(6, 4, 4\) needs 112"),
        (IMAGES, encoded(pixels(6, 0)) + b"x", r"113 bytes, but \(6, 4, 4\) needs 112"),
        (IMAGES, b"", r"not an IDX file of bytes in 3 dimensions"),
        (IMAGES, encoded(pixels(6, 0))[:9], r"not an IDX file of bytes in 3 dimensions"),
        (IMAGES, encoded(TRAIN_LABELS), r"not an IDX file of bytes in 3 dimensions"),
        (LABELS, b"\0\0\x0d\1" + bytes(28), r"not an IDX file of bytes in 1 dimensions"),
        (IMAGES, b"\0\0\x08\3" + b"\xff" * 12, r"more than the limit of"),
        (IMAGES, encoded(np.zeros((6, 4, 3))), r"images of 4x3 pixels\. Give squares"),
        (IMAGES, encoded(np.zeros((6, 2, 2))), r"images have the shapes 2x2x1 and 4x4x1"),
        (IMAGES, encoded(np.zeros((0, 4, 4))), r"has 6 labels for 0 images"),
        (LABELS, encoded(TRAIN_LABELS[:5]), r"has 5 labels for 6 images"),
        (LABELS, encoded([1, 3, 1, 3, 1, 3]), r"label 4 of image 0 is not one of the 2 classes, 1"),
    ],
)
@pytest.mark.parametrize("packed", [False, True])
def test_damaged_files_are_refused_by_name(folder, name, content, message, packed):
    (folder / name).unlink()
    path = folder / f"{name}.gz" if packed else folder / name
    path.write_bytes(gzip.compress(content) if packed else content)
    line = refused(message, lambda: load_idx(folder), DataError)
    assert str(folder) in line
    assert line.endswith(("remove it.", "squares."))


def test_a_file_that_inflates_beyond_its_header_is_not_inflated(folder, monkeypatch):
    """A megabyte follows 48 pixels; 65 bytes are decompressed."""
    limits = []
    original = idx.inflate

    def watched(content, limit, gzip):
        limits.append(limit)
        return original(content, limit, gzip)

    monkeypatch.setattr(idx, "inflate", watched)
    bomb = gzip.compress(encoded(pixels(3, 100)) + bytes(1 << 20))
    (folder / "t10k-images-idx3-ubyte.gz").write_bytes(bomb)
    refused("truncated or holds more than 65 bytes", lambda: load_idx(folder), DataError)
    assert limits == [65]


def test_labels_of_a_named_set_are_those_of_its_names(folder):
    with pytest.raises(DataError, match=r"label 4 of image 4 is not one of the 4 classes, 0 to 3"):
        load_idx(folder, "four", ("a", "b", "c", "d"))


def test_another_file_than_the_published_one_is_refused(folder):
    digest = hashlib.sha256((folder / LABELS).read_bytes()).hexdigest()
    assert len(load_idx(folder, originals={LABELS: Original(None, digest)}).train_labels) > 0
    with pytest.raises(
        DataError, match=rf"{LABELS} has sha256 {digest}, expected 0{{64}}: .*Download"
    ):
        load_idx(folder, originals={LABELS: Original(None, "0" * 64)})


def test_fashion_mnist_is_whole():
    """The set has 70,000 images of ten balanced classes."""
    try:
        images = load_fashion_mnist()
    except MissingDataError as error:
        pytest.skip(str(error))
    assert images.images.shape == (70_000, 28, 28, 1)
    np.testing.assert_array_equal(np.bincount(images.train_labels), [6_000] * 10)
    np.testing.assert_array_equal(np.bincount(images.test_labels), [1_000] * 10)
    assert images.class_names[0] == "T-shirt or top"
    assert images.class_names[9] == "ankle boot"
    # The training pixels' published mean and deviation are 0.2860 and 0.3530.
    train = images.images[:60_000] / np.float32(255)
    assert train.mean(dtype=np.float64) == pytest.approx(0.2860, abs=1e-4)
    assert train.std(dtype=np.float64) == pytest.approx(0.3530, abs=1e-4)
    assert images.train_labels[0] == 9
