"""CL score: accuracy, transfer, memory and computation of a continual learner in one number.

Equations are those of Díaz-Rodríguez et al. 2018, "Don't forget, there is more than forgetting".
Every criterion is a fraction in [0, 1], higher is better. Errors cannot be raised inside jit: an
impossible memory or operation count makes its criterion, and so the score, NaN.
"""

import math
from collections.abc import Mapping
from typing import Annotated, NamedTuple, TypedDict

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from everlight.checks import (
    FRACTION,
    NOT_NEGATIVE,
    NonNegativeInt,
    NotEmpty,
    PositiveFloat,
    PositiveInt,
    Stacked,
    check_range,
    check_sizes,
    checked,
)
from everlight.errors import ArgumentError
from everlight.metrics.accuracy_matrix import (
    accuracy,
    forward_transfer,
    positive_backward_transfer,
    remembering,
)

Scalar = Float[Array, ""]
NOT_NEGATIVE_OR_NAN = NOT_NEGATIVE._replace(or_nan=True)
"""Range of costs, which are NaN where a run diverged."""
Criteria = TypedDict(
    "Criteria",
    {
        "A": Scalar,
        "MS": Scalar,
        "SSS": Scalar,
        "CE": Scalar,
        "BWT+": Scalar,
        "REM": Scalar,
        "FWT": Scalar,
    },
)
CRITERIA = tuple(Criteria.__annotations__)

# W2 is printed as (0.4, 0.1, 0.1, 0.1, 0.2, 0.05, 0.05), a misprint: those weights miss the paper's
# own column by up to 0.18. Among all weights in steps of 0.05, only these reproduce it.
WEIGHTINGS: Mapping[str, Mapping[str, float]] = {
    "W1": dict.fromkeys(CRITERIA, 1 / 7),
    "W2": dict(zip(CRITERIA, (0.4, 0.05, 0.2, 0.1, 0.05, 0.15, 0.05), strict=True)),
    "W3": dict(zip(CRITERIA, (0.4, 0.05, 0.2, 0.2, 0.05, 0.05, 0.05), strict=True)),
}


class Costs(NamedTuple):
    """Memory and operations of learning a task sequence, for the three efficiencies below.

    `count_model_memory` and `count_sample_memory` count the memories by the paper's rules.
    """

    model_memory: Float[Array, "tasks"]
    sample_memory: Float[Array, "tasks"]
    lifetime_memory: Float[Array, ""]
    operations: Float[Array, "tasks"]
    pass_operations: Float[Array, "tasks"]


class RunSummary(NamedTuple):
    """Mean and sample standard deviation of each criterion over runs."""

    mean: Criteria
    deviation: Criteria


@checked
def sequence_costs(
    parameters: int,
    parameter_copies: int,
    stored_samples: Annotated[Float[Array, "*runs tasks"], NOT_NEGATIVE_OR_NAN],
    task_samples: Annotated[Float[Array, "*runs tasks"], NOT_NEGATIVE_OR_NAN],
    operations: Annotated[Float[Array, "*runs tasks"], NOT_NEGATIVE_OR_NAN],
    pass_operations: Annotated[Float[Array, "*runs tasks"], NOT_NEGATIVE_OR_NAN],
) -> Costs:
    """Return the costs of runs of one strategy, with memories in parameters and samples.

    Costs that are NaN, as those of a run that diverged, stay so.

    Args:
      parameters: number of the model's parameters.
      parameter_copies: parameter-sized arrays that the strategy stores.
      stored_samples: samples in memory at each task, `[..., tasks]`.
      task_samples: training samples of each task, `[..., tasks]`.
      operations: operations of learning each task, `[..., tasks]`.
      pass_operations: operations of one pass over each task's samples, `[..., tasks]`.
    """
    model = count_model_memory(parameters, parameter_copies, stored_samples.shape[-1])
    return Costs(
        jnp.broadcast_to(model, stored_samples.shape),
        stored_samples,
        jnp.sum(task_samples, axis=-1),
        operations,
        pass_operations,
    )


