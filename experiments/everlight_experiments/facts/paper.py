"""The paper's findings and experiment; `report.py` has its numbers and tables."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from everlight.continual.method import Method
from everlight_data.errors import MissingDataError
from everlight_data.facts.divided import SPLITS
from everlight_data.facts.pictured import pictured_facts
from everlight_data.facts.published import are_published, split_folders
from everlight_experiments.common.report import Section
from everlight_experiments.common.run_folder import RunFolder
from everlight_experiments.common.settings import check_methods
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
from everlight_experiments.facts.benchmark import (
    BACKWARD,
    DROP,
    FEW_SHOT,
    GENERALISED,
    OVER_TASKS,
    STANDARD,
    fact_benchmarks,
)
from everlight_experiments.facts.config import (
    PAPER_METHODS,
    PAPER_PRESETS,
    TABLES,
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

CITATION = 'Elhoseiny et al. 2018, "Exploring the Challenges towards Lifelong Fact Learning"'
NAMED_WORDS = 20
"""Largest number of words without a vector that the report names."""
PARTS = MID, LARGE = "mid-scale", "large-scale"
GAIN, RARE = "gain", OVER_TASKS.format(FEW_SHOT)
LIFELONG, OTHERS = TABLES[:-1], TABLES[1:-1]
SINGLE, PENALTIES = ("IMM mode", "SI", "MAS"), ("SI", "MAS")


class Quantity(NamedTuple):
    """A number for every seed; accuracies are Top-5 over examples after the last task."""

    part: str
    split: str
    method: str
    metric: str = GENERALISED

    @property
    def column(self) -> str:
        """Name of the benchmark among those of the run."""
        return f"{self.part}, {self.split}"

    def __str__(self) -> str:
        metric = "" if self.metric == GENERALISED else f", {self.metric}"
        return f"{self.method} ({self.split}{metric})"

    def of(self, values: Values) -> Float[np.ndarray, "seeds"]:
        """Return the number of every seed, in percent but for transfer and gain."""
        if self.metric == GAIN:
            both = [Quantity(self.part, split, self.method).of(values) for split in SPLITS]
            return both[0] / np.maximum(both[1], 1e-7) - 1
        found = values[self.column][self.method][self.metric]
        scale = 1 if self.metric == BACKWARD else 100
        return scale * (found if found.ndim == 1 else found[:, -1])


class Claim(NamedTuple):
    """A claim that the first quantities are above the second ones."""

    text: str
    first: tuple[Quantity, ...]
    second: tuple[Quantity, ...]
    how: str
    """all: the lowest above the highest; each: each above its partner; mean: mean above mean."""
    in_paper: str
    """How far the paper's own tables bear it out."""


class Side(NamedTuple):
    """Methods on a split, by one metric."""

    split: str
    methods: Sequence[str]
    metric: str = GENERALISED

    def of(self, part: str) -> tuple[Quantity, ...]:
        """Return the quantities of one of the paper's benchmarks."""
        return tuple(Quantity(part, self.split, name, self.metric) for name in self.methods)


