"""Sequences of IIRC's data."""

import numpy as np
import pytest

from everlight_data.errors import DataError
from everlight_data.iirc.sets import IIRCRequest, load_iirc
from everlight_data.sets.image_set import PerClass
from tests.refusals import refused


@pytest.fixture(scope="module")
def data():
    return load_iirc(IIRCRequest("procedural", 8, PerClass(20, 4), 2))


def test_sequences_of_every_configuration_have_one_shape(data):
    tests, held = data.sequences("incomplete")
    assert len(tests) == len(held) == 2
    assert len({item.test.mask.shape for item in (*tests, *held)}) == 1
    trained = len(data.images.train_labels)
    for one, other in zip(tests, held, strict=True):
        np.testing.assert_array_equal(one.tasks.train.index, other.tasks.train.index)
        stored = [np.asarray(item.test.index)[np.asarray(item.test.mask)] for item in (one, other)]
        assert stored[0].min() == trained
        assert stored[1].max() < trained
    assert data.sequences("incomplete", validation=False).post_task == []


@pytest.mark.parametrize(("images", "validation"), [(20, 2), (5, 0)])
def test_sizes_state_the_validation_images_that_are_taken(images, validation):
    """A tenth of 5 images, rounded down, is none."""
    data = load_iirc(IIRCRequest("procedural", 8, PerClass(images, 4), 1))
    line = f"; {images} training images per class, {validation} of them in-task validation and as "
    assert line in data.sizes
    held = data.sequences("incomplete").post_task[0].test.mask
    assert held.sum() == validation * len(data.images.class_names)


@pytest.mark.parametrize("superclasses", [0, 35, 60])
def test_tiny_imagenet_has_34_superclasses(real_data, superclasses):
    real_data("tiny_imagenet_32x32")
    pytest.importorskip("iirc")
    request = IIRCRequest("tiny-imagenet", 32, PerClass(1, 1), 1, superclasses)
    message = f"^superclasses={superclasses}; give 1 to 34, or None for all$"
    refused(message, lambda: load_iirc(request), DataError)
