"""Two raw files in, an illuminant out: on a real photo seen by two made-up cameras, and bad input.

`write_pair` makes the two cameras' files of a photo; any model with `tell` can be tried on them.
"""

import csv
import json
import shutil
from functools import partial
from pathlib import Path
from typing import NamedTuple

import colour
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import tifffile
import tyro
from PIL import Image

from everlight.color.alignment import warp_image
from everlight.color.chromaticity import from_chromaticity, to_chromaticity
from everlight.color.feature_distribution import FeatureDistribution
from everlight.color.transform_prior import fit_probable_transform, learn_transform_prior
from everlight.metrics.angular import angular_error
from everlight.models.illuminant_interval import (
    Interval,
    calibrate_interval,
    chromaticity_interval,
    ensemble_chromaticity,
    uninformative_interval,
)
from everlight.models.illuminant_net import IlluminantNet
from everlight.models.illuminant_training import (
    Problem,
    TrainingSettings,
    make_trainer,
    predict_chromaticity,
)
from everlight.models.out_of_distribution import OutOfDistributionScore, calibrate_distances
from everlight.models.pair_model import Estimate, Estimates, PairModel, ViewModel
from everlight_data.color.pair_model_files import load_pair_model, save_pair_model
from everlight_data.color.radiometric import RadiometricSettings, draw_scenes, photograph
from everlight_data.color.raw import RawImage, read_raw
from everlight_data.color.spectra import EMBEDDED_CAMERAS, embedded_library
from everlight_data.color.view_pairs import choose_homography, described_view
from everlight_data.errors import DataError, MissingDataError
from everlight_experiments.illuminant import estimate as estimate_module
from everlight_experiments.illuminant.corrections import draw_correction
from everlight_experiments.illuminant.estimate import EstimateSettings, estimate, estimate_pair
from tests.dng_writer import write_dng

# What the second camera makes of the main camera's channels (rows) under a white light.
CAMERA_CHANGE = np.array([[0.85, 0.15, 0.05], [0.2, 0.8, 0.2], [0.03, 0.2, 0.9]])
# Main pixels to second pixels: scale 0.9, a shift of 20 pixels, small rotation and perspective.
ALIGNMENT = np.array([[0.9, -0.02, 25.0], [0.015, 0.91, -4.0], [2e-5, -1e-5, 1.0]])
LIGHT = np.array([0.55, 1.0, 0.7])
CANON = np.array([[0.6461, -0.1164, -0.0857], [-0.3825, 1.1597, 0.2534], [-0.0416, 0.154, 0.6039]])

# In colorchart.dng: the chart, and its three lightest neutral patches.
CHART = np.s_[540:1020, 600:1380]
NEUTRALS = [np.s_[910:950, column : column + 40] for column in (680, 790, 900)]


class Pair(NamedTuple):
    """Files of the two views and of their point pairs."""

    main: Path
    second: Path
    points: Path


ORDINARY = OutOfDistributionScore(np.float32(0.5), np.float32(0.4))


def told_lights(light, second=None, score=ORDINARY):
    """Lights whose R/G and B/G are known to a tenth."""
    light = np.array(light, np.float32)
    interval = Interval(light[::2] * 0.9, light[::2] * 1.1, np.float32(3.25))
    told = Estimate(light, interval, score, uninformative=False)
    return Estimates(told, None if second is None else told._replace(illuminant=np.array(second)))


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
        return told_lights([red, 1, blue])


def pair_transform(light):
    """The transform between the two cameras under a light: balance, change camera, unbalance."""
    return np.diag(1 / light) @ CAMERA_CHANGE @ np.diag(light)


def homography_of(points, homography):
    lifted = np.column_stack([points, np.ones(len(points))]) @ np.asarray(homography, float).T
    return lifted[:, :2] / lifted[:, 2:]


