"""Analytic class-incremental learning (ACIL; Zhuang et al. 2022, NeurIPS).

    h = relu(zᵀ R),   W = (Σ h hᵀ + γ I)⁻¹ Σ h yᵀ   over all samples so far,   scores = hᵀ W

R is uniform in ±1 / √f for f features z, and y are the labels as 0 and 1. The paper updates W and
the inverse P of Σ h hᵀ + γ I by the rows H and the labels Y of each batch,

    P ← P − P Hᵀ (I + H P Hᵀ)⁻¹ H P,   W ← W + P Hᵀ (Y − H W)   from P = I / γ, W = 0

and proves that this W is the ridge regression on all samples at once. In everlight the sums are
kept instead and W is solved before an evaluation (`random_ridge`): the recursion loses digits at
every batch, for which the authors' code has float64. The authors' commands have γ = 0.1, with 8,192
random features for CIFAR-100 and 16,384 for ImageNet.

RanPAC is the same regression. It has normal R, which are √(3 f) times as large, chooses its ridge
by validation, and adapts a pretrained network in the first session, where ACIL trains its network
on the first classes. With one R, a ridge that is scaled along, and one network both are equal.

Equal to the official code (ZHUANGHP/Analytic-continual-learning, `ACIL.py` and
`AnalyticLinear.py`) at the distribution of the random weights and at the scores; differs in:

- Eigenvalues are raised where γ is within the rounding errors of float32 (`random_ridge`), as 0.1
  is with many samples or large features.
- A class without samples has the score 0. In the official code it has none.
- The network is not trained on the first task.
"""

from everlight.base import PositiveCoefficient, Setup, Strategy
from everlight.checks import PositiveInt, checked
from everlight.continual.methods.method import OTHER_WEIGHTS, Method, Publication
from everlight.continual.strategies.parts.random_ridge import random_ridge
from everlight.models.heads import uniform_weights


@checked
def acil(setup: Setup, width: PositiveInt = 8192, ridge: PositiveCoefficient = 0.1) -> Strategy:
    """Return analytic class-incremental learning (ACIL), whose memory is `RandomRidge`.

    A sample with several labels counts for each of its classes. The usual network is
    `caffe_nets.LinearClassifier` over stored features. A class without samples has score 0, the
    solution of its regression.

    Args:
      setup: network, objective, optimizer and data access.
      width: number of random features; memory holds its square.
      ridge: coefficient γ > 0, in units of squared features summed over samples.
    """
    return random_ridge(setup, width, ridge, uniform_weights)


# The paper's width is 8 times as large, with 67 times the memory. A published value would be
# one at another width, so there is none.
METHODS = (
    Method(
        "ACIL",
        acil,
        Publication("Zhuang et al.", 2022, "NeurIPS", ("statistics",)),
        "analytic class-incremental learning (ACIL)",
        tunes="ridge",
        hyperparameters=(0.1, 1, 10, 100, 1e3),
        fixed={"width": 1000},
        trains="head",
        requirements=OTHER_WEIGHTS,
        authors={"width": 8192, "ridge": 0.1, "features": "those of the first task's network"},
    ),
)
