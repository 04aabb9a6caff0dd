"""Motion tracker that cuts 128x128 boxes from 350x350 frames of a hand-held object.

CORe50's frames were cut by such a tracker (Lomonaco and Maltoni, CoRL 2017, section 3). It works on
RGB, needs a few frames to find the object and may lose an object that moves too fast. The paper
gives no details; the rules below are this project's own. A moving hand attracts the box, and camera
motion is not compensated.
"""

import numpy as np
from jaxtyping import Bool, Float, Int, UInt8
from scipy.ndimage import uniform_filter

from everlight_data.errors import DataError

FRAME, BOX = 350, 128
CELL = 5
"""Side in pixels of the cells whose brightness is compared."""
_REACH = BOX // CELL // 2
_FIRST = 5
"""Number of steps between frames that determine the first box."""


def track_object(frames: UInt8[np.ndarray, "n 350 350 3"]) -> Int[np.ndarray, "n 2"]:
    """Return the top-left row and column of every frame's box, which stays inside the frame.

    The first box is where most motion occurs in the first steps with motion. Then a window of the
    box's size follows the centre of its motion. It moves fully with typical motion and not at all
    without motion. The first frame, which has no preceding step, shares the second one's box.

    Raises:
      DataError: there are fewer than two frames, no motion, or frames other than 350x350 uint8 RGB.
    """
    steps = moving_cells(frames).astype(np.float64)
    count = steps.sum(axis=(1, 2))
    if not count.any():
        raise DataError(
            f"nothing moves in the {len(frames)} frames; give a recording of a moving object."
        )
    little = max(count.mean() / 4, 1)
    first = steps[count >= little][:_FIRST].mean(axis=0)
    in_window = uniform_filter(first, 2 * _REACH + 1, mode="constant")
    busiest = np.array(np.unravel_index(in_window.argmax(), in_window.shape), np.float64)
    center, _ = _motion_center(first, busiest)
    centers = []
    for step in steps:
        target, moving = _motion_center(step, center)
        center = center + (target - center) * moving**2 / (moving**2 + little**2)
        centers.append(center)
    corners = (np.array([centers[0], *centers]) + 0.5) * CELL - BOX / 2
    return np.clip(np.rint(corners).astype(np.int32), 0, FRAME - BOX)


def moving_cells(frames: UInt8[np.ndarray, "n 350 350 3"]) -> Bool[np.ndarray, "n-1 70 70"]:
    """Return the cells whose brightness changes more than the image around them.

    The median change (exposure) is subtracted. A cell moves if the rest exceeds 1 of 255 levels and
    five times the median absolute change (3.4 standard deviations of noise). Cells have equal
    weight, so strong edges attract no more than faint texture.

    Raises:
      DataError: as for `track_object`.
    """
    _check_frames(frames)
    if len(frames) < 2:
        raise DataError(f"{len(frames)} frames show no motion; give at least 2.")
    side = FRAME // CELL
    blocks = frames.reshape(-1, side, CELL, side, CELL, 3)
    # Frame by frame, because one mean over all would need them in float32.
    cells = np.stack([frame.mean(axis=(1, 3, 4), dtype=np.float32) for frame in blocks])
    change = np.diff(cells, axis=0)
    change = np.abs(change - np.median(change, axis=(1, 2), keepdims=True))
    return change > np.maximum(5 * np.median(change, axis=(1, 2), keepdims=True), 1)


def cut_boxes(
    frames: UInt8[np.ndarray, "n 350 350 3"], corners: Int[np.ndarray, "n 2"]
) -> UInt8[np.ndarray, "n 128 128 3"]:
    """Cut the 128x128 box whose first row and column are given from each frame.

    Raises:
      DataError: `track_object` refuses the frames, or a box leaves the frame.
    """
    _check_frames(frames)
    if np.shape(corners) != (len(frames), 2) or corners.dtype.kind not in "iu":
        raise DataError(
            f"corners are {corners.dtype} of {np.shape(corners)}; give ({len(frames)}, 2) integers."
        )
    outside = (corners < 0) | (corners > FRAME - BOX)
    if outside.any():
        raise DataError(f"corners hold {corners[outside][0]}; give 0 to {FRAME - BOX}.")
    return np.stack(
        [
            frame[row : row + BOX, column : column + BOX]
            for frame, (row, column) in zip(frames, corners, strict=True)
        ]
    )


def _motion_center(
    step: Float[np.ndarray, "70 70"], center: Float[np.ndarray, "2"]
) -> tuple[Float[np.ndarray, "2"], float]:
    """Return the centre of the motion in a window around `center`, and the number of moving cells.

    The window follows the centre (mean shift); five iterations suffice to converge.
    """
    places = np.arange(FRAME // CELL)
    for _ in range(5):
        row, column = (np.abs(places - at) <= _REACH for at in center)
        inside = step * row[:, None] * column
        moving = float(inside.sum())
        if moving:
            center = np.array([inside.sum(axis=1) @ places, inside.sum(axis=0) @ places]) / moving
    return center, moving


def _check_frames(frames: np.ndarray) -> None:
    frames = np.asarray(frames)
    if frames.shape[1:] != (FRAME, FRAME, 3) or frames.dtype != np.uint8:
        raise DataError(
            f"frames are {frames.dtype} of {frames.shape}; give uint8 of (n, {FRAME}, {FRAME}, 3)."
        )
