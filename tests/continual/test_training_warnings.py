"""Copies among test images, scales of predictions, and values beyond 32 bits in `train`."""

import warnings

import numpy as np
import pytest

from everlight.continual import naive, train
from everlight.models import MLP


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
    told = [each for each in caught if "give them on the scale" in str(each.message)]
    assert bool(told) == is_warned
    assert all(each.filename == __file__ for each in told)


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
    with pytest.warns(UserWarning, match=f"^{count} of .* test images equal training images"):
        train(MLP(2, ()), images, number, naive, tasks=2, seeds=1, epochs=1, test=test)


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
