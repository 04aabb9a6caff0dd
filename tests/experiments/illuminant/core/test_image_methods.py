"""Methods on sets of images: where they run, and what they read beside the pixels."""

from dataclasses import replace

import numpy as np

from everlight.color import ILLUMINANT_METHODS
from everlight_data.color.camera_matrices import find_matrix, read_camera_matrices
from everlight_data.color.photographs.camera_images import IlluminantImages
from everlight_data.color.raw_files.calibrations import single_matrix
from everlight_experiments.illuminant.core import image_methods
from everlight_experiments.illuminant.core.method_inputs import side_of

CALIBRATED = ILLUMINANT_METHODS["CCMNet, small form"]


def images_by(*cameras, **fields):
    """Return one image by each camera, of which the last one is tested."""
    images = np.ones((len(cameras), 3, 3, 3), np.float32)
    arrays = images, images[..., 0], images[:, 0, 0], [np.array([len(cameras) - 1])]
    return IlluminantImages(*arrays, "", cameras[-1], cameras, cameras, **fields)


def test_costly_methods_run_only_where_they_are_named(monkeypatch):
    paper = ILLUMINANT_METHODS["SIIE at the paper's size"]
    rows = {
        name: replace(ILLUMINANT_METHODS[name], incompatibility=lambda side: "")
        for name in ("C5, small form", "C5 at the authors' size", paper.name)
    }
    monkeypatch.setattr(image_methods, "methods_for", lambda side: rows)

    def keep(name, compute):
        return {"estimates": np.zeros((1, 1, 3))}

    def selected(names):
        return [*image_methods.cross_validate_methods(images_by("A1"), keep, names)]

    assert selected(None) == ["C5, small form"]
    assert selected(["C5 at the authors' size"]) == ["C5 at the authors' size"]
    assert paper.fit.keywords["settings"].bins == 61


def test_the_cameras_matrices_reach_the_methods(real_data, monkeypatch):
    """C5 maps images by them, CCMNet reads them, and an unknown camera is the reason without."""
    path = real_data("camera_matrices/cameras.xml")
    monkeypatch.setenv("EVERLIGHT_DATA", str(path.parents[1]))
    names = ["Canon550D", "SonyA57"]
    side = side_of(images_by(*names))
    assert CALIBRATED.incompatibility(side) == ""
    expected = [find_matrix(read_camera_matrices(path), name) for name in names]
    np.testing.assert_allclose(side.calibrations.matrices[:, 1], expected, rtol=1e-6)
    unknown = side_of(images_by("Canon550D", "Nothing 7"))
    assert "Nothing 7" in CALIBRATED.incompatibility(unknown)
    assert unknown.calibrations is None


def test_given_matrices_are_in_the_order_of_the_cameras_names():
    """Images are numbered in that order."""
    first, second = (single_matrix(scale * np.eye(3)) for scale in (2.0, 3.0))
    side = side_of(images_by("B2", "A1", calibrations={"B2": second, "A1": first}))
    assert CALIBRATED.incompatibility(side) == ""
    expected = np.stack([2 * np.eye(3), 3 * np.eye(3)])
    np.testing.assert_allclose(side.calibrations.matrices[:, 1], expected)
