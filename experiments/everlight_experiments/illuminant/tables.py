"""Tables of angular errors beside published ones, and the summary of a report."""

from collections.abc import Mapping, Sequence

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from everlight.metrics.angular import ErrorSummary
from everlight_experiments.illuminant.comparison import Comparison, Errors, summarize_all
from everlight_experiments.illuminant.paper import STATISTICS
from everlight_experiments.report.writer import PAPER, Column, Figure, FirstScreen, Table

OURS = ("mean", "median", "trimean", "best25", "worst25", "q1", "q3", "max")
OURS_NAMES = ("Mean", "95% interval", "Med", "Tri", "B25%", "W25%", "Q1", "Q3", "Max", "Invalid")
REPRODUCTION = "reproduction, degrees"
REPRODUCTION_NAMES = {"mean": "Mean", "median": "Med", "worst25": "W25%"}
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
MOST_CURVES = 8
"""Maximum number of curves per panel."""


def error_table(compared: Comparison) -> Table:
    """Return one row of statistics per method, and the published ones beside.

    Methods that only the paper has follow as "not run".
    """
    errors, reproduction = compared.errors(), compared.reproduction()
    columns = [Column("Method"), *(Column(name, "ours, degrees") for name in OURS_NAMES)]
    columns += [Column(name, REPRODUCTION) for name in REPRODUCTION_NAMES.values()]
    columns += [Column(name, PAPER) for name in STATISTICS]
    rows = []
    for name, values in errors.items():
        ours = _statistics(compared, values) + _reproduced(reproduction[name])
        rows.append([name, *ours, *_published(compared.published.get(name, ()))])
    empty = len(OURS_NAMES) + len(REPRODUCTION_NAMES) - 1
    for name, published in compared.published.items():
        if name not in errors:
            rows.append([name, "not run", *["–"] * empty, *_published(published)])
    caption = compared.caption
    if max(len(values) for values in errors.values()) > 1:
        caption += f" Statistics are means over {compared.runs}; ± is the standard deviation."
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
) -> FirstScreen:
    """Return the best method with its interval, and the baseline, in sentences and a table.

    Args:
      question: the report's question.
      data: name of the data.
      figure: figure beside the table.
      comparisons: one per condition.
      headline: method reported in place of the best one, which selection would make optimistic.
      baselines: methods to compare with; the first available one is shown.
    """
    errors = [compared.errors() for compared in comparisons]
    means = [_means(each) for each in errors]
    ranked = [sorted(each, key=lambda name, of=each: np.mean(of[name])) for each in means]
    names = dict.fromkeys([headline] if headline else [])
    names |= dict.fromkeys(name for order in ranked for name in order[:LEADERS])
    baseline = next((name for name in baselines if name in means[0]), None)
    if baseline is not None:
        names[baseline] = None
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
            *(spread(each[name]) if name in each else "–" for each in means),
            f"{published[name][0]:.2f}" if name in published else "–",
        ]
        for name in sorted(names, key=lambda name: np.mean(means[0].get(name, np.inf)))
    ]
    titles = [Column(compared.title) for compared in comparisons]
    beside = "" if baseline is None else f", and {baseline}"
    caption = (
        f"{data}. Mean angular error in degrees of the {LEADERS} best methods of each "
        f"condition{beside}. The tables below have all methods."
    )
    kind = "Reported method" if headline else "Best"
    sentences = [question, f"{kind}, in degrees with 95% interval: {'; '.join(best)}."]
    if simple:
        sentences.append(f"Baseline, {SPELLED.get(baseline, baseline)}: {'; '.join(simple)}.")
    table = Table(caption, [Column("Method"), *titles, Column("Mean", PAPER)], rows)
    return FirstScreen(tuple(sentences), figure, table)


def shown_curves(
    names: Sequence[str], comparisons: Sequence[Comparison]
) -> dict[str, dict[str, Errors]]:
    """Return errors of the named methods and of each condition's best one, by condition.

    At most `MOST_CURVES` methods are kept, all of which every condition has.
    """
    errors = {compared.title: compared.errors() for compared in comparisons}
    conditions = list(errors.values())
    common = [name for name in conditions[0] if all(name in each for each in conditions)]
    finite = [name for name in common if all(np.isfinite(each[name]).any() for each in conditions)]
    best = [min(finite, key=lambda name, of=each: np.nanmean(of[name])) for each in conditions]
    named = [name for name in names if name in common and name not in best]
    few = {*named[: MOST_CURVES - len({*best})], *best}
    shown = dict.fromkeys(name for name in (*names, *best) if name in few)
    return {title: {name: each[name] for name in shown} for title, each in errors.items()}


def spread(values: Float[np.ndarray, "runs"]) -> str:
    """Return the mean in degrees, with the sample deviation of several values."""
    mean = f"{np.mean(values):.2f}"
    return f"{mean} ± {np.std(values, ddof=1):.2f}" if len(values) > 1 else mean


def _means(errors: Mapping[str, Errors]) -> dict[str, Float[np.ndarray, "runs"]]:
    """Return mean errors of the methods that estimate an illuminant in every fold."""
    return {
        name: np.nanmean(values, axis=2).mean(axis=1)
        for name, values in errors.items()
        if np.isfinite(values).any(axis=2).all()
    }


def _published(statistics: Sequence[float]) -> list[str]:
    return [f"{value:.2f}" for value in statistics] + ["–"] * (len(STATISTICS) - len(statistics))


def _reproduced(values: Errors) -> list[str]:
    per_fold: ErrorSummary = summarize_all(jnp.asarray(values))
    return [f"{np.mean(getattr(per_fold, name)):.2f}" for name in REPRODUCTION_NAMES]


def _statistics(compared: Comparison, values: Errors) -> list[str]:
    per_fold: ErrorSummary = summarize_all(jnp.asarray(values))
    per_run = {name: np.mean(value, axis=1) for name, value in per_fold._asdict().items()}
    low, high = compared.interval(values)
    return [
        spread(per_run["mean"]),
        f"{low:.2f}–{high:.2f}",
        *[f"{np.mean(per_run[name]):.2f}" for name in OURS[1:]],
        str(int(np.sum(per_fold.invalid))),
    ]
