"""Names of any characters in pictures, and scales that panels share."""

import warnings

import numpy as np
import pytest
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.ttGlyphPen import TTGlyphPen
from matplotlib.font_manager import fontManager
from matplotlib.text import Text
from PIL import Image

from everlight_data.sets.image_set import ImageSet
from everlight_experiments.report import plots
from everlight_experiments.report.fonts import _family_with
from everlight_experiments.report.plots import new_canvas, plot_samples, save

NAMES = ("$", "$a_{$", "$x$ and $y$", r"\frac{", "100 $ _^{}\\", "é ☃", "<b>", "%s {0}")


@pytest.mark.parametrize("name", NAMES)
def test_a_name_of_any_characters_is_drawn(tmp_path, name):
    canvas, (axis, other) = new_canvas(2)
    axis.plot([1, 10, 1000], [0.001, 0.1, 10], label=name)
    axis.set(title=name, xlabel=name, ylabel=name)
    axis.legend(title=name)
    other.imshow(np.eye(2))
    other.set_xticks([0, 1], [name, name])
    other.text(0, 0, name)
    canvas.suptitle(name)
    with Image.open(save(canvas, tmp_path / "names.png")) as picture:
        assert picture.width > 100
    assert [path.name for path in tmp_path.iterdir()] == ["names.png"]


PRIVATE = "\U0010fffd"
"""A character that nobody may assign, so that no font but a test's own has it."""


def draw(tmp_path, name):
    """Draw a name at a tick, in a title and in a legend; return the pixels and all texts."""
    canvas, (axis,) = new_canvas()
    axis.plot([0, 1], [0, 1], label=name)
    axis.set_xticks([0, 1], [name, "b"])
    axis.set_title(name)
    axis.legend()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # matplotlib warns of a box.
        with Image.open(save(canvas, tmp_path / "names.png")) as picture:
            pixels = np.asarray(picture)
    return pixels, {text.get_text() for text in canvas.findobj(Text)}


def test_a_character_that_no_font_has_is_written_out_and_reported(tmp_path, capsys):
    _, texts = draw(tmp_path, f"a {PRIVATE}")
    assert r"a \U0010fffd" in texts
    assert not any(PRIVATE in text for text in texts)
    message = capsys.readouterr().out
    assert r"'\U0010fffd'" in message
    assert "names.png" in message


def test_a_font_of_the_machine_that_has_a_character_draws_it(tmp_path, capsys, monkeypatch):
    builder = FontBuilder(1000, isTTF=True)
    pen = TTGlyphPen(None)
    pen.moveTo((0, 0))
    for corner in [(0, 1000), (1000, 1000), (1000, 0)]:
        pen.lineTo(corner)
    pen.closePath()
    builder.setupGlyphOrder([".notdef", "square"])
    builder.setupCharacterMap({ord(PRIVATE): "square"})
    builder.setupGlyf({".notdef": TTGlyphPen(None).glyph(), "square": pen.glyph()})
    builder.setupHorizontalMetrics({".notdef": (1000, 0), "square": (1000, 0)})
    builder.setupHorizontalHeader(ascent=1000, descent=0)
    builder.setupNameTable({"familyName": "A Square", "styleName": "Regular"})
    builder.setupOS2()
    builder.setupPost()
    builder.save(tmp_path / "square.ttf")
    monkeypatch.setattr(fontManager, "ttflist", fontManager.ttflist.copy())
    fontManager.addfont(tmp_path / "square.ttf")
    _family_with.cache_clear()
    pixels, texts = draw(tmp_path, PRIVATE)
    assert PRIVATE in texts
    assert capsys.readouterr().out == ""
    # The title's square is the only thing above the axes: black, wider than any letter's stem.
    dark = (pixels[..., :3] < 60).all(axis=-1)[:40]
    assert dark.any(axis=0).sum() > 12
    fontManager._findfont_cached.cache_clear()
    _family_with.cache_clear()


def test_the_legend_goes_from_the_highest_end_to_the_lowest(tmp_path, monkeypatch):
    shown = []
    monkeypatch.setattr(plots, "save", lambda canvas, path: shown.append(canvas))
    ends = {"low": 0.1, "gone": np.nan, "high": 0.9, "middle": 0.5}
    curves = {name: np.full((2, 3), end) for name, end in ends.items()}
    plots.plot_curves(tmp_path, {"task-incremental": curves}, "accuracy", order=tuple(ends))
    texts = [text.get_text() for text in shown[0].legends[0].get_texts()]
    assert texts == ["high", "middle", "low", "gone"]


def test_panels_of_a_row_have_one_scale(tmp_path, monkeypatch):
    shown = []
    monkeypatch.setattr(plots, "save", lambda canvas, path: shown.append(canvas))
    ends = {
        "mid, random": 0.2,
        "mid, semantic": 0.9,
        "large, random": 0.03,
        "large, semantic": 0.05,
    }
    panels = {title: {"ER": np.full((2, 3), end)} for title, end in ends.items()}
    plots.plot_curves(tmp_path, panels, "accuracy", rows=2)
    first, second, third, fourth = (axis.get_ylim()[1] for axis in shown[0].axes)
    assert first == second >= 0.9
    assert 0.05 <= third == fourth < 0.1


def test_a_panel_has_the_eight_highest_curves_and_the_baseline(tmp_path, monkeypatch):
    shown = []
    monkeypatch.setattr(plots, "save", lambda canvas, path: shown.append(canvas))
    curves = {str(end): np.full((2, 3), end / 20) for end in range(12)}
    plots.plot_curves(tmp_path, {"NI": curves}, "accuracy", baseline="0")
    texts = [text.get_text() for text in shown[0].legends[0].get_texts()]
    assert texts == ["11", "10", "9", "8", "7", "6", "5", "0"]
    assert "8 curves" in plots.curves_left_out({"NI": curves}, "0")
    assert plots.curves_left_out({"NI": dict(list(curves.items())[:8])}, "0") == ""


def test_samples_of_one_channel_are_drawn_as_those_of_three(tmp_path, rng):
    gray = rng.integers(0, 256, (12, 4, 4, 1), np.uint8)
    pictures = []
    for name, pixels in (("grey", gray), ("rgb", np.repeat(gray, 3, -1))):
        images = ImageSet(name, pixels, np.arange(12) % 3, np.arange(0), tuple("abc"))
        with Image.open(plot_samples(tmp_path / f"{name}.png", images)) as picture:
            pictures.append(np.asarray(picture))
    np.testing.assert_array_equal(*pictures)
