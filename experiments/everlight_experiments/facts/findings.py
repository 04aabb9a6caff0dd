"""What the paper observes, (1) to (4) of section 5.2 and what follows, each asked of our outcomes.

Accuracies are Top-5 over examples after the last task.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from everlight_experiments.common.report import PAPER, Column, Table
from everlight_experiments.facts.scores import Outcomes, final

MID, LARGE = "mid-scale", "large-scale"


class Quantity(NamedTuple):
    """A number of every seed."""

    benchmark: str
    split: str
    method: str
    metric: str = "generalised"

    def __str__(self) -> str:
        metric = "" if self.metric == "generalised" else f", {self.metric}"
        return f"{self.method} ({self.split}{metric})"


class Claim(NamedTuple):
    """That the first quantities are above the second."""

    text: str
    in_paper: str
    first: tuple[Quantity, ...]
    second: tuple[Quantity, ...]
    how: Literal["all", "each", "mean"] = "all"
    """The lowest above the greatest; each above its partner; the mean above the mean."""


def findings_table(outcomes: Mapping[str, Outcomes]) -> Table:
    """In how many seeds each claim holds, with the numbers it is read from."""
    rows = [
        [claim.text, claim.in_paper, *_judge(outcomes, claim)]
        for claim in CLAIMS
        if {quantity.benchmark for quantity in (*claim.first, *claim.second)} <= outcomes.keys()
    ]
    columns = [Column("claim"), Column("in the paper", PAPER), Column("holds in"), Column("means")]
    caption = "The paper's claims, in its own tables and in this run, for the methods that ran."
    return Table(caption, columns, rows)


def _judge(outcomes: Mapping[str, Outcomes], claim: Claim) -> tuple[str, str]:
    first, second = _run(outcomes, claim)
    if not first or not second:
        wanted = {quantity.method for quantity in (*claim.first, *claim.second)}
        return "–", f"too few of {', '.join(sorted(wanted))} were run"
    upper, lower = (
        np.stack([_value(outcomes, quantity) for quantity in side]) for side in (first, second)
    )
    if not np.isfinite([*upper, *lower]).all():
        return "–", "no test example of such facts"
    holds = _holds(upper, lower, claim.how)
    return f"{np.sum(holds)} of {len(holds)}", _numbers(claim.how, (first, upper), (second, lower))


def _run(outcomes: Mapping[str, Outcomes], claim: Claim) -> tuple[list[Quantity], list[Quantity]]:
    """Both sides with what was run; partners stay together."""

    def there(quantity: Quantity) -> bool:
        return quantity.method in outcomes[quantity.benchmark][quantity.split]

    if claim.how == "each":
        pairs = zip(claim.first, claim.second, strict=True)
        kept = [pair for pair in pairs if all(map(there, pair))]
        return [pair[0] for pair in kept], [pair[1] for pair in kept]
    return list(filter(there, claim.first)), list(filter(there, claim.second))


def _numbers(how: str, *sides: tuple[list[Quantity], Float[np.ndarray, "n runs"]]) -> str:
    if how == "mean":
        return " against ".join(f"{values.mean():.2f}" for _, values in sides)
    named = [
        [f"{quantity} {value.mean():.2f}" for quantity, value in zip(*side, strict=True)]
        for side in sides
    ]
    if how == "each":
        return "; ".join(f"{upper}, {lower}" for upper, lower in zip(*named, strict=True))
    return "; ".join([*named[0], *named[1]])


def _holds(
    first: Float[np.ndarray, "a runs"], second: Float[np.ndarray, "b runs"], how: str
) -> Bool[np.ndarray, "runs"]:
    if how == "each":
        return np.all(first > second, axis=0)
    if how == "mean":
        return first.mean(axis=0) > second.mean(axis=0)
    return first.min(axis=0) > second.max(axis=0)


def _value(outcomes: Mapping[str, Outcomes], quantity: Quantity) -> Float[np.ndarray, "runs"]:
    """In percent, but for backward transfer and gain."""
    splits = outcomes[quantity.benchmark]
    outcome = splits[quantity.split][quantity.method]
    if quantity.metric == "gain":
        random, semantic = (final(splits[split][quantity.method]) for split in SPLIT_NAMES)
        return random / np.maximum(semantic, 1e-9) - 1
    if quantity.metric == "few":
        return 100 * outcome.few.over_tasks
    if quantity.metric == "backward":
        return outcome.backward
    return 100 * final(outcome, quantity.metric)


SPLIT_NAMES = ("random", "semantic")
_LIFELONG = ("ExpertGate", "finetune", "IMM mode", "SI", "MAS")
_OTHERS = ("finetune", "IMM mode", "SI", "MAS")
_ALL = (*_LIFELONG, "joint")


def _of(
    benchmark: str, split: str, methods: tuple[str, ...], metric: str = "generalised"
) -> tuple[Quantity, ...]:
    return tuple(Quantity(benchmark, split, method, metric) for method in methods)


def _drops(benchmark: str) -> tuple[Quantity, ...]:
    return tuple(q for split in SPLIT_NAMES for q in _of(benchmark, split, _LIFELONG, "drop"))


def _for(benchmark: str) -> list[Claim]:
    """What the paper says of both benchmarks, of one."""
    mid = benchmark == MID
    random, semantic = SPLIT_NAMES

    def of(split: str, methods: tuple[str, ...], metric: str = "generalised"):
        return _of(benchmark, split, methods, metric)

    return [
        *(
            Claim(
                f"(1) {benchmark}, {split}: generalised is below standard for every method",
                "holds" if mid or split == semantic else "holds; no joint",
                of(split, _ALL, "standard"),
                of(split, _ALL),
                "each",
            )
            for split in SPLIT_NAMES
        ),
        Claim(
            f"(2) {benchmark}: the random split is above the semantic one for every lifelong "
            "method but ExpertGate",
            "holds",
            of(random, _OTHERS),
            of(semantic, _OTHERS),
            "each",
        ),
        Claim(
            f"(2) {benchmark}: ExpertGate gains least by the random split (relative)",
            "holds: it loses 16%" if mid else "holds: 3%",
            of(random, _OTHERS, "gain"),
            of(random, ("ExpertGate",), "gain"),
        ),
        Claim(
            f"(3) {benchmark}, semantic: ExpertGate is the best lifelong method",
            "holds",
            of(semantic, ("ExpertGate",)),
            of(semantic, _OTHERS),
        ),
        Claim(
            f"(3) {benchmark}, random: ExpertGate is below IMM, SI and MAS",
            "holds; finetune is lower still" if mid else "holds; the lowest of all",
            of(random, ("IMM mode", "SI", "MAS")),
            of(random, ("ExpertGate",)),
        ),
        *(
            Claim(
                f"{benchmark}, {split}: ExpertGate's drop is the smallest of the lifelong methods",
                _EXPERT_DROP[benchmark, split],
                of(split, _OTHERS, "drop"),
                of(split, ("ExpertGate",), "drop"),
            )
            for split in SPLIT_NAMES
        ),
        *(
            Claim(
                f"{benchmark}, {split}: joint's drop is smaller still",
                "holds" if mid or split == semantic else "no joint",
                of(split, ("ExpertGate",), "drop"),
                of(split, ("joint",), "drop"),
            )
            for split in SPLIT_NAMES
        ),
        Claim(
            f"{benchmark}, random: IMM, SI and MAS are above finetune",
            "holds",
            of(random, ("IMM mode", "SI", "MAS")),
            of(random, ("finetune",)),
        ),
        Claim(
            f"{benchmark}, semantic: finetune is above SI and MAS",
            "holds, against what they are for",
            of(semantic, ("finetune",)),
            of(semantic, ("SI", "MAS")),
        ),
        Claim(
            f"{benchmark}: less is forgotten on the random split (BWT), by finetune, SI and MAS",
            "not given" if mid else "not for MAS: -0.22 against -0.20",
            of(random, ("finetune", "SI", "MAS"), "backward"),
            of(semantic, ("finetune", "SI", "MAS"), "backward"),
            "each",
        ),
        Claim(
            f"{benchmark}, semantic: finetune is best on few-shot facts (mean over tasks)",
            "not given" if mid else "holds; on the random split MAS, 3.33 against 3.16",
            of(semantic, ("finetune",), "few"),
            of(semantic, ("ExpertGate", "IMM mode", "SI", "MAS"), "few"),
        ),
    ]


_EXPERT_DROP = {
    (MID, "random"): "not so: 21.2, IMM 19.4",
    (MID, "semantic"): "holds",
    (LARGE, "random"): "holds",
    (LARGE, "semantic"): "holds",
}
CLAIMS: tuple[Claim, ...] = (
    *_for(MID),
    *(
        Claim(
            f"(4) mid-scale, {split}: IMM is the best single model",
            "holds",
            _of(MID, split, ("IMM mode",)),
            _of(MID, split, ("finetune", "SI", "MAS")),
        )
        for split in SPLIT_NAMES
    ),
    Claim(
        "(4) mid-scale, random, standard: MAS is above IMM",
        "holds, by 1.5",
        _of(MID, "random", ("MAS",), "standard"),
        _of(MID, "random", ("IMM mode",), "standard"),
    ),
    *_for(LARGE),
    *(
        Claim(
            f"(4) large-scale, {split}: MAS is above IMM",
            exception,
            _of(LARGE, split, ("MAS",)),
            _of(LARGE, split, ("IMM mode",)),
        )
        for split, exception in (
            ("random", "holds"),
            ("semantic", "holds; over tasks IMM is above, 7.9 against 7.7"),
        )
    ),
    Claim(
        "(1) The drop is greater on mid-scale than on large-scale (mean of lifelong methods)",
        "holds",
        _drops(MID),
        _drops(LARGE),
        "mean",
    ),
)
