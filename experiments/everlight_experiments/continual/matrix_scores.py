"""Scores of accuracy matrices over seeds, and where they are not defined."""

from collections.abc import Callable, Iterable, Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from everlight.metrics import backward_transfer, forgetting, forward_transfer
from everlight_experiments.common.cells import spread
from everlight_experiments.continual.runner import Outcome

TRANSFERS: Mapping[str, Callable] = {
    "backward transfer": backward_transfer,
    "forward transfer": forward_transfer,
}


def forgetting_cell(outcome: Outcome) -> str:
    """Return forgetting after the last task; – where it is not defined or not known."""
    return known_cell(outcome, of_runs(forgetting, outcome))


def median_seconds(outcome: Outcome) -> float:
    """Return the median over runs; NaN where it is known for none."""
    known = outcome.seconds[~np.isnan(outcome.seconds)]
    return float(np.median(known)) if len(known) else np.nan


def mean_or_nan(values: Int[np.ndarray, "some"]) -> float:
    """Return the mean; NaN for no values."""
    return float(values.mean()) if len(values) else np.nan


def drawn_matrix(outcome: Outcome) -> Float[np.ndarray, "t t"]:
    """Return the mean matrix over seeds; NaN where the method cannot have a value."""
    mean = outcome.matrices.mean(axis=0)
    if not names_ahead(outcome):
        mean = np.where(np.triu(np.ones(mean.shape, bool), 1), np.nan, mean)
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
        "the task is not tested": any(
            np.isnan(outcome.matrices[outcome.diverged_at[:, 0] < 0]).any() for outcome in every
        ),
    }
    said = [reason for reason, holds in reasons.items() if holds]
    return f" White: {'; '.join(said)}." if said else ""


def names_ahead(outcome: Outcome) -> bool:
    """Return True if classes of tasks not learned yet can be predicted.

    Where they are not among the outputs, all accuracies ahead are 0 for that reason alone.
    """
    ahead = np.triu(np.ones(outcome.matrices.shape[1:], bool), 1)
    return bool(np.any(np.nan_to_num(outcome.matrices[:, ahead]) != 0))


def learns_at_once(outcome: Outcome) -> bool:
    """Return True if nothing is learned before the last task, so that nothing is forgotten."""
    return outcome.steps.shape[1] > 1 and not outcome.steps[:, -2].any()


def of_runs(metric: Callable, outcome: Outcome) -> Float[np.ndarray, "seeds"]:
    """Return a metric of each seed's matrix; NaN where it is not defined or the run diverged."""
    matrices = outcome.matrices
    tells = names_ahead(outcome) if metric is forward_transfer else not learns_at_once(outcome)
    if not tells:
        return np.full(len(matrices), np.nan)
    if metric is not forward_transfer:
        # Of tasks to come they want nothing but a maximum, which those do not raise.
        ahead = np.triu(np.ones(matrices.shape[1:], bool), 1)
        matrices = np.where(ahead & np.isnan(matrices), 0, matrices)
    values = np.asarray(jax.vmap(metric)(jnp.asarray(matrices)))
    # A maximum or a minimum may pass over NaN.
    return np.where(outcome.diverged_at[:, 0] >= 0, np.nan, values)


def known_cell(outcome: Outcome, values: Float[np.ndarray, "seeds"]) -> str:
    """Return `spread` of values; – where one of a run that has not diverged is NaN."""
    alive = outcome.diverged_at[:, 0] < 0
    return "–" if np.isnan(values[alive]).any() else spread(values)
