"""The paper's report: accuracy after every batch (figures 4 to 6), costs, and findings."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from jaxtyping import Bool, Float

from everlight_experiments.continual.benchmarks.benchmark import Request
from everlight_experiments.continual.paper import (
    Claim,
    Experiment,
    Finding,
    Paper,
    PaperOptions,
    Results,
    Verdict,
)
from everlight_experiments.continual.report.criteria import PublishedNumbers
from everlight_experiments.continual.report.tables import ColumnSpec, table_of
from everlight_experiments.continual.training.outcome import Outcome, Outcomes
from everlight_experiments.continual.training.queue import Job
from everlight_experiments.core50.benchmark import TRUNK_OPERATIONS, batch_benchmarks, length_of
from everlight_experiments.core50.config import (
    CITATION,
    FIXED,
    PAPER_METHODS,
    PAPER_PRESETS,
    SCENARIOS,
    PaperConfig,
)
from everlight_experiments.core50.published_curves import (
    published_curves,
    published_name,
    published_net,
)
from everlight_experiments.report.cells import percent
from everlight_experiments.report.writer import PUBLISHED_GROUP, Section, Table
from everlight_experiments.run_folder.folder import RunFolder
from everlight_experiments.run_folder.options import check_methods

NOISE = 0.02
"""Largest fall of a curve that still counts as rising."""


def published_numbers(results: Results[PaperConfig, None]) -> PublishedNumbers:
    """Return the published curves of the run's scenarios, which are of objects."""
    config = results.config
    scenarios = config.scenarios if config.level == "object" else ()
    net, data = published_net(config.benchmark.net), config.benchmark.data
    curves = {scenario: published_curves(net, scenario) for scenario in scenarios}
    return PublishedNumbers(published_name(net, data), curves)


def experiment(config: PaperConfig, folder: RunFolder, options: PaperOptions) -> Experiment[None]:
    """Return the scenarios, each with the paper's methods or those that are named."""
    check_methods(config.methods, FIXED)
    request = Request("core50", config.benchmark, seed=options.seed, runs=options.runs)
    benchmarks = batch_benchmarks(request, config.level, config.scenarios)
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


Curve = Float[np.ndarray, "runs t"]
Holds = Bool[np.ndarray, "runs"]


def curve_claim(
    scenario: str, text: str, methods: Sequence[str], holds: Callable[..., Holds]
) -> Claim[Outcome]:
    """Return a claim on methods' curves in one scenario, over the runs that all methods have.

    `holds` is the function from the curves to whether the claim holds for each run.
    """
    names = tuple(f"{scenario}, {method}" for method in methods)

    def test(outcomes: Mapping[str, Outcome]) -> Verdict:
        curves = [outcomes[name].over_time for name in names]
        curves = [curve[: min(map(len, curves))] for curve in curves]
        numbers = (
            f"{method} from {curve[:, 0].mean():.1%} to {curve[:, -1].mean():.1%}"
            for method, curve in zip(methods, curves, strict=True)
        )
        return Verdict(holds(*curves), ", ".join(numbers))

    return Claim(f"{scenario}: {text}", names, test)


def forgets(naive: Curve) -> Holds:
    """Return where the accuracy after the first batch is never reached again."""
    return naive[:, 1:].max(axis=1) < naive[:, 0]


def rises(cwr: Curve) -> Holds:
    """Return where no batch costs accuracy, and all together bring some."""
    return (np.diff(cwr, axis=1).min(axis=1) >= -NOISE) & (cwr[:, -1] > cwr[:, 0] + NOISE)


def lies_between(naive: Curve, cwr: Curve, cumulative: Curve) -> Holds:
    """Return where CWR ends above naive and below cumulative."""
    return (naive[:, -1] < cwr[:, -1]) & (cwr[:, -1] < cumulative[:, -1])


def bounds(naive: Curve, cwr: Curve, cumulative: Curve) -> Holds:
    """Return where cumulative is highest after every batch but the first."""
    return (cumulative - np.maximum(naive, cwr))[:, 1:].min(axis=1) >= -NOISE


_THREE = ("naive", "CWR", "cumulative")
_ENDS_BETWEEN = "CWR ends between naive and cumulative"
CLAIMS = (
    curve_claim(
        "NI",
        "the gap is modest: naive ends at three quarters of cumulative or more",
        ("naive", "cumulative"),
        lambda naive, cumulative: naive[:, -1] >= 0.75 * cumulative[:, -1],
    ),
    curve_claim(
        "NC",
        "naive forgets: it never comes back to its accuracy after the first batch",
        ("naive",),
        forgets,
    ),
    curve_claim(
        "NC",
        f"CWR rises with every batch, {100 * NOISE:.0f} points of noise allowed",
        ("CWR",),
        rises,
    ),
    curve_claim("NC", _ENDS_BETWEEN, _THREE, lies_between),
    curve_claim("NC", "cumulative bounds both after every batch but the first", _THREE, bounds),
    curve_claim("NIC", _ENDS_BETWEEN, _THREE, lies_between),
    curve_claim(
        "NIC",
        "CWR ends at less than two thirds of cumulative",
        ("CWR", "cumulative"),
        lambda cwr, cumulative: cwr[:, -1] < 2 / 3 * cumulative[:, -1],
    ),
)


