"""Scales, offsets and copies of the images and features that `train` takes."""

import warnings

import numpy as np
import pytest

from everlight.continual import naive, train, train_targets
from everlight.continual.training.labelled_images import store_normalized
from everlight.models import MLP

CLASSES = 4


@pytest.mark.parametrize("pair", [("bytes", "unit"), ("unit", "bytes"), ("levels", "unit")])
def test_test_images_of_another_scale_are_refused(rng, pair):
    levels = rng.integers(0, 256, (24, 4, 4, 3))
    kinds = {"bytes": levels.astype(np.uint8), "unit": levels / 255, "levels": levels * 1.0}
    images, tests = (kinds[name] for name in pair)
    labels = np.arange(24) % CLASSES
    message = r"^test\[0\] holds \w+ from 0 to \d+, images \w+ from 0 to \d+; give"
    with pytest.raises(ValueError, match=message):
        train(MLP(CLASSES, ()), images, labels, naive, 2, test=(tests, labels))


def normalized(images, trained):
    stored = store_normalized(images, trained)
    return (np.asarray(stored.images, np.float64) - stored.mean) / stored.deviation


@pytest.mark.parametrize("offset", [0, 1e3, -1e8, 1e12])
@pytest.mark.parametrize("dtype", [np.float64, np.int64])
def test_columns_of_any_scale_and_offset_are_standardized(rng, offset, dtype):
    """The reference is float64; a constant column is 0, and a test value beside it is not NaN."""
    values = rng.normal(size=(50, 5)) * [1e-3, 1, 30, 1e5, 0] * (1000 if dtype == np.int64 else 1)
    values = np.round(values) if dtype == np.int64 else values
    offsets = np.array([0, 0, offset, offset, 0.1 if dtype == np.float64 else 7])
    images = (values + offsets).astype(dtype)
    exact = images[:40].astype(np.float64)
    deviation = np.where(exact.std(0) > 1e-9, exact.std(0), 1)
    expected = (images - exact[:1] - (exact - exact[:1]).mean(0)) / deviation
    np.testing.assert_allclose(normalized(images, 40), expected, atol=2e-3)
    assert not normalized(images, 40)[:, 4].any()


@pytest.mark.parametrize(
    ("change", "is_warned"),
    [
        (lambda images: images, False),
        (lambda images: images / 4, False),
        (lambda images: images * 255, True),
        (lambda images: images / 255, True),
        (lambda images: images * 2 - 1, True),
        (np.zeros_like, False),
    ],
)
def test_predictions_on_another_scale_are_warned_of(rng, change, is_warned):
    images = rng.random((40, 3, 3, 1), np.float32)
    number = np.arange(40) % 2
    network = train(MLP(2, ()), images, number, naive, tasks=2, seeds=1, epochs=1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        network.predict(change(images[:5]))
    messages = [item for item in caught if "give them on the scale" in str(item.message)]
    assert bool(messages) == is_warned
    assert all(item.filename == __file__ for item in messages)


@pytest.mark.parametrize("is_separate", [False, True])
def test_copies_of_training_images_among_test_images_are_warned_of(rng, is_separate):
    images = rng.random((40, 20, 20, 1), np.float32)
    number = np.arange(40) % 2
    tests = rng.random((10, 20, 20, 1)).astype(np.float64)
    tests[:3] = images[5:8]
    # Half of the images test; those of one class are equal, so that each test image trains too.
    images[number == 0] = 0.5 if not is_separate else images[number == 0]
    test = (tests, np.arange(10) % 2) if is_separate else 0.5
    count = 3 if is_separate else 10
    message = f"^{count} of .* test images equal training images"
    with pytest.warns(UserWarning, match=message) as caught:
        train(MLP(2, ()), images, number, naive, tasks=2, seeds=1, epochs=1, test=test)
    assert [item.filename for item in caught] == [__file__]
    options = {"test": test if not is_separate else (tests, np.zeros((10, 1)), test[1])}
    with pytest.warns(UserWarning, match=message) as caught:
        train_targets(
            *(MLP(1, ()), images, np.zeros((40, 1)), number, naive, lambda outputs, _: outputs[0]),
            **{"seeds": 1, "epochs": 1, **options},
        )
    assert [item.filename for item in caught] == [__file__]


@pytest.mark.parametrize(
    ("factor", "message"),
    [
        (1e200, r"^images holds .e\+200; scale it to at most 1e\+37"),
        (1e-40, r"^images has a standard deviation of .e-4., too little for 32 bits; scale it"),
        (1e-310, r"^images has a standard deviation of .e-31., too little for 32 bits; scale it"),
    ],
)
def test_features_that_32_bits_do_not_hold_are_refused(rng, factor, message):
    values, number = rng.random((40, 3)) * factor, np.arange(40) % 2
    with pytest.raises(ValueError, match=message):
        train(MLP(2, ()), values, number, naive, tasks=2, seeds=1, epochs=1)