def write_pair(
    folder: Path, photo: RawImage, white, crop, light, transform, homography, peak: float = 0.9
) -> Pair:
    """Writes both views of a photo whose own illuminant is `white`, as under another light.

    The main view is the crop of the re-illuminated photo; the second is that photo through
    `transform`, on its own pixel grid under `homography` (main to second pixels).
    """
    scene = photo.image * (light / white).astype(np.float32)
    scene *= peak / scene[crop].max()
    main = scene[crop]
    to_scene = np.array([[1, 0, crop[1].start], [0, 1, crop[0].start], [0, 0, 1]])
    second = warp_image(
        jnp.asarray(scene @ transform.astype(np.float32)),
        jnp.asarray(to_scene @ np.linalg.inv(homography), jnp.float32),
        main.shape[:2],
    ).image
    second = np.asarray(second)
    assert second.max() < 1, "transform must not saturate the second view"

    height, width = main.shape[:2]
    points = np.random.default_rng(0).uniform(0, [width - 1, height - 1], (16, 2)).round()
    pairs = {"main": points.tolist(), "second": homography_of(points, homography).round(1).tolist()}
    (folder / "points.json").write_text(json.dumps(pairs))
    return Pair(
        write_dng(folder / "main.dng", main, 512, 16383, CANON, light, "Main Eye"),
        write_dng(folder / "second.dng", second, 64, 16383, model="Second Eye"),
        folder / "points.json",
    )


@pytest.fixture
def use_net(monkeypatch):
    def use(net):
        monkeypatch.setattr(estimate_module, "load_pair_model", lambda path: net)

    use(ClosedFormNet())
    return use


@pytest.fixture
def chart(real_data):
    photo = read_raw(real_data("raw_samples/colorchart.dng"))
    white = np.mean([photo.image[patch].mean((0, 1)) for patch in NEUTRALS], axis=0)
    return photo, white


def test_a_real_photo_all_the_way(tmp_path, chart, use_net, capsys):
    photo, white = chart
    transform = 0.8 * pair_transform(LIGHT)
    pair = write_pair(tmp_path, photo, white, CHART, LIGHT, transform, ALIGNMENT)
    output = tmp_path / "pictures"
    (result,) = estimate(
        EstimateSettings(
            (pair.main, pair.second), tmp_path / "net", homography=pair.points, output=output
        )
    )

    told = result.estimates.main.illuminant
    deviation = np.linalg.norm(result.transform - transform) / np.linalg.norm(transform)
    angle = angular_error(jnp.asarray(told), jnp.asarray(LIGHT, jnp.float32))
    assert corner_shift(result.homography) < 0.1
    assert deviation < 0.02
    assert angle < 0.5

    printed = capsys.readouterr().out
    assert "Main Eye, black [512, 512, 512, 512], white 16383" in printed
    assert f"b/g {told[2]:.4f}); 90% interval: r/g {0.9 * told[0]:.4f} to" in printed
    assert "its farthest corner 3.2 degrees from it" in printed
    with Image.open(output / "main.png") as picture:
        pixels = np.asarray(picture).astype(int)
    before, after = np.split(pixels, 2, axis=1)
    assert tint(before) > 40
    assert tint(after) < 5

    original, corrected = read_raw(pair.main), read_raw(output / "main.dng")
    np.testing.assert_array_equal(corrected.image, original.image)
    np.testing.assert_allclose(corrected.as_shot_neutral, told / told.max(), atol=1e-5)
    np.testing.assert_allclose(corrected.xyz_to_camera, original.xyz_to_camera, atol=2e-4)
    assert corrected.camera == "Main Eye"

    linear = tifffile.imread(output / "main.tiff")
    assert linear.dtype == np.uint16
    to_camera = CANON @ colour.RGB_COLOURSPACES["sRGB"].matrix_RGB_to_XYZ
    to_camera /= to_camera.sum(axis=1, keepdims=True)
    balanced = np.clip(original.image.astype(float) / told, 0, 1)
    expected = np.clip(balanced @ np.linalg.inv(to_camera).T, 0, 1)
    np.testing.assert_allclose(linear / 65535, expected, atol=2e-3)

    (line,) = csv.DictReader((output / "lights.csv").open())
    assert line["main"] == str(pair.main)
    np.testing.assert_allclose(float(line["main r/g"]), told[0], rtol=1e-4)
    np.testing.assert_allclose(float(line["main b/g high"]), 1.1 * told[2], rtol=1e-4)
    assert line["second r/g"] == line["second degrees"] == ""


def corner_shift(homography):
    """The most by which ALIGNMENT differs at the chart's corners and centre, in pixels."""
    corners = np.array([[0, 0], [779, 0], [779, 479], [0, 479], [390, 240]])
    return np.abs(homography_of(corners, homography) - homography_of(corners, ALIGNMENT)).max()


