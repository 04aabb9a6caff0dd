"""Draw README's picture of times relative to everlight's, from a table of the page Performance.

python -m docs.tools.make_speed_picture
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from docs.tools.measured import tables_in

DOCS = Path(__file__).parents[1]
PAGE = DOCS / "pages" / "performance.md"
PICTURE = DOCS / "pictures" / "speed.png"
HEADER = "| training |"
"""First cell of the table's header; ratios are its last two columns."""
OTHERS = {"PyTorch loop": "tab:orange", "Avalanche": "tab:blue"}


def ratios() -> dict[str, tuple[float, float]]:
    """Return times of PyTorch and of Avalanche divided by everlight's, by row."""
    tables = tables_in("performance.md", PAGE.read_text(encoding="utf-8"))
    table = next(table for table in tables if table.header.startswith(HEADER))
    cells = ([cell.strip() for cell in row.split("|")[1:-1]] for row in table.rows)
    return {name: (float(row[-2]), float(row[-1])) for name, *row in cells}


def draw() -> None:
    """Draw two bars per row, and a line at everlight's time."""
    rows = ratios()
    canvas, axes = plt.subplots(figsize=(4.4, 3.4), layout="constrained")
    places = np.arange(len(rows))
    for number, (label, color) in enumerate(OTHERS.items()):
        values = [pair[number] for pair in rows.values()]
        bars = axes.barh(places + 0.4 * number - 0.2, values, 0.38, label=label, color=color)
        labels = axes.bar_label(bars, fmt="%.1f", padding=3, fontsize=8)
        plt.setp(labels, bbox={"color": "white", "pad": 0.5}, zorder=3)
    axes.axvline(1, color="black", linewidth=1)
    axes.set_yticks(places, [name.replace(", ", "\n") for name in rows])
    axes.invert_yaxis()
    axes.set_xlim(0, 5)
    axes.set_xlabel("time divided by everlight's (line: equal)")
    canvas.legend(loc="outside upper left", ncols=2, frameon=False)
    axes.spines[["top", "right"]].set_visible(False)
    canvas.savefig(PICTURE, dpi=150)


if __name__ == "__main__":
    plt.switch_backend("Agg")
    draw()
