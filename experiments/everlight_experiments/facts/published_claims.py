"""Claims of the paper on lifelong fact learning, and how far its own tables bear them out.

Elhoseiny et al. 2018, sections 5 and 6 and the supplement; numbers in brackets are the paper's.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from everlight.metrics.fact_scores import (
    BACKWARD,
    DROP,
    FEW_SHOT,
    GENERALISED,
    OVER_TASKS,
    STANDARD,
)
from everlight_data.facts.splits.fact_splits import SPLITS
from everlight_experiments.facts.published_tables import TABLES

SCALES = MID, LARGE = "mid-scale", "large-scale"
GAIN, RARE = "gain", OVER_TASKS.format(FEW_SHOT)
"""Metrics: gain by the random split, relative to the semantic one; few-shot accuracy."""
LIFELONG, OTHERS = TABLES[:-1], TABLES[1:-1]
SINGLE, PENALTIES = ("IMM mode", "SI", "MAS"), ("SI", "MAS")


class Quantity(NamedTuple):
    """A number for every seed; accuracies are Top-5 over examples after the last task."""

    scale: str
    """Benchmark of the paper, one of `SCALES`."""
    split: str
    method: str
    metric: str = GENERALISED

    @property
    def column(self) -> str:
        """Name of the benchmark with its split."""
        return f"{self.scale}, {self.split}"

    def __str__(self) -> str:
        metric = "" if self.metric == GENERALISED else f", {self.metric}"
        return f"{self.method} ({self.split}{metric})"


class Ordering(NamedTuple):
    """The order of quantities that a claim states: the first are above the second."""

    text: str
    first: tuple[Quantity, ...]
    second: tuple[Quantity, ...]
    rule: str
    """all: the lowest above the highest; each: each above its partner; mean: mean above mean."""
    in_paper: str
    """Support of the claim by the paper's own tables."""

    @property
    def columns(self) -> tuple[str, ...]:
        """Names of the benchmarks with these quantities, each once."""
        return tuple({quantity.column: None for quantity in (*self.first, *self.second)})


class MethodGroup(NamedTuple):
    """Methods on a split, by one metric."""

    split: str
    methods: Sequence[str]
    metric: str = GENERALISED

    def quantities(self, scale: str) -> tuple[Quantity, ...]:
        """Return the quantities of one of the paper's benchmarks."""
        return tuple(Quantity(scale, self.split, name, self.metric) for name in self.methods)


class ClaimTemplate(NamedTuple):
    """A claim that one group is above another, which is made of each of the paper's benchmarks."""

    above: MethodGroup
    below: MethodGroup
    rule: str = "all"
    """Rule of the comparison, one of those of `Ordering`."""
    in_paper: tuple[str | None, str | None] = ("holds", "holds")
    """Support by the paper's mid-scale and large-scale tables; None without a claim."""