def tint(panel):
    """The most that red and blue differ from green, of 255, in the chart's white patch.

    Its place in a panel is that in the crop, below the label and right of the margin.
    """
    top = panel.shape[0] - 12 - 480
    patch = panel[top + 375 : top + 405, 12 + 85 : 12 + 115].mean((0, 1))
    return np.abs(patch - patch[1]).max()


# A net trained on rendered scenes of two measured cameras, asked about the real photo.


@pytest.fixture(scope="module")
def rendered():
    """Scenes of two measured cameras, their most probable transforms, and the prior."""
    library = embedded_library()
    scenes = draw_scenes(library, RadiometricSettings(4_000, "random", 0))
    main, second = (
        jax.tree.map(jnp.asarray, photograph(library, camera, scenes))
        for camera in EMBEDDED_CAMERAS
    )
    prior = learn_transform_prior(main.colors[scenes.train], second.colors[scenes.train], 0.05)
    fit = jax.jit(jax.vmap(lambda a, b: fit_probable_transform(a, b, prior)))
    return scenes, fit(main.colors, second.colors), prior, main.illuminants, second.illuminants


@pytest.fixture(scope="module")
def trained_net(tmp_path_factory, rendered):
    """Two nets of 470 parameters for each camera's light."""
    scenes, fitted, prior, *illuminants = rendered
    features = fitted.transform.reshape(-1, 9)
    settings = TrainingSettings(4_000, batch_size=256, learning_rate=1e-2)
    trainer = make_trainer(IlluminantNet(5), settings)

    @jax.jit
    @partial(jax.vmap, in_axes=(0, None))
    def train(key, problem):
        return jax.lax.scan(
            lambda state, _: trainer.advance(key, state, problem),
            trainer.init(key, problem),
            length=settings.steps // settings.validate_every,
        )[0].best

    known = FeatureDistribution(prior.mean, prior.root)
    familiar = calibrate_distances(known, fitted.distance[scenes.valid])
    ensembles = []
    for lights in illuminants:
        targets = to_chromaticity(lights)
        parts = [(features[part], targets[part]) for part in (scenes.train, scenes.valid)]
        problem = jax.tree.map(jnp.asarray, Problem(*parts[0], *parts[1]))
        members = train(jax.random.split(jax.random.key(0), 2), problem)
        told = estimates_of(members, features[scenes.valid])
        truth = targets[scenes.valid]
        scale, alone = calibrate_interval(told, truth), uninformative_interval(truth).degrees
        ensembles.append(ViewModel("T", 5, members, scale, familiar, alone))
    folder = tmp_path_factory.mktemp("net")
    model = PairModel(*ensembles, prior, "probable", EMBEDDED_CAMERAS, "rendered scenes")
    save_pair_model(folder, model)
    return folder


@jax.jit
def estimates_of(members, features):
    tell = partial(predict_chromaticity, IlluminantNet(5))
    return jax.vmap(tell, (0, None))(members, features)


def test_intervals_hold_on_scenes_that_no_part_of_the_net_has_seen(trained_net, rendered):
    scenes, fitted, _, *illuminants = rendered
    model = load_pair_model(trained_net)
    features = fitted.transform.reshape(-1, 9)[scenes.test]
    for nets, lights in zip((model.main, model.second), illuminants, strict=True):
        estimates = estimates_of(nets.members, features)
        told = jax.vmap(chromaticity_interval, (None, 1))(nets.interval, estimates)
        truth = to_chromaticity(lights[scenes.test])
        # Of 800 scenes: three binomial deviations, of the calibration's 800 too, are .045.
        held = np.asarray(((told.low <= truth) & (truth <= told.high)).all(axis=1))
        assert held.mean() == pytest.approx(0.9, abs=0.045)
        errors = jax.vmap(angular_error)(
            from_chromaticity(ensemble_chromaticity(estimates)),
            lights[scenes.test],
        )
        assert (np.asarray(errors)[held] <= np.asarray(told.degrees)[held] + 1e-3).all()


def light_and_transform(name):
    """A light in the main camera, and the best transform of all surfaces under it."""
    library = embedded_library()
    main, second = (library.sensitivity(camera).T for camera in EMBEDDED_CAMERAS)
    spectrum = library.illuminants[library.illuminant_names.index(name)]
    light = spectrum @ main / (spectrum @ main)[1]
    colors = library.reflectances * spectrum
    transform = np.linalg.lstsq(colors @ main, colors @ second)[0]
    return light, transform * 0.8 / (light @ transform).max()


