"""The tracker on rendered recordings: a textured object on a known path over a still scene."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.ndimage import gaussian_filter

from everlight_data.errors import DataError
from everlight_data.images.motion_tracker import BOX, cut_boxes, moving_cells, track_object

RADIUS = 45
FRAMES = 24


def pattern(rng, side, sigma):
    """A smooth random colour pattern of 0 to 1 and its full contrast."""
    smooth = gaussian_filter(rng.normal(size=(side, side, 3)), (sigma, sigma, 0))
    low, high = smooth.min(), smooth.max()
    return (smooth - low) / (high - low)


def film(centers, seed=0, noise=2.0, exposure=0.0, visible=1.0):
    """Frames of a disc, of 90 pixels across, whose texture moves with it."""
    rng = np.random.default_rng(seed)
    scene, skin = pattern(rng, 350, 12), pattern(rng, 4 * RADIUS, 6)
    rows, columns = np.indices((350, 350))
    frames = []
    for step, (row, column) in enumerate(centers):
        inside = (rows - row) ** 2 + (columns - column) ** 2 < RADIUS**2
        from_center = [
            np.clip(np.rint(axis - at).astype(int) + 2 * RADIUS, 0, 4 * RADIUS - 1)
            for axis, at in ((rows, row), (columns, column))
        ]
        shown = np.where(inside[..., None], skin[*from_center], scene)
        shown = 40 + 150 * (visible * shown + (1 - visible) * scene)
        shown = shown * (1 + exposure * np.sin(step)) + rng.normal(0, noise, shown.shape)
        frames.append(np.clip(np.rint(shown), 0, 255).astype(np.uint8))
    return np.stack(frames)


def path(start, speed, count=FRAMES):
    """A smooth wandering path: a circle around the start, of 3 pixels a frame at speed 1."""
    turn = 2 * np.pi * np.arange(count) / 60
    swing = 3 * speed * 60 / (2 * np.pi)
    return np.array(start) + swing * np.stack([np.cos(turn) - 1, np.sin(2 * turn) / 2], axis=-1)


def measured(frames, centers):
    """Mean and largest error of the centres in pixels, mean overlap (intersection over union)."""
    apart = np.abs(track_object(frames) + BOX / 2 - 0.5 - centers)
    shared = np.prod(np.maximum(BOX - apart, 0), axis=1)
    error = np.linalg.norm(apart, axis=1)
    return error.mean(), error.max(), (shared / (2 * BOX**2 - shared)).mean()


@pytest.mark.parametrize("speed", [1.0, 2.0])
@pytest.mark.parametrize("seed", [0, 1])
def test_boxes_follow_a_moving_object(seed, speed):
    """Measured: 2 to 4 pixels on average, 7 at most, overlaps of 0.92 to 0.97."""
    centers = path((220, 150), speed)
    mean, largest, overlap = measured(film(centers, seed), centers)
    assert np.ptp(centers, axis=0).max() > 35, "a box that stays would fail"
    assert mean < 6
    assert largest < 12
    assert overlap > 0.88


@pytest.mark.parametrize("change", [{"noise": 8.0}, {"exposure": 0.05}, {"visible": 0.3}])
def test_noise_exposure_and_a_faint_object_cost_some_pixels(change):
    centers = path((200, 150), 1.0)
    mean, largest, overlap = measured(film(centers, **change), centers)
    assert mean < 9
    assert largest < 24
    assert overlap > 0.83


def test_a_box_waits_where_its_object_rests():
    moving = path((200, 150), 1.0, 14)
    before, after = (np.repeat(moving[[at]], 8, axis=0) for at in (0, -1))
    centers = np.concatenate([before, moving, after])
    frames = film(centers)
    assert measured(frames, centers)[1] < 12
    corners = track_object(frames)
    assert np.ptp(corners[:8], axis=0).max() <= 1
    assert np.ptp(corners[-8:], axis=0).max() <= 1


def test_an_object_that_leaves_the_middle_of_the_box_keeps_the_box_inside_the_frame():
    centers = np.linspace((175, 300), (175, 20), 30)
    corners = track_object(film(centers))
    assert corners.dtype == np.int32
    assert corners[0, 1] > 200
    np.testing.assert_array_equal(corners[-5:, 1], 0)


def test_two_frames_are_enough():
    centers = path((150, 200), 1.0, 2)
    frames = film(centers)
    corners = track_object(frames)
    np.testing.assert_array_equal(corners[0], corners[1])
    assert measured(frames, centers)[0] < 15


@given(st.integers(0, 2**32 - 1), st.integers(2, 4))
@settings(max_examples=10)
def test_boxes_lie_inside_wherever_an_object_jumps(seed, count):
    frames = np.zeros((count, 350, 350, 3), np.uint8)
    places = np.random.default_rng(seed).choice(290, (count, 2), replace=False)
    for frame, (row, column) in zip(frames, places, strict=True):
        frame[row : row + 60, column : column + 60] = 255
    corners = track_object(frames)
    assert corners.shape == (count, 2)
    assert corners.min() >= 0
    assert corners.max() <= 350 - BOX


def test_only_cells_that_change_against_the_rest_move():
    """The whole picture gets 10 brighter; one cell by 2 more, one by 0.6 more on average."""
    first = np.full((350, 350, 3), 100, np.uint8)
    second = first + np.uint8(10)
    second[5:10, 340:345] += np.uint8(2)
    second[100:105, 0:3] += np.uint8(1)
    moving = moving_cells(np.stack([first, second]))
    np.testing.assert_array_equal(np.argwhere(moving), [[0, 1, 68]])


def test_boxes_are_cut_at_their_corners():
    rows, columns = np.indices((350, 350))
    frame = np.stack([rows // 2, columns // 2, (rows + columns) % 2], axis=-1).astype(np.uint8)
    corners = np.array([[0, 222], [222, 0], [17, 101]])
    boxes = cut_boxes(np.repeat(frame[None], 3, axis=0), corners)
    assert boxes.shape == (3, 128, 128, 3)
    np.testing.assert_array_equal(boxes[:, 0, 0, :2], corners // 2)
    np.testing.assert_array_equal(boxes[:, -1, -1, :2], (corners + 127) // 2)
    np.testing.assert_array_equal(boxes[:, 0, 0, 2], corners.sum(axis=1) % 2)


STILL = np.zeros((2, 350, 350, 3), np.uint8)


@pytest.mark.parametrize("function", [track_object, moving_cells])
@pytest.mark.parametrize("count", [0, 1])
def test_fewer_than_two_frames_are_refused(function, count):
    with pytest.raises(DataError, match=f"{count} frames show no motion; give at least 2"):
        function(STILL[:count])


def test_frames_in_which_nothing_moves_are_refused():
    with pytest.raises(DataError, match="nothing moves in the 2"):
        track_object(STILL)


@pytest.mark.parametrize(
    "frames",
    [STILL[:, :349], STILL[..., :2], STILL[0], STILL.astype(np.float32), STILL[:, :128, :128]],
)
@pytest.mark.parametrize(
    "function", [track_object, moving_cells, lambda frames: cut_boxes(frames, STILL[:, 0, 0, :2])]
)
def test_frames_of_another_kind_are_refused(function, frames):
    with pytest.raises(DataError, match=r"frames are .*; give uint8 of \(n, 350, 350, 3\)"):
        function(frames)


@pytest.mark.parametrize(
    ("corners", "message"),
    [
        ([[0, 0]], r"corners are int64 of \(1, 2\); give \(2, 2\) integers"),
        ([[0.0, 0.0]] * 2, "corners are float64"),
        ([[0, 0], [0, 223]], "corners hold 223; give 0 to 222"),
        ([[-1, 0], [0, 0]], "corners hold -1"),
    ],
)
def test_boxes_that_cannot_be_cut_are_refused(corners, message):
    with pytest.raises(DataError, match=message):
        cut_boxes(STILL, np.array(corners))
