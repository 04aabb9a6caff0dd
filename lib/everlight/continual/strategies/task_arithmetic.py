"""Task arithmetic (Ilharco et al. 2023, ICLR): sums of task vectors from a common start.

    τ_t = θ_t − θ_0        θ̄_T = θ_0 + λ Σ_t τ_t

Every task is trained from θ_0, the parameters with which the sequence starts, and without the other
tasks. In the paper θ_0 is a pre-trained network; `models.with_layers` gives the first layers of
one. The sum represents all task vectors exactly, so memory does not grow with tasks. Between tasks
the merged network predicts.

The paper selects λ on validation data from 0 to 1 in steps of 0.05. With λ = 1/T the merged network
is the mean of the networks. The paper leaves the head out: CLIP's is made of text embeddings. In
everlight the head is merged like any other parameter. Its columns move in the tasks that have
samples of their class (`merging`), so with disjoint classes a column is θ_0 + λ τ_t of its own
task. Weight decay moves all columns in every task, so that all task vectors have a part in each.

Equal to the official code (mlfoundations/task_vectors, `src/task_vectors.py`) at the sum of task
vectors of given networks; differs in:

- The head is a part of the task vectors. In the official code every task has its own, which is
  fixed.
- Batch statistics are estimated on the last task's samples. In the official code running averages
  are added up like parameters.

The authors of TIES-merging (prateeky2806/ties-merging, `merge_utils.py`, `tv_merging`) have the
same sum. Mammoth (`tak_utils/merging.py`) divides λ by the number of tasks so far, which the paper
does not.
"""

import jax
import jax.numpy as jnp

from everlight.base import Coefficient, Setup, Strategy
from everlight.checks import checked
from everlight.continual.methods.method import Method, Publication
from everlight.continual.strategies.parts.merging import merge_from_common_start


@checked
def task_arithmetic(setup: Setup, scale: Coefficient = 0.4) -> Strategy:
    """Return task arithmetic: the sum of task vectors, whose memory is `CommonStart`.

    Args:
      setup: network, objective, optimizer and data access.
      scale: coefficient λ of the sum of task vectors.
    """
    return merge_from_common_start(
        setup,
        lambda params: jax.tree.map(jnp.zeros_like, params),
        lambda sums, vector: jax.tree.map(jnp.add, sums, vector),
        lambda sums: jax.tree.map(lambda leaf: scale * leaf, sums),
    )._replace(parameter_copies=2)


METHODS = (
    Method(
        "task arithmetic",
        task_arithmetic,
        Publication("Ilharco et al.", 2023, "ICLR", ("old net",)),
        "task arithmetic: the sum of task vectors",
        tunes="scale",
        hyperparameters=(0.1, 0.2, 0.4, 1),
        published=0.4,
        requirements=("last weights",),
        advised=("pretrained layers",),
        authors={"scale": "0 to 1 in steps of 0.05", "network": "pretrained"},
        takes_targets=True,
    ),
)