GATE, NAIVE, IMM, MAS = ("ExpertGate",), ("finetune",), ("IMM mode",), ("MAS",)
NOT_GIVEN = "not given"
TEMPLATES: Mapping[str, ClaimTemplate] = {
    "(2) the random split is above the semantic one for every lifelong method but "
    "ExpertGate": ClaimTemplate(
        MethodGroup("random", OTHERS), MethodGroup("semantic", OTHERS), rule="each"
    ),
    "(2) ExpertGate gains least by the random split (relative)": ClaimTemplate(
        MethodGroup("random", OTHERS, GAIN),
        MethodGroup("random", GATE, GAIN),
        in_paper=("holds: it loses 16%", "holds: 3%"),
    ),
    "(3) semantic: ExpertGate is the best lifelong method": ClaimTemplate(
        MethodGroup("semantic", GATE), MethodGroup("semantic", OTHERS)
    ),
    "(3) random: ExpertGate is below IMM, SI and MAS": ClaimTemplate(
        MethodGroup("random", SINGLE),
        MethodGroup("random", GATE),
        in_paper=("holds; finetune is lower still", "holds; the lowest of all"),
    ),
    "random: IMM, SI and MAS are above finetune": ClaimTemplate(
        MethodGroup("random", SINGLE), MethodGroup("random", NAIVE)
    ),
    "semantic: finetune is above SI and MAS": ClaimTemplate(
        MethodGroup("semantic", NAIVE),
        MethodGroup("semantic", PENALTIES),
        in_paper=("holds, against what they are for",) * 2,
    ),
    "less is forgotten on the random split (BWT), by finetune, SI and MAS": ClaimTemplate(
        MethodGroup("random", (*NAIVE, *PENALTIES), BACKWARD),
        MethodGroup("semantic", (*NAIVE, *PENALTIES), BACKWARD),
        rule="each",
        in_paper=(NOT_GIVEN, "not for MAS: -0.22 against -0.20"),
    ),
    "semantic: finetune is best on few-shot facts (mean over tasks)": ClaimTemplate(
        MethodGroup("semantic", NAIVE, RARE),
        MethodGroup("semantic", (*GATE, *SINGLE), RARE),
        in_paper=(NOT_GIVEN, "holds; on the random split MAS, 3.33 against 3.16"),
    ),
    "(1) random: generalised is below standard for every method": ClaimTemplate(
        MethodGroup("random", TABLES, STANDARD),
        MethodGroup("random", TABLES),
        rule="each",
        in_paper=("holds", "holds; no joint"),
    ),
    "(1) semantic: generalised is below standard for every method": ClaimTemplate(
        MethodGroup("semantic", TABLES, STANDARD), MethodGroup("semantic", TABLES), rule="each"
    ),
    "random: ExpertGate's drop is the smallest of the lifelong methods": ClaimTemplate(
        MethodGroup("random", OTHERS, DROP),
        MethodGroup("random", GATE, DROP),
        in_paper=("not so: 21.2, IMM 19.4", "holds"),
    ),
    "semantic: ExpertGate's drop is the smallest of the lifelong methods": ClaimTemplate(
        MethodGroup("semantic", OTHERS, DROP), MethodGroup("semantic", GATE, DROP)
    ),
    "random: joint's drop is smaller still": ClaimTemplate(
        MethodGroup("random", GATE, DROP),
        MethodGroup("random", ("joint",), DROP),
        in_paper=("holds", "no joint"),
    ),
    "semantic: joint's drop is smaller still": ClaimTemplate(
        MethodGroup("semantic", GATE, DROP), MethodGroup("semantic", ("joint",), DROP)
    ),
    "(4) random: IMM is the best single model": ClaimTemplate(
        MethodGroup("random", IMM),
        MethodGroup("random", (*NAIVE, *PENALTIES)),
        in_paper=("holds", None),
    ),
    "(4) semantic: IMM is the best single model": ClaimTemplate(
        MethodGroup("semantic", IMM),
        MethodGroup("semantic", (*NAIVE, *PENALTIES)),
        in_paper=("holds", None),
    ),
    "(4) random, standard: MAS is above IMM": ClaimTemplate(
        MethodGroup("random", MAS, STANDARD),
        MethodGroup("random", IMM, STANDARD),
        in_paper=("holds, by 1.5", None),
    ),
    "(4) random: MAS is above IMM": ClaimTemplate(
        MethodGroup("random", MAS), MethodGroup("random", IMM), in_paper=(None, "holds")
    ),
    "(4) semantic: MAS is above IMM": ClaimTemplate(
        MethodGroup("semantic", MAS),
        MethodGroup("semantic", IMM),
        in_paper=(None, "holds; over tasks IMM is above, 7.9 against 7.7"),
    ),
}
"""Claims by their text."""
MEAN_DROP = "(1) The drop is larger on mid-scale than on large-scale (mean of lifelong methods)"


def _mean_drops(scale: str) -> tuple[Quantity, ...]:
    """Return the drops of the lifelong methods on both splits."""
    return tuple(
        row for split in SPLITS for row in MethodGroup(split, LIFELONG, DROP).quantities(scale)
    )


ORDERINGS = [
    Ordering(
        f"{scale}: {text}",
        first=template.above.quantities(scale),
        second=template.below.quantities(scale),
        rule=template.rule,
        in_paper=in_paper,
    )
    for place, scale in enumerate(SCALES)
    for text, template in TEMPLATES.items()
    if (in_paper := template.in_paper[place]) is not None
]
ORDERINGS.append(
    Ordering(MEAN_DROP, _mean_drops(MID), _mean_drops(LARGE), rule="mean", in_paper="holds")
)
