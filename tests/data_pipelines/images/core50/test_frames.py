"""Frames of a release with every recording, and thinned test sets."""

import numpy as np
import pytest

from everlight_data.images.core50.frames import LabelledFrames, thin_frames, thin_test
from everlight_data.images.core50.prepared import CATEGORY_NAMES, OBJECT_NAMES, Core50


def recorded(frames):
    """Return the same number of tiny frames of every object in every session."""
    session, number, time = (axis.ravel() for axis in np.indices((11, 50, frames)))
    images = np.zeros((len(number), 2, 2, 3), np.uint8)
    frame = 300 * time // frames
    return Core50("tiny", images, session, number, frame, OBJECT_NAMES, CATEGORY_NAMES)


def test_the_test_set_is_thinned_evenly_and_the_training_frames_stay():
    frames = recorded(6)
    thin = thin_test(frames, 2)
    tested = np.isin(thin.session, [2, 6, 9])
    assert np.count_nonzero(~tested) == 8 * 50 * 6
    selected = (thin.session == 6) & (thin.object == 17)
    np.testing.assert_array_equal(thin.frame[selected], [100, 250])
    # More than there are leaves all of them.
    assert len(thin_test(frames, 7).images) == len(frames.images)


@pytest.mark.parametrize("level", ["object", "category"])
def test_labelled_frames_have_the_classes_of_their_level(level):
    material = LabelledFrames(thin_test(recorded(6), 2), level, 2)
    classes = 50 if level == "object" else 10
    assert len(material.names) == classes
    np.testing.assert_array_equal(material.labels, material.frames.object // (50 // classes))
    assert np.bincount(material.test_recordings).max() == 2
    assert f"{classes} classes ({level} level), 2,400 training frames, 300 test" in material.note
    assert "at most 2 per recording" in material.note
    sequence = material.sequence("NC", 0)
    assert sequence.class_task.shape == (classes,)
    tested = np.asarray(sequence.test.index)
    np.testing.assert_array_equal(tested, np.flatnonzero(material.tested))


def test_validation_is_on_training_sessions_that_are_thinned_as_the_test_set():
    material = LabelledFrames(thin_test(recorded(6), 2), "object", 2)
    sequence = material.sequence("NI", 9, validation=True)
    tested, session = np.asarray(sequence.test.index), material.frames.session
    stored = thin_frames(material.frames, (5, 10), 2)
    np.testing.assert_array_equal(tested, stored[np.isin(session[stored], (5, 10))])
    assert len(tested) == 2 * 50 * 2
    trained = np.asarray(sequence.tasks.train.index)[np.asarray(sequence.tasks.train.mask)]
    assert set(session[trained].tolist()) == {0, 1, 3, 4, 7, 8}