def settings_of(pair, net, output, *formats):
    files = pair.main, pair.second
    return EstimateSettings(files, net, homography=pair.points, output=output, formats=formats)


@pytest.mark.parametrize("name", ["A", "D65"])
def test_a_trained_net_tells_the_light_of_a_real_photo(tmp_path, chart, trained_net, name):
    """The two lights are 24 degrees apart."""
    photo, white = chart
    light, transform = light_and_transform(name)
    pair = write_pair(tmp_path, photo, white, CHART, light, transform, ALIGNMENT)
    (result,) = estimate(settings_of(pair, trained_net, tmp_path / "out", "png"))
    assert corner_shift(result.homography) < 0.1
    truth = jnp.asarray(light, jnp.float32)
    assert angular_error(jnp.asarray(result.estimates.main.illuminant), truth) < 5
    told = result.estimates.second.illuminant
    assert angular_error(jnp.asarray(told), truth @ jnp.asarray(transform, jnp.float32)) < 5
    assert result.estimates.main.score.distance < 1
    assert result.warnings == ()
    assert {each.name for each in (tmp_path / "out").iterdir()} == {"main.png", "lights.csv"}


@pytest.mark.parametrize("ratio", [0.5, 1.2])
def test_the_second_cameras_exposure_has_no_part_in_the_light(tmp_path, chart, trained_net, ratio):
    photo, white = chart
    light, transform = light_and_transform("D65")
    lights = []
    for folder, exposure in (("one", 1.0), ("other", ratio)):
        (tmp_path / folder).mkdir()
        pair = write_pair(
            tmp_path / folder, photo, white, CHART, light, exposure * transform, ALIGNMENT
        )
        (result,) = estimate(settings_of(pair, trained_net, tmp_path / folder / "out", "png"))
        lights.append(result.estimates.main.illuminant)
    assert angular_error(*map(jnp.asarray, lights)) < 0.3


def test_one_camera_twice_is_refused_with_its_distance(tmp_path, chart, trained_net):
    """T is the identity then, which a net for two different cameras has never seen."""
    photo, white = chart
    light, _ = light_and_transform("D65")
    pair = write_pair(tmp_path, photo, white, CHART, light, np.eye(3), ALIGNMENT)
    with pytest.raises(DataError, match=r"out-of-distribution score \d.* Nikon 5100"):
        estimate(settings_of(pair, trained_net, tmp_path / "out", "png"))
    assert not (tmp_path / "out").exists()


# Small scenes of random colours, in tiles, as both cameras see them.


