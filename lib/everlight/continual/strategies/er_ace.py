"""Experience replay with an asymmetric cross-entropy (ER-ACE; Caccia et al. 2022, ICLR).

    L = CE(incoming batch; classes of that batch) + CE(replayed batch; all seen classes)

The incoming batch's softmax runs over the classes that it holds itself, so that samples of new
classes do not push down the logits of old ones, whose representations would move abruptly; old and
new are told apart by the replayed batch alone. This is the paper's loss; the authors' code also
leaves in the classes numbered above all seen so far, which no objective here counts. Each term is a
mean, both weigh the same, and the replayed batch has a pass of its own after the incoming one's.
Memory and draws are those of `reservoir_replay`. With a head per task, where the label alone says
which classes a softmax runs over, it is plain replay.
"""

import jax
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from everlight.checks import Count, checked
from everlight.continual.base import Batch, Learner, Setup, StepInfo, Strategy, Task
from everlight.continual.strategies.memory import arrivals, carried_classes
from everlight.continual.strategies.naive import batch_loss
from everlight.continual.strategies.replay import replayed_loss
from everlight.continual.strategies.reservoir_replay import Reservoir, reservoir_replay


@checked
def er_ace(setup: Setup, capacity: Count = 200, labels: Count = 1) -> Strategy:
    """ER-ACE, its memory being `Reservoir`.

    Args:
      setup: what is static.
      capacity: samples held; the paper has 20 to 100 of every class.
      labels: labels per sample in the sequence.
    """

    def grads(
        memory: Reservoir, learner: Learner, batch: Batch, task: Task, key: PRNGKeyArray
    ) -> tuple[PyTree, StepInfo]:
        key_own, key_replay = jax.random.split(key)
        present = carried_classes(arrivals(batch), learner.seen.shape[0])

        def loss(params: PyTree) -> tuple[Float[Array, ""], tuple]:
            among = learner._replace(seen=present)
            own, (_, batch_stats) = batch_loss(setup, params, among, batch, key_own)
            after = learner._replace(batch_stats=batch_stats)
            kept, batch_stats = replayed_loss(setup, params, after, batch.replay, key_replay)
            return own + kept, (own, batch_stats)

        gradient, (own, batch_stats) = jax.grad(loss, has_aux=True)(learner.params)
        return gradient, StepInfo(gradient, batch_stats, own)

    return reservoir_replay(setup, capacity, labels)._replace(grads=grads)
