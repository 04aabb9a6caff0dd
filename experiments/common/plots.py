"""One style for all pictures, drawn without a display."""

from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.figure import Figure as Canvas

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

# Colours that stay apart for colour-blind readers (Okabe and Ito 2008).
COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#999999")


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
    """Writes a PNG and frees the canvas."""
    with plt.rc_context(STYLE):
        canvas.savefig(path)
    plt.close(canvas)
    return path
