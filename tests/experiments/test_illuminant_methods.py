"""Methods on sets of images: where they run, and what they read beside the pixels."""

import numpy as np

from everlight.color import ILLUMINANT_METHODS
from everlight_data.color.camera_matrices import matrix_for, read_camera_matrices
from everlight_data.color.photographs.camera_images import IlluminantImages
from everlight_data.color.raw_files.calibrations import single_matrix
from everlight_experiments.illuminant import methods
from everlight_experiments.illuminant.side_information import side_information

CALIBRATED = ILLUMINANT_METHODS["CCMNet, small form"]


def test_costly_methods_run_only_where_they_are_named():
    large, small = (
        ILLUMINANT_METHODS[f"C5{size}"] for size in (" at the authors' size", ", small form")
    )
    assert methods._is_wanted(small, None)
    assert not methods._is_wanted(large, None)
    assert methods._is_wanted(large, [large.name])
    paper = ILLUMINANT_METHODS["SIIE at the paper's size"]
    assert not methods._is_wanted(paper, None)
    assert paper.fit.keywords["settings"].bins == 61


def test_the_cameras_matrices_reach_the_methods(real_data):
    """C5 maps images by them, CCMNet reads them, and an unknown camera is the reason without."""
    real_data("camera_matrices/cameras.xml")
    names = ["Canon550D", "SonyA57"]
    side = side_information(names, "SonyA57")
    assert CALIBRATED.incompatibility(side) == ""
    known = read_camera_matrices(real_data("camera_matrices/cameras.xml"))
    expected = [matrix_for(known, name) for name in names]
    np.testing.assert_allclose(side.calibrations.matrices[:, 1], expected, rtol=1e-6)
    unknown = side_information(["Canon550D", "Nothing 7"], "Canon550D")
    assert "Nothing 7" in CALIBRATED.incompatibility(unknown)
    assert unknown.calibrations is None


def test_matrices_given_for_the_cameras_take_the_lists_place():
    """They are in the order of the cameras' names, in which images are numbered."""
    ones = np.ones((2, 3, 3), np.float32)
    first, second = (single_matrix(scale * np.eye(3)) for scale in (2.0, 3.0))
    data = IlluminantImages(
        *(ones, ones[..., 0], ones[0], [np.array([0])], "", "B2", ["A1", "B2"]),
        calibrations={"B2": second, "A1": first},
    )
    side = methods.side_of(data)
    assert CALIBRATED.incompatibility(side) == ""
    expected = np.stack([2 * np.eye(3), 3 * np.eye(3)])
    np.testing.assert_allclose(side.calibrations.matrices[:, 1], expected)
