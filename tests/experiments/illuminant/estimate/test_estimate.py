"""Two raw files in, an illuminant out: on a real photo seen by two made-up cameras."""

import csv

import colour
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tifffile
from PIL import Image

from everlight.color.chromaticity import chromaticity_to_illuminant
from everlight.illuminant.illuminant_interval import chromaticity_interval, ensemble_chromaticity
from everlight.illuminant.illuminant_training import TrainingSettings
from everlight.illuminant.pair_model import ensemble_estimates
from everlight.metrics.angular import angular_error
from everlight_data.color.models.pair_model_files import load_pair_model, save_pair_model
from everlight_data.color.pairs.view_pairs import read_homography
from everlight_data.color.raw_files.raw import read_raw
from everlight_data.color.rendered.rendered_pairs import ILLUMINANT_SPLITS, render_conditions
from everlight_data.color.spectra.library import EMBEDDED_CAMERAS, embedded_library
from everlight_data.errors import DataError
from everlight_experiments.illuminant.core.networks import NetworkTraining
from everlight_experiments.illuminant.estimate.command import estimate
from everlight_experiments.illuminant.estimate.options import EstimateOptions
from everlight_experiments.illuminant.two_camera.rendered import train_models
from tests.color.references import mapped
from tests.experiments.illuminant.estimate.estimate_pairs import (
    ALIGNMENT,
    CANON,
    CHART,
    NEUTRALS,
    write_pair,
)
from tests.illuminant.closed_form_net import (
    ILLUMINANT,
    pair_transform,
)


@pytest.fixture
def chart(real_data):
    photo = read_raw(real_data("raw_samples/colorchart.dng"))
    white = np.mean([photo.image[patch].mean((0, 1)) for patch in NEUTRALS], axis=0)
    return photo, white


def test_a_real_photo_all_the_way(tmp_path, chart, use_net, capsys):
    photo, white = chart
    transform = 0.8 * pair_transform(ILLUMINANT)
    pair = write_pair(tmp_path, photo, white, CHART, ILLUMINANT, transform, ALIGNMENT)
    output = tmp_path / "pictures"
    (result,) = estimate(
        EstimateOptions(
            (pair.main, pair.second), tmp_path / "net", homography=pair.points, output=output
        )
    )

    predicted = result.estimates.main.illuminant
    deviation = np.linalg.norm(result.transform - transform) / np.linalg.norm(transform)
    angle = angular_error(jnp.asarray(predicted), jnp.asarray(ILLUMINANT, jnp.float32))
    assert corner_shift(read_homography(pair.points)) < 0.1
    assert deviation < 0.02
    assert angle < 0.5

    printed = capsys.readouterr().out
    assert "Main Eye, black [512, 512, 512, 512], white 16383" in printed
    assert f"b/g {predicted[2]:.4f}); 90% interval: r/g {0.9 * predicted[0]:.4f} to" in printed
    assert "its farthest corner 3.2 degrees from it" in printed
    with Image.open(output / "main.png") as picture:
        pixels = np.asarray(picture).astype(int)
    before, after = np.split(pixels, 2, axis=1)
    assert tint(before) > 40
    assert tint(after) < 5

    original, corrected = read_raw(pair.main), read_raw(output / "main.dng")
    np.testing.assert_array_equal(corrected.image, original.image)
    np.testing.assert_allclose(corrected.as_shot_neutral, predicted / predicted.max(), atol=1e-5)
    np.testing.assert_allclose(corrected.xyz_to_camera, original.xyz_to_camera, atol=2e-4)
    assert corrected.camera == "Main Eye"

    linear = tifffile.imread(output / "main.tiff")
    assert linear.dtype == np.uint16
    # The DNG specification's colours of one matrix: XYZ, adapted from the illuminant's white.
    to_srgb = np.linalg.inv(colour.RGB_COLOURSPACES["sRGB"].matrix_RGB_to_XYZ)
    white = np.linalg.solve(CANON, predicted)
    adaptation = colour.adaptation.matrix_chromatic_adaptation_VonKries(
        white / white[1], colour.xy_to_XYZ((0.3127, 0.3290)), "Bradford"
    )
    matrix = to_srgb @ adaptation @ np.linalg.inv(CANON) @ np.diag(predicted)
    matrix /= matrix.sum(axis=1, keepdims=True)
    balanced = np.clip(original.image.astype(float) / predicted, 0, 1)
    expected = np.clip(balanced @ matrix.T, 0, 1)
    np.testing.assert_allclose(linear / 65535, expected, atol=2e-3)

    (line,) = csv.DictReader((output / "illuminants.csv").open())
    assert line["main"] == str(pair.main)
    np.testing.assert_allclose(float(line["main r/g"]), predicted[0], rtol=1e-4)
    np.testing.assert_allclose(float(line["main b/g high"]), 1.1 * predicted[2], rtol=1e-4)
    assert line["second r/g"] == line["second interval radius, degrees"] == ""


def corner_shift(homography):
    """Return the greatest shift in pixels against ALIGNMENT at the chart's corners and centre."""
    corners = np.array([[0, 0], [779, 0], [779, 479], [0, 479], [390, 240]])
    return np.abs(mapped(homography, corners) - mapped(ALIGNMENT, corners)).max()


def tint(panel):
    """Return the most that red and blue differ from green, of 255, in the chart's white patch.

    Its place in a panel is that in the crop, below the label and right of the margin.
    """
    top = panel.shape[0] - 12 - 480
    patch = panel[top + 375 : top + 405, 12 + 85 : 12 + 115].mean((0, 1))
    return np.abs(patch - patch[1]).max()


