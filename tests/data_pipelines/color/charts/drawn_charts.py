"""Pictures of the chart of 24 patches, drawn without the library."""

import colour
import numpy as np

from everlight_data.color.charts.chart_colors import reference_colors

# Scale, turn, shift and tilt map places on the chart to pixels.
TILTED = np.array([[21.0, -4.0, 90.0], [5.0, 20.0, 40.0], [4e-3, -3e-3, 1.0]])


def drawn(homography, shape=(200, 300), illuminant=(0.5, 1.0, 0.7), turns=0):
    """Draw the chart on grey, in linear sRGB under an illuminant."""
    patches = np.clip(colour.XYZ_to_sRGB(reference_colors(), apply_cctf_encoding=False), 0.01, 1)
    y, x = np.mgrid[: shape[0], : shape[1]]
    lifted = np.stack([x, y, np.ones_like(x)], axis=-1) @ np.linalg.inv(homography).T
    across, down = lifted[..., 0] / lifted[..., 2], lifted[..., 1] / lifted[..., 2]
    image = np.full((*shape, 3), 0.2)
    image[(across > -1) & (across < 6) & (down > -1) & (down < 4)] = 0.02
    column, row = np.round(across).astype(int), np.round(down).astype(int)
    on_patch = (abs(across - column) < 0.42) & (abs(down - row) < 0.42)
    on_patch &= (column >= 0) & (column < 6) & (row >= 0) & (row < 4)
    image[on_patch] = patches[(6 * row + column)[on_patch]]
    return np.float32(np.rot90(image * illuminant, turns)), patches * illuminant


def pixels(homography, points):
    lifted = np.column_stack([points, np.ones(len(points))]) @ homography.T
    return lifted[:, :2] / lifted[:, 2:]
