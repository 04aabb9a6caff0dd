"""Methods of folds of images: where they run, and which images they take."""

import jax.numpy as jnp
import numpy as np
import pytest

from everlight.color.illuminant_folds import Fold, FoldMethod, estimate_fold
from everlight.color.learned import fold_methods
from everlight.color.learned.fold_methods import DAYLIGHT
from everlight_data.color.camera_matrices import (
    matrix_for,
    read_camera_matrices,
    single_matrix,
)
from everlight_data.color.image_methods import image_methods
from everlight_data.color.image_sets import ImageSet
from everlight_experiments.illuminant import methods


def test_costly_methods_run_only_where_they_are_named():
    table = fold_methods.fold_methods(["SonyA57"], "SonyA57")
    large, small = (table[f"C5{name}"] for name in (" at the authors' size", ", small form"))
    assert methods._is_wanted("small", small, None)
    assert not methods._is_wanted("large", large, None)
    assert methods._is_wanted("large", large, ["large"])
    paper = table["SIIE at the paper's size"]
    assert not methods._is_wanted("paper", paper, None)
    assert paper.fit.args[0].bins == 61
    assert table["SIIE"].fit.args[0].bins == 33
    assert "calibration" in table[fold_methods.CALIBRATED].incompatibility()


def test_the_cameras_matrices_reach_the_methods(monkeypatch, real_data):
    """C5 maps images by them, CCMNet reads them, and an unknown camera is the reason without."""
    real_data("camera_matrices/cameras.xml")
    names = ["Canon550D", "SonyA57"]
    table = image_methods(names, "SonyA57")
    assert table[fold_methods.CALIBRATED].incompatibility() == ""
    matrices = table["C5, small form"].fit.args[2]
    known = read_camera_matrices(real_data("camera_matrices/cameras.xml"))
    expected = [matrix_for(known, name) for name in names]
    np.testing.assert_allclose(matrices, expected, rtol=1e-6)
    unknown = image_methods(["Canon550D", "Nothing 7"], "Canon550D")
    assert "Nothing 7" in unknown[fold_methods.CALIBRATED].incompatibility()
    assert unknown["C5, small form"].fit.args[2] is None


def test_matrices_given_for_the_cameras_take_the_lists_place():
    """They are in the order of the cameras' names, in which images are numbered."""
    ones = np.ones((2, 3, 3), np.float32)
    first, second = (single_matrix(scale * np.eye(3)) for scale in (2.0, 3.0))
    data = ImageSet(
        *(ones, ones[..., 0], ones[0], [np.array([0])], "", "B2", ["A1", "B2"]),
        calibrations={"B2": second, "A1": first},
    )
    table = methods.methods_for(data)
    assert table[fold_methods.CALIBRATED].incompatibility() == ""
    expected = np.stack([2 * np.eye(3), 3 * np.eye(3)])
    np.testing.assert_allclose(table["C5, small form"].fit.args[2], expected)


def lesson_of(seen, asked, cameras, camera, lights=None):
    lights = jnp.ones((len(seen), 3)) if lights is None else lights
    return Fold(seen, lights, asked, jnp.array(cameras), jnp.array(camera))


@pytest.mark.parametrize("camera", [1, 2])
def test_c5_sees_images_by_the_asked_camera(camera):
    """They are training images if it took any, else tested ones, and never the tested image."""
    method = FoldMethod(
        fold_methods._thumbnail,
        lambda fold: None,
        lambda model, own, others: others[:, 0, 0, 0],
        reads_others=True,
    )
    marked = jnp.zeros((30, 4, 4, 4)).at[:, 0, 0, 0].set(jnp.arange(30))
    cameras = np.arange(20) % 2
    lesson = lesson_of(marked[:20], marked[20:], cameras, camera)
    chosen = np.asarray(estimate_fold(method, lesson)).astype(int)
    assert chosen.shape == (10, 6)
    for place, others in enumerate(chosen):
        if camera == 1:
            assert (others % 2 == 1).all()
            assert (others < 20).all()
        else:
            assert (others >= 20).all()
            assert (others != 20 + place).all()
    assert len(np.unique(chosen)) > 5


def test_dmcc_learns_the_asked_cameras_lights(monkeypatch, rng):
    """Von Kries factors of both cameras' white bring them there."""
    monkeypatch.setattr(fold_methods, "fit_dual_mapping", lambda *given: given[3])
    lights = jnp.float32(rng.uniform(0.4, 1, (4, 3)))
    images = jnp.ones((4, 2, 2, 4))
    whites = jnp.array([DAYLIGHT["SonyA57"], DAYLIGHT["NikonD5200"]])
    lesson = lesson_of(images, images, [1, 1, 1, 0], 1, lights)
    mapped = fold_methods._fit_dual_mapping(-1, whites, lesson)[3]
    expected = lights[3] * np.array([0.17, 0.48, 0.35]) / np.array([0.16, 0.49, 0.35])
    np.testing.assert_allclose(mapped, expected, rtol=1e-6)
    same = lesson._replace(camera=jnp.array(0))
    np.testing.assert_allclose(
        fold_methods._fit_dual_mapping(-1, whites, same)[3], lights[3], rtol=1e-6
    )
