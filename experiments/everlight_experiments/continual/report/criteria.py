"""The seven criteria of Díaz-Rodríguez et al. 2018 as a table, with published numbers."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from everlight.metrics import (
    CRITERIA,
    WEIGHTINGS,
    RunSummary,
    cl_score,
    cl_stability,
    sequence_costs,
    summarize_runs,
)
from everlight_experiments.continual.training.outcome import Outcome
from everlight_experiments.report.cells import dash, plus_minus
from everlight_experiments.report.writer import PUBLISHED_GROUP, Column, Table


class PublishedNumbers(NamedTuple):
    """A paper's numbers, in the table with everlight's."""

    name: str = ""
    """Mark of these numbers in the table."""
    curves: Mapping[str, Mapping[str, Sequence[float]]] = {}
    """Score over time, by column and method."""
    criteria: Mapping[str, Mapping[str, Sequence[float]]] = {}
    """The seven criteria, CL scores and CL stabilities, by column and method."""


NO_PUBLISHED_NUMBERS = PublishedNumbers()


EFFICIENCIES = {
    "A": "A: average accuracy over all times, the mean of R[i, j] over all j ≤ i, where R[i, j] is "
    "the accuracy on task j after task i. Early tasks weigh more in it than in average incremental "
    "accuracy; final average accuracy reads the last time only.",
    "MS": "MS: efficiency of model size.",
    "SSS": "SSS: efficiency of sample storage.",
    "CE": "CE: computational efficiency, the operations of ten passes over a task's data divided "
    "by those of its training; at most 1, mean over tasks.",
    "BWT+": "BWT+: positive part of backward transfer, the mean of R[i, j] − R[j, j] over j < i.",
    "REM": "REM: 1 minus the negative part of backward transfer.",
    "FWT": "FWT: forward transfer, the mean of R[i, j] over j > i.",
}
"""Definitions of the seven criteria."""
NO_FORWARD_TRANSFER = (
    "Where classes of later tasks cannot be predicted, FWT is not shown and counts as 0 in the CL "
    "score."
)


def weightings() -> str:
    """Return the sentence with the weight of each criterion in the CL score."""
    by_name = {
        name: "all seven criteria equally"
        if len(set(weights.values())) == 1
        else ", ".join(f"{criterion} by {weights[criterion]:g}" for criterion in CRITERIA)
        for name, weights in WEIGHTINGS.items()
    }
    sentence = "; ".join(f"{name} weighs {words}" for name, words in by_name.items())
    return f"{sentence} (the paper's weights; W2 as in its numbers, not as printed)."


def summarize(outcome: Outcome, naive: Outcome) -> RunSummary:
    """Return the criteria of a method's runs; a pass over a task is one of naive's steps.

    Runs that diverged are NaN.
    """
    cost, samples, lost = outcome.cost, outcome.samples, outcome.diverged[:, None]
    steps = np.where(lost, np.nan, np.diff(outcome.steps, prepend=0))
    passes = np.ceil(samples / naive.cost.batch_size)
    stored = np.where(lost, np.nan, outcome.stored_samples)
    counted = stored, samples, cost.operations * steps, naive.cost.operations * passes
    costs = sequence_costs(
        cost.parameters,
        cost.parameter_copies,
        *(jnp.asarray(quantity, jnp.float32) for quantity in counted),
    )
    # Means of shares may round above 1.
    return summarize_runs(jnp.clip(jnp.asarray(outcome.matrices, jnp.float32), 0, 1), costs)


def criteria_tables(
    by_name: Mapping[str, Outcome], naive: str, published_numbers: PublishedNumbers, column: str
) -> list[Table]:
    """Return the seven criteria and their scores; none without naive, whose steps make a pass."""
    if naive not in by_name:
        return []
    printed = published_numbers.criteria.get(column)
    score = f"CL score: weighted mean of the criteria. {weightings()}"
    stability = (
        "CL stability: 1 minus the mean, with the same weights, of the criteria's standard "
        "deviations over seeds."
    )
    columns = [
        *(Column(name, "criteria", EFFICIENCIES[name]) for name in CRITERIA),
        *(Column(name, "CL score", score) for name in WEIGHTINGS),
        *(Column(name, "CL stability", stability) for name in WEIGHTINGS),
    ]
    rows = []
    for name, outcome in by_name.items():
        if outcome.learns_at_once:
            continue
        # Runs that diverged have NaN, and so has the deviation of one seed.
        with jax.debug_nans(False):
            mean, deviations = summarize(outcome, by_name[naive])
            scores = [float(cl_score(mean, weights)) for weights in WEIGHTINGS.values()]
            stabilities = [
                float(cl_stability(deviations, weights)) for weights in WEIGHTINGS.values()
            ]
        row = [name, *(dash(plus_minus(float(mean[c]), float(deviations[c]))) for c in CRITERIA)]
        if not outcome.predicts_future:
            row[1 + CRITERIA.index("FWT")] = "–"
        row += [dash(f"{number:.3f}") for number in (*scores, *stabilities)]
        if printed is not None:
            paper_values = printed.get(name)
            row += (
                ["–"] * len(columns) if paper_values is None else [f"{x:.4f}" for x in paper_values]
            )
        rows.append(row)
    if printed is not None:
        names = [f"{column.group} {column.name}".removeprefix("criteria ") for column in columns]
        columns += [Column(name, PUBLISHED_GROUP) for name in names]
    caption = [
        "Criteria of Díaz-Rodríguez et al. 2018, each in [0, 1] and better when higher.",
        "" if all(outcome.predicts_future for outcome in by_name.values()) else NO_FORWARD_TRANSFER,
        "Joint training has no criteria." if len(rows) < len(by_name) else "",
        published_numbers.name if printed is not None else "",
    ]
    return [Table(" ".join(filter(None, caption)), [Column("method"), *columns], rows)]