GATE, NAIVE, IMM, MAS = ("ExpertGate",), ("finetune",), ("IMM mode",), ("MAS",)
HOLDS, NOT_GIVEN = ("holds", "holds"), "not given"
# Claim; the side that is above and the side below; how; mid-scale and large-scale in the paper,
# None where it does not claim that.
STATED: list[tuple[str, Side, Side, str, tuple[str | None, str | None]]] = [
    (
        "(2) the random split is above the semantic one for every lifelong method but ExpertGate",
        *(Side("random", OTHERS), Side("semantic", OTHERS), "each", HOLDS),
    ),
    (
        "(2) ExpertGate gains least by the random split (relative)",
        *(Side("random", OTHERS, GAIN), Side("random", GATE, GAIN), "all"),
        ("holds: it loses 16%", "holds: 3%"),
    ),
    (
        "(3) semantic: ExpertGate is the best lifelong method",
        *(Side("semantic", GATE), Side("semantic", OTHERS), "all", HOLDS),
    ),
    (
        "(3) random: ExpertGate is below IMM, SI and MAS",
        *(Side("random", SINGLE), Side("random", GATE), "all"),
        ("holds; finetune is lower still", "holds; the lowest of all"),
    ),
    (
        "random: IMM, SI and MAS are above finetune",
        *(Side("random", SINGLE), Side("random", NAIVE), "all", HOLDS),
    ),
    (
        "semantic: finetune is above SI and MAS",
        *(Side("semantic", NAIVE), Side("semantic", PENALTIES), "all"),
        ("holds, against what they are for",) * 2,
    ),
    (
        "less is forgotten on the random split (BWT), by finetune, SI and MAS",
        *(Side(split, (*NAIVE, *PENALTIES), BACKWARD) for split in SPLITS),
        *("each", (NOT_GIVEN, "not for MAS: -0.22 against -0.20")),
    ),
    (
        "semantic: finetune is best on few-shot facts (mean over tasks)",
        *(Side("semantic", NAIVE, RARE), Side("semantic", (*GATE, *SINGLE), RARE), "all"),
        (NOT_GIVEN, "holds; on the random split MAS, 3.33 against 3.16"),
    ),
    (
        "(1) random: generalised is below standard for every method",
        *(Side("random", TABLES, STANDARD), Side("random", TABLES), "each"),
        ("holds", "holds; no joint"),
    ),
    (
        "(1) semantic: generalised is below standard for every method",
        *(Side("semantic", TABLES, STANDARD), Side("semantic", TABLES), "each", HOLDS),
    ),
    (
        "random: ExpertGate's drop is the smallest of the lifelong methods",
        *(Side("random", OTHERS, DROP), Side("random", GATE, DROP), "all"),
        ("not so: 21.2, IMM 19.4", "holds"),
    ),
    (
        "semantic: ExpertGate's drop is the smallest of the lifelong methods",
        *(Side("semantic", OTHERS, DROP), Side("semantic", GATE, DROP), "all", HOLDS),
    ),
    (
        "random: joint's drop is smaller still",
        *(Side("random", GATE, DROP), Side("random", ("joint",), DROP), "all"),
        ("holds", "no joint"),
    ),
    (
        "semantic: joint's drop is smaller still",
        *(Side("semantic", GATE, DROP), Side("semantic", ("joint",), DROP), "all", HOLDS),
    ),
    (
        "(4) random: IMM is the best single model",
        *(Side("random", IMM), Side("random", (*NAIVE, *PENALTIES)), "all"),
        ("holds", None),
    ),
    (
        "(4) semantic: IMM is the best single model",
        *(Side("semantic", IMM), Side("semantic", (*NAIVE, *PENALTIES)), "all"),
        ("holds", None),
    ),
    (
        "(4) random, standard: MAS is above IMM",
        *(Side("random", MAS, STANDARD), Side("random", IMM, STANDARD), "all"),
        ("holds, by 1.5", None),
    ),
    (
        "(4) random: MAS is above IMM",
        *(Side("random", MAS), Side("random", IMM), "all", (None, "holds")),
    ),
    (
        "(4) semantic: MAS is above IMM",
        *(Side("semantic", MAS), Side("semantic", IMM), "all"),
        (None, "holds; over tasks IMM is above, 7.9 against 7.7"),
    ),
]
MEAN_DROP = "(1) The drop is larger on mid-scale than on large-scale (mean of lifelong methods)"
CLAIMS = [
    Claim(f"{part}: {text}", first.of(part), second.of(part), how, in_paper[place])
    for place, part in enumerate(PARTS)
    for text, first, second, how, in_paper in STATED
    if in_paper[place] is not None
]
DROPS = (
    [each for split in SPLITS for each in Side(split, LIFELONG, DROP).of(part)] for part in PARTS
)
CLAIMS.append(Claim(MEAN_DROP, *map(tuple, DROPS), "mean", "holds"))


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

    first, second = (tuple(filter(ran, side)) for side in (claim.first, claim.second))
    if claim.how == "each":
        pairs = [p for p in zip(claim.first, claim.second, strict=True) if all(map(ran, p))]
        first, second = (tuple(pair[side] for pair in pairs) for side in (0, 1))
    text, every = f"{claim.text} (paper: {claim.in_paper})", (*claim.first, *claim.second)
    if not first or not second:
        missing = {each.method for each in every if not ran(each)}
        return Finding(text, frozenset(missing), lambda _: (np.zeros(0, bool), ""))
    upper, lower = (np.stack([each.of(values) for each in side]) for side in (first, second))
    if np.isnan([*upper, *lower]).all(axis=1).any():
        return Finding(text, frozenset(["test examples of such facts"]), lambda _: None)
    holds = _holds(claim.how, upper, lower)
    return Finding(text, frozenset(), lambda _: (holds, _numbers(claim.how, first, second, values)))


