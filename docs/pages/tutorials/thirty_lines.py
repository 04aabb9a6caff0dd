# %% [markdown]
# # A strategy in thirty lines
#
# A strategy is a function from a `Setup`, which holds the static parts, to a `Strategy`: functions
# that the engine calls. Most strategies replace some functions of `naive`. The example is L2-SP
# (Li, Grandvalet and Davoine 2018, "Explicit Inductive Bias for Transfer Learning"). It adds λ/2 ·
# ‖θ − θ*‖² to the loss, with θ* the weights after the last task. EWC (elastic weight consolidation)
# also has a weight for every parameter.

# %%
import jax
import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_digits

from everlight.continual import StepInfo, naive, train
from everlight.continual.strategies.parts.passes import batch_loss
from everlight.models import MLP


def stay_near(setup, hyperparameter):
    def init(key, learner):  # the memory: the weights after the last task, and 1 after a task
        return learner.params, jnp.float32(0)

    def grads(memory, learner, batch, task, key):
        anchor, begun = memory

        def loss(params):
            new, (_, stats) = batch_loss(setup, params, learner, batch, key)
            squares = jax.tree.map(lambda one, two: jnp.sum((one - two) ** 2), params, anchor)
            return new + 0.5 * hyperparameter * begun * sum(jax.tree.leaves(squares)), (new, stats)

        (_, (value, stats)), gradient = jax.value_and_grad(loss, has_aux=True)(learner.params)
        return gradient, StepInfo(gradient, stats, value)

    def end_task(memory, learner, task, key):
        return (learner.params, jnp.float32(1)), learner

    return naive(setup)._replace(init=init, grads=grads, end_task=end_task, parameter_copies=1)


# %% [markdown]
# The loss in `StepInfo` is that of the data alone, so that curves of different values are
# comparable. `parameter_copies` declares the memory of the strategy for the criteria of memory.
#
# ## Is it correct?
#
# Coefficient 0 must equal finetuning bit for bit.

# %%
digits = load_digits()
images = np.repeat(digits.images[..., None] * 15, 3, axis=-1).astype(np.uint8)
net = MLP(10, hidden=(64,))


def run(strategy):
    return train(net, images, digits.target, strategy, tasks=5, seeds=3, epochs=10)


finetuned = run(naive)
nothing = run(lambda setup: stay_near(setup, 0.0))
matrices = (trained.class_incremental_matrices for trained in (finetuned, nothing))
same = np.array_equal(*matrices)
print("coefficient 0 is finetuning:", same)

# %%
pulled = run(lambda setup: stay_near(setup, 30.0))
print("hyper-parameter  task-masked: first task, last task  class-incremental: accuracy")
for hyperparameter, trained in ((0.0, finetuned), (30.0, pulled)):
    last = trained.task_masked_matrices[:, -1].mean(axis=0)
    accuracy = trained.class_incremental.accuracy.mean()
    print(f"{hyperparameter:15}  {last[0]:23.2f}, {last[-1]:9.2f}  {accuracy:27.2f}")

# %% tags=["check"]
free, near = (trained.task_masked_matrices[:, -1].mean(0) for trained in (finetuned, pulled))
assert same
assert near[0] > free[0]
assert near[-1] < free[-1] - 0.1

# %% [markdown]
# The penalty keeps the first task and makes the last one hard to learn. In the class-incremental
# setting it hardly helps, like other penalties on weights.
#
# [A strategy of your own](../guide/strategy.md) has a strategy with replay, and the steps to add
# one to the package. A file with this function and a line `HYPERPARAMETERS = (1, 10, 100)` gives
# the runner one more method on every benchmark, tuned like the others: `everlight run
# digits --strategy my_file.py:stay_near`.
