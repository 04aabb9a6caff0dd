"""Fusion of successive frames against a loop over recordings."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from everlight.metrics.frame_fusion import fuse_adjacent, fused_accuracies
from tests.refusals import refused


@given(st.integers(1, 9), st.lists(st.integers(1, 6), min_size=1, max_size=4))
def test_fusion_sums_what_came_just_before_in_the_recording(window, lengths):
    recording = np.repeat(np.arange(len(lengths)), lengths)
    confidence = np.random.default_rng(sum(lengths)).random((len(recording), 3))
    result = fuse_adjacent(confidence, recording, window)
    for place, part in enumerate(recording):
        expected = np.zeros(3)
        for before in range(max(0, place - window + 1), place + 1):
            if recording[before] == part:
                expected += confidence[before]
        np.testing.assert_allclose(result[place], expected, atol=1e-12)


def test_accuracy_is_that_of_the_summed_confidences():
    """The second frame alone is wrong; with the first one's confidence it is right."""
    confidence = np.array([[0.9, 0.1], [0.4, 0.6], [0.2, 0.8]])
    labels, recording = np.array([0, 0, 1]), np.array([0, 0, 1])
    result = fused_accuracies(confidence, labels, recording, (1, 2))
    np.testing.assert_allclose(result, [2 / 3, 1.0])


@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_sums_lose_no_digits_in_a_long_sequence_of_a_narrow_dtype(rng, dtype):
    """A cumulative sum over all frames changed the argmax of half of them in float16."""
    confidence = (0.1 + 1e-3 * rng.random((3000, 3))).astype(dtype)
    confidence[0] = 1e4
    recording = np.arange(3000) // 300
    np.testing.assert_array_equal(fuse_adjacent(confidence, recording, 1), confidence)
    expected = confidence[1498].astype(float) + confidence[1499]
    np.testing.assert_array_equal(fuse_adjacent(confidence, recording, 2)[1499], expected)


def test_what_cannot_be_fused_is_refused():
    recording = np.zeros(2, int)
    refused("window=0; give 1 or more", lambda: fuse_adjacent(np.ones((2, 3)), recording, 0))
    endless = np.array([[1.0], [-np.inf]])
    refused(
        "confidence holds 1 values that are not finite",
        lambda: fuse_adjacent(endless, recording, 1),
    )
    labels = np.zeros(2, int)
    refused(r"windows\[1\]=0", lambda: fused_accuracies(np.ones((2, 3)), labels, recording, (1, 0)))


def test_a_number_that_comes_again_is_another_recording():
    confidence = np.eye(5)
    fused = fuse_adjacent(confidence, np.array([0, 0, 1, 0, 0]), 4)
    np.testing.assert_array_equal(fused.sum(axis=1), [1, 2, 1, 1, 2])
