"""The command on small pairs of views: what it says, warns of and refuses."""

import csv
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from everlight.illuminant.illuminant_interval import ChromaticityInterval
from everlight.illuminant.out_of_distribution import OutOfDistributionScore
from everlight.illuminant.pair_estimate import estimate_pair
from everlight.illuminant.pair_model import Estimates
from everlight_data.color.pairs.view_pairs import (
    align_thumbnails,
    choose_homography,
    described_view,
)
from everlight_data.color.raw_files.corrections import draw_correction
from everlight_data.color.raw_files.dng_mosaic import LevelArguments
from everlight_data.color.raw_files.raw import read_raw
from everlight_data.errors import DataError, MissingDataError, MissingPackageError
from everlight_experiments.illuminant import estimate as estimate_module
from everlight_experiments.illuminant.estimate import estimate
from everlight_experiments.illuminant.estimate_settings import EstimateSettings
from tests.dng_writer import write_dng
from tests.experiments.estimate_pairs import (
    ALIGNMENT,
    LIGHT,
    ClosedFormNet,
    pair_transform,
    told_lights,
)


@pytest.fixture
def use_net(monkeypatch):
    def use(net):
        monkeypatch.setattr(estimate_module, "load_any_model", lambda path: net)

    use(ClosedFormNet())
    return use


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


def test_a_given_photo_is_never_replaced(tmp_path, small_pair, use_net):
    main, second = small_pair()
    before = main.read_bytes()
    settings = settings_for((main, second), tmp_path, output=tmp_path, formats=("png", "dng"))
    with pytest.raises(DataError, match=r"main\.dng is a given photo .* give another folder"):
        estimate(settings)
    assert main.read_bytes() == before
    assert not (tmp_path / "main.png").exists()
    # The same folder without its own format is not a danger.
    estimate(settings_for((main, second), tmp_path, output=tmp_path))
    assert (tmp_path / "main.png").exists()


def test_saturated_pixels_of_either_view_take_no_part(tmp_path, small_pair, use_net):
    main = tiles()
    second = 0.6 * main @ pair_transform(LIGHT)
    main[0:12, 0:12, 1] = 2
    second[24:36, 60:72, 2] = 2
    (result,) = estimate(settings_for(small_pair(main, second), tmp_path))
    np.testing.assert_allclose(result.transform, 0.6 * pair_transform(LIGHT), atol=0.01)


def test_an_out_of_distribution_pair_is_warned_of(tmp_path, small_pair, use_net, capsys):
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
    (line,) = csv.DictReader((tmp_path / "out" / "illuminants.csv").open())
    assert line["main out-of-distribution score"] == "1.700"
    assert line["warnings"] == " ".join(result.warnings)
    assert "may be far from the truth" in line["warnings"]


def test_a_pair_by_other_cameras_is_warned_of(tmp_path, use_net, capsys):
    second = 0.6 * tiles() @ pair_transform(LIGHT)
    main = write_dng(tmp_path / "main.dng", tiles(), 512, 16383, model=" MAIN EYE")
    swapped = write_dng(tmp_path / "second.dng", second, 64, 16383, model="Third Eye")
    (result,) = estimate(settings_for((main, swapped), tmp_path))
    (warning,) = result.warnings
    assert warning.startswith(
        "second file taken by Third Eye, and the model was trained for Second"
    )
    assert f"WARNING: {main}: {warning}" in capsys.readouterr().err
    (line,) = csv.DictReader((tmp_path / "out" / "illuminants.csv").open())
    assert line["warnings"] == warning


def test_levels_given_replace_those_of_the_files(tmp_path, small_pair, use_net):
    paths = small_pair()
    levels = {
        "main_black_level": 0,
        "main_white_level": 16000,
        "second_black_level": 60,
        "second_white_level": 15000,
    }
    (result,) = estimate(settings_for(paths, tmp_path, **levels))
    views = (
        read_raw(paths[0], LevelArguments(0, 16000)),
        read_raw(paths[1], LevelArguments(60, 15000)),
    )
    expected = estimate_pair(ClosedFormNet(), *align_thumbnails(*views, np.eye(3), 6))
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
    message = r"has 84x60 pixels in orientation 3, .* is for 84x60 pixels in orientation 0; use"
    with pytest.raises(DataError, match=message):
        choose_homography(path, views[0], upside_down)
    upright = views[0]._replace(image=views[0].image.swapaxes(0, 1), flip=6)
    with pytest.raises(DataError, match="use the same orientation"):
        choose_homography(path, upright, views[1])


