"""MEMO: a memory-efficient expandable model (Zhou et al. 2023, ICLR, arXiv 2205.13218).

Shallow layers s are shared by all tasks and go on learning. A task t adds a copy φ_t of the deep
layers, which starts from the last one; the earlier copies are frozen. The head reads the features
of all copies, and an auxiliary head a reads those of φ_t alone:

    z(x) = Σ_{i ≤ t} K_iᵀ φ_i(s(x)) + b
    L = CE(y, π(z)) + λ_a CE(y', π(a(φ_t(s(x))))),   y' = 0 for earlier classes, else 1 + the class
    after the task   w_k ← γ w_k for new classes k,   γ = mean |w| of old / mean |w| of new

π runs over the seen classes, in the second term over the task's classes and the joint one of all
earlier classes; w_k are the weights of class k for the features of all copies. The first task has
the first term alone, and no new scale. Frozen copies compute in evaluation mode on what s returns
in training mode, and the gradient of the first term passes through them to s. Herded exemplars of
earlier classes join every epoch; herding compares the features of all copies.

The copied layers are the last stage of the network, as in the authors' code for ResNet-18 and
ResNet-32. Stages are those that the network's module states (`Setup.stages`); those of an MLP are
its hidden layers, and a plain CNN copies its dense layer, in PyCIL a block of convolutions.
Expandable DER shares nothing (`expandable_representation`).

All arrays have their last sizes from the start. Memory holds T − 1 finished copies, stacked, of
which the unused ones are empty, with as many batch statistics of the whole network, and (T − 1) f
rows of the head for f features of one copy, the auxiliary head and their optimizer's state. A step
or a prediction passes its samples once through s and t times through the deep layers.

The authors compare methods whose exemplars and networks take the same bytes together. Here copies
are not taken from the number of exemplars. A copy of ResNet-32's last stage has 75 % of the
network's values, in float32 the bytes of 460 images of 32 x 32.

Equal to the official code (wangkiw/ICLR23-MEMO; PyCIL has the same: `models/memo.py`,
`utils/inc_net.py`, `convs/memo_cifar_resnet.py`) at the gradient of a step with trained shared
layers (`train_base`, as in its README), the statistics of batch norm, the aligned head, the copy
with which a task begins, PyCIL's herding, and predictions. Its functions and its ResNet of 8
layers, run on the same tensors in float64, differ by 3e-14 at most, relative to the largest value,
after three tasks of three steps. Differs in:

- Options that freeze the shared layers after the first task, or go on training the earlier copies
  (`train_adaptive`), are left out.
- Weights of the head are what the network draws for one copy, over √t for t copies: truncated
  normal by default, in that code uniform of the same variance.
- Epochs, learning rates and weight decay of all tasks are those of the protocol. That code has 200
  epochs and weight decay 0.0005 in the first task, then 170 and 0.0002. Its rate of 0.1 falls to a
  tenth after epochs 60, 120 and 170, in later tasks after 80, 120 and 150.
- Memory has `exemplars_per_class`; the authors share 2,000 among all classes.
- Blocks of the residual networks are this library's: see `models.ReducedResNet`.
"""

from everlight.base import Coefficient, Setup, Strategy
from everlight.checks import PositiveInt, checked
from everlight.continual.methods.method import OTHER_WEIGHTS, Method, Publication
from everlight.continual.strategies.parts.expansion import blocks_above
from everlight.continual.strategies.parts.extractor_per_task import (
    aligned_head,
    extractor_per_task,
)
from everlight.errors import ArgumentError


@checked
def memo(
    setup: Setup,
    tasks: PositiveInt,
    exemplars_per_class: PositiveInt = 20,
    labels: PositiveInt = 1,
    auxiliary_weight: Coefficient = 1.0,
    buffer_size: PositiveInt | None = None,
) -> Strategy:
    """Return MEMO (a memory-efficient expandable model), whose memory is `Expansion`.

    The first label of a sample is its class. The linear head is `params["head"]`, which has the
    rows of the current copy of the last stage. The other stages are shared.

    Args:
      setup: network, objective, optimizer and data access, with `split_at` and two `stages` or
        more.
      tasks: number of tasks in the sequence.
      exemplars_per_class: exemplars per class, used without `buffer_size`.
      labels: labels per sample in the sequence.
      auxiliary_weight: coefficient λ_a of the auxiliary loss.
      buffer_size: exemplars of all classes together, shared equally by the classes seen so far.

    Raises:
      ValueError: the setup has no `split_at`, or fewer than two stages; or, at `init`, no layer is
        named head, or it is not linear.
    """
    if setup.split_at is None or len(setup.stages) < 2:
        raise ArgumentError(
            "MEMO shares all stages but the last one, and the setup has no two; make it by "
            "flax_setup of a module with the property stages, such as MLP(classes, (256, 256))"
        )
    split = setup.split_at(setup.stages[-2])
    return extractor_per_task(
        setup,
        blocks_above(setup, split, max(tasks - 1, 1)),
        "MEMO",
        tasks,
        exemplars_per_class,
        labels,
        auxiliary_weight,
        buffer_size,
        aligned_head,
    )


METHODS = (
    Method(
        "MEMO",
        memo,
        Publication("Zhou et al.", 2023, "ICLR", ("samples", "old net")),
        "memory-efficient expandable model (MEMO): a frozen copy of the last stage per task",
        requirements=(*OTHER_WEIGHTS, "disjoint classes", "named head", "stages"),
        select="last",
        extends_network=True,
        authors={
            "auxiliary_weight": 1,
            "batch size": 128,
            "epochs per task": "200, then 170",
            "optimizer": "sgd with momentum 0.9",
            "learning rate": 0.1,
        },
        planned_total="tasks",
    ),
)
