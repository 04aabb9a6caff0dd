"""Tables of angular errors with published ones, and the summary of a report."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from everlight_experiments.illuminant.comparison import (
    Comparison,
    Errors,
    reproduction_errors,
    summarize_all,
)
from everlight_experiments.illuminant.published_tables import STATISTICS
from everlight_experiments.report import cells
from everlight_experiments.report.writer import PAPER, Column, Figure, Summary, Table

RECOVERY = {
    "median": "Med",
    "trimean": "Tri",
    "best25": "B25%",
    "worst25": "W25%",
    "q1": "Q1",
    "q3": "Q3",
    "max": "Max",
}
"""Columns of the recovery error after its mean and interval, by statistic."""
REPRODUCTION = {"mean": "Mean", "median": "Med", "worst25": "W25%"}
ABBREVIATIONS = (
    "Methods: GW is Gray World, SoG Shades-of-Gray, WP White Patch, GE Gray Edge, WGE Weighted "
    "Gray Edge. T is the inter-camera colour transform, a 3x3 matrix; moments are the colour "
    "moments of one image."
)
"""Explanation of method names for every section of angular errors."""
LEADERS = 3
"""Number of methods per condition in the summary's table."""
BASELINES = ("GW", "The phone's white balance")
"""Baselines of the summary; the first available one is shown."""
SPELLED = {"GW": "Gray World (GW)", "SoG": "Shades-of-Gray (SoG)"}
MAX_CURVES = 8
"""Maximum number of curves per panel."""

spread = partial(cells.spread, digits=2)


def error_table(compared: Comparison) -> Table:
    """Return one row of statistics per method, and the published ones.

    Methods that only the paper has follow as "not run".
    """
    errors, reproduction = compared.errors(), compared.errors(reproduction_errors)
    statistics = ("Mean", "95% interval", *RECOVERY.values(), "Invalid")
    columns = [Column("Method"), *(Column(name, "everlight, degrees") for name in statistics)]
    columns += [Column(name, "reproduction, degrees") for name in REPRODUCTION.values()]
    columns += [Column(name, PAPER) for name in STATISTICS]
    rows = []
    for name in dict.fromkeys((*errors, *compared.published)):
        row = ["not run", *["–"] * (len(statistics) + len(REPRODUCTION) - 1)]
        if name in errors:
            recovered, reproduced = (
                fold_statistics(errors[name]),
                fold_statistics(reproduction[name]),
            )
            low, high = compared.interval(errors[name])
            row = [spread(recovered["mean"]), f"{low:.2f}–{high:.2f}"]
            row += [f"{np.mean(recovered[statistic]):.2f}" for statistic in RECOVERY]
            row += [str(np.sum(~np.isfinite(errors[name])))]
            row += [f"{np.mean(reproduced[statistic]):.2f}" for statistic in REPRODUCTION]
        published = [
            "–" if np.isnan(value) else f"{value:.2f}" for value in compared.published.get(name, ())
        ]
        rows.append([name, *row, *published, *["–"] * (len(STATISTICS) - len(published))])
    caption = compared.caption
    if max(len(values) for values in errors.values()) > 1:
        caption += f" Statistics are means over {compared.runs}; ± is the standard deviation."
    if compared.truth.shape[-3] > 1:
        caption += " Statistics are taken within a fold and averaged over folds."
    units = "images" if compared.units is None else compared.units.name
    caption += f" The interval of the mean is a bootstrap over {units}."
    best = int(np.argmin([np.nanmean(values) for values in errors.values()]))
    return Table(caption, columns, rows, frozenset({best}))


