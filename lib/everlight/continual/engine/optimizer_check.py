"""Check that an optimizer makes updates from gradient, state and parameters, as steps give them."""

from collections.abc import Callable
from typing import Any

import jax
import optax
from jaxtyping import PyTree
from optax import contrib

from everlight.errors import ArgumentError, describe_error

_REMEDY = (
    "give one that needs no value of the loss, no line search and no other arguments, such as "
    "optax.adam"
)
_PREDICTS_BY_OTHERS = (contrib.ScheduleFreeState, contrib.SAMState)
"""States of optimizers after some of whose steps other parameters than the last ones predict."""


def check_optimizer(optimizer: optax.GradientTransformation, params: PyTree) -> None:
    """Check by a trace that an optimizer can be used in training steps.

    Args:
      optimizer: optimizer of optax, of any kind.
      params: parameters, or their shapes and dtypes.

    Raises:
      ValueError: the optimizer's functions fail without a value of the loss or other arguments, as
        those of line searches do; an update is unlike the parameters, or a state unlike the first
        one; or it predicts by other parameters than it trains (schedule-free optimizers, SAM).
    """
    state = _trace(optimizer.init, params)
    for part in jax.tree.leaves(state, is_leaf=_predicts_by_others):
        if _predicts_by_others(part):
            raise ArgumentError(
                f"optimizer with {type(part).__name__} predicts by other parameters than it "
                "trains, which runs do not compute; give one that does not, such as optax.adam"
            )
    update, after = _trace(optimizer.update, params, state, params)
    if _shapes(update) != _shapes(params):
        raise ArgumentError(
            f"optimizer makes updates that do not have the shapes of the parameters; {_REMEDY}"
        )
    if _kinds(after) != _kinds(state):
        raise ArgumentError(
            f"optimizer has another kind of state after an update than before; {_REMEDY}"
        )


def _predicts_by_others(part: Any) -> bool:
    return isinstance(part, _PREDICTS_BY_OTHERS)


def _shapes(tree: PyTree) -> tuple:
    return jax.tree.structure(tree), [leaf.shape for leaf in jax.tree.leaves(tree)]


def _kinds(tree: PyTree) -> tuple:
    return _shapes(tree), [leaf.dtype for leaf in jax.tree.leaves(tree)]


def _trace(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return jax.eval_shape(function, *arguments)
    # An optimizer may raise any exception about what it lacks.
    except Exception as error:
        raise ArgumentError(
            "optimizer cannot make an update from only gradient, state and parameters "
            f"({describe_error(error)}); {_REMEDY}"
        ) from error
