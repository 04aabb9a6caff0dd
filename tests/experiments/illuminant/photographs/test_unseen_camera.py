"""CCMNet in two commands: trained on some cameras, applied to photos by one that it never saw."""

from dataclasses import replace

import imagecodecs
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.color import ILLUMINANT_METHODS
from everlight.color.camera_calibration import CameraCalibration, camera_fingerprint
from everlight.color.chroma_histogram import chroma_histograms
from everlight.color.learned.calibrated_camera import calibrated_estimate
from everlight.illuminant.image_model import UnsuitableImageError
from everlight_data.color.models.image_model_files import load_estimator
from everlight_data.color.raw_files import dng
from everlight_data.color.raw_files.calibrations import (
    read_calibrations,
    read_dng_calibration,
    single_matrix,
)
from everlight_data.color.raw_files.raw import read_raw
from everlight_data.errors import DataError
from everlight_experiments.illuminant.estimate.command import estimate
from everlight_experiments.illuminant.estimate.options import EstimateOptions
from everlight_experiments.illuminant.photographs import source
from everlight_experiments.illuminant.photographs.train import IlluminantTrainOptions, run_train
from tests.color.learned.tiny_generator import TINY
from tests.dng_writer import write_dng
from tests.experiments.illuminant.photographs.thumbnail_files import write_cameras
from tests.experiments.illuminant.short_rows import set_settings

CALIBRATED = "CCMNet, small form"
SIDE = 32
MATRIX = np.array([[0.7, -0.1, -0.1], [-0.3, 1.1, 0.2], [-0.05, 0.2, 0.6]])
OTHER = MATRIX * np.array([[1.6], [1], [0.7]])
CAMERA = """<Camera make="M" model="{0}"><ID make="M" model="{0}">{0}</ID><ColorMatrices>
<ColorMatrix planes="3">{1}</ColorMatrix></ColorMatrices></Camera>"""