def tiles(seed=0, height=60, width=84):
    colors = np.random.default_rng(seed).uniform(0.05, 0.6, (height // 12, width // 12, 3))
    return colors.repeat(12, axis=0).repeat(12, axis=1)


@pytest.fixture
def small_pair(tmp_path):
    def write(main=None, second=None):
        main = tiles() if main is None else main
        second = 0.6 * main @ pair_transform(LIGHT) if second is None else second
        return (
            write_dng(tmp_path / "main.dng", main, 512, 16383),
            write_dng(tmp_path / "second.dng", second, 64, 16383),
        )

    return write


def settings_for(paths, tmp_path, **changes):
    settings = {"output": tmp_path / "out", "formats": ("png",), **changes}
    return EstimateSettings(tuple(paths), tmp_path / "net", **settings)


def test_aligned_views_need_no_homography(tmp_path, small_pair, use_net):
    (result,) = estimate(settings_for(small_pair(), tmp_path))
    expected = 0.6 * pair_transform(LIGHT)
    np.testing.assert_allclose(result.transform, expected, atol=0.01)
    # Demosaicing blurs red and blue more than green at the tiles' edges.
    np.testing.assert_allclose(result.estimates.main.illuminant, LIGHT, rtol=0.03)
    np.testing.assert_array_equal(result.homography, np.eye(3))


def test_the_fit_normalises_as_the_net_was_trained(tmp_path, small_pair, use_net):
    class SumNet(ClosedFormNet):
        fit = "sum"

    use_net(SumNet())
    paths = small_pair()
    transform = estimate(settings_for(paths, tmp_path))[0].transform
    pixels = []
    for path in paths:
        means = read_raw(path).image.astype(float).reshape(10, 6, 14, 6, 3).mean((1, 3))
        pixels.append((means / means.sum(-1, keepdims=True)).reshape(-1, 3))
    np.testing.assert_allclose(transform, np.linalg.lstsq(*pixels)[0], atol=1e-4)


def test_saturated_pixels_of_either_view_take_no_part(tmp_path, small_pair, use_net):
    main = tiles()
    second = 0.6 * main @ pair_transform(LIGHT)
    main[0:12, 0:12, 1] = 2
    second[24:36, 60:72, 2] = 2
    (result,) = estimate(settings_for(small_pair(main, second), tmp_path))
    np.testing.assert_allclose(result.transform, 0.6 * pair_transform(LIGHT), atol=0.01)


def test_an_unfamiliar_pair_is_told_loudly(tmp_path, small_pair, use_net, capsys):
    class Narrow(ClosedFormNet):
        def estimate(self, inputs):
            return told_lights(
                [0.5, 1, 0.6], score=OutOfDistributionScore(np.float32(1.7), np.float32(0))
            )

    use_net(Narrow())
    (result,) = estimate(settings_for(small_pair(), tmp_path))
    printed = capsys.readouterr()
    assert "out-of-distribution score 1.70, where 1 is" in printed.out
    assert "WARNING" in printed.err
    assert "0% of them are as far" in printed.err
    (line,) = csv.DictReader((tmp_path / "out" / "lights.csv").open())
    assert line["main distance from training"] == "1.700"
    assert line["warnings"] == " ".join(result.warnings)
    assert "may be far from the truth" in line["warnings"]


def test_an_unfamiliar_second_view_costs_its_own_light_only(tmp_path, small_pair, use_net, capsys):
    class Other(ClosedFormNet):
        def estimate(self, inputs):
            told = told_lights([0.5, 1, 0.6], [0.8, 1, 0.4])
            return told._replace(
                second=told.second._replace(score=OutOfDistributionScore(9.0, 0.0))
            )

    use_net(Other())
    (result,) = estimate(settings_for(small_pair(), tmp_path))
    assert result.estimates.second is None
    assert "second illuminant: out-of-distribution score 9.00" in capsys.readouterr().err
    (line,) = csv.DictReader((tmp_path / "out" / "lights.csv").open())
    assert line["second r/g"] == line["second distance from training"] == ""
    assert "is left out" in line["warnings"]


def test_an_uninformative_interval_is_warned_of(tmp_path, small_pair, use_net, capsys):
    class Wide(ClosedFormNet):
        def estimate(self, inputs):
            told = told_lights([0.5, 1, 0.6])
            return told._replace(main=told.main._replace(uninformative=True))

    use_net(Wide())
    (result,) = estimate(settings_for(small_pair(), tmp_path))
    printed = capsys.readouterr().err
    assert "WARNING: " in printed
    assert "its interval has a radius of 3.2 degrees, no less than that of the training" in printed
    assert "THE ESTIMATE IS UNINFORMATIVE" in result.warnings[0]
    (line,) = csv.DictReader((tmp_path / "out" / "lights.csv").open())
    assert "UNINFORMATIVE" in line["warnings"]


def test_a_model_on_moments_needs_no_colourful_scene(tmp_path, small_pair, use_net, capsys):
    class Moments(ClosedFormNet):
        needs_transform = False

        def estimate(self, inputs):
            return told_lights([inputs.moments["main"][2], 1, inputs.moments["main"][0]])

    use_net(Moments())
    grey = np.full((60, 84, 3), [0.2, 0.4, 0.3])
    (result,) = estimate(settings_for(small_pair(grey, grey), tmp_path))
    assert result.transform is None
    # All moments of one colour are that colour; their mean is one.
    mean = np.mean([0.3, 0.4, 0.2, 0.3, 0.12**0.5, 0.4, 0.06**0.5, 0.08**0.5, 0.2])
    np.testing.assert_allclose(
        result.estimates.main.illuminant[::2], np.array([0.2, 0.3]) / mean, rtol=1e-3
    )
    assert "transform" not in capsys.readouterr().out


def test_levels_given_replace_those_of_the_files(tmp_path, small_pair, use_net):
    paths = small_pair()
    levels = {
        "main_black_level": 0,
        "main_white_level": 16000,
        "second_black_level": 60,
        "second_white_level": 15000,
    }
    (result,) = estimate(settings_for(paths, tmp_path, **levels))
    views = read_raw(paths[0], 0, 16000), read_raw(paths[1], 60, 15000)
    expected = estimate_pair(*views, np.eye(3, dtype=np.float32), ClosedFormNet(), 6)
    np.testing.assert_array_equal(result.transform, expected.transform)
    assert np.abs(result.transform - 0.6 * pair_transform(LIGHT)).max() > 0.01


def test_a_homography_of_views_that_were_held_otherwise_is_refused(tmp_path, small_pair):
    views = [read_raw(path) for path in small_pair()]
    taken = [described_view(*view.image.shape[:2], view.flip) for view in views]
    path = tmp_path / "phone.json"
    known = {
        "matrix": ALIGNMENT.tolist(),
        "views": dict(zip(("main", "second"), taken, strict=True)),
    }
    path.write_text(json.dumps(known))
    np.testing.assert_allclose(choose_homography(path, *views), ALIGNMENT, rtol=1e-6)
    with pytest.raises(MissingDataError, match=r"none\.json does not exist\. Give --homography"):
        choose_homography(tmp_path / "none.json", *views)
    upside_down = views[1]._replace(flip=3)
    with pytest.raises(DataError, match=r"taken as .*'flip': 3.* is for .*'flip': 0"):
        choose_homography(path, views[0], upside_down)
    upright = views[0]._replace(image=views[0].image.swapaxes(0, 1), flip=6)
    with pytest.raises(DataError, match="hold the phone as for that"):
        choose_homography(path, upright, views[1])


def test_a_photo_without_a_matrix_is_labelled_and_drawn_with_gamma_alone(small_pair):
    photo = read_raw(small_pair()[0])
    picture = draw_correction(photo, LIGHT)
    panel = np.asarray(picture)[-12 - 60 : -12, -12 - 84 : -12]
    balanced = photo.image / LIGHT
    linear = np.clip(balanced / np.quantile(balanced.max(-1), 0.995), 0, 1)
    curved = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    np.testing.assert_allclose(panel, 255 * curved, atol=0.6)


def test_the_command_line_takes_two_files_and_a_checkpoint():
    parsed = tyro.cli(EstimateSettings, args=["a.dng", "b.dng", "--checkpoint", "net"])
    assert parsed == EstimateSettings((Path("a.dng"), Path("b.dng")), Path("net"))
    parsed = tyro.cli(
        EstimateSettings,
        args="a b c d --checkpoint net --formats png dng".split(),  # noqa: SIM905
    )
    assert parsed.pairs() == [(Path("a"), Path("b")), (Path("c"), Path("d"))]
    assert parsed.formats == ("png", "dng")


def test_of_several_pairs_one_that_fails_is_told_and_the_others_are_estimated(
    tmp_path, small_pair, use_net, capsys
):
    main, second = small_pair()
    dark = write_dng(tmp_path / "dark.dng", np.zeros((60, 84, 3)), 512, 16383)
    again = shutil.copy(main, tmp_path / "again.dng")
    files = main, second, dark, second, again, second
    with pytest.raises(DataError, match=r"1 of 3 pairs have no estimate.*dark\.dng is all black"):
        estimate(settings_for(files, tmp_path))
    assert "NO ESTIMATE: " in capsys.readouterr().err
    lines = list(csv.DictReader((tmp_path / "out" / "lights.csv").open()))
    assert [Path(line["main"]).name for line in lines] == ["main.dng", "again.dng"]
    assert lines[0]["main r/g"] == lines[1]["main r/g"]
    assert (tmp_path / "out" / "again.png").exists()


def test_the_second_light_is_told_where_a_net_knows_it(tmp_path, small_pair, use_net, capsys):
    class Both(ClosedFormNet):
        def estimate(self, inputs):
            return told_lights([0.5, 1, 0.6], [0.8, 1, 0.4])

    use_net(Both())
    estimate(settings_for(small_pair(), tmp_path))
    assert "illuminant of the second view: r 0.8000  g 1.0000  b 0.4000" in capsys.readouterr().out
    (line,) = csv.DictReader((tmp_path / "out" / "lights.csv").open())
    assert (line["second r/g"], line["second b/g"]) == ("0.800000", "0.400000")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([], "0 raw files are no pairs"),
        (["a.dng"], "1 raw files are no pairs"),
        (["x/a.dng", "b.dng", "y/a.dng", "c.dng"], "several main files are named a,"),
    ],
)
def test_files_that_are_no_pairs_are_refused(tmp_path, files, message):
    with pytest.raises(DataError, match=message):
        estimate(settings_for([tmp_path / file for file in files], tmp_path))


