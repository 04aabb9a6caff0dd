"""What CORe50's report has beside the common one: findings, batches, classes not learnt yet."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from everlight.continual.base import TaskSequence
from everlight_data.images.core50 import Core50
from everlight_experiments.common.cells import percent
from everlight_experiments.common.plots import curves_left_out, plot_curves
from everlight_experiments.common.report import PAPER, Column, Figure, Section, Table
from everlight_experiments.continual.report_tables import sizes_table
from everlight_experiments.core50.findings import findings_table
from everlight_experiments.core50.plots import Published, plot_roc, plot_sessions
from everlight_experiments.core50.record import FIXED
from everlight_experiments.core50.scores import Scored

AllScored = Mapping[str, Mapping[str, Scored]]
"""By scenario and method."""
MOST_COLUMNS = 10
"""Of a table of batches; of more batches, so many are shown."""


def paper_sections(
    path: Path,
    outcomes: AllScored,
    splits: Mapping[str, TaskSequence],
    frames: Core50,
    published: Mapping[str, Published],
    paper: str,
) -> list[Section]:
    """All sections; pictures are written into the run's folder.

    Args:
      path: of the run's folder.
      outcomes: by scenario and method.
      splits: of each scenario, in the first run's order.
      frames: that were learnt.
      published: accuracies, by scenario.
      paper: marks them.
    """
    learnt = {
        scenario: {name: each.learnt for name, each in by_name.items()}
        for scenario, by_name in outcomes.items()
    }
    tables = [_batch_table(scenario, outcomes, published, paper) for scenario in outcomes]
    return [
        Section("Accuracy on the full test set after every batch (figures 4 to 6)", items=tables),
        Section(
            "Costs, and accuracy relative to cumulative training",
            [
                "The paper compares accuracy relative to cumulative training, extra storage and "
                "computation. Extra storage is the strategy's memory and the maximum of stored "
                "samples (frames, or features of a frozen trunk). Operations are those of one "
                "step's program times the steps, plus the frozen trunk's once per training frame. "
                "Evaluation's share is that of one pass over the test set per batch in the run's "
                "time with compilation; – for resumed runs."
            ],
            [_cost_table(scenario, outcomes, published, splits[scenario]) for scenario in outcomes],
        ),
        # The paper's findings are read from curves of objects.
        *([Section("The paper's findings", items=[findings_table(learnt)])] if published else []),
        _open_set_section(path, outcomes),
        Section(
            "Frames and batches",
            items=[
                Figure(
                    "Some objects (rows) in each of the eleven sessions (figure 3); sessions 3, "
                    "7 and 10 are the test set.",
                    plot_sessions(path / "sessions.png", frames),
                ),
                sizes_table(splits),
            ],
        ),
    ]


def _batch_table(
    scenario: str, outcomes: AllScored, published: Mapping[str, Published], paper: str
) -> Table:
    batches = next(iter(outcomes[scenario].values())).learnt.over_time.shape[1]
    shown = _spread_out(batches)
    rows = []
    for name, outcome in outcomes[scenario].items():
        cells = [percent(column) for column in outcome.learnt.over_time[:, shown].T]
        runs = len(outcome.learnt.over_time)
        rows.append([f"{name} ({runs} run{'s' * (runs > 1)})", *cells])
        theirs = published.get(scenario, {}).get(name)
        if theirs:
            rows.append([f"{name}, {paper}", *(f"{theirs[place]:.1f}" for place in shown)])
    columns = [Column("strategy"), *(Column(str(1 + place), "after batch") for place in shown)]
    caption = f"{scenario}: accuracy in percent, mean ± standard deviation over the runs."
    return Table(caption, columns, rows)


def _cost_table(
    scenario: str, outcomes: AllScored, published: Mapping[str, Published], split: TaskSequence
) -> Table:
    frames = int(np.sum(split.tasks.train.mask))
    by_name, theirs = outcomes[scenario], published.get(scenario, {})
    rows = []
    for name, outcome in by_name.items():
        relative, paper = "–", "–"
        if "cumulative" in by_name:
            runs = min(len(outcome.learnt.over_time), len(by_name["cumulative"].learnt.over_time))
            best = by_name["cumulative"].learnt.over_time[:runs]
            relative = percent(outcome.learnt.over_time[:runs, -1] / best[:, -1])
        if name in theirs:
            paper = f"{100 * theirs[name][-1] / theirs['cumulative'][-1]:.1f}"
        share = outcome.evaluation_share
        rows.append(
            [
                name,
                relative,
                paper,
                f"{outcome.storage:,}",
                f"{outcome.operations(frames):.2e}",
                "–" if np.isnan(share) else f"{share:.0%}",
            ]
        )
    columns = [
        Column("strategy"),
        Column("final", "relative to cumulative, %"),
        Column("relative, final", PAPER),
        Column("bytes", "extra storage"),
        Column("operations", "training"),
        Column("share of the time", "evaluation"),
    ]
    return Table(f"{scenario}: mean ± standard deviation over the runs.", columns, rows)


def _open_set_section(path: Path, outcomes: AllScored) -> Section:
    partial = {
        scenario: {name: 100 * outcome.partial for name, outcome in by_name.items()}
        for scenario, by_name in outcomes.items()
    }
    items: list[Figure | Table] = [
        Figure(
            "Option 1: accuracy on the test samples of the classes seen so far, whose number grows."
            + curves_left_out(partial, "naive"),
            plot_curves(
                path / "partial.png",
                partial,
                "accuracy on the classes so far, %",
                "batches seen",
                tuple(FIXED),
                top=100,
                baseline="naive",
            ),
        )
    ]
    asked = [scenario for scenario, by_name in outcomes.items() if _moments(by_name)]
    caption = (
        "Option 3: a sample is rejected if its highest class probability is below a threshold; "
        "each "
        "threshold is a point, mean over runs."
    )
    for scenario in asked:
        moments = {
            f"{scenario}, after batch {1 + place}": {
                name: outcome.roc[:, place].mean(axis=0)
                for name, outcome in outcomes[scenario].items()
            }
            for place in _moments(outcomes[scenario])
        }
        items.append(Figure(caption, plot_roc(path / f"rejection_{scenario}.png", moments)))
    if asked:
        items.append(_areas(outcomes))
    text = (
        "The full test set contains unseen classes. The paper's two other options leave them "
        "out, or "
        "let the classifier reject them."
    )
    return Section("Unseen classes", [text], items)


def _moments(by_name: dict[str, Scored]) -> list[int]:
    """Early, half-way and last of the batches after which a class is still unknown."""
    area = next(iter(by_name.values())).roc_area
    there = np.flatnonzero(np.isfinite(area).all(axis=0))
    if not len(there):
        return []
    return sorted({int(there[place * (len(there) - 1) // 2]) for place in range(3)})


def _areas(outcomes: AllScored) -> Table:
    rows = []
    for scenario, by_name in outcomes.items():
        places = _moments(by_name)
        for name, outcome in by_name.items() if places else ():
            cells = [f"{1 + place}: {percent(outcome.roc_area[:, place])}" for place in places]
            rows.append([f"{scenario}, {name}", *cells, *[""] * (3 - len(cells))])
    columns = [Column("strategy"), *(Column(name, "area, %") for name in ("early", "half", "late"))]
    caption = (
        "Area under the ROC curve after the batch before the colon, for batches with unseen "
        "classes: "
        "the share of pairs where the sample of a seen class has the higher confidence; 50 is "
        "chance."
    )
    return Table(caption, columns, rows)


def _spread_out(batches: int) -> list[int]:
    if batches <= MOST_COLUMNS:
        return list(range(batches))
    return np.linspace(0, batches - 1, MOST_COLUMNS).round().astype(int).tolist()
