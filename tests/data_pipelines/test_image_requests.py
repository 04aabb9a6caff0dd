"""Every image set by its name: sizes, notes and refusals."""

from pathlib import Path

import numpy as np
import pytest

from everlight_data.errors import DataError, MissingDataError
from everlight_data.image_requests import load_images
from everlight_data.images import tiny_imagenet
from everlight_data.images.digits import load_digits
from everlight_data.images.tiny_imagenet import load_tiny_imagenet_32
from everlight_data.procedural.render import World
from everlight_data.procedural.world import load_procedural
from everlight_data.registry import IMAGE_SETS
from everlight_data.sets.data_set import DataSet, ImageRequest
from everlight_data.sets.image_set import (
    ImageSet,
    PerClass,
    first_per_class,
    shrink_images,
    some_classes,
)
from tests import refusals


def assert_same(result, expected):
    np.testing.assert_array_equal(result.images, expected.images)
    np.testing.assert_array_equal(result.train_labels, expected.train_labels)
    np.testing.assert_array_equal(result.test_labels, expected.test_labels)
    assert result.class_names == expected.class_names


def refused(**request):
    return refusals.refused(None, lambda: load_images(ImageRequest(**request)), DataError)


def test_a_set_is_whole_at_its_own_side_by_default():
    images, note = load_images(ImageRequest("digits"))
    assert_same(images, load_digits())
    assert note == "handwritten digits (scikit-learn): 10 classes at 8×8 pixels, grey"


def test_classes_images_and_side_are_chosen():
    images, note = load_images(ImageRequest("digits", 4, 3, PerClass(5, 2)))
    assert images.images.shape == (21, 4, 4, 1)
    np.testing.assert_array_equal(np.bincount(images.train_labels), [5] * 3)
    np.testing.assert_array_equal(np.bincount(images.test_labels), [2] * 3)
    first = load_digits().images[0].reshape(4, 2, 4, 2).mean((1, 3))
    np.testing.assert_allclose(images.images[0, ..., 0], first, atol=0.5)
    assert note == "handwritten digits (scikit-learn): 3 classes at 4×4 pixels, grey"


def test_classes_before_the_first_one_are_left_out():
    images, note = load_images(ImageRequest("digits", classes=3, first_class=6))
    full = load_digits()
    labels = np.concatenate([full.train_labels, full.test_labels])
    np.testing.assert_array_equal(images.images, full.images[(labels >= 6) & (labels < 9)])
    of_train = full.train_labels[(full.train_labels >= 6) & (full.train_labels < 9)]
    np.testing.assert_array_equal(images.train_labels, of_train - 6)
    assert images.class_names == ("6", "7", "8")
    assert note.endswith("3 classes at 8×8 pixels, grey, after the first 6")
    message = refused(data="digits", first_class=9)
    assert message == "--first-class 9: digits has 10 classes; give 0 to 8"
    message = refused(data="digits", first_class=6, classes=5)
    assert message == "digits has 4 classes after the first 6, not 5; give 2 to 4"


@pytest.mark.parametrize(("classes", "world"), [(20, (10, 2)), (6, (6, 1))])
def test_the_procedural_world_has_as_many_classes_as_requested(classes, world):
    result, note = load_images(ImageRequest("procedural", 16, classes, PerClass(3, 2), seed=5))
    assert_same(result, shrink_images(load_procedural(World(*world, seed=5), PerClass(3, 2)), 16))
    assert note == f"procedural world: {classes} classes at 16×16 pixels"


def test_a_number_of_classes_that_no_world_has_exactly():
    result, _ = load_images(ImageRequest("procedural", 16, 23, PerClass(1, 1)))
    assert len(result.class_names) == 23
    np.testing.assert_array_equal(np.bincount(result.train_labels), [1] * 23)


def test_classes_of_the_procedural_world_after_the_first_ones():
    result, note = load_images(
        ImageRequest("procedural", 16, 20, PerClass(1, 1), seed=5, first_class=5)
    )
    world = shrink_images(load_procedural(World(9, 3, seed=5), PerClass(1, 1)), 16)
    assert_same(result, some_classes(world, 5, 25))
    assert note == "procedural world: 20 classes at 16×16 pixels, after the first 5"


@pytest.mark.parametrize(
    ("classes", "first", "message"),
    [
        (1, 0, "tiny-imagenet has 200 classes, not 1; give 2 to 200"),
        (201, 0, "tiny-imagenet has 200 classes, not 201; give 2 to 200"),
        (20, 190, "tiny-imagenet has 10 classes after the first 190, not 20; give 2 to 10"),
        (None, 199, "--first-class 199: tiny-imagenet has 200 classes; give 0 to 198"),
    ],
)
def test_a_request_is_checked_before_images_of_tiny_imagenet_are_read(
    monkeypatch, classes, first, message
):
    names = [f"class {label}" for label in range(200)]
    monkeypatch.setattr(tiny_imagenet, "tiny_imagenet_names", lambda: names)
    monkeypatch.setattr(tiny_imagenet, "load_tiny_imagenet_32", None)
    assert refused(data="tiny-imagenet", classes=classes, first_class=first) == message


