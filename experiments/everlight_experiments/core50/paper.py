"""The paper's report: accuracy after every batch (figures 4 to 6), costs, and unseen classes."""

from collections.abc import Callable, Mapping
from functools import partial

import numpy as np
from jaxtyping import Bool, Float

from everlight.plots import plot_rejection
from everlight_data.images.core50_published import published_curves, published_name, published_net
from everlight_experiments.continual.benchmark import Draw
from everlight_experiments.continual.outcome import Outcome
from everlight_experiments.continual.paper import (
    Experiment,
    Finding,
    Paper,
    PaperOptions,
    Results,
    findings_section,
    paper_options,
    run_paper,
)
from everlight_experiments.continual.report_criteria import Published
from everlight_experiments.continual.report_tables import Measure, sizes_table, table_of
from everlight_experiments.continual.runner import EVALUATION_SECONDS, with_evaluation_seconds
from everlight_experiments.continual.train import Job
from everlight_experiments.core50.benchmark import (
    AREA,
    ROC,
    TRUNK_OPERATIONS,
    batch_benchmarks,
    length_of,
)
from everlight_experiments.core50.config import (
    CITATION,
    FIXED,
    PAPER_METHODS,
    PAPER_PRESETS,
    SCENARIOS,
    PaperConfig,
)
from everlight_experiments.report.cells import percent
from everlight_experiments.report.plots import new_canvas, save
from everlight_experiments.report.writer import PAPER as PUBLISHED_GROUP
from everlight_experiments.report.writer import Column, Figure, Section, Table
from everlight_experiments.run_folder.folder import RunFolder
from everlight_experiments.run_folder.settings import check_methods

NOISE = 0.02
"""Largest fall of a curve that still counts as rising."""
MOST_COLUMNS = 10
"""Columns of a table of batches, evenly spaced over them."""


def published(results: Results) -> Published:
    """Return the published curves of the run's scenarios, which are of objects."""
    config: PaperConfig = results.config
    scenarios = config.scenarios if config.level == "object" else ()
    net, data = published_net(config.benchmark.net), config.benchmark.data
    curves = {scenario: published_curves(net, scenario) for scenario in scenarios}
    return Published(published_name(net, data), curves)


def experiment(config: PaperConfig, folder: RunFolder, options: PaperOptions) -> Experiment:
    """Return the scenarios, each with the paper's methods or those that are named."""
    check_methods(config.methods, FIXED)
    parts = config.benchmark, config.level, config.scenarios, options.seed, options.runs
    benchmarks = {
        scenario: with_evaluation_seconds(each, options.seed)
        for scenario, each in batch_benchmarks(*parts).items()
    }
    fewer = dict(zip(SCENARIOS, config.cumulative_orders, strict=True))
    jobs = [
        Job(
            scenario,
            FIXED[name],
            min(config.orders, fewer[scenario]) if name == "cumulative" else config.orders,
        )
        for scenario in config.scenarios
        for name in config.methods or PAPER_METHODS[scenario]
    ]
    return Experiment(benchmarks, jobs)


Curves = Mapping[str, Float[np.ndarray, "runs t"]]
Ends = Float[np.ndarray, "runs"]
Verdict = tuple[Bool[np.ndarray, "runs"], str]
Test = Callable[[Curves], Verdict]


def _finding(scenario: str, claim: str, test: Test, methods: tuple[str, ...]) -> Finding:
    """Return a finding on curves of one scenario, over the runs that all methods have."""

    def tested(outcomes: Mapping[str, Outcome]) -> Verdict:
        curves = {name: outcomes[f"{scenario}, {name}"].over_time for name in methods}
        runs = min(map(len, curves.values()))
        return test({name: curve[:runs] for name, curve in curves.items()})

    needs = frozenset(f"{scenario}, {name}" for name in methods)
    return Finding(f"{scenario}: {claim}", needs, tested)


def _ends(holds: Callable[[Mapping[str, Ends]], Bool[np.ndarray, "runs"]]) -> Test:
    """Return a test of the accuracies after the last batch."""

    def test(curves: Curves) -> Verdict:
        last = {name: curve[:, -1] for name, curve in curves.items()}
        numbers = ", ".join(f"{name} {value.mean():.1%}" for name, value in last.items())
        return holds(last), f"at the end {numbers}"

    return test


def _forgets(curves: Curves) -> Verdict:
    first, later = curves["naive"][:, 0], curves["naive"][:, 1:].max(axis=1)
    numbers = f"after the first batch {first.mean():.1%}, later at best {later.mean():.1%}"
    return later < first, numbers


