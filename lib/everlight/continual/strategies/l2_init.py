"""Regenerative regularization (L2 Init; Kumar, Marklund and Van Roy 2023, arXiv 2308.11958).

    L(θ) = L_task(θ) + λ ‖θ − θ_0‖²

θ_0 are the initial parameters. Weights that the current task does not need drift back towards them,
where a network learns well.

Equal to the official code (skumar9876/L2_Init, `agents/agents.py`, `L2InitAgent`) at the gradient
of the penalty with `l2_weight` = 2λ, since that code halves the squared distance. Its grid of
`l2_weight` from 1e-5 to 1e-2 is λ from 5e-6 to 5e-3. The registry's grid of λ is twice that.
Differs in:

- Scales and biases of layer normalization are pulled back too; in the official code they are free.
- Steps on the penalty may be implicit.
- Initial values that are redrawn at every step (`sample_init_values`) are left out.
"""

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray

from everlight.base import Coefficient, Learner, Setup, Strategy
from everlight.checks import checked
from everlight.continual.methods.method import Method, Publication
from everlight.continual.strategies.naive import naive
from everlight.continual.strategies.parts.quadratic import QuadraticSums, penalized, single_anchor


@checked
def l2_init(
    setup: Setup, regularization: Coefficient = 1e-3, implicit_rate: Coefficient | None = None
) -> Strategy:
    """Return regenerative regularization (L2 Init), whose memory is `QuadraticSums`.

    Args:
      setup: network, objective, optimizer and data access.
      regularization: coefficient λ of the squared distance from the initial parameters.
      implicit_rate: learning rate of the optimizer, for implicit steps on the penalty
        (`quadratic.penalized`). None adds the gradient, as the paper does.
    """

    def init(key: PRNGKeyArray, learner: Learner) -> QuadraticSums:
        return single_anchor(jax.tree.map(jnp.ones_like, learner.params), learner.params)

    plain = naive(setup)._replace(init=init, parameter_copies=2)
    return penalized(setup, plain, regularization, lambda memory: memory, implicit_rate)


METHODS = (
    Method(
        "L2 Init",
        l2_init,
        Publication("Kumar et al.", 2023, "arXiv 2308.11958", ("old net",)),
        "regenerative regularization (L2 Init)",
        tunes="regularization",
        hyperparameters=(1e-5, 1e-4, 1e-3, 1e-2),
        authors={"regularization": (5e-06, 5e-05, 0.0005, 0.005), "penalty's step": "explicit"},
        takes_targets=True,
    ),
)
