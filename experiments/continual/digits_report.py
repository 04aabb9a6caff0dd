"""What the digits benchmark shows: a table of all strategies, a picture, the expected order."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from everlight.metrics import forgetting
from everlight.plots import COLORS
from experiments.common.plots import new_canvas, save
from experiments.common.report import Column, Figure, Section, Table
from experiments.continual.methods import SCENARIOS, Scenario


class Cell(NamedTuple):
    """A method in a scenario."""

    matrices: Float[np.ndarray, "seeds t t"]
    """Accuracies, R[i, j] after task i on task j."""
    strengths: Float[np.ndarray, "s"]
    """That were tried."""
    tried: Float[np.ndarray, "s"]
    """Final accuracy on the unreported orders' validation samples with each."""
    strength: Float[np.ndarray, ""]
    """The one chosen."""

    @property
    def final(self) -> Float[np.ndarray, "seeds"]:
        """Mean accuracy on all tasks after the last."""
        return self.matrices[:, -1].mean(axis=1)

    @property
    def forgetting(self) -> Float[np.ndarray, "seeds"]:
        """Mean loss of a task's accuracy since its best (Chaudhry et al. 2018)."""
        return np.asarray(jax.vmap(forgetting)(jnp.asarray(self.matrices)))


Cells = Mapping[Scenario, Mapping[str, Cell]]
REGULARISERS = ("EWC", "online EWC", "SI", "MAS", "LwF")


def report_sections(folder: Path, cells: Cells) -> list[Section]:
    """Everything between the summary and the settings."""
    picture = plot_finals(folder / "final_accuracy.png", cells)
    return [
        Section(
            "Final accuracy",
            [
                "Told: every task has a head of its own, and the test tells the task; chance is "
                "one half. Not told: one head over all classes seen so far. Online: not told, and "
                "every sample comes once; strategies that need to know where a task ends are told."
            ],
            [
                Figure(
                    "Mean accuracy on all five tasks after the last; bars are one standard "
                    "deviation over orders.",
                    picture,
                ),
                _table(cells),
            ],
        ),
        *(
            Section(title, [], [table])
            for title, table in (
                ("The order that the literature leads one to expect", _findings(cells)),
                ("How strengths were chosen", _grids(cells)),
            )
            if table.rows
        ),
    ]


def plot_finals(path: Path, cells: Cells) -> Path:
    """Methods in the table's order, a panel for each scenario."""
    names = _names(cells)
    canvas, axes = new_canvas(len(SCENARIOS), 3.4, 0.6 + 0.24 * len(names))
    for axis, scenario, color in zip(axes, SCENARIOS, COLORS, strict=False):
        for place, name in enumerate(names):
            if name in cells[scenario]:
                final = cells[scenario][name].final
                axis.errorbar(final.mean(), place, xerr=_deviation(final), fmt="o", color=color)
        ticks = names if axis is axes[0] else []
        axis.set(
            title=scenario,
            xlabel="final accuracy",
            # Where the task is told chance is one half.
            xlim=(0.5 if scenario == "told" else 0, 1.02),
            ylim=(len(names) - 0.5, -0.5),
        )
        axis.set_yticks(range(len(names)), ticks or [""] * len(names))
    return save(canvas, path)


def _names(cells: Cells) -> list[str]:
    return list(dict.fromkeys(name for by_name in cells.values() for name in by_name))


def _deviation(values: np.ndarray) -> float:
    return float(np.std(values, ddof=1)) if len(values) > 1 else float("nan")


def _spread(values: np.ndarray) -> str:
    deviation = _deviation(values)
    return f"{values.mean():.3f}" + ("" if np.isnan(deviation) else f" ± {deviation:.3f}")


def _table(cells: Cells) -> Table:
    columns, rows = [Column("strategy")], []
    for scenario in SCENARIOS:
        columns += [Column("final accuracy", scenario), Column("forgetting", scenario)]
    for name in _names(cells):
        row = [name]
        for scenario in SCENARIOS:
            cell = cells[scenario].get(name)
            row += ["–"] * 2 if cell is None else [_spread(cell.final), _spread(cell.forgetting)]
        rows.append(row)
    return Table("Mean ± standard deviation over orders of classes.", columns, rows)


def _findings(cells: Cells) -> Table:
    pairs: Sequence[tuple[Scenario, str, str]] = [
        ("not told", "joint", "DER++"),
        ("not told", "DER++", "ER"),
        ("not told", "ER", "naive"),
        ("online", "DER++", "naive"),
        *(("told", name, "naive") for name in REGULARISERS),
    ]
    rows = []
    for scenario, above, below in pairs:
        if above in cells[scenario] and below in cells[scenario]:
            difference = cells[scenario][above].final - cells[scenario][below].final
            held = f"{np.sum(difference > 0)} of {len(difference)}"
            rows.append([f"{above} above {below}", scenario, _spread(difference), held])
    columns = [
        Column("finding"),
        Column("scenario"),
        Column("difference", "paired by order"),
        Column("orders where it holds", "paired by order"),
    ]
    return Table("Differences of final accuracy on the same orders.", columns, rows)


def _grids(cells: Cells) -> Table:
    rows = [
        [
            f"{name}, {scenario}",
            "; ".join(
                f"{strength:g}: {value:.3f}"
                for strength, value in zip(cell.strengths, cell.tried, strict=True)
            ),
            f"{float(cell.strength):g}",
        ]
        for scenario, by_name in cells.items()
        for name, cell in by_name.items()
        if len(cell.strengths)
    ]
    caption = (
        "Final accuracy on the validation images of orders that are not reported, by strength; the "
        "greatest is chosen. An order that diverges counts as 0."
    )
    return Table(
        caption, [Column("strategy"), Column("strength: accuracy"), Column("chosen")], rows
    )
