"""Thumbnails with known illuminants from raw photographs with a chart."""

import contextlib
import io
import shutil
from typing import get_args

import numpy as np
import pytest
from PIL import Image

from everlight_data.color.charts import chart_thumbnails
from everlight_data.color.charts.chart_colors import reference_colors
from everlight_data.color.charts.chart_geometry import CENTERS, CORNERS, map_points
from everlight_data.color.charts.chart_scenes import write_chart_pairs
from everlight_data.color.charts.chart_thumbnails import measure_thumbnail, write_thumbnails
from everlight_data.color.photographs.thumbnails import thumbnail_set
from everlight_data.color.raw_files.raw import read_raw
from everlight_data.errors import DataError
from everlight_data.registry import PHOTOGRAPH_SETS
from everlight_experiments.illuminant.photographs import thumbnails
from everlight_experiments.illuminant.photographs.source import Release
from everlight_experiments.illuminant.photographs.thumbnails import (
    ThumbnailsOptions,
    make_thumbnails,
)
from tests.color.references import degrees

COUNT, HIDDEN = 4, 2


def test_every_release_has_a_reader():
    """The radiometric set is rendered, not read."""
    assert {*get_args(Release)} == {*PHOTOGRAPH_SETS, "radiometric"}


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pairs")
    return folder / "main", write_chart_pairs(folder, COUNT, seed=1)


@pytest.fixture(scope="module")
def created(written, tmp_path_factory):
    """Return thumbnails of a folder in which one chart is covered, and the printed messages."""
    source, true = written
    folder = shutil.copytree(source, tmp_path_factory.mktemp("own") / "in")
    shaded(folder / f"{true.names[HIDDEN]}.dng")
    (folder / "notes.txt").write_text("no photo")
    printed = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stderr(printed):
        patch.setattr(thumbnails, "MIN_PHOTOS", COUNT - 1)
        settings = ThumbnailsOptions(folder, folder.parent / "out" / "mine.npz")
        return make_thumbnails(settings), printed.getvalue()


def shaded(path):
    """Cover the lower half of a photo, in whose upper half no chart of these fits."""
    content = bytearray(path.read_bytes())
    pixels = np.frombuffer(content, np.uint16)[-360 * 480 :].copy()
    pixels[100 * 480 :] = 4_000
    content[-pixels.nbytes :] = pixels.tobytes()
    path.write_bytes(content)


def test_thumbnails_have_the_illuminants_of_the_scenes_and_no_chart(written, created):
    source, true = written
    out, printed = created
    (line,) = [item for item in printed.splitlines() if "LEFT OUT" in item]
    assert f"{true.names[HIDDEN]}.dng: no chart found. Write it into charts.json" in line
    stored = np.delete(np.arange(COUNT), HIDDEN)
    ((camera, result),) = thumbnail_set(out).items()
    # A thumbnail's camera has no brackets.
    assert read_raw(source / f"{true.names[0]}.dng").camera == "Nikon 5100 (NPL)"
    assert camera == "Nikon 5100 -NPL-"
    assert degrees(result.illuminants, true.main[stored]).max() < 0.3
    for place, row in enumerate(stored):
        image, usable = result.read_image(place)
        # The blocks are of eight pixels of 360 x 480.
        assert image.shape == (45, 60, 3)
        column, line = (map_points(true.charts[row], CENTERS) / 8).astype(int).T
        assert not image[line, column].any()
        assert 0.4 < usable.mean() < 0.95
        full = read_raw(source / f"{true.names[row]}.dng").image
        blocks = full.reshape(45, 8, 60, 8, 3).mean(axis=(1, 3))
        np.testing.assert_allclose(image[usable], blocks[usable], atol=1e-5)


def test_the_contact_sheet_shows_chart_and_illuminant(written, created):
    _, true = written
    sheet = np.asarray(Image.open(created[0].with_suffix(".charts.png")))
    tile = sheet[8 : 8 + 180 + 34, 8 : 8 + 240]
    corners = map_points(true.charts[0], CORNERS) / 2
    middles = (corners + np.roll(corners, -1, axis=0)) / 2
    for x, y in middles.round().astype(int):
        near = tile[y - 2 : y + 3, x - 2 : x + 3].reshape(-1, 3)
        assert (near == [255, 0, 0]).all(axis=1).any()
    illuminant = true.main[0] / true.main[0].max()
    encoded = np.where(
        illuminant > 0.0031308, 1.055 * illuminant ** (1 / 2.4) - 0.055, 12.92 * illuminant
    )
    np.testing.assert_allclose(tile[180 + 15, 13], 255 * encoded, atol=3)


