"""Pairs in the format of the S20 release."""

import io

import numpy as np


def release_pair(index: int) -> dict:
    """Return a pair in the release's format, whose numbers depend on index and key."""
    return {
        "image_name_1": f"RAW_{index:04}_CAM_0",
        "image_name_2": f"RAW_{index:04}_CAM_1",
        "wb_gt_1": np.array([0.5, 1, 0.25]) + index,
        "wb_gt_2": np.array([0.5, 1, 0.5]) + index,
        "as_shot_neutral_1": np.array([0.7, 1, 0.5]),
        "as_shot_neutral_2": np.array([0.5, 1, 0.7]),
        "transform_image_1to2": np.eye(3, dtype=np.float32) * (index + 1),
        "transform_image_2to1": np.eye(3, dtype=np.float32) * (index + 2),
        "transform_chart_1to2": np.eye(3) * (index + 3),
        "transform_chart_2to1": np.eye(3) * (index + 4),
    }


def as_npy(pair: dict) -> bytes:
    stream = io.BytesIO()
    np.save(stream, np.array(pair), allow_pickle=True)
    return stream.getvalue()