@checked
def count_model_memory(
    parameters: PositiveInt, regularizer_copies: NonNegativeInt, tasks: PositiveInt
) -> Float[Array, "tasks"]:
    """Count the model's memory after each task by the rule behind the paper's MS column.

    From the second task on, it includes a regularizer's parameter-shaped state (EWC and SI: anchor
    and importances, 2 copies). It never includes a distillation teacher (LwF: 0). It is not the
    number of occupied bytes.

    Args:
      parameters: number of the model's parameters.
      regularizer_copies: number of parameter-sized arrays that the regularizer stores.
      tasks: number of tasks.

    Returns:
      Memory in parameters, `[tasks]`.

    Raises:
      ValueError: `parameters` or `tasks` is below 1, `regularizer_copies` is negative, or the
        memory is more than a float32 holds.
    """
    if parameters * (1 + regularizer_copies) > float(jnp.finfo(jnp.float32).max):
        raise ArgumentError(
            "parameters and regularizer_copies make more than a float32 holds; give fewer"
        )
    later = jnp.arange(tasks) > 0
    # The number is a float, since a JAX integer has 32 bits.
    return float(parameters) * jnp.where(later, 1.0 + regularizer_copies, 1.0)


@checked
def count_sample_memory(
    samples_per_task: Annotated[Float[Array, "tasks"], NOT_NEGATIVE, NotEmpty],
) -> Float[Array, "tasks"]:
    """Count samples stored before each task by a learner that stores all of them, `[tasks]`.

    Any unit may be used. This is the rule behind the paper's SSS of Cumulative; the lifetime memory
    is the argument's sum.

    Args:
      samples_per_task: training samples of each task, in any unit, `[tasks]`.
    """
    return jnp.pad(jnp.cumsum(samples_per_task[:-1]), (1, 0))


@checked
def model_size_efficiency(
    model_memory: Annotated[Float[Array, "tasks"], NotEmpty],
) -> Float[Array, ""]:
    """Return MS (eq. 7): efficiency in model growth relative to the size at the first task.

    Args:
      model_memory: memory of the model after each task, any unit, `[tasks]`.

    Returns:
      A number in [0, 1], `[]`; NaN unless every memory is positive.
    """
    shares = model_memory[0] / model_memory
    return jnp.minimum(1, jnp.mean(jnp.where(model_memory > 0, shares, jnp.nan)))


@checked
def samples_storage_efficiency(
    sample_memory: Annotated[Float[Array, "tasks"], NotEmpty],
    lifetime_memory: Float[Array, ""] | float,
) -> Float[Array, ""]:
    """Return SSS (eq. 8): efficiency in stored samples.

    Args:
      sample_memory: memory of the samples stored before each task, any unit, `[tasks]`.
      lifetime_memory: memory of all samples of all tasks, same unit, `[]`.

    Returns:
      A number in [0, 1], `[]`; NaN if a memory is negative or the lifetime memory is not positive.
    """
    possible = (sample_memory >= 0) & (lifetime_memory > 0)
    shares = jnp.where(possible, sample_memory / lifetime_memory, jnp.nan)
    return 1 - jnp.minimum(1, jnp.mean(shares))


@checked
def computational_efficiency(
    operations: Float[Array, "tasks"],
    pass_operations: Float[Array, "tasks"],
    epsilon: PositiveFloat = 10.0,
) -> Float[Array, ""]:
    """Return CE (eq. 9): efficiency in operations, relative to passes over the data.

    Args:
      operations: total operations of learning each task, `[tasks]`.
      pass_operations: operations of one forward and backward pass over a task's data, `[tasks]`.
      epsilon: number of passes that counts as fully efficient; the paper uses 10.

    Returns:
      A number in [0, 1], `[]`; NaN if a count is negative.
    """
    possible = (operations >= 0) & (pass_operations >= 0)
    shares = jnp.where(possible, pass_operations * epsilon / (1 + operations), jnp.nan)
    return jnp.minimum(1, jnp.mean(shares))