def test_a_photo_without_a_matrix_is_labelled_and_drawn_with_gamma_alone(small_pair):
    photo = read_raw(small_pair()[0])
    picture = draw_correction(photo, LIGHT)
    panel = np.asarray(picture)[-12 - 60 : -12, -12 - 84 : -12]
    balanced = photo.image / LIGHT
    linear = np.clip(balanced / np.quantile(balanced.max(-1), 0.995), 0, 1)
    curved = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    np.testing.assert_allclose(panel, 255 * curved, atol=0.6)


def test_a_pair_that_fails_is_reported_and_the_others_are_estimated(
    tmp_path, small_pair, use_net, capsys
):
    main, second = small_pair()
    dark = write_dng(tmp_path / "dark.dng", np.zeros((60, 84, 3)), 512, 16383)
    again = shutil.copy(main, tmp_path / "again.dng")
    files = main, second, dark, second, again, second
    with pytest.raises(DataError, match=r"1 of 3 pairs have no estimate.*dark\.dng is all black"):
        estimate(settings_for(files, tmp_path))
    assert "NO ESTIMATE: " in capsys.readouterr().err
    lines = list(csv.DictReader((tmp_path / "out" / "illuminants.csv").open()))
    assert [Path(line["main"]).name for line in lines] == ["main.dng", "again.dng"]
    assert lines[0]["main r/g"] == lines[1]["main r/g"]
    assert (tmp_path / "out" / "again.png").exists()


@pytest.mark.parametrize("single", [True, False])
def test_a_missing_package_is_named_once_for_all_files(
    tmp_path, small_pair, monkeypatch, capsys, single
):
    main, second = small_pair()
    files = main, second, shutil.copy(main, tmp_path / "again.dng"), second
    if not single:
        monkeypatch.setattr(estimate_module, "load_any_model", lambda path: ClosedFormNet())
    files = files[:3] if single else files
    monkeypatch.setitem(sys.modules, "rawpy", None)
    with pytest.raises(MissingPackageError, match=r"^rawpy is not installed: pip install"):
        estimate(EstimateSettings(files, Path("SoG"), output=tmp_path / "out", formats=()))
    assert "NO ESTIMATE" not in capsys.readouterr().err


def test_the_second_illuminant_is_printed_where_a_net_estimates_it(
    tmp_path, small_pair, use_net, capsys
):
    class Both(ClosedFormNet):
        def estimate(self, inputs):
            return told_lights([0.5, 1, 0.6], [0.8, 1, 0.4])

    use_net(Both())
    estimate(settings_for(small_pair(), tmp_path))
    assert "illuminant of the second view: r 0.8000  g 1.0000  b 0.4000" in capsys.readouterr().out
    (line,) = csv.DictReader((tmp_path / "out" / "illuminants.csv").open())
    assert (line["second r/g"], line["second b/g"]) == ("0.800000", "0.400000")


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ([], "0 raw files cannot be divided into pairs"),
        (["a.dng"], "1 raw file cannot be divided into pairs"),
        (["x/a.dng", "b.dng", "y/a.dng", "c.dng"], "several main files are named a,"),
    ],
)
def test_files_that_are_no_pairs_are_refused(tmp_path, use_net, files, message):
    with pytest.raises(DataError, match=message):
        estimate(settings_for([tmp_path / file for file in files], tmp_path))


def test_an_uninformative_interval_is_stated(tmp_path, small_pair, use_net, capsys):
    class Few(ClosedFormNet):
        def estimate(self, inputs):
            predicted = told_lights([0.5, 1, 0.6])
            unknown = ChromaticityInterval(np.zeros(2), np.full(2, np.inf), np.inf)
            return Estimates(predicted.main._replace(interval=unknown), None)

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
        align_thumbnails(*views, np.eye(3), 6)


@pytest.mark.parametrize("factor", [0, -1, 61])
def test_a_downsampling_that_does_not_fit_is_refused(tmp_path, small_pair, use_net, factor):
    fails(tmp_path, small_pair(), r"--downsample .*take 1 to 60 pixels", downsample=factor)


def test_views_that_do_not_overlap_are_named(tmp_path, small_pair, use_net):
    path = tmp_path / "far.json"
    path.write_text(json.dumps({"matrix": [[1, 0, 500], [0, 1, 0], [0, 0, 1]]}))
    fails(tmp_path, small_pair(), r"second\.dng does not overlap .*main\.dng", homography=path)
