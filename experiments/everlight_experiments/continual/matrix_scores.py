"""Scores of accuracy matrices over seeds, and where they are not defined."""

from collections.abc import Callable, Iterable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Bool, Float

from everlight.metrics import forgetting, forward_transfer
from everlight_experiments.continual.outcome import Outcome
from everlight_experiments.report.cells import spread


def forgetting_cell(outcome: Outcome) -> str:
    """Return forgetting after the last task; – where it is not defined or not known."""
    return score_cell(outcome, forgetting)


def score_cell(outcome: Outcome, metric: Callable) -> str:
    """Return a metric's mean and deviation over seeds; – where it is not defined or not known."""
    return known_cell(outcome, of_runs(metric, outcome))


def known_cell(outcome: Outcome, values: Float[np.ndarray, "seeds"]) -> str:
    """Return `spread` of values; – where one of a run that has not diverged is NaN."""
    return "–" if np.isnan(values[~gone(outcome)]).any() else spread(values)


def median_seconds(outcome: Outcome) -> float:
    """Return the median over runs; NaN where it is known for none."""
    known = outcome.seconds[~np.isnan(outcome.seconds)]
    return float(np.median(known)) if len(known) else np.nan


def gone(outcome: Outcome) -> Bool[np.ndarray, "seeds"]:
    """Return which runs diverged."""
    return outcome.diverged_at[:, 0] >= 0


def _ahead(outcome: Outcome) -> Bool[np.ndarray, "t t"]:
    """Return the entries of an accuracy matrix that are on tasks not learned yet."""
    return np.triu(np.ones(outcome.matrices.shape[1:], bool), 1)


def names_ahead(outcome: Outcome) -> bool:
    """Return True if classes of tasks not learned yet can be predicted.

    Where they are not among the outputs, all accuracies ahead are 0 for that reason alone.
    """
    return bool(np.any(np.nan_to_num(outcome.matrices[:, _ahead(outcome)]) != 0))


def learns_at_once(outcome: Outcome) -> bool:
    """Return True if nothing is learned before the last task, so that nothing is forgotten."""
    return outcome.steps.shape[1] > 1 and not outcome.steps[:, -2].any()


def of_runs(metric: Callable, outcome: Outcome) -> Float[np.ndarray, "seeds"]:
    """Return a metric of each seed's matrix; NaN where it is not defined or the run diverged."""
    matrices, is_forward = outcome.matrices, metric is forward_transfer
    if not (names_ahead(outcome) if is_forward else not learns_at_once(outcome)):
        return np.full(len(matrices), np.nan)
    if not is_forward:
        # Of tasks to come they want nothing but a maximum, which those do not raise.
        matrices = np.where(_ahead(outcome) & np.isnan(matrices), 0, matrices)
    values = np.asarray(jax.vmap(metric)(jnp.asarray(matrices)))
    # A maximum or a minimum may pass over NaN.
    return np.where(gone(outcome), np.nan, values)


def drawn_matrix(outcome: Outcome) -> Float[np.ndarray, "t t"]:
    """Return the mean matrix over seeds; NaN where the method cannot have a value."""
    mean = outcome.matrices.mean(axis=0)
    if not names_ahead(outcome):
        mean = np.where(_ahead(outcome), np.nan, mean)
    if learns_at_once(outcome):
        mean[:-1] = np.nan
    return mean


def why_white(outcomes: Iterable[Outcome]) -> str:
    """Return the sentence on what `drawn_matrix` leaves white; empty where it is nothing."""
    every = list(outcomes)
    reasons = {
        "classes of later tasks cannot be predicted yet": not all(map(names_ahead, every)),
        "joint training has not begun": any(map(learns_at_once, every)),
        "a run diverged": any(outcome.diverged for outcome in every),
        "the task is not tested": any(np.isnan(x.matrices[~gone(x)]).any() for x in every),
    }
    holding = [reason for reason, holds in reasons.items() if holds]
    return f" White: {'; '.join(holding)}." if holding else ""
