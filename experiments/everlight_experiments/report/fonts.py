"""Fonts for names in any script; characters that no font has are written as escapes."""

import functools

from matplotlib.figure import Figure as Canvas
from matplotlib.font_manager import FontProperties, findSystemFonts, fontManager, get_font
from matplotlib.text import Text
from matplotlib.ticker import Formatter, FuncFormatter

BOXES = "Last Resort"
"""Fonts that have a box for every character, and no character."""


def make_drawable(canvas: Canvas) -> str:
    """Give a picture's texts fonts that have their characters; return those that no font has.

    These are written as `\\u4e2d`.
    """
    texts = canvas.findobj(Text)
    axes = [axis for drawn in canvas.axes for axis in (drawn.xaxis, drawn.yaxis)]
    ticks = {axis: "".join(label.get_text() for label in axis.get_ticklabels()) for axis in axes}
    used = {*"".join([*(text.get_text() for text in texts), *ticks.values()])} - {"\n"}
    usual = FontProperties()
    lacking = sorted(character for character in used if not _has(usual.get_name(), character))
    substitutes = {character: _family_with(character) for character in lacking}
    families = [*usual.get_family(), *dict.fromkeys(filter(None, substitutes.values()))]
    absent = "".join(character for character, family in substitutes.items() if family is None)
    escapes = str.maketrans({char: char.encode("unicode-escape").decode() for char in absent})
    for text in texts:
        text.set_fontfamily(families)
        text.set_text(text.get_text().translate(escapes))
    for axis, labels in ticks.items():
        axis.set_tick_params(labelfontfamily=families)
        if {*absent} & {*labels}:
            axis.set_major_formatter(_escaping(axis.get_major_formatter(), escapes))
    return absent


def _escaping(formatter: Formatter, escapes: dict[int, str]) -> Formatter:
    """Return a formatter for labels of ticks, which are formatted again at every drawing."""
    return FuncFormatter(lambda value, place: formatter(value, place).translate(escapes))


@functools.cache
def _family_with(character: str) -> str | None:
    """Return an installed font family; fonts that matplotlib does not know yet count too."""
    known = {entry.fname for entry in fontManager.ttflist}
    for path in findSystemFonts():
        if path not in known:
            try:
                fontManager.addfont(path)
            except (OSError, RuntimeError):  # FreeType's words for a file that it cannot read.
                continue
    names = {entry.name for entry in fontManager.ttflist if not entry.name.startswith(BOXES)}
    plain_first = sorted(names, key=lambda name: ("Sans" not in name, name))
    return next((name for name in plain_first if _has(name, character)), None)


def _has(family: str, character: str) -> bool:
    font = get_font(fontManager.findfont(FontProperties(family=family)))
    return font.get_char_index(ord(character)) != 0
