"""The paper's findings and experiment; `report.py` has its numbers and tables."""

from functools import partial

import numpy as np
from jaxtyping import Float

from everlight.continual.methods.method import Method
from everlight.metrics.fact_scores import BACKWARD, GENERALISED
from everlight_data.facts.parts.word_vectors import vectors_note
from everlight_data.facts.splits.fact_images import pictured_facts
from everlight_data.facts.splits.fact_splits import SPLITS
from everlight_data.facts.splits.published_splits import published_scales
from everlight_experiments.continual.benchmarks.benchmark import Benchmark
from everlight_experiments.continual.benchmarks.parts import inputs_of
from everlight_experiments.continual.benchmarks.run_data import SequenceId
from everlight_experiments.continual.paper import (
    Claim,
    Experiment,
    Finding,
    Paper,
    PaperOptions,
    Results,
    Verdict,
    not_run,
)
from everlight_experiments.continual.training.programs import method_on
from everlight_experiments.continual.training.queue import Job
from everlight_experiments.facts import report
from everlight_experiments.facts.benchmark import fact_benchmarks
from everlight_experiments.facts.config import (
    PAPER_METHODS,
    PAPER_PRESETS,
    PaperConfig,
    scale_config,
)
from everlight_experiments.facts.published_claims import GAIN, ORDERINGS, Ordering, Quantity
from everlight_experiments.run_folder.folder import RunFolder
from everlight_experiments.run_folder.options import check_methods

CITATION = 'Elhoseiny et al. 2018, "Exploring the Challenges towards Lifelong Fact Learning"'


def value_of(quantity: Quantity, values: report.Values) -> Float[np.ndarray, "seeds"]:
    """Return a quantity of every seed, in percent except transfer and gain."""
    if quantity.metric == GAIN:
        accuracy = quantity._replace(metric=GENERALISED)
        first, second = (value_of(accuracy._replace(split=split), values) for split in SPLITS)
        return first / np.maximum(second, 1e-7) - 1
    scores = values[quantity.column][quantity.method][quantity.metric]
    scale = 1 if quantity.metric == BACKWARD else 100
    return scale * (scores if scores.ndim == 1 else scores[:, -1])


def ordering_verdict(ordering: Ordering, values: report.Values) -> Verdict:
    """Return the verdict on an ordering, about the methods that ran."""
    sides, cells = (ordering.first, ordering.second), (*ordering.first, *ordering.second)
    known = {cell: value_of(cell, values) for cell in cells if cell.method in values[cell.column]}
    first, second = ([cell for cell in side if cell in known] for side in sides)
    if ordering.rule == "each":
        pairs = [pair for pair in zip(*sides, strict=True) if known.keys() >= set(pair)]
        first, second = ([pair[place] for pair in pairs] for place in (0, 1))
    if not first or not second:
        return not_run({cell.method for cell in cells if cell not in known})
    # Scales may have other numbers of seeds; the first seeds are those of all.
    fewest = min(map(len, known.values()))
    known = {cell: scores[:fewest] for cell, scores in known.items()}
    upper, lower = (np.stack([known[cell] for cell in side]) for side in (first, second))
    if np.isnan([*upper, *lower]).all(axis=1).any():
        return not_run(["test examples of such facts"])
    means = [[f"{cell} {known[cell].mean():.2f}" for cell in side] for side in (first, second)]
    numbers = "; ".join((*means[0], *means[1]))
    if ordering.rule == "each":
        holds = np.all(upper > lower, axis=0)
        numbers = "; ".join(map(", ".join, zip(*means, strict=True)))
    elif ordering.rule == "mean":
        holds = upper.mean(axis=0) > lower.mean(axis=0)
        numbers = f"{upper.mean():.2f} against {lower.mean():.2f}"
    else:
        holds = upper.min(axis=0) > lower.max(axis=0)
    return Verdict(holds, numbers)


CLAIMS = tuple(
    Claim(
        f"{ordering.text} (paper: {ordering.in_paper})",
        ordering.columns,
        partial(ordering_verdict, ordering),
    )
    for ordering in ORDERINGS
)


