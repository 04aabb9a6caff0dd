"""The paper's findings and experiment; `report.py` has its numbers and tables."""

from collections.abc import Sequence
from functools import partial

import numpy as np
from jaxtyping import Bool, Float

from everlight.continual.method import Method
from everlight.metrics.fact_scores import BACKWARD, GENERALISED
from everlight_data.facts.divided import SPLITS
from everlight_data.facts.pictured import pictured_facts
from everlight_data.facts.published import published_scales
from everlight_data.facts.published_claims import CLAIMS, GAIN, Claim, Quantity
from everlight_data.facts.word_vectors import vectors_note
from everlight_experiments.continual.benchmark import Benchmark, Draw
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
from everlight_experiments.continual.train import Job
from everlight_experiments.facts.benchmark import fact_benchmarks
from everlight_experiments.facts.config import (
    PAPER_METHODS,
    PAPER_PRESETS,
    PaperConfig,
    scale_config,
)
from everlight_experiments.facts.report import (
    PartData,
    Values,
    baselines_of,
    fact_sections,
    values_of,
)
from everlight_experiments.report.writer import Section
from everlight_experiments.run_folder.folder import RunFolder
from everlight_experiments.run_folder.settings import check_methods

CITATION = 'Elhoseiny et al. 2018, "Exploring the Challenges towards Lifelong Fact Learning"'


def value_of(quantity: Quantity, values: Values) -> Float[np.ndarray, "seeds"]:
    """Return a quantity of every seed, in percent but for transfer and gain."""
    if quantity.metric == GAIN:
        accuracy = quantity._replace(metric=GENERALISED)
        both = [value_of(accuracy._replace(split=split), values) for split in SPLITS]
        return both[0] / np.maximum(both[1], 1e-7) - 1
    found = values[quantity.column][quantity.method][quantity.metric]
    scale = 1 if quantity.metric == BACKWARD else 100
    return scale * (found if found.ndim == 1 else found[:, -1])


def findings(values: Values) -> list[Finding]:
    """Return the claims about the benchmarks that ran."""
    return [
        finding(claim, values)
        for claim in CLAIMS
        if {each.column for each in (*claim.first, *claim.second)} <= values.keys()
    ]


def finding(claim: Claim, values: Values) -> Finding:
    """Return a claim about the methods that ran."""

    def ran(quantity: Quantity) -> bool:
        return quantity.method in values[quantity.column]

    sides = [tuple(filter(ran, side)) for side in (claim.first, claim.second)]
    if claim.how == "each":
        pairs = [p for p in zip(claim.first, claim.second, strict=True) if all(map(ran, p))]
        sides = list(zip(*pairs, strict=True)) or [(), ()]
    text, every = f"{claim.text} (paper: {claim.in_paper})", (*claim.first, *claim.second)
    if not all(sides):
        missing = {each.method for each in every if not ran(each)}
        return Finding(text, frozenset(missing), lambda _: (np.zeros(0, bool), ""))
    upper, lower = (np.stack([value_of(each, values) for each in side]) for side in sides)
    if np.isnan([*upper, *lower]).all(axis=1).any():
        return Finding(text, frozenset(["test examples of such facts"]), lambda _: None)
    holds = _holds(claim.how, upper, lower)
    return Finding(text, frozenset(), lambda _: (holds, _numbers(claim.how, sides, values)))


def _holds(
    how: str, first: Float[np.ndarray, "a seeds"], second: Float[np.ndarray, "b seeds"]
) -> Bool[np.ndarray, "seeds"]:
    if how == "each":
        return np.all(first > second, axis=0)
    if how == "mean":
        return first.mean(axis=0) > second.mean(axis=0)
    return first.min(axis=0) > second.max(axis=0)


