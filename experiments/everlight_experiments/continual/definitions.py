"""Definitions of the reports' columns and marks; a table shows those of what it contains."""

from collections.abc import Mapping

from everlight.metrics import CRITERIA, WEIGHTINGS

SCORES: Mapping[str, str] = {
    "forgetting": "Forgetting: the drop from a task's best {measure} to its final {measure}.",
    "backward transfer": "Backward transfer: the mean of R[i, j] − R[j, j] over all tasks j < i, "
    "where R[i, j] is the {measure} on task j after task i (Díaz-Rodríguez et al. 2018).",
    "forward transfer": "Forward transfer: the mean {measure} on tasks that were not learned yet, "
    "chance included.",
}
"""Metrics of an accuracy matrix, by the name of their column."""
EFFICIENCIES: Mapping[str, str] = {
    "A": "A: accuracy averaged over all times, which differs from final average accuracy.",
    "MS": "MS: efficiency of model size.",
    "SSS": "SSS: efficiency of sample storage.",
    "CE": "CE: computational efficiency, the operations of ten passes over a task's data divided "
    "by those of its training; at most 1, mean over tasks.",
    "BWT+": "BWT+: positive part of backward transfer, the mean of R[i, j] − R[j, j] over j < i.",
    "REM": "REM: 1 minus the negative part of backward transfer.",
    "FWT": "FWT: forward transfer, the mean of R[i, j] over j > i.",
}
"""The seven criteria."""
NO_FORWARD_TRANSFER = (
    "Where classes of later tasks cannot be predicted, forward transfer counts as 0 in the CL "
    "score."
)
COSTS: Mapping[str, str] = {
    "copies counted (MS)": "Copies are counted as in the criteria: a regularizer's anchor and "
    "importances, without a teacher network.",
    "strategy's memory, MB": "The strategy's memory is in allocated bytes.",
    "held in the last task": "Stored samples and steps of the optimizer are means over runs.",
    "MFLOP per step": "MFLOP per step: operations of one step's program, without importances.",
    "seconds per run": "Seconds per run: median over runs on a machine that may be shared. They "
    "include compilation, unless selection or another setting compiled the same program before.",
}
"""Columns of the table of costs."""
ARGUMENTS: Mapping[str, str] = {
    "implicit rate": "Implicit rate: learning rate / (1 − momentum), the step size of the implicit "
    "(proximal) step on the penalty.",
    "samples drawn per step": "Samples drawn per step: stored samples that are replayed in a step.",
    "buffer size": "Buffer size: stored samples in total.",
}
"""Arguments of methods whose names do not say what they are."""
PUBLISHED: Mapping[str, str] = {
    ", published": "Published: with the hyper-parameter that the method's paper recommends.",
}
"""The mark of a row beside that of the selected hyper-parameter."""
GRID: Mapping[str, str] = {
    "flat": "Flat: no other value is worse by more than one standard error of the paired "
    "differences.",
    "edge of the grid": "Edge of the grid: a better value may lie beyond.",
}
"""Marks of a selected hyper-parameter."""


def weightings() -> str:
    """Return the sentence with the weights of the CL score."""
    return (
        f"Weights of {', '.join(CRITERIA)}: "
        + "; ".join(f"{name} {_in_line(weights)}" for name, weights in WEIGHTINGS.items())
        + " (the paper's; W2 as in its numbers, not as printed)."
    )


def _in_line(weights: Mapping[str, float]) -> str:
    """Return weights in the order of the criteria, equal ones once."""
    if len(set(weights.values())) == 1:
        return f"1/{len(weights)} each"
    return ", ".join(f"{weights[name]:g}" for name in CRITERIA)
