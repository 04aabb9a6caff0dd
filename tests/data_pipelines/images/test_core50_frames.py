"""Frames of a release with every recording, and thinned test sets."""

import numpy as np

from everlight_data.images.core50 import CATEGORIES, OBJECTS, Core50
from everlight_data.images.core50_frames import thin_test


def recorded(frames):
    """The same number of tiny frames of every object in every session."""
    session, number, time = (axis.ravel() for axis in np.indices((11, 50, frames)))
    images = np.zeros((len(number), 2, 2, 3), np.uint8)
    frame = 300 * time // frames
    return Core50("tiny", images, session, number, frame, OBJECTS, CATEGORIES)


def test_the_test_set_is_thinned_evenly_and_the_training_frames_stay():
    frames = recorded(6)
    thin = thin_test(frames, 2)
    tested = np.isin(thin.session, [2, 6, 9])
    assert np.count_nonzero(~tested) == 8 * 50 * 6
    own = (thin.session == 6) & (thin.object == 17)
    np.testing.assert_array_equal(thin.frame[own], [100, 250])
    # More than there are leaves all of them.
    assert len(thin_test(frames, 7).images) == len(frames.images)
