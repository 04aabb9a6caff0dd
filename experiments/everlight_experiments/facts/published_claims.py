"""Claims of the paper on lifelong fact learning, and how far its own tables bear them out.

Elhoseiny et al. 2018, sections 5 and 6 and the supplement; numbers in brackets are the paper's.
"""

from collections.abc import Sequence
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

PARTS = MID, LARGE = "mid-scale", "large-scale"
GAIN, RARE = "gain", OVER_TASKS.format(FEW_SHOT)
"""Metrics: gain by the random split, relative to the semantic one; few-shot accuracy."""
LIFELONG, OTHERS = TABLES[:-1], TABLES[1:-1]
SINGLE, PENALTIES = ("IMM mode", "SI", "MAS"), ("SI", "MAS")


class Quantity(NamedTuple):
    """A number for every seed; accuracies are Top-5 over examples after the last task."""

    part: str
    """Benchmark of the paper, one of `PARTS`."""
    split: str
    method: str
    metric: str = GENERALISED

    @property
    def column(self) -> str:
        """Name of the benchmark with its split."""
        return f"{self.part}, {self.split}"

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
    """How far the paper's own tables bear it out."""


class Side(NamedTuple):
    """Methods on a split, by one metric."""

    split: str
    methods: Sequence[str]
    metric: str = GENERALISED

    def of(self, part: str) -> tuple[Quantity, ...]:
        """Return the quantities of one of the paper's benchmarks."""
        return tuple(Quantity(part, self.split, name, self.metric) for name in self.methods)


class Stated(NamedTuple):
    """A claim that one side is above another on the paper's benchmarks."""

    text: str
    above: Side
    below: Side
    rule: str
    """Rule of the comparison, one of those of `Claim`."""
    in_paper: tuple[str | None, str | None]
    """How far the paper's mid-scale and large-scale tables bear it out; None without a claim."""


GATE, NAIVE, IMM, MAS = ("ExpertGate",), ("finetune",), ("IMM mode",), ("MAS",)
HOLDS, NOT_GIVEN = ("holds", "holds"), "not given"
STATED = (
    Stated(
        "(2) the random split is above the semantic one for every lifelong method but ExpertGate",
        above=Side("random", OTHERS),
        below=Side("semantic", OTHERS),
        rule="each",
        in_paper=HOLDS,
    ),
    Stated(
        "(2) ExpertGate gains least by the random split (relative)",
        above=Side("random", OTHERS, GAIN),
        below=Side("random", GATE, GAIN),
        rule="all",
        in_paper=("holds: it loses 16%", "holds: 3%"),
    ),
    Stated(
        "(3) semantic: ExpertGate is the best lifelong method",
        above=Side("semantic", GATE),
        below=Side("semantic", OTHERS),
        rule="all",
        in_paper=HOLDS,
    ),
    Stated(
        "(3) random: ExpertGate is below IMM, SI and MAS",
        above=Side("random", SINGLE),
        below=Side("random", GATE),
        rule="all",
        in_paper=("holds; finetune is lower still", "holds; the lowest of all"),
    ),
    Stated(
        "random: IMM, SI and MAS are above finetune",
        above=Side("random", SINGLE),
        below=Side("random", NAIVE),
        rule="all",
        in_paper=HOLDS,
    ),
    Stated(
        "semantic: finetune is above SI and MAS",
        above=Side("semantic", NAIVE),
        below=Side("semantic", PENALTIES),
        rule="all",
        in_paper=("holds, against what they are for",) * 2,
    ),
    Stated(
        "less is forgotten on the random split (BWT), by finetune, SI and MAS",
        above=Side("random", (*NAIVE, *PENALTIES), BACKWARD),
        below=Side("semantic", (*NAIVE, *PENALTIES), BACKWARD),
        rule="each",
        in_paper=(NOT_GIVEN, "not for MAS: -0.22 against -0.20"),
    ),
    Stated(
        "semantic: finetune is best on few-shot facts (mean over tasks)",
        above=Side("semantic", NAIVE, RARE),
        below=Side("semantic", (*GATE, *SINGLE), RARE),
        rule="all",
        in_paper=(NOT_GIVEN, "holds; on the random split MAS, 3.33 against 3.16"),
    ),
    Stated(
        "(1) random: generalised is below standard for every method",
        above=Side("random", TABLES, STANDARD),
        below=Side("random", TABLES),
        rule="each",
        in_paper=("holds", "holds; no joint"),
    ),
    Stated(
        "(1) semantic: generalised is below standard for every method",
        above=Side("semantic", TABLES, STANDARD),
        below=Side("semantic", TABLES),
        rule="each",
        in_paper=HOLDS,
    ),
    Stated(
        "random: ExpertGate's drop is the smallest of the lifelong methods",
        above=Side("random", OTHERS, DROP),
        below=Side("random", GATE, DROP),
        rule="all",
        in_paper=("not so: 21.2, IMM 19.4", "holds"),
    ),
    Stated(
        "semantic: ExpertGate's drop is the smallest of the lifelong methods",
        above=Side("semantic", OTHERS, DROP),
        below=Side("semantic", GATE, DROP),
        rule="all",
        in_paper=HOLDS,
    ),
    Stated(
        "random: joint's drop is smaller still",
        above=Side("random", GATE, DROP),
        below=Side("random", ("joint",), DROP),
        rule="all",
        in_paper=("holds", "no joint"),
    ),
    Stated(
        "semantic: joint's drop is smaller still",
        above=Side("semantic", GATE, DROP),
        below=Side("semantic", ("joint",), DROP),
        rule="all",
        in_paper=HOLDS,
    ),
    Stated(
        "(4) random: IMM is the best single model",
        above=Side("random", IMM),
        below=Side("random", (*NAIVE, *PENALTIES)),
        rule="all",
        in_paper=("holds", None),
    ),
    Stated(
        "(4) semantic: IMM is the best single model",
        above=Side("semantic", IMM),
        below=Side("semantic", (*NAIVE, *PENALTIES)),
        rule="all",
        in_paper=("holds", None),
    ),
    Stated(
        "(4) random, standard: MAS is above IMM",
        above=Side("random", MAS, STANDARD),
        below=Side("random", IMM, STANDARD),
        rule="all",
        in_paper=("holds, by 1.5", None),
    ),
    Stated(
        "(4) random: MAS is above IMM",
        above=Side("random", MAS),
        below=Side("random", IMM),
        rule="all",
        in_paper=(None, "holds"),
    ),
    Stated(
        "(4) semantic: MAS is above IMM",
        above=Side("semantic", MAS),
        below=Side("semantic", IMM),
        rule="all",
        in_paper=(None, "holds; over tasks IMM is above, 7.9 against 7.7"),
    ),
)
MEAN_DROP = "(1) The drop is larger on mid-scale than on large-scale (mean of lifelong methods)"


def _mean_drops(part: str) -> tuple[Quantity, ...]:
    """Return the drops of the lifelong methods on both splits."""
    return tuple(row for split in SPLITS for row in Side(split, LIFELONG, DROP).of(part))


CLAIMS = [
    Claim(
        f"{part}: {stated.text}",
        first=stated.above.of(part),
        second=stated.below.of(part),
        rule=stated.rule,
        in_paper=in_paper,
    )
    for place, part in enumerate(PARTS)
    for stated in STATED
    if (in_paper := stated.in_paper[place]) is not None
]
CLAIMS.append(Claim(MEAN_DROP, _mean_drops(MID), _mean_drops(LARGE), "mean", in_paper="holds"))
