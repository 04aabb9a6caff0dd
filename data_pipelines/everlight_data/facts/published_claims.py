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
from everlight_data.facts.divided import SPLITS
from everlight_data.facts.published_tables import TABLES

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
    relation: str
    """all: the lowest above the highest; each: each above its partner; mean: mean above mean."""
    in_paper: str
    """How far the paper's own tables bear it out."""


class Side(NamedTuple):
    """Methods on a split, by one metric."""

    split: str
    methods: Sequence[str]
    metric: str = GENERALISED

    def quantities(self, part: str) -> tuple[Quantity, ...]:
        """Return the quantities of one of the paper's benchmarks."""
        return tuple(Quantity(part, self.split, name, self.metric) for name in self.methods)


GATE, NAIVE, IMM, MAS = ("ExpertGate",), ("finetune",), ("IMM mode",), ("MAS",)
HOLDS, NOT_GIVEN = ("holds", "holds"), "not given"
# Claim; the side that is above and the side below; their relation; mid-scale and large-scale in
# the paper, None where it does not claim that.
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
    Claim(
        f"{part}: {text}",
        first.quantities(part),
        second.quantities(part),
        relation,
        in_paper[place],
    )
    for place, part in enumerate(PARTS)
    for text, first, second, relation, in_paper in STATED
    if in_paper[place] is not None
]
DROPS = (
    [row for split in SPLITS for row in Side(split, LIFELONG, DROP).quantities(part)]
    for part in PARTS
)
CLAIMS.append(Claim(MEAN_DROP, *map(tuple, DROPS), "mean", "holds"))
