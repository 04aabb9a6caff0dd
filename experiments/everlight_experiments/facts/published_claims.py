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


class Claim(NamedTuple):
    """A claim that the first quantities are above the second ones."""

    text: str
    first: tuple[Quantity, ...]
    second: tuple[Quantity, ...]
    rule: str
    """all: the lowest above the highest; each: each above its partner; mean: mean above mean."""
    in_paper: str
    """Support of the claim by the paper's own tables."""


class Side(NamedTuple):
    """Methods on a split, by one metric."""

    split: str
    methods: Sequence[str]
    metric: str = GENERALISED

    def of(self, scale: str) -> tuple[Quantity, ...]:
        """Return the quantities of one of the paper's benchmarks."""
        return tuple(Quantity(scale, self.split, name, self.metric) for name in self.methods)


class Stated(NamedTuple):
    """A claim that one side is above another on the paper's benchmarks."""

    above: Side
    below: Side
    rule: str = "all"
    """Rule of the comparison, one of those of `Claim`."""
    in_paper: tuple[str | None, str | None] = ("holds", "holds")
    """Support by the paper's mid-scale and large-scale tables; None without a claim."""


GATE, NAIVE, IMM, MAS = ("ExpertGate",), ("finetune",), ("IMM mode",), ("MAS",)
NOT_GIVEN = "not given"
STATED: Mapping[str, Stated] = {
    "(2) the random split is above the semantic one for every lifelong method but "
    "ExpertGate": Stated(Side("random", OTHERS), Side("semantic", OTHERS), rule="each"),
    "(2) ExpertGate gains least by the random split (relative)": Stated(
        Side("random", OTHERS, GAIN),
        Side("random", GATE, GAIN),
        in_paper=("holds: it loses 16%", "holds: 3%"),
    ),
    "(3) semantic: ExpertGate is the best lifelong method": Stated(
        Side("semantic", GATE), Side("semantic", OTHERS)
    ),
    "(3) random: ExpertGate is below IMM, SI and MAS": Stated(
        Side("random", SINGLE),
        Side("random", GATE),
        in_paper=("holds; finetune is lower still", "holds; the lowest of all"),
    ),
    "random: IMM, SI and MAS are above finetune": Stated(
        Side("random", SINGLE), Side("random", NAIVE)
    ),
    "semantic: finetune is above SI and MAS": Stated(
        Side("semantic", NAIVE),
        Side("semantic", PENALTIES),
        in_paper=("holds, against what they are for",) * 2,
    ),
    "less is forgotten on the random split (BWT), by finetune, SI and MAS": Stated(
        Side("random", (*NAIVE, *PENALTIES), BACKWARD),
        Side("semantic", (*NAIVE, *PENALTIES), BACKWARD),
        rule="each",
        in_paper=(NOT_GIVEN, "not for MAS: -0.22 against -0.20"),
    ),
    "semantic: finetune is best on few-shot facts (mean over tasks)": Stated(
        Side("semantic", NAIVE, RARE),
        Side("semantic", (*GATE, *SINGLE), RARE),
        in_paper=(NOT_GIVEN, "holds; on the random split MAS, 3.33 against 3.16"),
    ),
    "(1) random: generalised is below standard for every method": Stated(
        Side("random", TABLES, STANDARD),
        Side("random", TABLES),
        rule="each",
        in_paper=("holds", "holds; no joint"),
    ),
    "(1) semantic: generalised is below standard for every method": Stated(
        Side("semantic", TABLES, STANDARD), Side("semantic", TABLES), rule="each"
    ),
    "random: ExpertGate's drop is the smallest of the lifelong methods": Stated(
        Side("random", OTHERS, DROP),
        Side("random", GATE, DROP),
        in_paper=("not so: 21.2, IMM 19.4", "holds"),
    ),
    "semantic: ExpertGate's drop is the smallest of the lifelong methods": Stated(
        Side("semantic", OTHERS, DROP), Side("semantic", GATE, DROP)
    ),
    "random: joint's drop is smaller still": Stated(
        Side("random", GATE, DROP), Side("random", ("joint",), DROP), in_paper=("holds", "no joint")
    ),
    "semantic: joint's drop is smaller still": Stated(
        Side("semantic", GATE, DROP), Side("semantic", ("joint",), DROP)
    ),
    "(4) random: IMM is the best single model": Stated(
        Side("random", IMM), Side("random", (*NAIVE, *PENALTIES)), in_paper=("holds", None)
    ),
    "(4) semantic: IMM is the best single model": Stated(
        Side("semantic", IMM), Side("semantic", (*NAIVE, *PENALTIES)), in_paper=("holds", None)
    ),
    "(4) random, standard: MAS is above IMM": Stated(
        Side("random", MAS, STANDARD),
        Side("random", IMM, STANDARD),
        in_paper=("holds, by 1.5", None),
    ),
    "(4) random: MAS is above IMM": Stated(
        Side("random", MAS), Side("random", IMM), in_paper=(None, "holds")
    ),
    "(4) semantic: MAS is above IMM": Stated(
        Side("semantic", MAS),
        Side("semantic", IMM),
        in_paper=(None, "holds; over tasks IMM is above, 7.9 against 7.7"),
    ),
}
"""Claims by their text."""
MEAN_DROP = "(1) The drop is larger on mid-scale than on large-scale (mean of lifelong methods)"


def _mean_drops(scale: str) -> tuple[Quantity, ...]:
    """Return the drops of the lifelong methods on both splits."""
    return tuple(row for split in SPLITS for row in Side(split, LIFELONG, DROP).of(scale))


CLAIMS = [
    Claim(
        f"{scale}: {text}",
        first=stated.above.of(scale),
        second=stated.below.of(scale),
        rule=stated.rule,
        in_paper=in_paper,
    )
    for place, scale in enumerate(SCALES)
    for text, stated in STATED.items()
    if (in_paper := stated.in_paper[place]) is not None
]
CLAIMS.append(Claim(MEAN_DROP, _mean_drops(MID), _mean_drops(LARGE), "mean", in_paper="holds"))