def findings(values: report.Values) -> list[Finding]:
    """Return the claims about the benchmarks that ran, checked."""
    return [claim.check(values) for claim in CLAIMS if values.keys() >= set(claim.requirements)]


def experiment(
    config: PaperConfig, folder: RunFolder, options: PaperOptions
) -> Experiment[report.FactsData]:
    """Return both splits of every scale with the paper's methods."""
    load = pictured_facts(config.data, config.network.side, options.seed)
    learned, baselines, benchmarks, jobs = {}, {}, {}, []
    tasks = {name: scale.scale.tasks for name, scale in config.scales.items()}
    splits = config.data.splits
    for scale_name in tasks if splits is None else published_scales(splits, tasks):
        scale = config.scales[scale_name]
        check_methods(scale.methods, PAPER_METHODS)
        learned[scale_name], seeds = load(scale.scale.size), config.seeds or scale.seeds
        facts_config = scale_config(config, scale_name)
        inputs = inputs_of(facts_config.features, learned[scale_name].images, options.runs)
        by_split = fact_benchmarks(facts_config, learned[scale_name], inputs)
        columns = {
            f"{scale_name}, {split}": bench._replace(prefix=scale_name)
            for split, bench in by_split.items()
        }
        seq_ids = [SequenceId("evaluation", options.seed, number) for number in range(seeds)]
        baselines |= report.baselines_of(learned[scale_name], columns, seq_ids)
        benchmarks |= columns
        jobs += [
            Job(column, middle_values(benchmark, PAPER_METHODS[name], scale.hyperparameters), seeds)
            for name in scale.methods
            for column, benchmark in columns.items()
        ]
    sizes = [f"{scale_name}: {pictured.sizes}" for scale_name, pictured in learned.items()]
    sizes += [f"{name}: left out, there is no such split" for name in tasks.keys() - learned]
    note = "; ".join(sizes)
    benchmarks = {
        column: bench._replace(data=bench.data._replace(note=note))
        for column, bench in benchmarks.items()
    }
    return Experiment(benchmarks, jobs, data=report.FactsData(learned, baselines))


def middle_values(benchmark: Benchmark, method: Method, count: int) -> Method:
    """Return a method with a number of values from the middle of its grid."""
    method = method_on(benchmark, method)
    grid = method.hyperparameters
    first = max(0, len(grid) // 2 - count // 2)
    return method._replace(hyperparameters=grid[first : first + count])


def summary_rows(results: Results[PaperConfig, report.FactsData]) -> list[tuple[str, str]]:
    """Return a description of the images and word vectors, and the number of seeds."""
    config, experiment = results.config, results.experiment
    learned = experiment.data.learned
    seeds = {results.benchmarks[job.column].prefix: job.seeds for job in experiment.jobs}
    named = ", ".join(f"{scale_name}: {count}" for scale_name, count in seeds.items())
    return [
        ("Pixels", f"{config.network.side}×{config.network.side}, {config.data.pixels}"),
        (
            "Word vectors",
            vectors_note([pictured.split_facts.words for pictured in learned.values()]),
        ),
        ("Seeds of each benchmark", f"{named}; all seeds share the splits"),
    ]


PAPER = Paper(
    "facts",
    CITATION,
    lambda config: f"Lifelong fact learning: {config.data.title}",
    PAPER_PRESETS,
    experiment,
    report.fact_sections,
    summary_rows,
    rule=lambda config: (
        "The network after the last epoch is evaluated. Each hyper-parameter has the value with "
        "the highest generalised Top-5 on a held-out tenth of the training scenes, with a "
        "validation seed."
    ),
    arrays=lambda results: {
        f"{column}/{name}/{metric}": value
        for column, by_name in results.experiment.data.baselines.items()
        for name, metrics in by_name.items()
        for metric, value in metrics.items()
    },
    findings=lambda results: findings(report.values_of(results)),
    findings_source="Top-5 over examples in percent, gains relative to the semantic split, BWT as "
    "a difference of fractions; in brackets, how far the paper's own tables bear a claim out.",
    check_changed=PaperConfig.check_changed,
)
