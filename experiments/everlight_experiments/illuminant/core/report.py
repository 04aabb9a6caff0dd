"""The report of every experiment: summary, tables of errors, illuminants, corrected examples."""

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from everlight import plots
from everlight.illuminant.illuminant_interval import COVERAGE, IntervalCoverage
from everlight.illuminant.pair_inputs import View
from everlight_experiments.illuminant import CITATION
from everlight_experiments.illuminant.core.experiment import (
    Comparison,
    Errors,
    IlluminantExperiment,
    lowest_row,
    reproduction_errors,
    summarize_all,
)
from everlight_experiments.illuminant.published_tables import STATISTICS
from everlight_experiments.report import cells
from everlight_experiments.report.plots import new_canvas, save
from everlight_experiments.report.writer import (
    PUBLISHED_GROUP,
    Column,
    Figure,
    Report,
    Section,
    Summary,
    Table,
    write_report,
)
from everlight_experiments.run_folder.folder import RunFolder
from everlight_experiments.run_folder.options import in_words

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
SPELLED = {"GW": "Gray World (GW)", "SoG": "Shades-of-Gray (SoG)"}
MAX_CURVES = 8
"""Maximum number of curves per panel."""

MIN_LIMIT = 12.0
"""Least end of the axis of angular errors, in degrees."""

spread = partial(cells.spread, digits=2)


def publish(folder: RunFolder, experiment: IlluminantExperiment) -> Path:
    """Write the report into the run's folder, and return its path."""
    report = experiment_report(folder, experiment)
    print(" ".join(report.summary.sentences[:2]))
    return write_report(folder.path, experiment.title, report)


def experiment_report(folder: RunFolder, experiment: IlluminantExperiment) -> Report:
    """Return the report of an experiment; its figures are written into the run's folder."""
    summary_rows = [("Paper", CITATION), ("Data", experiment.data), *experiment.protocol.items()]
    summary_rows += [("Selection rule", experiment.selection_rule), ("Seeds", experiment.seeds)]
    if experiment.training is not None:
        summary_rows.append(("Training of networks", in_words(experiment.training)))
    if experiment.command:
        summary_rows.append(
            ("Command to use it, if its accuracy below suffices", experiment.command)
        )
    summary_rows.append(("Duration", folder.duration()))
    picture = Figure(
        "Share of images at or below each angular error, for at most eight methods; the band, if "
        f"any, is the range over {experiment.conditions[0].runs} of the first method.",
        _plot_error_curves(folder.path / "error_curves.png", shown_curves(experiment)),
    )
    truth = Figure(
        "Ground-truth illuminants in the raw colours of each camera (the paper's figure 5).",
        _plot_illuminants(folder.path / "illuminants.png", experiment.illuminants),
    )
    notes = (
        ABBREVIATIONS,
        "Statistics of the recovery angular error and of the reproduction error. Bold: lowest "
        "mean. Missing estimates count as invalid and are left out of means.",
        *experiment.notes,
    )
    shown = [truth]
    if experiment.answer_figure is not None:
        shown, picture = [picture, truth], experiment.answer_figure
    tables = experiment.tables or [error_table(compared) for compared in experiment.conditions]
    sections = [
        Section("Angular errors", notes, list(tables)),
        *experiment.before,
        Section("Illuminants and examples", (), [*shown, *experiment.figures]),
        *experiment.after,
    ]
    return Report(summary_rows, sections, summary(experiment, picture))


def error_table(compared: Comparison) -> Table:
    """Return one row of statistics per method, and the published ones.

    Methods that only the paper has follow as "not run".
    """
    errors, reproduction = compared.errors(), compared.errors(reproduction_errors)
    statistics = ("Mean", "95% interval", *RECOVERY.values(), "Invalid")
    columns = [Column("Method"), *(Column(name, "everlight, degrees") for name in statistics)]
    columns += [Column(name, "reproduction, degrees") for name in REPRODUCTION.values()]
    columns += [Column(name, PUBLISHED_GROUP) for name in STATISTICS]
    rows, means = [], []
    for name in dict.fromkeys((*errors, *compared.published)):
        row = ["not run", *["–"] * (len(statistics) + len(REPRODUCTION) - 1)]
        if name in errors:
            recovered, reproduced = (
                fold_statistics(errors[name]),
                fold_statistics(reproduction[name]),
            )
            means.append(np.mean(recovered["mean"]))
            row = [spread(recovered["mean"]), compared.interval_in_words(errors[name])]
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
    caption += f" The interval of the mean is a bootstrap over {compared.unit_name}."
    return Table(caption, columns, rows, lowest_row(means))


def summary(experiment: IlluminantExperiment, figure: Figure) -> Summary:
    """Return the best method with its interval, and the baseline, in sentences and a table.

    The best of several methods is optimistic; a headline is reported in its place. There is one
    column per condition.
    """
    conditions, headline = experiment.conditions, experiment.headline
    means = [_means(compared.errors()) for compared in conditions]
    ranked = [
        sorted(by_name, key=lambda name, errors=by_name: np.mean(errors[name])) for by_name in means
    ]
    baseline = next((name for name in experiment.baselines if name in means[0]), "")
    names = {headline, baseline, *(name for order in ranked for name in order[:LEADERS])} - {""}
    # The sentences stay short: of many conditions the table shows those between first and last.
    places = sorted({0, len(conditions) - 1})
    simple = [
        f"{spread(means[place][baseline])} ({conditions[place].title})"
        for place in places
        if baseline in means[place]
    ]
    published = conditions[0].published
    rows = [
        [
            name,
            *(spread(by_name[name]) if name in by_name else "–" for by_name in means),
            f"{published[name][0]:.2f}" if name in published else "–",
        ]
        for name in sorted(names, key=lambda name: (np.mean(means[0].get(name, np.inf)), name))
    ]
    titles = [Column(compared.title) for compared in conditions]
    extra = f", and {baseline}" if baseline else ""
    caption = (
        f"{experiment.data}. Mean angular error in degrees of the {LEADERS} best methods of each "
        f"condition{extra}. The tables below have all methods."
    )
    best = [best_in_words(experiment, [conditions[place] for place in places])]
    sentences = [experiment.question, *(experiment.answer or best)]
    if simple and not experiment.answer:
        sentences.append(f"Baseline, {SPELLED.get(baseline, baseline)}: {'; '.join(simple)}.")
    table = Table(caption, [Column("Method"), *titles, Column("Mean", PUBLISHED_GROUP)], rows)
    return Summary(tuple(sentences), figure, table)


