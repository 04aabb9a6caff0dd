"""Parameters beside those of the network, which a strategy's memory holds and gradients train."""

from typing import NamedTuple

import optax
from jaxtyping import PyTree

from everlight.base import Learner, Setup
from everlight.continual.engine.updates import optimizer_step


class AddedParameters(NamedTuple):
    """Parameters and the state of their optimizer."""

    params: PyTree
    opt_state: optax.OptState


def new_parameters(setup: Setup, params: PyTree) -> AddedParameters:
    """Return the parameters with a new state of the setup's optimizer."""
    return AddedParameters(params, setup.optimizer.init(params))


def updated_parameters(
    setup: Setup, learner: Learner, added: AddedParameters, gradient: PyTree
) -> AddedParameters:
    """Return the parameters after a step of their optimizer, at the network's learning rate."""
    added_learner = learner._replace(params=added.params, opt_state=added.opt_state)
    after = optimizer_step(setup._replace(trainable=None), added_learner, gradient)
    return AddedParameters(after.params, after.opt_state)