def test_too_few_charts_are_refused(written, tmp_path, capsys):
    source, true = written
    folder = shutil.copytree(source, tmp_path / "in")
    for name in true.names[1:]:
        (folder / f"{name}.dng").write_bytes(b"no raw file")
    with pytest.raises(DataError, match=r"usable in 1 of 4 raw files; at least 6 are needed"):
        make_thumbnails(ThumbnailsOptions(folder, tmp_path / "mine.npz"))
    assert capsys.readouterr().err.count("LEFT OUT: ") == 3
    assert not (tmp_path / "mine.npz").exists()
    with pytest.raises(DataError, match=r"mine\.txt: give the name of a file that ends in \.npz"):
        make_thumbnails(ThumbnailsOptions(folder, tmp_path / "mine.txt"))
    with pytest.raises(DataError, match=r"--side 0; give 32 to 2,000"):
        ThumbnailsOptions(folder, tmp_path / "mine.npz", side=0)
    with pytest.raises(DataError, match="none is not a folder"):
        make_thumbnails(ThumbnailsOptions(tmp_path / "none", tmp_path / "mine.npz"))


def test_pictures_are_named_and_not_read(tmp_path, capsys):
    """A folder of PNGs was "usable in 0 of 0 raw files"; beside raw files they were dropped."""
    settings = ThumbnailsOptions(tmp_path / "in", tmp_path / "mine.npz")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "b.png").touch()
    (tmp_path / "in" / "a.tif").touch()
    with pytest.raises(
        DataError, match=r"in has no raw file, only a\.tif, b\.png; .* Give raw files"
    ):
        make_thumbnails(settings)
    (tmp_path / "in" / "c.dng").touch()
    with pytest.raises(DataError, match=r"usable in 0 of 1 raw files"):
        make_thumbnails(settings)
    assert "LEFT OUT: a.tif, b.png: not raw files" in capsys.readouterr().err


@pytest.mark.parametrize("inputs", [False, True])
def test_a_real_photo_has_the_color_of_its_gray_patches(real_data, inputs):
    """A person pointed at the five patches from white on."""
    path = real_data("raw_samples/colorchart.dng")
    corners = np.array([[716, 626], [1251, 615], [1257, 922], [704, 930]], np.float32)
    photo = read_raw(path)
    places = corners[3] + np.arange(5)[:, None] / 5 * (corners[2] - corners[3])
    total = np.zeros(3)
    for x, y in places.round().astype(int):
        total += photo.image[y - 15 : y + 16, x - 15 : x + 16].mean(axis=(0, 1))
    result = measure_thumbnail(path, corners if inputs else None, reference_colors(), 64)
    assert degrees(result.illuminant, total) < 0.5
    # A side of 1,734 pixels gives at most 64 blocks of 28.
    assert max(result.image.shape) <= 64
    x, y = (corners / 28).astype(int).T
    assert not result.image[y, x].any()


@pytest.mark.parametrize("exposure", [1.0, 1.6])
def test_a_model_trains_on_the_pixels_that_estimates_read(
    real_data, tmp_path, monkeypatch, exposure
):
    """Two blocks below white were masked by the image's maximum, which moved SoG by 1.2 degrees."""
    path = real_data("raw_samples/colorchart.dng")
    photo = read_raw(path)
    photo = photo._replace(image=exposure * photo.image)
    monkeypatch.setattr(chart_thumbnails, "read_raw", lambda path: photo)
    write_thumbnails(tmp_path / "a.npz", [measure_thumbnail(path, None, reference_colors(), 64)])
    _, usable = thumbnail_set(tmp_path / "a.npz", "A1")["A1"].read_image(0)
    # A side of 1,734 pixels gives at most 64 blocks of 28.
    rows, columns = usable.shape
    saturated = photo.saturated | (photo.image.max(axis=2) >= 0.95)
    blocks = saturated[: rows * 28, : columns * 28].reshape(rows, 28, columns, 28)
    expected = ~blocks.any(axis=(1, 3))
    # The chart is masked from row 17 to 38 and from column 19 to 50.
    expected[17:39, 19:51] = usable[17:39, 19:51] = False
    # Eight blocks beside it are saturated at the longer exposure.
    assert expected.sum() == {1.0: 1797, 1.6: 1789}[exposure]
    np.testing.assert_array_equal(usable, expected)


def test_a_photo_without_usable_pixels_beside_its_chart_is_refused(real_data, monkeypatch):
    path = real_data("raw_samples/colorchart.dng")
    monkeypatch.setattr(
        chart_thumbnails, "usable_pixels", lambda photo: np.full(photo.saturated.shape, False)
    )
    with pytest.raises(DataError, match=r"colorchart\.dng: every block outside of the chart"):
        measure_thumbnail(path, None, reference_colors(), 64)