def _holds(
    how: str, first: Float[np.ndarray, "a seeds"], second: Float[np.ndarray, "b seeds"]
) -> Bool[np.ndarray, "seeds"]:
    if how == "each":
        return np.all(first > second, axis=0)
    if how == "mean":
        return first.mean(axis=0) > second.mean(axis=0)
    return first.min(axis=0) > second.max(axis=0)


def _numbers(
    how: str, first: Sequence[Quantity], second: Sequence[Quantity], values: Values
) -> str:
    """Return the means of both sides in words."""
    if how == "mean":
        means = (np.mean([each.of(values) for each in side]) for side in (first, second))
        return " against ".join(f"{mean:.2f}" for mean in means)
    named = [[f"{each} {each.of(values).mean():.2f}" for each in side] for side in (first, second)]
    if how == "each":
        return "; ".join(map(", ".join, zip(*named, strict=True)))
    return "; ".join([*named[0], *named[1]])


def experiment(config: PaperConfig, folder: RunFolder, options: PaperOptions) -> Experiment:
    """Return both splits of every scale with the paper's methods.

    Raises:
      DataError: data, methods or options that cannot be used.
    """
    load = pictured_facts(config.data.source, config.network.side, options.seed)
    parts, benchmarks, jobs, units = {}, {}, [], {}
    for part in scales_of(config):
        scale = config.scales[part]
        check_methods(scale.methods, PAPER_METHODS)
        learned, seeds = load(scale.scale.size), config.seeds or scale.seeds
        splits = fact_benchmarks(scale_config(config, part), learned)
        draws = [Draw("evaluation", options.seed, number) for number in range(seeds)]
        baselines = baselines_of(learned.divided, learned.shown, splits, draws)
        parts[part] = PartData(learned, baselines, seeds)
        columns = {f"{part}, {split}": benchmark for split, benchmark in splits.items()}
        benchmarks |= columns
        units |= dict.fromkeys(columns, part)
        jobs += [
            Job(column, middle_values(benchmark, PAPER_METHODS[name], scale.hyperparameters), seeds)
            for name in scale.methods
            for column, benchmark in columns.items()
        ]
    sizes = [f"{part}: {each.learned.sizes}" for part, each in parts.items()]
    sizes += [f"{name}: left out, there is no such split" for name in config.scales.keys() - parts]
    benchmarks = {name: each._replace(note="; ".join(sizes)) for name, each in benchmarks.items()}
    return Experiment(benchmarks, jobs, units, data=parts)


def scales_of(config: PaperConfig) -> list[str]:
    """Return the scales that the data have.

    Raises:
      MissingDataError: the authors' files have none.
    """
    splits = config.data.splits
    if splits is None:
        return list(config.scales)
    scales = config.scales.items()
    found = [name for name, each in scales if are_published(splits, each.scale.tasks)]
    if not found:
        name, each = next(iter(scales))
        needed = " and ".join(map(str, split_folders(splits, each.scale.tasks).values()))
        raise MissingDataError(f"{needed}: {name} needs both, and the others' are missing too")
    return found


def middle_values(benchmark: Benchmark, method: Method, count: int) -> Method:
    """Return a method with a number of values from the middle of its grid."""
    grid = benchmark.row(method).hyperparameters
    first = max(0, len(grid) // 2 - count // 2)
    return method._replace(hyperparameters=grid[first : first + count])


def summary(results: Results) -> list[tuple[str, str]]:
    """Return what the images and word vectors are."""
    data, parts = results.config.data, results.experiment.data
    if data.splits is not None:
        pixels = "centres of the photographs"
    elif data.photographs is not None:
        pixels = "squares around annotated boxes, taken from the photographs"
    else:
        pixels = (
            "rendered from the annotated boxes, no photographs: a category is an outline, a "
            "texture and a palette, so no number here is about natural images"
        )
    words = [each.learned.divided.words for each in parts.values()]
    unknown = sorted({word for each in words for word in each.unknown})
    vectors = words[0].source
    if unknown:
        more = ", ..." if len(unknown) > NAMED_WORDS else ""
        vectors += f"; {len(unknown)} words without one count as zeros: "
        vectors += ", ".join(unknown[:NAMED_WORDS]) + more
    side = results.config.network.side
    seeds = ", ".join(f"{part}: {each.seeds}" for part, each in parts.items())
    return [
        ("Pixels", f"{side}×{side}, {pixels}"),
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


def title(config: PaperConfig) -> str:
    """Return the report's title."""
    data = config.data
    name = f"the splits in {data.splits.name}" if data.splits else data.data
    kind = "rendered images" if data.photographs is None else "photographs"
    return f"Lifelong fact learning: {name}, {kind}"


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
    title,
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
