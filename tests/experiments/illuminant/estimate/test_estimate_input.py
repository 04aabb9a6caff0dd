"""The command on small pairs of views: its lines, its warnings and its refusals."""

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
from everlight_data.color.pairs.view_pairs import (
    align_thumbnails,
    choose_homography,
    described_view,
)
from everlight_data.color.raw_files.corrections import draw_correction
from everlight_data.color.raw_files.dng_mosaic import LevelArguments
from everlight_data.color.raw_files.raw import read_raw
from everlight_data.errors import DataError, MissingPackageError
from everlight_experiments.illuminant.estimate.command import estimate
from everlight_experiments.illuminant.estimate.options import EstimateOptions
from tests.dng_writer import write_dng
from tests.experiments.illuminant.estimate.estimate_pairs import (
    ALIGNMENT,
)
from tests.illuminant.closed_form_net import (
    ILLUMINANT,
    ClosedFormNet,
    pair_estimates,
    pair_transform,
)

TRANSFORM = 0.6 * pair_transform(ILLUMINANT)
FAR = [[1, 0, 500], [0, 1, 0], [0, 0, 1]]
BLACK = np.zeros((60, 84, 3))


def answering(estimates):
    """Return a net that has the same estimates for every pair."""

    class Answering(ClosedFormNet):
        def estimate(self, inputs):
            return estimates

    return Answering()


