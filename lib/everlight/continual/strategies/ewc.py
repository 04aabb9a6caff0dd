"""Elastic weight consolidation (Kirkpatrick et al. 2017, PNAS).

    L(θ) = L_task(θ) + λ/2 Σ_t Σ_k F_{t,k} (θ_k − θ*_{t,k})²

F_t is the diagonal Fisher information of task t at its solution θ*_t. Per task, the sums ΣF and
ΣFθ* hold all anchors exactly. Online (Schwarz et al. 2018, ICML), one running Fisher decays by γ
and the only anchor is the last solution.

`regularization` λ goes with the mean Fisher of a mean cross-entropy: the literature uses 1e2 to 1e4
(van de Ven and Tolias 2019: 5,000 on split MNIST); `decay` γ is 0.95 to 1.

The authors published no code, and the paper does not say which labels F_t takes. Common code
differs. Avalanche takes the data's labels (the empirical Fisher, the default here), and squares the
mean gradients of mini-batches. Mammoth (`ewc_on.py`) weighs each sample's squared gradient at the
data's label by the probability that the model gives it. ariseff/overcoming-catastrophic draws one
label per sample from the model (`fisher="true"`). GMvandeVen/continual-learning offers the data's
label, one drawn, the likeliest, and by default the exact expectation over all labels.

Equal to the code of GEM's authors (facebookresearch/GradientEpisodicMemory, `ewc.py`) at the
penalty's gradient for given Fisher information, with its strength as λ / 2; differs in F, the mean
of squared gradients of single samples, where that code squares their mean gradient.
"""

import jax
from jaxtyping import PRNGKeyArray

from everlight.checks import PositiveInt, UnitInterval, checked
from everlight.continual.base import Coefficient, Fisher, Learner, Setup, Strategy, Task
from everlight.continual.strategies.importance import chosen_fisher, fisher_diagonal
from everlight.continual.strategies.naive import naive
from everlight.continual.strategies.quadratic import (
    QuadraticSums,
    add_anchor,
    no_anchors,
    penalised,
    single_anchor,
)


@checked
def ewc(
    setup: Setup,
    regularization: Coefficient,
    online: bool = False,
    decay: UnitInterval = 1.0,
    fisher_samples: PositiveInt = 1024,
    implicit_rate: Coefficient | None = None,
    fisher: Fisher | None = None,
) -> Strategy:
    """EWC, its memory being `QuadraticSums`.

    Args:
      setup: what is static.
      regularization: λ above.
      online: one decaying Fisher with the last solution as its anchor.
      decay: γ of the online Fisher; without `online` it plays no part.
      fisher_samples: at most so many of a task's samples, evenly spaced, estimate the Fisher.
      implicit_rate: the optimizer's rate, for implicit steps on the penalty, stable at any
        regularization (`quadratic.penalised`); None adds its gradient, as the paper does.
      fisher: "empirical" takes the data's labels, "true" draws them from the model. None is the
        objective's default: empirical, except for embeddings.

    Raises:
      ValueError: the true Fisher, where the objective has no `fisher_loss`.
    """
    kind = chosen_fisher(setup, fisher)

    def end_task(
        memory: QuadraticSums, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[QuadraticSums, Learner]:
        information = fisher_diagonal(setup, learner, task.train, fisher_samples, key, fisher=kind)
        if not online:
            return add_anchor(memory, information, learner.params), learner
        running = jax.tree.map(lambda old, new: decay * old + new, memory.importance, information)
        return single_anchor(running, learner.params), learner

    free = naive(setup)._replace(
        init=lambda key, learner: no_anchors(learner.params), end_task=end_task, parameter_copies=2
    )
    return penalised(setup, free, regularization / 2, lambda memory: memory, implicit_rate)
