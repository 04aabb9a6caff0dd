"""One style for all pictures, drawn without a display."""

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.figure import Figure as Canvas
from matplotlib.ticker import LogFormatter, LogFormatterSciNotation

from data_pipelines.writing import written_whole

# Names come from data, and a dollar in one begins no formula.
mpl.rcParams["text.parse_math"] = False

STYLE = {
    "figure.dpi": 130,
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e7eb",
    "axes.axisbelow": True,
    "legend.frameon": False,
    "figure.constrained_layout.use": True,
}


def new_canvas(
    columns: int = 1, width: float = 5.0, height: float = 3.6, rows: int = 1
) -> tuple[Canvas, list]:
    """Axes in the house's style, row by row, each `width` by `height` inches."""
    with plt.rc_context(STYLE):
        canvas, axes = plt.subplots(
            rows, columns, figsize=(width * columns, height * rows), squeeze=False
        )
    return canvas, list(axes.flat)


def save(canvas: Canvas, path: Path) -> Path:
    """Writes a PNG, whole or not at all, and frees the canvas."""
    for axes in canvas.axes:
        for axis in (axes.xaxis, axes.yaxis):
            # Powers of ten would be written as formulas.
            if axis.get_scale() == "log" and isinstance(
                axis.get_major_formatter(), LogFormatterSciNotation
            ):
                base = axis.get_transform().base
                axis.set_major_formatter(_PlainLogFormatter(base))
                axis.set_minor_formatter(_PlainLogFormatter(base, labelOnlyBase=False))
    with plt.rc_context(STYLE), written_whole(path) as unfinished:
        canvas.savefig(unfinished, format="png")
    plt.close(canvas)
    return path


class _PlainLogFormatter(LogFormatter):
    """Labels the ticks that matplotlib would, by numbers as they are printed."""

    def __call__(self, x: float, pos: int | None = None) -> str:
        return f"{x:g}" if super().__call__(x, pos) else ""
