"""Experience replay with an asymmetric cross-entropy (ER-ACE; Caccia et al. 2022, ICLR).

    L = CE(incoming batch; classes of that batch) + CE(replayed batch; all seen classes)

The incoming batch's softmax runs over the classes that it holds itself, so that samples of new
classes do not push down the logits of old ones, whose representations would move abruptly; old and
new are separated by the replayed batch alone. This is the paper's loss. Each term is a mean, both
weigh the same whatever their sizes, and the replayed batch has a pass of its own after the incoming
one's. Memory and draws are those of `experience_replay`. With a head per task, where the label
alone says which classes a softmax runs over, it is plain replay.

Equal to the official code (pclucas14/AML, `er_ace.py`) at the gradient of a step with
`loss_over="all"`, where classes are numbered as they come and the batch holds the last one seen;
differs in that its incoming softmax also has the last class seen when that is absent, in that a
class is seen there once a sample of it arrived, here once its task begins, in that its reservoir
counts the arrivals before a batch for all of the batch, and in that by default unseen classes are
in neither softmax. Mammoth's `er_ace.py` differs further: by default its first task has no mask and
no replay, and its head is a cosine classifier.
"""

from typing import Literal

import jax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from everlight.checks import PositiveInt, checked
from everlight.continual.base import Batch, Learner, Setup, StepInfo, Strategy, Task
from everlight.continual.strategies.balanced_replay import replayed_loss, with_all_seen
from everlight.continual.strategies.experience_replay import Reservoir, experience_replay
from everlight.continual.strategies.memory import arrivals, carried_classes
from everlight.continual.strategies.naive import batch_loss


@checked
def er_ace(
    setup: Setup,
    buffer_size: PositiveInt = 200,
    labels: PositiveInt = 1,
    replay_batch_size: PositiveInt | None = None,
    loss_over: Literal["seen", "all"] = "seen",
) -> Strategy:
    """ER-ACE, its memory being `Reservoir`.

    Args:
      setup: what is static.
      buffer_size: samples held; the paper has 20 to 100 of every class.
      labels: labels per sample in the sequence.
      replay_batch_size: samples drawn per step, at most as many as are held; None is as many as the
        incoming batch has.
      loss_over: "all" adds the classes that are not seen yet to both softmaxes, as in the authors'
        code: the replayed batch's then runs over all outputs of the head.
    """

    def grads(
        memory: Reservoir, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        key_own, key_replay = jax.random.split(key)
        present = carried_classes(arrivals(batch), learner.seen.shape[0])
        among, replayed = learner._replace(seen=present), learner
        if loss_over == "all":
            among = learner._replace(seen=present | ~learner.seen)
            replayed = with_all_seen(learner)

        def loss(params: PyTree) -> tuple[Float[Array, ""], tuple]:
            own, (_, batch_stats) = batch_loss(setup, params, among, batch, key_own)
            after = replayed._replace(batch_stats=batch_stats)
            kept, batch_stats = replayed_loss(setup, params, after, batch.replay, key_replay)
            return own + kept, (own, batch_stats)

        gradient, (own, batch_stats) = jax.grad(loss, has_aux=True)(learner.params)
        return gradient, StepInfo(gradient, batch_stats, own)

    replay = experience_replay(setup, buffer_size, labels, replay_batch_size)
    return replay._replace(grads=grads)
