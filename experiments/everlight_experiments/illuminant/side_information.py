"""Side information on images, from files where an image set does not have it."""

from collections.abc import Sequence

from jaxtyping import Float
from numpy.typing import ArrayLike

from everlight.color import SideInformation
from everlight.color.camera_calibration import CameraCalibration
from everlight_data.color.raw_files.calibrations import camera_calibrations
from everlight_data.pretrained.trunk_views import missing_trunk, trunk_views


def side_information(
    cameras: Sequence[str],
    camera: str,
    calibrations: CameraCalibration | None = None,
    captures: Float[ArrayLike, "n f"] | None = None,
) -> SideInformation:
    """Return side information on images, with the frozen network of FC4-style pooling.

    Args:
      cameras: cameras of the images, in the order of their numbers.
      camera: camera of the test images.
      calibrations: calibration of each camera; by default those of `camera_matrices/cameras.xml`
        below EVERLIGHT_DATA, where it has all cameras.
      captures: `capture_features` of all images, in their order; None where they are unknown.
    """
    missing = ""
    if calibrations is None:
        calibrations, missing = camera_calibrations(cameras)
    return SideInformation(
        cameras, camera, calibrations, missing, captures, trunk_views, missing_trunk
    )