def listed(path, **matrices):
    """Write a list of cameras in rawspeed's form."""
    cameras = []
    for name, matrix in matrices.items():
        rows = [
            f'<ColorMatrixRow plane="{row}">{" ".join(str(round(v * 10_000)) for v in values)}'
            "</ColorMatrixRow>"
            for row, values in enumerate(matrix)
        ]
        cameras.append(CAMERA.format(name, "".join(rows)))
    path.write_text(f"<Cameras>{''.join(cameras)}</Cameras>")
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Train a small CCMNet of two cameras and save it; its list of cameras is missing later."""
    folder = tmp_path_factory.mktemp("unseen")
    rng = np.random.default_rng(5)
    files = write_cameras(folder, rng, 12)
    (folder / "data" / "camera_matrices").mkdir(parents=True)
    listed(folder / "data" / "camera_matrices" / "cameras.xml", A1=MATRIX, B2=OTHER)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("EVERLIGHT_DATA", str(folder / "data"))
        patch.setattr(source, "MIN_IMAGES", 6)
        set_settings(patch, [CALIBRATED], settings=TINY, steps=4)
        settings = IlluminantTrainOptions(
            thumbnails=files, runs=folder, side=SIDE, method="ccmnet", out=folder / "model"
        )
        report = run_train(settings).read_text()
        dngs = tuple(
            write_dng(folder / f"{name}.dng", scene(), model=name, extra_tags=two_matrices(*both))
            for name, both in (("A1", (MATRIX, OTHER)), (" b2", (OTHER, MATRIX)))
        )
        patch.setenv("EVERLIGHT_DATA", str(folder / "empty"))
        run_train(replace(settings, tag="dngs", matrices=dngs, out=folder / "two"))
    assert "Each of 2 cameras by a training on the others" in report
    return folder / "model"


@pytest.fixture
def model(trained, tmp_path, monkeypatch):
    monkeypatch.setenv("EVERLIGHT_DATA", str(tmp_path / "empty"))
    set_settings(monkeypatch, [CALIBRATED], settings=TINY)
    return trained


def scene():
    rng = np.random.default_rng(6)
    tiles = rng.uniform(0.1, 0.8, (6, 8, 3)) * np.array([0.6, 1, 0.7])
    return tiles.repeat(16, axis=0).repeat(16, axis=1)


def two_matrices(warm, day):
    """Return tags of both matrices of a DNG, standard illuminant A first."""
    return [
        (50721, dng.SIGNED_RATIONAL, 9, dng.rationals(warm)),
        (50722, dng.SIGNED_RATIONAL, 9, dng.rationals(day)),
        (50778, dng.SHORT, 1, 17),
        (50779, dng.SHORT, 1, 21),
    ]


def estimates(model, tmp_path, *files, **options):
    settings = EstimateOptions(files, model, output=tmp_path / "out", formats=(), **options)
    return [item.estimate.illuminant for item in estimate(settings)]


def test_a_dngs_own_matrices_describe_its_camera(model, tmp_path, capsys):
    """The fingerprint is of the matrix of daylight, the only one that training cameras had."""
    day = MATRIX * np.array([[1.2], [1], [0.9]])
    photo = write_dng(
        tmp_path / "new.dng", scene(), 512, 16383, model="New", extra_tags=two_matrices(MATRIX, day)
    )
    (result,) = estimates(model, tmp_path, photo)
    assert "the model was trained for" not in capsys.readouterr().err
    # The steps are the library's functions, the network is in float64.
    stored = load_estimator(model)
    assert stored.needs_calibration
    assert stored.cameras == ("A1", "B2")
    image = read_raw(photo).image
    thumbnail = stored.thumbnail(image, np.ones(image.shape[:2], bool))
    histograms = chroma_histograms(thumbnail.image, thumbnail.mask.astype(float), TINY.window)
    known = camera_fingerprint(single_matrix(day), TINY.fingerprint_window)
    with jax.enable_x64(True):
        fitted = stored.fitted.model
        *wide, variables = jax.tree.map(
            lambda leaf: np.asarray(leaf, float), (histograms, known, fitted.variables)
        )
        expected = calibrated_estimate(fitted.replace(variables=variables), *wide)
        assert expected.dtype == float
    expected = np.asarray(expected)
    # In float32 the network errs by 1.5e-5 on some processors.
    np.testing.assert_allclose(result, expected / expected[1], rtol=5e-5)
    # The estimate is repeated in Python, and with another camera's matrices.
    calibration = read_dng_calibration(photo).calibration
    again = stored(image, np.ones(image.shape[:2], bool), calibration=calibration)
    np.testing.assert_allclose(again, expected / expected[1], rtol=5e-5)
    other = stored(image, np.ones(image.shape[:2], bool), calibration=single_matrix(OTHER))
    assert np.abs(other - again).max() > 1e-4


def test_matrices_of_a_file_serve_photos_without(model, tmp_path):
    counts = np.round(scene() * 60_000).astype(np.uint16)
    (tmp_path / "a.png").write_bytes(imagecodecs.png_encode(counts))
    with pytest.raises(DataError, match=r"a\.png has no calibration matrices; give a DNG by its"):
        estimates(model, tmp_path, tmp_path / "a.png")
    known = write_dng(tmp_path / "known.dng", scene(), 512, 16383, OTHER, model="New One")
    (png,) = estimates(model, tmp_path, tmp_path / "a.png", matrices=known)
    expected = load_estimator(model)(scene(), calibration=single_matrix(OTHER))
    np.testing.assert_allclose(png, expected, rtol=1e-3)
    plain = write_dng(tmp_path / "plain.dng", scene(), 512, 16383, model="New One")
    with pytest.raises(DataError, match=r"plain\.dng has no calibration matrices"):
        estimates(model, tmp_path, plain)
    cameras = listed(tmp_path / "cameras.xml", **{"New One": OTHER, "Old": MATRIX})
    by_name, current = (
        estimates(model, tmp_path, plain, matrices=cameras)[0],
        estimates(model, tmp_path, known)[0],
    )
    np.testing.assert_allclose(by_name, current, rtol=1e-4)
    with pytest.raises(DataError, match=r"a\.png names no camera"):
        estimates(model, tmp_path, tmp_path / "a.png", matrices=cameras)
    with pytest.raises(DataError, match=r"no calibration matrix of 'New One'"):
        estimates(model, tmp_path, plain, matrices=listed(tmp_path / "b.xml", Old=MATRIX))
    dark = write_dng(tmp_path / "dark.dng", scene(), 512, 16383, -OTHER, model="New One")
    with pytest.raises(DataError, match=r"dark\.dng give daylight a colour that is not positive"):
        estimates(model, tmp_path, plain, matrices=dark)


def test_two_matrices_are_read_where_training_had_two(model):
    fitted = load_estimator(model).fitted
    assert not fitted.by_temperature
    two = CameraCalibration(jnp.float32([MATRIX, OTHER]), jnp.array([2856.0, 6504.0]))
    for by_temperature, calibration in ((True, two), (False, single_matrix(OTHER))):
        fitted = fitted._replace(by_temperature=jnp.array(by_temperature))
        current = ILLUMINANT_METHODS[CALIBRATED].for_camera(fitted, two)
        expected = camera_fingerprint(calibration, TINY.fingerprint_window)
        np.testing.assert_allclose(current.fingerprint, expected, atol=1e-5)
        stored = jax.tree.map(np.array_equal, current.model, fitted.model)
        assert all(jax.tree.leaves(stored))


def test_training_cameras_may_have_two_matrices(model):
    """Training is on DNGs of both cameras, without a list."""
    one, two = (load_estimator(model.parent / name).fitted for name in ("model", "two"))
    assert two.by_temperature
    # The model's own fingerprint is of the first camera; in the list it has MATRIX alone.
    both = CameraCalibration(jnp.float32([MATRIX, OTHER]), jnp.array([2856.0, 6504.0]))
    expected = camera_fingerprint(both, TINY.fingerprint_window)
    np.testing.assert_allclose(two.fingerprint, expected, atol=1e-4)
    assert np.abs(one.fingerprint - two.fingerprint).max() > 0.1


def test_matrices_of_several_cameras(tmp_path):
    first = write_dng(
        tmp_path / "a.dng", scene(), model="A1", extra_tags=two_matrices(MATRIX, OTHER)
    )
    listing = listed(tmp_path / "cameras.xml", A1=MATRIX, B2=OTHER)
    result = read_calibrations([listing, first], ["A1", "B2"])
    np.testing.assert_allclose(result["A1"].matrices, [MATRIX, OTHER], atol=1e-4)
    np.testing.assert_allclose(result["B2"].matrices, [OTHER, OTHER], atol=1e-4)
    with pytest.raises(DataError, match="no calibration matrix of 'C3'"):
        read_calibrations([listing, first], ["A1", "C3"])
    tags = [*two_matrices(MATRIX, OTHER)[:3], (50779, dng.SHORT, 1, 23)]
    second = write_dng(tmp_path / "b.dng", scene(), model="B2", extra_tags=tags)
    with pytest.raises(DataError, match="A1 2856 and 6504, B2 2856 and 5003"):
        read_calibrations([first, second], ["A1", "B2"])


def test_unsuitable_images_are_refused_in_one_line(model, tmp_path):
    stored = load_estimator(model)
    with pytest.raises(UnsuitableImageError, match="reads the calibration matrices"):
        stored(scene())
    gray = ILLUMINANT_METHODS["GW"]
    with pytest.raises(UnsuitableImageError, match="GW reads no calibration"):
        replace(stored, name="GW", method=gray)(scene(), calibration=single_matrix(MATRIX))