@checked
def measure_criteria(
    accuracies: Annotated[Float[Array, "tasks tasks"], FRACTION], costs: Costs
) -> Criteria:
    """Compute all seven criteria of one run.

    A is the average accuracy over all times, not the final average accuracy. BWT+ and REM are based
    on BWT over all later times, not GEM's.

    Args:
      accuracies: accuracy on task j after task i at `[i, j]`, `[tasks, tasks]`.
      costs: memory and operations of the same run.

    Returns:
      The criteria by the paper's names, each `[]`; with one task BWT+, REM and FWT are NaN.

    Raises:
      ValueError: an accuracy is not a fraction, or the costs have another number of tasks.
    """
    check_sizes(accuracies=(accuracies, 0), model_memory=(costs.model_memory, 0))
    return {
        "A": accuracy(accuracies),
        "MS": model_size_efficiency(costs.model_memory),
        "SSS": samples_storage_efficiency(costs.sample_memory, costs.lifetime_memory),
        "CE": computational_efficiency(costs.operations, costs.pass_operations),
        "BWT+": positive_backward_transfer(accuracies),
        "REM": remembering(accuracies),
        "FWT": forward_transfer(accuracies),
    }


@checked
def summarize_runs(
    accuracies: Annotated[Float[Array, "runs tasks tasks"], FRACTION, NotEmpty],
    costs: Annotated[Costs, Stacked],
) -> RunSummary:
    """Return mean and standard deviation of the criteria over runs (seeds, task orders).

    The paper does not specify an estimator of the standard deviation. This is the sample's (divisor
    runs - 1), which is undefined for one run.

    Args:
      accuracies: accuracy matrix of each run, `[runs, tasks, tasks]`.
      costs: costs of each run; every field has a leading axis of runs.

    Returns:
      Mean and deviation of each criterion, each `[]`; the deviations of a single run are NaN.
    """
    check_sizes(accuracies=(accuracies, 0), costs=(costs.model_memory, 0))
    runs = jax.vmap(measure_criteria)(accuracies, costs)
    return RunSummary(
        mean={name: jnp.mean(values) for name, values in runs.items()},
        deviation={name: jnp.std(values, ddof=1) for name, values in runs.items()},
    )


@checked
def cl_score(
    criteria: Mapping[str, Float[Array, ""] | float], weights: Mapping[str, float]
) -> Float[Array, ""]:
    """Return CL_score (eq. 10): the weighted mean of the criteria, `[]` in [0, 1].

    Args:
      criteria: mean over runs of each of `CRITERIA`.
      weights: non-negative weight of each of `CRITERIA`, with sum 1; `WEIGHTINGS` has the paper's.

    Raises:
      ValueError: a criterion or weight is missing, unknown or negative, a criterion is above 1,
        or the weights do not sum to 1.
    """
    return _weighted_mean("criteria", criteria, weights)


@checked
def cl_stability(
    deviations: Mapping[str, Float[Array, ""] | float], weights: Mapping[str, float]
) -> Float[Array, ""]:
    """Return CL_stability (eq. 11): 1 minus the weighted mean of standard deviations, `[]`.

    Args:
      deviations: standard deviation over runs of each of `CRITERIA`.
      weights: non-negative weight of each of `CRITERIA`, with sum 1.

    Raises:
      ValueError: the same errors as in `cl_score`.
    """
    return 1 - _weighted_mean("deviations", deviations, weights)


def _weighted_mean(
    name: str, values: Mapping[str, Float[Array, ""] | float], weights: Mapping[str, float]
) -> Float[Array, ""]:
    _check_keys(name, values)
    _check_keys("weights", weights)
    for key in CRITERIA:
        check_range(f"{name}[{key!r}]", values[key], *FRACTION)
        check_range(f"weights[{key!r}]", weights[key], 0)
    total = math.fsum(weights.values())
    if not math.isclose(total, 1, abs_tol=1e-6):
        raise ArgumentError(f"weights sum to {total:.7g}; scale them to sum to 1")
    # Criteria with weight 0 are included, so that their NaN makes the score NaN.
    return jnp.asarray(sum(weights[key] * values[key] for key in CRITERIA), jnp.float32)


def _check_keys(name: str, mapping: Mapping[str, object]) -> None:
    missing = [key for key in CRITERIA if key not in mapping]
    unknown = [key for key in mapping if key not in CRITERIA]
    if missing or unknown:
        raise ArgumentError(
            f"{name} must have the keys {', '.join(CRITERIA)}; "
            f"missing: {', '.join(missing) or 'none'}; unknown: {', '.join(unknown) or 'none'}"
        )
