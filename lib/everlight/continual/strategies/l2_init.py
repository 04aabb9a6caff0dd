"""Regenerative regularization (L2 Init; Kumar, Marklund and Van Roy 2023, arXiv 2308.11958).

    L(θ) = L_task(θ) + λ ‖θ − θ_0‖²

θ_0 are the initial parameters. Weights that the current task does not need drift back towards them,
where a network learns well. `regularization` λ is 1e-5 to 1e-2 in common grids.

Code of its authors was not compared. Equal to weight decay (`optax.add_decayed_weights`) with 2λ at
the gradient, once the initial parameters are subtracted; differs in implicit steps.
"""

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from everlight.base import Coefficient, Learner, Setup, Strategy
from everlight.checks import checked
from everlight.continual.strategies.naive import naive
from everlight.continual.strategies.quadratic import QuadraticSums, penalised, single_anchor


@checked
def l2_init(
    setup: Setup, regularization: Coefficient = 1e-3, implicit_rate: Coefficient | None = None
) -> Strategy:
    """Return regenerative regularization (L2 Init), whose memory is `QuadraticSums`.

    Args:
      setup: network, objective, optimizer and data access.
      regularization: coefficient λ of the squared distance from the initial parameters.
      implicit_rate: learning rate of the optimizer, for implicit steps on the penalty
        (`quadratic.penalised`). None adds the gradient, as the paper does.
    """

    def init(key: PRNGKeyArray, learner: Learner) -> QuadraticSums:
        return single_anchor(jax.tree.map(jnp.ones_like, learner.params), learner.params)

    plain = naive(setup)._replace(init=init, parameter_copies=2)
    return penalised(setup, plain, regularization, lambda memory: memory, implicit_rate)
