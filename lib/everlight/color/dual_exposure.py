"""The dual-exposure feature: a colour transform between a short and a long frame of one scene.

Afifi, Hu, Liang 2024, "Optimizing Illuminant Estimation in Dual-Exposure HDR Imaging" (ECCV, arXiv
2403.02449). With S and L the chromaticities (shares of r, g and b) of corresponding pixels of the
short and the long frame as rows, the feature is the 3x3 matrix

    M = argmin |S M - L|^2.

Without noise and clipping it is the identity. Noise makes the shadows of the short frame grey, and
clipping the highlights of the long one; how much of each channel depends on the illuminant. The
paper gives M to a small network (EMLP) or to FFCC's bias.

Written from the paper's abstract and summaries: which pixels the authors leave out, and their
network's layers, could not be checked.
"""

from jaxtyping import Array, Float

from everlight.checks import checked
from everlight.color.radiometry import DualExposure
from everlight.color.transforms import TransformFit, fit_color_transform


@checked
def dual_exposure_feature(
    frames: DualExposure, mask: Float[Array, "h w"] | None = None
) -> TransformFit:
    """Return the matrix between the frames' chromaticities; all pixels count, clipped ones too.

    Args:
      frames: short and long frame of one camera, aligned, linear, 0 at black.
      mask: weight of each pixel; 0 excludes it.

    Returns:
      The matrix M (`short @ M` is near `long`), and its validity: false where the short frame's
        pixels have fewer than three independent chromaticities.
    """
    weights = None if mask is None else mask.reshape(-1)
    short, long = (frame.reshape(-1, 3) for frame in frames)
    return fit_color_transform(short, long, weights, "sum")