def test_an_unknown_interval_is_said(tmp_path, small_pair, use_net, capsys):
    class Few(ClosedFormNet):
        def estimate(self, inputs):
            told = told_lights([0.5, 1, 0.6])
            unknown = Interval(np.zeros(2), np.full(2, np.inf), np.inf)
            return Estimates(told.main._replace(interval=unknown), None)

    use_net(Few())
    estimate(settings_for(small_pair(), tmp_path))
    assert "no interval, as the model was validated on too few pairs" in capsys.readouterr().out


def fails(tmp_path, paths, message, **changes):
    with pytest.raises(DataError, match=message):
        estimate(settings_for(paths, tmp_path, **changes))
    assert not (tmp_path / "out").exists()


def test_views_of_different_sizes_ask_for_a_homography(tmp_path, small_pair, use_net):
    paths = small_pair(tiles(), tiles(height=48))
    fails(tmp_path, paths, r"main\.dng has 84×60 .*second\.dng 84×48.*give .*--homography")


@pytest.mark.parametrize("view", ["main", "second"])
def test_a_black_view_is_named(tmp_path, small_pair, use_net, view):
    paths = small_pair(
        **{view: np.zeros((60, 84, 3))}, **({"second": tiles()} if view == "main" else {})
    )
    fails(tmp_path, paths, rf"{view}\.dng is all black .*--{view}-black-level")