def _rises(curves: Curves) -> Verdict:
    curve = curves["CWR"]
    first, last, least = curve[:, 0], curve[:, -1], np.diff(curve, axis=1).min(axis=1)
    numbers = f"{first.mean():.1%} to {last.mean():.1%}, least step {least.mean():+.1%}"
    return (least >= -NOISE) & (last > first + NOISE), numbers


def _bounds(curves: Curves) -> Verdict:
    others = np.maximum(curves["naive"], curves["CWR"])
    lead = (curves["cumulative"] - others)[:, 1:].min(axis=1)
    return lead >= -NOISE, f"least lead after a batch {lead.mean():+.1%}"


_THREE = ("naive", "CWR", "cumulative")
_BETWEEN = (
    "CWR ends between naive and cumulative",
    _ends(lambda last: (last["naive"] < last["CWR"]) & (last["CWR"] < last["cumulative"])),
    _THREE,
)
FINDINGS = (
    _finding(
        "NI",
        "the gap is modest: naive ends at three quarters of cumulative or more",
        _ends(lambda last: last["naive"] >= 0.75 * last["cumulative"]),
        ("naive", "cumulative"),
    ),
    _finding(
        "NC",
        "naive forgets: it never comes back to its accuracy after the first batch",
        _forgets,
        ("naive",),
    ),
    _finding(
        "NC",
        f"CWR rises with every batch, {100 * NOISE:.0f} points of noise allowed",
        _rises,
        ("CWR",),
    ),
    _finding("NC", *_BETWEEN),
    _finding("NC", "cumulative bounds both after every batch but the first", _bounds, _THREE),
    _finding("NIC", *_BETWEEN),
    _finding(
        "NIC",
        "CWR ends at less than two thirds of cumulative",
        _ends(lambda last: last["CWR"] < 2 / 3 * last["cumulative"]),
        _THREE,
    ),
)


def sections(results: Results) -> list[Section]:
    """Return what the paper's report shows beside the general one."""
    theirs, found = published(results), results.outcomes
    flat = {
        f"{scenario}, {name}": outcome
        for scenario, by_name in found.items()
        for name, outcome in by_name.items()
    }
    orders = {
        scenario: each.sequence(FIXED["naive"], Draw("evaluation", results.seed, 0))
        for scenario, each in results.experiment.benchmarks.items()
    }
    costs = (
        "The paper compares accuracy relative to cumulative training, extra storage and "
        "computation. Extra storage is the method's memory and the maximum of stored samples "
        "(frames, or features of a frozen trunk). Operations are those of one step's program "
        "times the steps, plus the frozen trunk's once per training frame. Evaluation's share is "
        "that of one pass over the test set per batch in the run's time with compilation; – for "
        "resumed runs."
    )
    source = "The findings are read from the published curves of 50 objects."
    return [
        Section(
            "Accuracy on the full test set after every batch (figures 4 to 6)",
            items=[_batch_table(scenario, found[scenario], theirs) for scenario in found],
        ),
        Section(
            "Costs, and accuracy relative to cumulative training",
            [costs],
            [_cost_table(scenario, found[scenario], theirs) for scenario in found],
        ),
        *([findings_section(FINDINGS, flat, source)] if theirs.curves else []),
        *_rejection(results),
        Section("Batches", items=[sizes_table(orders)]),
    ]


def _batch_table(scenario: str, by_name: Mapping[str, Outcome], theirs: Published) -> Table:
    batches = next(iter(by_name.values())).over_time.shape[1]
    count = min(batches, MOST_COLUMNS)
    shown = np.linspace(0, batches - 1, count).round().astype(int).tolist()
    rows = []
    for name, outcome in by_name.items():
        runs = len(outcome.over_time)
        cells = [percent(column) for column in outcome.over_time[:, shown].T]
        rows.append([f"{name} ({runs} run{'s' * (runs > 1)})", *cells])
        curve = theirs.curves.get(scenario, {}).get(name)
        if curve:
            rows.append([f"{name}, {theirs.name}", *(f"{100 * curve[at]:.1f}" for at in shown)])
    columns = [Column("method"), *(Column(str(1 + place), "after batch") for place in shown)]
    caption = f"{scenario}: accuracy in percent, mean ± standard deviation over the runs."
    return Table(caption, columns, rows)