# Networks trained on rendered scenes of two measured cameras, which estimate for the real photo.


@pytest.fixture(scope="module")
def rendered():
    """Render noisy scenes of two measured cameras under seen illuminants."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delitem(ILLUMINANT_SPLITS, "illuminant")
        data = render_conditions(embedded_library(), [EMBEDDED_CAMERAS], 4_000, 0)
    return data["noisy", "random"]


@pytest.fixture(scope="module")
def trained_net(tmp_path_factory, rendered):
    """Train ensembles of 470 parameters for each camera's illuminant."""
    folder = tmp_path_factory.mktemp("net")
    settings = TrainingSettings(4_000, batch_size=256, learning_rate=1e-2)
    training = NetworkTraining(settings, (0,), folder / "checkpoints")
    (model,) = train_models(rendered, [EMBEDDED_CAMERAS], training, "colour-science")
    save_pair_model(folder / "model", model)
    return folder / "model"


def test_intervals_hold_on_scenes_that_no_part_of_the_net_has_seen(trained_net, rendered):
    model, (pair,) = load_pair_model(trained_net), rendered
    rows = np.flatnonzero(pair.find_determined(pair.scenes.test)) + pair.scenes.test.start
    for view in ("main", "second"):
        part = getattr(model, view)
        estimates = ensemble_estimates(part.depth, part.members, pair.inputs["T"][rows])
        predicted = jax.vmap(chromaticity_interval, (None, 1))(part.interval, estimates)
        illuminants = getattr(pair, view).illuminants[rows]
        truth = np.asarray(illuminants)[:, ::2] / np.asarray(illuminants)[:, 1:2]
        # Three binomial deviations of 700 scenes and of the calibration's scenes are 0.048.
        held = np.asarray(((predicted.low <= truth) & (truth <= predicted.high)).all(axis=1))
        assert held.mean() == pytest.approx(0.9, abs=0.048)
        share = part.coverage(pair.inputs["T"][rows], jnp.asarray(truth)).share
        assert share == pytest.approx(held.mean(), abs=2e-3)
        center = chromaticity_to_illuminant(ensemble_chromaticity(estimates))
        errors = np.asarray(jax.vmap(angular_error)(center, illuminants))
        assert (errors[held] <= np.asarray(predicted.degrees)[held] + 1e-3).all()


def illuminant_and_transform(name):
    """Return an illuminant in the main camera, and the best transform of all surfaces under it."""
    library = embedded_library()
    main, second = (library.sensitivity(camera).T for camera in EMBEDDED_CAMERAS)
    spectrum = library.illuminants[library.illuminant_names.index(name)]
    illuminant = spectrum @ main / (spectrum @ main)[1]
    colors = library.reflectances * spectrum
    transform = np.linalg.lstsq(colors @ main, colors @ second)[0]
    return illuminant, transform * 0.8 / (illuminant @ transform).max()


def settings_of(pair, net, output, *formats):
    files = pair.main, pair.second
    return EstimateOptions(files, net, homography=pair.points, output=output, formats=formats)


@pytest.mark.parametrize("name", ["A", "D65"])
def test_a_trained_net_estimates_the_illuminant_of_a_real_photo(tmp_path, chart, trained_net, name):
    """The two illuminants are 24 degrees apart."""
    photo, white = chart
    illuminant, transform = illuminant_and_transform(name)
    pair = write_pair(tmp_path, photo, white, CHART, illuminant, transform, ALIGNMENT)
    (result,) = estimate(settings_of(pair, trained_net, tmp_path / "out", "png"))
    assert corner_shift(read_homography(pair.points)) < 0.1
    truth = jnp.asarray(illuminant, jnp.float32)
    assert angular_error(jnp.asarray(result.estimates.main.illuminant), truth) < 5
    predicted = result.estimates.second.illuminant
    assert angular_error(jnp.asarray(predicted), truth @ jnp.asarray(transform, jnp.float32)) < 5
    assert result.estimates.main.score.distance < 1
    # The files are of made-up cameras.
    predicted = ("main file taken by Main Eye", "second file taken by Second Eye")
    assert [item.split(",")[0] for item in result.warnings] == [*predicted]
    assert {item.name for item in (tmp_path / "out").iterdir()} == {"main.png", "illuminants.csv"}


def test_the_second_cameras_exposure_has_no_part_in_the_illuminant(tmp_path, chart, trained_net):
    photo, white = chart
    illuminant, transform = illuminant_and_transform("D65")
    illuminants = []
    for folder, exposure in (("one", 1.0), ("other", 0.5)):
        (tmp_path / folder).mkdir()
        pair = write_pair(
            tmp_path / folder, photo, white, CHART, illuminant, exposure * transform, ALIGNMENT
        )
        (result,) = estimate(settings_of(pair, trained_net, tmp_path / folder / "out", "png"))
        illuminants.append(result.estimates.main.illuminant)
    assert angular_error(*map(jnp.asarray, illuminants)) < 0.3


def test_one_camera_twice_is_refused_with_its_distance(tmp_path, chart, trained_net):
    """T is the identity then, which a net for two different cameras has never seen."""
    photo, white = chart
    illuminant, _ = illuminant_and_transform("D65")
    pair = write_pair(tmp_path, photo, white, CHART, illuminant, np.eye(3), ALIGNMENT)
    with pytest.raises(DataError, match=r"out-of-distribution score \d.* Nikon 5100"):
        estimate(settings_of(pair, trained_net, tmp_path / "out", "png"))
    assert not (tmp_path / "out").exists()