def summary(
    question: str,
    data: str,
    figure: Figure,
    comparisons: Sequence[Comparison],
    headline: str = "",
    baselines: Sequence[str] = BASELINES,
) -> Summary:
    """Return the best method with its interval, and the baseline, in sentences and a table.

    The best of several methods is optimistic; `headline` is reported in its place. Of the baselines
    the first available one is shown. There is one comparison per condition.
    """
    errors = [compared.errors() for compared in comparisons]
    means = [_means(by_name) for by_name in errors]
    ranked = [
        sorted(by_name, key=lambda name, errors=by_name: np.mean(errors[name])) for by_name in means
    ]
    baseline = next((name for name in baselines if name in means[0]), "")
    names = {headline, baseline, *(name for order in ranked for name in order[:LEADERS])} - {""}
    best, simple = [], []
    parts = list(zip(comparisons, errors, means, ranked, strict=True))
    # The sentences stay short: of many conditions the table shows those between first and last.
    for compared, values, by_method, order in parts if len(parts) < 3 else (parts[0], parts[-1]):
        name = headline or order[0]
        low, high = compared.interval(values[name])
        mean = np.mean(by_method[name])
        best.append(f"{name}, {mean:.2f} [{low:.2f}–{high:.2f}] ({compared.title})")
        if baseline in by_method:
            simple.append(f"{spread(by_method[baseline])} ({compared.title})")
    published = comparisons[0].published
    rows = [
        [
            name,
            *(spread(by_name[name]) if name in by_name else "–" for by_name in means),
            f"{published[name][0]:.2f}" if name in published else "–",
        ]
        for name in sorted(names, key=lambda name: (np.mean(means[0].get(name, np.inf)), name))
    ]
    titles = [Column(compared.title) for compared in comparisons]
    beside = f", and {baseline}" if baseline else ""
    caption = (
        f"{data}. Mean angular error in degrees of the {LEADERS} best methods of each "
        f"condition{beside}. The tables below have all methods."
    )
    kind = "Reported method" if headline else "Best"
    sentences = [question, f"{kind}, in degrees with 95% interval: {'; '.join(best)}."]
    if simple:
        sentences.append(f"Baseline, {SPELLED.get(baseline, baseline)}: {'; '.join(simple)}.")
    table = Table(caption, [Column("Method"), *titles, Column("Mean", PAPER)], rows)
    return Summary(tuple(sentences), figure, table)


def shown_curves(
    names: Iterable[str], comparisons: Sequence[Comparison], always: Sequence[str] = ()
) -> dict[str, dict[str, Errors]]:
    """Return errors of the named methods and of each condition's best one, by condition.

    At most `MAX_CURVES` methods are kept, all of which every condition has; those of `always` go
    before the other named ones.
    """
    errors = {compared.title: compared.errors() for compared in comparisons}
    means = [_means(by_name) for by_name in errors.values()]
    common = [name for name in means[0] if all(name in by_name for by_name in means)]
    best = {
        min(common, key=lambda name, errors=by_name: np.mean(errors[name])) for by_name in means
    }
    names = [*dict.fromkeys((*names, *always))]
    named = [name for name in names if name in common and name not in best]
    named.sort(key=lambda name: name not in always)
    few = {*named[: MAX_CURVES - len(best)], *best}
    shown = [name for name in dict.fromkeys((*names, *sorted(best))) if name in few]
    return {title: {name: by_name[name] for name in shown} for title, by_name in errors.items()}


def fold_statistics(errors: Errors) -> dict[str, Float[np.ndarray, "runs"]]:
    """Return each run's statistics within a fold, averaged over folds, by name.

    The median of a table is this one, not that of all folds together.
    """
    per_fold = summarize_all(jnp.asarray(errors))._asdict()
    return {name: np.mean(values, axis=1) for name, values in per_fold.items()}


def _means(errors: Mapping[str, Errors]) -> dict[str, Float[np.ndarray, "runs"]]:
    """Return mean errors of the methods that estimate an illuminant in every fold."""
    means = {name: fold_statistics(values)["mean"] for name, values in errors.items()}
    return {name: mean for name, mean in means.items() if np.isfinite(mean).all()}
