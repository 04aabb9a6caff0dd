"""Elastic weight consolidation (Kirkpatrick et al. 2017, PNAS).

    L(θ) = L_task(θ) + λ/2 Σ_t Σ_k F_{t,k} (θ_k − θ*_{t,k})²

F_t is the diagonal Fisher information of task t at its solution θ*_t. The sums ΣF and ΣFθ* over
tasks represent all anchors exactly. In the online form (Schwarz et al. 2018, ICML), one running
Fisher information decays by γ, and the only anchor is the last solution.

`regularization` λ refers to the mean Fisher information of a mean cross-entropy. The best λ varies
by powers of ten: GMvandeVen/continual-learning, whose λ has the same scale, has 1e6 to 1e8 on split
MNIST and 1 to 500 on permuted MNIST, and γ of 0.7 to 1 (`param_values.py`, commit f0b1461).

The authors published no code, and the paper does not specify the labels of F_t. Common code
differs. Avalanche takes the data's labels (the empirical Fisher, the default of everlight) and
squares the mean gradients of mini-batches. Mammoth (`ewc_on.py`) weighs each sample's squared
gradient at the data's label by the model's probability of that label.
ariseff/overcoming-catastrophic draws one label per sample from the model (`fisher="true"`).
GMvandeVen/continual-learning has the data's label, one drawn, the likeliest, and by default the
exact expectation over all labels (`fisher="expected"`).

Equal to the code of GEM's authors (facebookresearch/GradientEpisodicMemory, `ewc.py`) at the
penalty's gradient for given Fisher information, with its coefficient as λ / 2; differs in F, the
mean of squared gradients of single samples in evaluation mode. That code squares the mean gradient
of its first samples of the task, in training mode.
"""

import jax
from jaxtyping import PRNGKeyArray

from everlight.base import Coefficient, Fisher, Learner, Setup, Strategy, Task
from everlight.checks import PositiveInt, UnitInterval, checked
from everlight.continual.methods.method import Method, Publication
from everlight.continual.strategies.naive import naive
from everlight.continual.strategies.parts.importance import chosen_fisher, fisher_diagonal
from everlight.continual.strategies.parts.quadratic import (
    QuadraticSums,
    add_anchor,
    no_anchors,
    penalized,
    single_anchor,
)


@checked
def ewc(
    setup: Setup,
    regularization: Coefficient,
    online: bool = False,
    decay: UnitInterval = 1.0,
    importance_samples: PositiveInt = 1024,
    implicit_rate: Coefficient | None = None,
    fisher: Fisher | None = None,
) -> Strategy:
    """Return elastic weight consolidation (EWC), whose memory is `QuadraticSums`.

    Args:
      setup: network, objective, optimizer and data access.
      regularization: coefficient λ of the penalty.
      online: keep one decaying Fisher information with the last solution as its anchor.
      decay: factor γ of the online Fisher information; not used without `online`.
      importance_samples: maximal number of a task's samples, evenly spaced, that estimate the
        Fisher information.
      implicit_rate: learning rate of the optimizer, for implicit steps on the penalty. They are
        stable at any regularization (`quadratic.penalized`). None is the paper's explicit step.
      fisher: "empirical" takes the data's labels, "true" draws them from the model, "expected"
        weighs all labels by the model's probabilities. None is the objective's default: empirical,
        except for embeddings.

    Raises:
      ValueError: the objective has no `fisher_loss` or `label_losses` for `fisher`.
    """
    kind = chosen_fisher(setup, fisher)

    def end_task(
        memory: QuadraticSums, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[QuadraticSums, Learner]:
        information = fisher_diagonal(
            setup, learner, task.train, importance_samples, key, fisher=kind
        )
        if not online:
            return add_anchor(memory, information, learner.params), learner
        running = jax.tree.map(lambda old, new: decay * old + new, memory.importance, information)
        return single_anchor(running, learner.params), learner

    free = naive(setup)._replace(
        init=lambda key, learner: no_anchors(learner.params), end_task=end_task, parameter_copies=2
    )
    return penalized(setup, free, regularization / 2, lambda memory: memory, implicit_rate)


METHODS = (
    Method(
        "EWC",
        ewc,
        Publication("Kirkpatrick et al.", 2017, "PNAS", ("old net", "statistics")),
        "elastic weight consolidation (EWC)",
        tunes="regularization",
        hyperparameters=(100, 1e3, 1e4, 1e5, 1e6),
        authors={"penalty's step": "explicit"},
        takes_targets=True,
    ),
    Method(
        "online EWC",
        ewc,
        Publication("Schwarz et al.", 2018, "ICML", ("old net", "statistics")),
        "EWC with one decaying Fisher information instead of one per task",
        tunes="regularization",
        hyperparameters=(100, 1e3, 1e4, 1e5, 1e6),
        fixed={"online": True},
        authors={"penalty's step": "explicit"},
        takes_targets=True,
    ),
)