def best_in_words(experiment: IlluminantExperiment, conditions: Sequence[Comparison]) -> str:
    """Return the best, or the reported, method of each condition with its interval."""
    best = []
    for compared in conditions:
        errors = compared.errors()
        means = {name: np.mean(by_run) for name, by_run in _means(errors).items()}
        name = experiment.headline or min(means, key=lambda name, means=means: means[name])
        interval = compared.interval_in_words(errors[name])
        best.append(f"{name}, {means.get(name, np.nan):.2f} [{interval}] ({compared.title})")
    kind = "Reported method" if experiment.headline else "Best"
    return f"{kind}, in degrees with 95% interval: {'; '.join(best)}."


def shown_curves(experiment: IlluminantExperiment) -> dict[str, dict[str, Errors]]:
    """Return errors of the named methods and of each condition's best one, by condition.

    At most `MAX_CURVES` methods are kept, all of which every condition has; headline and baselines
    go before the other named ones.
    """
    always = (experiment.headline, *experiment.baselines)
    errors = {compared.title: compared.errors() for compared in experiment.conditions}
    means = [_means(by_name) for by_name in errors.values()]
    common = [name for name in means[0] if all(name in by_name for by_name in means)]
    best = {
        min(common, key=lambda name, errors=by_name: np.mean(errors[name])) for by_name in means
    }
    names = [*dict.fromkeys((*experiment.curves, *always))]
    named = [name for name in names if name in common and name not in best]
    named.sort(key=lambda name: name not in always)
    few = {*named[: MAX_CURVES - len(best)], *best}
    shown = [name for name in dict.fromkeys((*names, *sorted(best))) if name in few]
    return {title: {name: by_name[name] for name in shown} for title, by_name in errors.items()}


def coverage_table(
    coverage: Mapping[str, Mapping[View, Sequence[IntervalCoverage]]], caption: str
) -> Table:
    """Return the mean and minimum coverage, by name of a row and by camera."""
    rows = []
    for name, by_view in coverage.items():
        row = [name]
        for pairs in by_view.values():
            shares, degrees, wide = np.transpose(pairs)
            finite = np.isfinite(degrees).all()
            row += [f"{shares.mean():.1%}", f"{shares.min():.1%}" if len(pairs) > 1 else "–"]
            row.append(f"{degrees.mean():.1f}" if finite else "too few pairs for an interval")
            row.append(f"{wide.mean():.1%}")
        rows.append(row)
    columns = [Column("Tested")]
    for view in next(iter(coverage.values())):
        names = ("Coverage", "Minimum", "Degrees", "Uninformative")
        columns += [Column(name, f"{view} illuminant") for name in names]
    caption = (
        f"Coverage of the intervals of `estimate`, nominally {COVERAGE:.0%}: {caption} Degrees: "
        "mean radius. Uninformative: share of intervals no smaller than the interval of the "
        "calibration's illuminants only; `estimate` warns of these."
    )
    return Table(caption, columns, rows)


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


def _plot_error_curves(path: Path, panels: Mapping[str, Mapping[str, Errors]]) -> Path:
    """Plot the share of images below each angular error: a panel per title, a curve per method."""
    rows = 2 if len(panels) > 3 else 1
    columns = -(-len(panels) // rows)
    legend = 3.2
    canvas, axes = new_canvas(columns, 5.0 + legend / columns, 4.0, rows)
    halves = [np.nanmedian(curve) for errors in panels.values() for curve in errors.values()]
    # The picture shows half of every method's images.
    limit = max(MIN_LIMIT, 1.2 * float(np.nanmax(halves)))
    for axis, (title, errors) in zip(axes, panels.items(), strict=False):
        plots.plot_error_curves(errors, axis, limit).set_title(title)
    for axis in axes[len(panels) :]:
        axis.set_axis_off()
    handles, names = axes[0].get_legend_handles_labels()
    canvas.legend(handles, names, loc="outside right center")
    return save(canvas, path)


def _plot_illuminants(
    path: Path, panels: Mapping[str, Mapping[str, Float[np.ndarray, "n 3"]]]
) -> Path:
    """Plot the cameras' ground-truth illuminants as chromaticities.

    Panels of the same cameras, main and second exchanged, are one. The names of more than two
    cameras stand in the legend alone.
    """
    distinct: dict[frozenset[str], tuple[str, Mapping[str, Float[np.ndarray, "n 3"]]]] = {}
    for title, cameras in panels.items():
        distinct.setdefault(frozenset(cameras), (title, cameras))
    canvas, axes = new_canvas(len(distinct), 6.6, 4.0)
    for axis, (title, cameras) in zip(axes, distinct.values(), strict=True):
        count = f"{len(cameras)} cameras"
        plots.plot_chromaticity(cameras, axes=axis).set_title(title if len(cameras) < 3 else count)
        axis.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return save(canvas, path)
