"""The table of all single-image methods, with those whose features need files."""

from collections.abc import Sequence

from everlight.color.camera_calibration import CameraCalibration
from everlight.color.illuminant_folds import FoldMethod
from everlight.color.learned.fold_methods import (
    POOLED,
    confidence_pooling_method,
    fold_methods,
)
from everlight_data.color.camera_matrices import camera_calibrations
from everlight_data.color.trunk_views import missing_trunk, trunk_views
from everlight_data.names import check_name


def image_methods(
    names: Sequence[str], camera: str, calibrations: CameraCalibration | None = None
) -> dict[str, FoldMethod]:
    """Return the table of methods by name, including those that cannot run on these cameras.

    Args:
      names: cameras of the images, in the order of their numbers.
      camera: camera of the test images.
      calibrations: calibration of each camera; by default those of `camera_matrices/cameras.xml`
        below EVERLIGHT_DATA, where it has all cameras.
    """
    pooled = confidence_pooling_method(trunk_views, missing_trunk)
    known, missing = calibrations, ""
    if known is None:
        known, missing = camera_calibrations(names)
    return fold_methods(names, camera, known, missing) | {POOLED: pooled}


def full_name(given: str, table: Sequence[str]) -> str:
    """Return a method's name in the table, also for its first word in any case, such as c5.

    Raises:
      DataError: there is no such method, or several; the message gives the nearest names and all.
    """
    plain = given.casefold()
    exact = [name for name in table if name.casefold() == plain]
    found = exact or [name for name in table if name.casefold().split(",")[0] == plain]
    if len(found) != 1:
        check_name("method", given, table)
    return found[0]