def tiles(height=60, width=84):
    colors = np.random.default_rng(0).uniform(0.05, 0.6, (height // 12, width // 12, 3))
    return colors.repeat(12, axis=0).repeat(12, axis=1)


@pytest.fixture
def small_pair(tmp_path):
    def write(main=None, second=None):
        main = tiles() if main is None else main
        second = main @ TRANSFORM if second is None else second
        return (
            write_dng(tmp_path / "main.dng", main, 512, 16383),
            write_dng(tmp_path / "second.dng", second, 64, 16383),
        )

    return write


def settings_for(paths, tmp_path, **changes):
    settings = {"output": tmp_path / "out", "formats": ("png",), **changes}
    return EstimateOptions(tuple(paths), tmp_path / "net", **settings)


def table_of(tmp_path):
    return list(csv.DictReader((tmp_path / "out" / "illuminants.csv").open()))


@pytest.mark.parametrize("saturated", [False, True])
def test_aligned_views_need_no_homography(tmp_path, small_pair, use_net, saturated):
    """Pixels that saturate in one view take no part."""
    main = tiles()
    second = main @ TRANSFORM
    if saturated:
        main[0:12, 0:12, 1] = 2
        second[24:36, 60:72, 2] = 2
    (result,) = estimate(settings_for(small_pair(main, second), tmp_path))
    np.testing.assert_allclose(result.transform, TRANSFORM, atol=0.01)
    # Demosaicing blurs red and blue more than green at the tiles' edges.
    np.testing.assert_allclose(result.estimates.main.illuminant, ILLUMINANT, rtol=0.03)


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


def test_inputs_far_from_the_training_are_warned_of(tmp_path, small_pair, use_net, capsys):
    score = OutOfDistributionScore(np.float32(1.7), np.float32(0))
    use_net(answering(pair_estimates([0.5, 1, 0.6], score=score)))
    (result,) = estimate(settings_for(small_pair(), tmp_path))
    printed = capsys.readouterr()
    assert "out-of-distribution score 1.70, where 1 is" in printed.out
    assert "WARNING" in printed.err
    assert "0% of them are as far" in printed.err
    (line,) = table_of(tmp_path)
    assert line["main out-of-distribution score"] == "1.700"
    assert line["warnings"] == " ".join(result.warnings)
    assert "may be far from the truth" in line["warnings"]


def test_a_pair_by_other_cameras_is_warned_of(tmp_path, use_net, capsys):
    main = write_dng(tmp_path / "main.dng", tiles(), 512, 16383, model=" MAIN EYE")
    swapped = write_dng(tmp_path / "b.dng", tiles() @ TRANSFORM, 64, 16383, model="Third Eye")
    (result,) = estimate(settings_for((main, swapped), tmp_path))
    (warning,) = result.warnings
    expected = "second file taken by Third Eye, and the model was trained for Second"
    assert warning.startswith(expected)
    assert f"WARNING: {main}: {warning}" in capsys.readouterr().err
    assert table_of(tmp_path)[0]["warnings"] == warning


def test_saturated_views_and_equal_channels_are_warned_of(tmp_path, small_pair, use_net):
    use_net(answering(pair_estimates([1, 1, 1])))
    second = tiles() @ TRANSFORM
    second[:24] = 2
    (result,) = estimate(settings_for(small_pair(second=second), tmp_path))
    *_, saturated, equal = result.warnings
    # Demosaicing spreads the 40% to their border.
    assert saturated.startswith("second file: 42% of the pixels are left out as saturated")
    assert equal.startswith("main view: the estimate is about (1, 1, 1)")


@pytest.mark.parametrize("far", [False, True])
def test_the_second_view_has_an_estimate_of_its_own(tmp_path, small_pair, use_net, capsys, far):
    estimates = pair_estimates([0.5, 1, 0.6], [0.8, 1, 0.4])
    if far:
        score = OutOfDistributionScore(9.0, 0.0)
        estimates = estimates._replace(second=estimates.second._replace(score=score))
    use_net(answering(estimates))
    (result,) = estimate(settings_for(small_pair(), tmp_path))
    printed, (line,) = capsys.readouterr(), table_of(tmp_path)
    if far:
        assert result.estimates.second is None
        assert "second illuminant: out-of-distribution score 9.00" in printed.err
        assert line["second r/g"] == line["second out-of-distribution score"] == ""
        assert "is left out" in line["warnings"]
    else:
        assert "illuminant of the second view: r 0.8000  g 1.0000  b 0.4000" in printed.out
        assert (line["second r/g"], line["second b/g"]) == ("0.800000", "0.400000")


def test_an_unknown_interval_is_named(tmp_path, small_pair, use_net, capsys):
    main = pair_estimates([0.5, 1, 0.6]).main
    unknown = main._replace(interval=ChromaticityInterval(np.zeros(2), np.full(2, np.inf), np.inf))
    use_net(answering(pair_estimates([0.5, 1, 0.6])._replace(main=unknown)))
    estimate(settings_for(small_pair(), tmp_path))
    assert "no interval, as the model was validated on too few pairs" in capsys.readouterr().out


def test_levels_of_the_options_replace_those_of_the_files(tmp_path, small_pair, use_net):
    paths = small_pair()
    levels = {"main_black_level": 0, "main_white_level": 16000}
    levels |= {"second_black_level": 60, "second_white_level": 15000}
    (result,) = estimate(settings_for(paths, tmp_path, **levels))
    views = (
        read_raw(paths[0], LevelArguments(0, 16000)),
        read_raw(paths[1], LevelArguments(60, 15000)),
    )
    expected = estimate_pair(ClosedFormNet(), *align_thumbnails(*views, np.eye(3), 6))
    np.testing.assert_array_equal(result.transform, expected.transform)
    assert np.abs(result.transform - TRANSFORM).max() > 0.01


@pytest.mark.parametrize("name", ["main_black_level", "second_white_level"])
def test_levels_have_at_most_32_bits(name):
    for level in (-1, 2**32):
        with pytest.raises(ValueError, match=rf"{name}={level}; give 0 to 4,294,967,295"):
            EstimateOptions((), Path("net"), **{name: level})


def test_a_homography_of_views_that_were_held_otherwise_is_refused(tmp_path, small_pair):
    views = [read_raw(path) for path in small_pair()]
    taken = [described_view(*view.image.shape[:2], view.flip) for view in views]
    path = tmp_path / "phone.json"
    shapes = dict(zip(("main", "second"), taken, strict=True))
    path.write_text(json.dumps({"matrix": ALIGNMENT.tolist(), "views": shapes}))
    np.testing.assert_allclose(choose_homography(path, *views), ALIGNMENT, rtol=1e-6)
    upside_down = views[1]._replace(flip=3)
    message = r"has 84x60 pixels in orientation 3, .* is for 84x60 pixels in orientation 0; use"
    with pytest.raises(DataError, match=message):
        choose_homography(path, views[0], upside_down)
    upright = views[0]._replace(image=views[0].image.swapaxes(0, 1), flip=6)
    with pytest.raises(DataError, match="use the same orientation"):
        choose_homography(path, upright, views[1])


def test_a_photo_without_a_matrix_is_labelled_and_drawn_with_gamma_alone(small_pair):
    photo = read_raw(small_pair()[0])
    panel = np.asarray(draw_correction(photo, ILLUMINANT))[-12 - 60 : -12, -12 - 84 : -12]
    balanced = photo.image / ILLUMINANT
    linear = np.clip(balanced / np.quantile(balanced.max(-1), 0.995), 0, 1)
    curved = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    np.testing.assert_allclose(panel, 255 * curved, atol=0.6)


def test_of_several_pairs_one_that_fails_is_named_and_the_others_are_estimated(
    tmp_path, small_pair, use_net, capsys
):
    main, second = small_pair()
    dark = write_dng(tmp_path / "dark.dng", BLACK, 512, 16383)
    again = shutil.copy(main, tmp_path / "again.dng")
    files = main, second, dark, second, again, second
    with pytest.raises(DataError, match=r"1 of 3 pairs have no estimate.*dark\.dng is all black"):
        estimate(settings_for(files, tmp_path))
    assert "NO ESTIMATE: " in capsys.readouterr().err
    lines = table_of(tmp_path)
    assert [Path(line["main"]).name for line in lines] == ["main.dng", "again.dng"]
    assert lines[0]["main r/g"] == lines[1]["main r/g"]
    assert (tmp_path / "out" / "again.png").exists()


def test_a_missing_package_is_named_once_for_all_files(tmp_path, small_pair, monkeypatch, capsys):
    main, second = small_pair()
    files = main, second, shutil.copy(main, tmp_path / "again.dng")
    monkeypatch.setitem(sys.modules, "rawpy", None)
    with pytest.raises(MissingPackageError, match=r"^rawpy is not installed: pip install"):
        estimate(EstimateOptions(files, Path("SoG"), output=tmp_path / "out", formats=()))
    assert "NO ESTIMATE" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("files", "options", "message"),
    [
        ([], {}, "0 raw files cannot be divided into pairs"),
        (["a.dng"], {}, "1 raw file cannot be divided into pairs"),
        (["x/a.dng", "b.dng", "y/a.dng", "c.dng"], {}, "several main files are named a,"),
        (["a.dng", "b.dng"], {"matrices": Path("c")}, "--matrices is for single .*net is for pair"),
        (["a.dng", "b.dng"], {"lux": 300.0}, "--lux is for models that read it.*net is for pairs"),
    ],
)
def test_files_and_options_that_are_not_for_pairs_are_refused(
    tmp_path, use_net, files, options, message
):
    with pytest.raises(DataError, match=message):
        estimate(settings_for([tmp_path / file for file in files], tmp_path, **options))


@pytest.mark.parametrize(
    ("views", "options", "message"),
    [
        ((tiles(), tiles(height=48)), {}, r"main\.dng has 84×60 .*84×48.*give .*--homography"),
        ((BLACK, tiles()), {}, r"main\.dng is all black .*--main-black-level"),
        ((tiles(), BLACK), {}, r"second\.dng is all black .*--second-black-level"),
        (
            (np.full((60, 84, 3), [0.2, 0.4, 0.3]), tiles()),
            {},
            r"main\.dng: .*three independent colours.*colourful",
        ),
        ((tiles(), np.full((60, 84, 3), 1.5)), {}, r"share no block .*; check their white levels"),
        *(((), {"downsample": k}, r"--downsample .*take 1 to 60 pixels") for k in (0, -1, 61)),
        ((), {"homography": FAR}, r"second\.dng does not overlap .*main\.dng"),
    ],
)
def test_pairs_that_have_no_estimate_are_refused(
    tmp_path, small_pair, use_net, views, options, message
):
    if "homography" in options:
        (tmp_path / "far.json").write_text(json.dumps({"matrix": options["homography"]}))
        options = {"homography": tmp_path / "far.json"}
    with pytest.raises(DataError, match=message):
        estimate(settings_for(small_pair(*views), tmp_path, **options))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("view", [0, 1])
def test_pixels_that_are_no_illuminant_are_counted_and_named(small_pair, value, view):
    views = [read_raw(path) for path in small_pair()]
    views[view].image[3, 4, 1:] = value
    name = views[view].path.name
    with pytest.raises(DataError, match=rf"{name} has 2 values that are NaN or infinite"):
        align_thumbnails(*views, np.eye(3), 6)