def test_tiny_imagenet_in_part():
    try:
        complete = load_tiny_imagenet_32(range(4))
    except MissingDataError as error:
        pytest.skip(str(error))
    expected = shrink_images(first_per_class(complete, PerClass(20, 10)), 16)
    result, _ = load_images(ImageRequest("tiny-imagenet", 16, 4, PerClass(20, 10)))
    assert_same(result, expected)
    result, _ = load_images(ImageRequest("tiny-imagenet", 16, 2, PerClass(20, 10), first_class=2))
    assert_same(result, some_classes(expected, 2, 4))


def test_the_first_classes_of_cifar100_are_taken(monkeypatch, rng):
    labels = np.arange(12) % 4
    pixels = rng.integers(0, 256, (24, 32, 32, 3), dtype=np.uint8)
    complete = ImageSet("CIFAR-100", pixels, labels, labels, tuple("abcd"))
    monkeypatch.setitem(IMAGE_SETS, "cifar100", DataSet("", load=lambda request: complete))
    result, _ = load_images(ImageRequest("cifar100", 16, 2, PerClass(2, 1)))
    expected = complete._replace(
        images=pixels[[0, 1, 4, 5, 12, 13]],
        train_labels=labels[[0, 1, 4, 5]],
        test_labels=labels[[0, 1]],
        class_names=("a", "b"),
    )
    assert_same(result, shrink_images(expected, 16))


@pytest.fixture
def user_folder(tmp_path, rng):
    path = tmp_path / "mine.npz"
    images = rng.integers(0, 256, (40, 12, 10, 3), np.uint8)
    np.savez(path, images=images, labels=np.arange(40) % 4)
    return path


def test_a_path_is_a_users_own(user_folder):
    images, note = load_images(
        ImageRequest(str(user_folder), classes=3, per_class=PerClass(4, 1), test_every=4)
    )
    assert images.images.shape == (15, 32, 32, 3)
    np.testing.assert_array_equal(np.bincount(images.train_labels), [4] * 3)
    assert note == (
        "mine.npz: 40 images of 4 classes, of which 8 test (every 4th of a class); the middle "
        "square of each at 32×32 pixels; used: the first 3 classes, at most 4 training and 1 test "
        "images per class"
    )


def test_a_path_may_have_a_test_set(user_folder, tmp_path):
    with np.load(user_folder) as arrays:
        np.savez(tmp_path / "test.npz", images=arrays["images"] ^ 1, labels=arrays["labels"])
    request = ImageRequest(str(user_folder), 10, test_data=tmp_path / "test.npz")
    images, _ = load_images(request)
    np.testing.assert_array_equal(images.images[:40] ^ 1, images.images[40:])


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({"data": "fashion_mnist"}, "no data 'fashion_mnist'; did you mean 'fashion-mnist' or"),
        ({"data": "xyz"}, "no data 'xyz'. There are 'digits', 'fashion-mnist', 'mnist', "),
        ({"data": "xyz"}, "give --data a folder with one sub-folder per class, a .csv"),
        ({"data": "./xyz/a"}, "xyz/a does not exist. For --data give a folder with one"),
        ({"data": "xyz.csv"}, "xyz.csv does not exist"),
        ({"data": "x" * 300}, "no data 'xxx"),
        ({"data": "digits", "side": 3}, "--side 3; images of 8x8 shrink by integer factors only"),
        ({"data": "digits", "side": 16}, "--side 16; images of 8x8 shrink by integer factors only"),
        ({"data": "digits", "side": 0}, "--side 0; give 1 or more"),
        ({"data": "digits", "classes": 11}, "digits has 10 classes, not 11; give 2 to 10"),
        ({"data": "digits", "classes": 1}, "digits has 10 classes, not 1; give 2 to 10"),
        (
            {"data": "procedural", "classes": 101, "per_class": PerClass(1, 1)},
            "100 classes, not 101",
        ),
        ({"data": "procedural", "classes": 1}, "procedural has 100 classes, not 1; give 2 to 100"),
        (
            {"data": "procedural", "classes": 20, "first_class": 90},
            "procedural has 10 classes after the first 90, not 20; give 2 to 10",
        ),
        (
            {"data": "procedural", "first_class": 19},
            "--first-class 19: procedural has 20 classes; give 0 to 18",
        ),
        ({"data": "digits", "per_class": PerClass(5, 0)}, "per_class=(5, 0); give 1 or more of"),
        ({"data": "digits", "test_data": Path("x")}, "digits has its own test images; give --test"),
        ({"data": "tfds:x", "test_data": Path("x")}, "tfds:x has its own test images"),
        ({"data": "x", "test_every": 1}, "--test-every 1; give 2 or more"),
    ],
)
def test_a_request_that_does_not_fit_is_refused(tmp_path, monkeypatch, request_, message):
    monkeypatch.chdir(tmp_path)
    assert message in refused(**request_)


@pytest.mark.parametrize(
    "name", ["fashion-mnist", "mnist", "tiny-imagenet", "tiny-imagenet-64", "cifar10", "cifar100"]
)
def test_missing_stored_sets_are_named_with_their_folder(monkeypatch, name):
    monkeypatch.delenv("EVERLIGHT_DATA", raising=False)
    assert name in IMAGE_SETS
    with pytest.raises(MissingDataError, match="EVERLIGHT_DATA is not set"):
        load_images(ImageRequest(name))
