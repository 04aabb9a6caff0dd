"""Two cameras that differ by a known transform, and a network that answers in closed form."""

import numpy as np

from everlight.illuminant.illuminant_interval import ChromaticityInterval
from everlight.illuminant.out_of_distribution import OutOfDistributionScore
from everlight.illuminant.pair_model import Estimate, Estimates, PairModel

# The second camera's channels from the main camera's (rows) under a white illuminant.
CAMERA_CHANGE = np.array([[0.85, 0.15, 0.05], [0.2, 0.8, 0.2], [0.03, 0.2, 0.9]])
ILLUMINANT = np.array([0.55, 1.0, 0.7])

ORDINARY = OutOfDistributionScore(np.float32(0.5), np.float32(0.4))


def pair_estimates(illuminant, second=None, score=ORDINARY):
    """Return estimates whose R/G and B/G are known to a tenth."""
    illuminant = np.array(illuminant, np.float32)
    interval = ChromaticityInterval(illuminant[::2] * 0.9, illuminant[::2] * 1.1, np.float32(3.25))
    predicted = Estimate(illuminant, interval, score, uninformative=False)
    return Estimates(
        predicted, None if second is None else predicted._replace(illuminant=np.array(second))
    )


class ClosedFormNet:
    """The exact answer for cameras that differ by CAMERA_CHANGE: T_ij ∝ M_ij L_j / L_i."""

    fit = None
    cameras = ("Main Eye", "Second Eye")
    needs_transform = True

    def inputs(self, main, second, weights):
        return PairModel.inputs(self, main, second, weights)

    def estimate(self, inputs):
        ratio = np.asarray(inputs.transform, float) / CAMERA_CHANGE
        red = np.sqrt(ratio[1, 0] / ratio[0, 1])
        blue = np.sqrt(ratio[1, 2] / ratio[2, 1])
        return pair_estimates([red, 1, blue])


def pair_transform(illuminant):
    """Return the two cameras' transform under an illuminant: balance, change camera, unbalance."""
    return np.diag(1 / illuminant) @ CAMERA_CHANGE @ np.diag(illuminant)
