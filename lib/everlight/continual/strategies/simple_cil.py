"""SimpleCIL: prototypes of a frozen network's features (Zhou et al. 2024, IJCV, arXiv 2303.07338).

    score_k(z) = cos(z, μ_k),   μ_k the mean of the features of all samples of class k so far

The nearest class mean of `nearest_mean` with `directions=True` differs: it divides features by
their lengths before the mean. The score of a class without samples is −∞. The paper's network is a
pretrained transformer.

Equal to the official code (LAMDA-CL/LAMDA-PILOT, `models/simplecil.py`) at prototypes and scores,
but for the scale of the scores, which ranks no class; differs in the score −∞ of classes without
samples (in the official code 0), and in classes that come again, whose prototypes in the official
code have only the new samples. In the official code nothing is augmented; in everlight the setup
decides (`frozen`).
"""

from jaxtyping import Array, Float, PRNGKeyArray

from everlight.base import Batch, Learner, Setup, Strategy
from everlight.checks import checked
from everlight.continual.methods.method import OTHER_WEIGHTS, Method, Publication
from everlight.continual.strategies.parts.class_statistics import (
    ClassMeans,
    add_first_labels,
    no_means,
    prototype_scores,
)
from everlight.continual.strategies.parts.frozen import feature_strategy, feature_width


@checked
def simple_cil(setup: Setup) -> Strategy:
    """Return SimpleCIL, prototypes over a frozen network, whose memory is `ClassMeans`.

    The first label of a sample is its class. The usual network is `caffe_nets.LinearClassifier`
    over stored features.

    Args:
      setup: network, objective, optimizer and data access.
    """

    def init(key: PRNGKeyArray, learner: Learner) -> ClassMeans:
        return no_means(learner.seen.shape[0], *feature_width(setup, learner))

    def accumulate(memory: ClassMeans, features: Float[Array, "b f"], batch: Batch) -> ClassMeans:
        return add_first_labels(memory, features, batch.labels[:, 0], batch.weight > 0)

    return feature_strategy(setup, init, accumulate, prototype_scores)


METHODS = (
    Method(
        "SimpleCIL",
        simple_cil,
        Publication("Zhou et al.", 2024, "IJCV", ("statistics",)),
        "SimpleCIL, prototypes over a frozen network",
        trains="head",
        requirements=OTHER_WEIGHTS,
        authors={"features": "a pretrained network's"},
    ),
)