def _numbers(how: str, sides: Sequence[Sequence[Quantity]], values: Values) -> str:
    """Return the means of both sides in words."""
    if how == "mean":
        means = (np.mean([value_of(each, values) for each in side]) for side in sides)
        return " against ".join(f"{mean:.2f}" for mean in means)
    named = [[f"{each} {value_of(each, values).mean():.2f}" for each in side] for side in sides]
    if how == "each":
        return "; ".join(map(", ".join, zip(*named, strict=True)))
    return "; ".join([*named[0], *named[1]])


def experiment(config: PaperConfig, folder: RunFolder, options: PaperOptions) -> Experiment:
    """Return both splits of every scale with the paper's methods.

    Raises:
      DataError: data, methods or options that cannot be used.
    """
    load = pictured_facts(config.data, config.network.side, options.seed)
    parts, benchmarks, jobs = {}, {}, []
    tasks = {name: each.scale.tasks for name, each in config.scales.items()}
    splits = config.data.splits
    for part in tasks if splits is None else published_scales(splits, tasks):
        scale = config.scales[part]
        check_methods(scale.methods, PAPER_METHODS)
        learned, seeds = load(scale.scale.size), config.seeds or scale.seeds
        by_split = fact_benchmarks(scale_config(config, part), learned)
        draws = [Draw("evaluation", options.seed, number) for number in range(seeds)]
        baselines = baselines_of(learned, by_split, draws)
        parts[part] = PartData(learned, baselines, seeds)
        columns = {f"{part}, {name}": each._replace(part=part) for name, each in by_split.items()}
        benchmarks |= columns
        jobs += [
            Job(column, middle_values(benchmark, PAPER_METHODS[name], scale.hyperparameters), seeds)
            for name in scale.methods
            for column, benchmark in columns.items()
        ]
    sizes = [f"{part}: {each.learned.sizes}" for part, each in parts.items()]
    sizes += [f"{name}: left out, there is no such split" for name in config.scales.keys() - parts]
    benchmarks = {name: each._replace(note="; ".join(sizes)) for name, each in benchmarks.items()}
    return Experiment(benchmarks, jobs, data=parts)


def middle_values(benchmark: Benchmark, method: Method, count: int) -> Method:
    """Return a method with a number of values from the middle of its grid."""
    grid = benchmark.row(method).hyperparameters
    first = max(0, len(grid) // 2 - count // 2)
    return method._replace(hyperparameters=grid[first : first + count])


def summary(results: Results) -> list[tuple[str, str]]:
    """Return what the images and word vectors are."""
    source, parts = results.config.data, results.experiment.data
    vectors = vectors_note([each.learned.divided.words for each in parts.values()])
    side = results.config.network.side
    seeds = ", ".join(f"{part}: {each.seeds}" for part, each in parts.items())
    return [
        ("Pixels", f"{side}×{side}, {source.pixels}"),
        ("Word vectors", vectors),
        ("Seeds of each benchmark", f"{seeds}; all seeds share the splits"),
    ]


def baseline_arrays(results: Results) -> dict[str, np.ndarray]:
    """Return the metrics of the baselines as `column/name/metric`."""
    return {
        f"{part}, {split}/{name}/{metric}": value
        for part, each in results.experiment.data.items()
        for split, by_name in each.baselines.items()
        for name, metrics in by_name.items()
        for metric, value in metrics.items()
    }


def sections(results: Results) -> list[Section]:
    """Return the findings, then tables and examples."""
    source = (
        "Top-5 over examples in percent, gains relative to the semantic split, BWT as a difference "
        "of fractions; in brackets, how far the paper's own tables bear a claim out."
    )
    found = findings_section(findings(values_of(results)), {}, source)
    return [found, *fact_sections(results)]


PAPER = Paper(
    "facts",
    CITATION,
    lambda config: f"Lifelong fact learning: {config.data.title}",
    PAPER_PRESETS,
    experiment,
    sections,
    summary,
    rule="The network after the last epoch is evaluated. Each hyper-parameter has the value "
    "with the highest generalised Top-5 on a held-out tenth of the training scenes, with a "
    "validation seed.",
    arrays=baseline_arrays,
)
run = partial(run_paper, PAPER)
options = partial(paper_options, PAPER)
