"""Sequences of IIRC's data."""

import numpy as np
import pytest

from everlight_data.iirc.sets import IIRCRequest, load_iirc
from everlight_data.sets.image_set import PerClass


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