def _cost_table(scenario: str, by_name: Mapping[str, Outcome], theirs: Published) -> Table:
    curves, best = theirs.curves.get(scenario, {}), by_name.get("cumulative")

    def relative(name: str) -> str:
        if best is None:
            return "–"
        final = by_name[name].final
        runs = min(len(final), len(best.final))
        return percent(final[:runs] / best.final[:runs])

    def published_share(name: str) -> str:
        if name not in curves:
            return "–"
        return f"{100 * curves[name][-1] / curves['cumulative'][-1]:.1f}"

    def evaluation(name: str) -> str:
        share = evaluation_share(by_name[name])
        return "–" if np.isnan(share) else f"{share:.0%}"

    measures = (
        Measure("final", relative, "relative to cumulative, %"),
        Measure("relative, final", published_share, PUBLISHED_GROUP),
        Measure("bytes", lambda name: f"{extra_storage(by_name[name]):,}", "extra storage"),
        Measure("operations", lambda name: f"{training_operations(by_name[name]):.2e}", "training"),
        Measure("share of the time", evaluation, "evaluation"),
    )
    caption = f"{scenario}: mean ± standard deviation over the runs."
    return table_of(caption, {name: name for name in by_name}, measures)


def extra_storage(outcome: Outcome) -> int:
    """Return the bytes beside the network: the method's memory and the most samples it stores."""
    cost, stored = outcome.cost, int(outcome.stored_samples.max())
    return cost.memory_bytes + stored * cost.sample_bytes


def training_operations(outcome: Outcome) -> float:
    """Return the floating-point operations of a sequence's training, with the frozen trunk's."""
    frames = outcome.samples[0].sum() * outcome.metrics[TRUNK_OPERATIONS].mean()
    return float(outcome.steps[:, -1].mean() * outcome.cost.operations + frames)


def evaluation_share(outcome: Outcome) -> float:
    """Return evaluation's share of the fastest run's time; NaN if every run was resumed."""
    batches = outcome.over_time.shape[1]
    share = outcome.metrics[EVALUATION_SECONDS] * batches / outcome.seconds
    return float(np.nan if np.isnan(share).all() else np.nanmax(share))


def _rejection(results: Results) -> list[Section]:
    """Return ROC curves early, half-way and late among the batches with unseen classes."""
    figures = []
    for scenario, by_name in results.outcomes.items():
        area = next(iter(by_name.values())).metrics[AREA]
        there = np.flatnonzero(np.isfinite(area).all(axis=0))
        if not len(there):
            continue
        moments = sorted({int(there[place * (len(there) - 1) // 2]) for place in range(3)})
        canvas, axes = new_canvas(len(moments), 3.6, 3.9)
        canvas.set_layout_engine("compressed")
        for axis, moment in zip(axes, moments, strict=True):
            curves = {name: each.metrics[ROC][:, moment] for name, each in by_name.items()}
            plot_rejection({name: each.mean(axis=0) for name, each in curves.items()}, axis)
            axis.set_title(f"{scenario}, after batch {1 + moment}")
        for axis in axes[1:]:
            axis.set_ylabel("")
        axes[-1].legend(loc="lower right")
        caption = (
            "A sample is rejected if its highest class probability is below a threshold (option "
            "3); each threshold is a point, mean over runs."
        )
        figures.append(Figure(caption, save(canvas, results.folder / f"rejection_{scenario}.png")))
    text = (
        "The full test set contains unseen classes. The paper's two other options leave them out, "
        "or let the classifier reject them. The sections on the scenarios have the accuracy on "
        "seen classes and the areas under these curves."
    )
    return [Section("Unseen classes", [text], figures)] if figures else []


def summary(results: Results) -> list[tuple[str, str]]:
    """Return steps, scenarios and the forms of CWR."""
    lengths: dict[str, list[str]] = {}
    for column, method, _ in results.experiment.jobs:
        length = length_of(results.config.benchmark, column, method)
        later = length.learning_rate * length.later_factor
        words = f"{length.first} at {length.learning_rate:g}, then {length.later} at {later:g}"
        lengths.setdefault(words, []).append(f"{method.name} in {column}")
    said = "; ".join(f"{', '.join(names)}: {words}" for words, names in lengths.items())
    gain = results.config.benchmark.gain
    return [
        ("Steps per batch", said),
        (
            "Scenarios",
            "NI: new instances of known classes in every batch; NC: new classes; NIC: new "
            "instances and new classes",
        ),
        (
            "CWR",
            "copy weights with re-init, a head over the frozen trunk's features, computed once; "
            f"gain {gain:g} of the first batch's weights in NC and NIC (published: 3); by the "
            "paper's text or, as coded, by the authors' code, which made the published curves",
        ),
    ]


PAPER = Paper(
    "core50",
    CITATION,
    lambda config: f"CORe50: {', '.join(config.scenarios)}",
    PAPER_PRESETS,
    experiment,
    sections,
    summary,
    published,
    "The network after the last step of every batch is evaluated. Hyper-parameters of other "
    "methods were not selected.",
)
run = partial(run_paper, PAPER)
options = partial(paper_options, PAPER)