@pytest.mark.parametrize(
    "scene",
    [
        np.full((60, 84, 3), [0.2, 0.4, 0.3]),
        tiles()[..., :1] * [1.0, 0.0, 0.5],
        # Rank 1 but for the sensor's rounding and a noise of 0.2%.
        np.linspace(0.1, 0.2, 84)[:, None] * [0.5, 1, 0.7]
        + np.random.default_rng(0).normal(0, 2e-3, (60, 84, 3)),
    ],
    ids=["one colour", "one hue", "a grey wall"],
)
def test_a_scene_of_too_few_colours_is_named(tmp_path, small_pair, use_net, scene):
    fails(
        tmp_path, small_pair(scene, tiles()), r"main\.dng: .*three independent colours.*colourful"
    )


def test_a_wholly_saturated_view_is_named(tmp_path, small_pair, use_net):
    paths = small_pair(tiles(), np.full((60, 84, 3), 1.5))
    fails(tmp_path, paths, r"share no block .* neither saturates; check their white levels")


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("view", [0, 1])
def test_pixels_that_are_no_light_are_counted_and_named(small_pair, value, view):
    views = [read_raw(path) for path in small_pair()]
    views[view].image[3, 4, 1:] = value
    with pytest.raises(
        DataError, match=rf"{views[view].path.name} has 2 values that are NaN or infinite"
    ):
        estimate_pair(*views, np.eye(3, dtype=np.float32), ClosedFormNet(), 6)


@pytest.mark.parametrize("factor", [0, -1, 61])
def test_a_downsampling_that_does_not_fit_is_refused(tmp_path, small_pair, use_net, factor):
    fails(tmp_path, small_pair(), r"--downsample .*take 1 to 60 pixels", downsample=factor)


def test_a_net_that_answers_nonsense_is_named(tmp_path, small_pair, use_net):
    class Broken(ClosedFormNet):
        def estimate(self, inputs):
            return told_lights([np.inf, 1, 0.5])

    use_net(Broken())
    fails(tmp_path, small_pair(), r"main\.dng: .*is no illuminant; .*Main Eye and Second Eye")


def test_views_that_do_not_overlap_are_named(tmp_path, small_pair, use_net):
    path = tmp_path / "far.json"
    path.write_text(json.dumps({"matrix": [[1, 0, 500], [0, 1, 0], [0, 0, 1]]}))
    fails(tmp_path, small_pair(), r"second\.dng does not overlap .*main\.dng", homography=path)