def findings(outcomes: Outcomes) -> list[Finding]:
    """Return all claims, checked; an outcome's name is its scenario and method."""
    by_name = {
        f"{scenario}, {method}": outcome
        for scenario, by_method in outcomes.items()
        for method, outcome in by_method.items()
    }
    return [claim.check(by_name) for claim in CLAIMS]


def sections(results: Results[PaperConfig, None]) -> list[Section]:
    """Return what the paper's report shows in addition to the general one."""
    paper_scores, outcomes = published_numbers(results), results.outcomes
    costs = (
        "The paper compares accuracy relative to cumulative training, extra storage and "
        "computation. Extra storage is the method's memory and the maximum of stored samples "
        "(frames, or features of a frozen trunk). Operations are those of one step's program "
        "times the steps, plus the frozen trunk's once per training frame."
    )
    tables = [_scores_table(column, by_name, paper_scores) for column, by_name in outcomes.items()]
    return [Section("Accuracy relative to cumulative training, and costs", [costs], tables)]


def _scores_table(
    column: str, by_name: Mapping[str, Outcome], paper_scores: PublishedNumbers
) -> Table:
    curves, best = paper_scores.curves.get(column, {}), by_name.get("cumulative")
    printed = {name: curve[-1] for name, curve in curves.items()}

    def relative(name: str) -> str:
        if best is None:
            return "–"
        final = by_name[name].final
        runs = min(len(final), len(best.final))
        return percent(final[:runs] / best.final[:runs])

    def published_percent(name: str, maximum: float = 1.0) -> str:
        return f"{100 * printed[name] / maximum:.1f}" if name in printed else "–"

    specs = (
        ColumnSpec("runs", lambda name: str(len(by_name[name].final))),
        ColumnSpec(
            "accuracy, %", lambda name: percent(by_name[name].final), "after the last batch"
        ),
        ColumnSpec("relative to cumulative, %", relative, "after the last batch"),
        ColumnSpec("accuracy, %", published_percent, PUBLISHED_GROUP),
        ColumnSpec(
            "relative to cumulative, %",
            lambda name: published_percent(name, printed["cumulative"]) if printed else "–",
            PUBLISHED_GROUP,
        ),
        ColumnSpec("bytes", lambda name: f"{extra_storage(by_name[name]):,}", "extra storage"),
        ColumnSpec(
            "operations", lambda name: f"{training_operations(by_name[name]):.2e}", "training"
        ),
    )
    source = f" Paper: {paper_scores.name}." if curves else ""
    caption = f"{column}: mean ± standard deviation over the runs.{source}"
    return table_of(caption, {name: name for name in by_name}, specs)


def extra_storage(outcome: Outcome) -> int:
    """Return the bytes of the method's memory and of the most samples it stores."""
    cost, stored = outcome.cost, int(outcome.stored_samples.max())
    return cost.memory_bytes + stored * cost.sample_bytes


def training_operations(outcome: Outcome) -> float:
    """Return the floating-point operations of a sequence's training, with the frozen trunk's."""
    frames = outcome.samples[0].sum() * outcome.metrics[TRUNK_OPERATIONS].mean()
    return float(outcome.steps[:, -1].mean() * outcome.cost.operations + frames)


def summary_rows(results: Results[PaperConfig, None]) -> list[tuple[str, str]]:
    """Return steps, scenarios and the forms of CWR."""
    lengths: dict[str, list[str]] = {}
    for column, method, _ in results.experiment.jobs:
        length = length_of(results.config.benchmark, column, method)
        lengths.setdefault(length.words, []).append(f"{method.name} in {column}")
    gain = results.config.benchmark.gain
    return [
        (
            "Steps per batch",
            "; ".join(f"{', '.join(names)}: {words}" for words, names in lengths.items()),
        ),
        ("Scenarios", "batches bring new instances (NI), new classes (NC) or both (NIC)"),
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
    summary_rows,
    published_numbers,
    rule=lambda config: (
        "The network after the last step of every batch is evaluated. Hyper-parameters of other "
        "methods were not selected."
    ),
    findings=lambda results: findings(results.outcomes) if results.config.level == "object" else (),
    findings_source="The findings are read from the published curves of 50 objects.",
    check_changed=PaperConfig.check_changed,
)
