# %% [markdown]
# # IIRC on your own labels
#
# In IIRC (incremental implicitly-refined classification, Abdelsalam et al. 2021) coarse labels come
# first ("bear") and fine labels later ("polar bear"). A training sample has the label of its task;
# at test all labels so far are scored. It needs labels and a hierarchy: here the digits, by their
# shape.

# %%
import jax
import jax.numpy as jnp
import numpy as np
import optax
from sklearn.datasets import load_digits

from everlight.continual import (
    Protocol,
    Run,
    StoredImages,
    binary_objective,
    flax_setup,
    naive,
    run_sequence,
)
from everlight.metrics import task_score_matrix
from everlight.models import MLP
from everlight.plots import plot_accuracy_matrix
from everlight.scenarios import TaskConfiguration, iirc

names = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
hierarchy = {"looped": ("zero", "six", "eight", "nine"), "straight": ("one", "four", "seven")}
order = TaskConfiguration(
    (
        ("looped", "straight"),
        ("zero", "one"),
        ("two", "six", "four"),
        ("eight", "three"),
        ("seven", "nine", "five"),
    )
)

# %% [markdown]
# ## The benchmark
#
# Training samples first, test samples after them. A superclass gets 40% of each of its subclasses'
# samples and a subclass keeps 80% of its own, as in the paper.

# %%
digits = load_digits()
test = np.arange(len(digits.target)) % 5 == 0
benchmark = iirc(digits.target[~test], digits.target[test], names, hierarchy, order)
sequence = benchmark.sequence
print(benchmark.class_names)
print("training samples by task:", np.asarray(sequence.tasks.train.mask.sum(axis=1)))

# %% [markdown]
# ## Training
#
# Several labels per sample need binary cross-entropy over the seen classes. Training on the same
# samples with all labels so far ("complete") shows the cost of the missing labels.

# %%
images = np.concatenate([digits.images[~test], digits.images[test]])[..., None]
stored = StoredImages.of(jnp.asarray(images, jnp.float32), jnp.full(1, 4.9), jnp.full(1, 6.0))


def build(stored):
    net = MLP(len(benchmark.class_names), hidden=(64,))
    setup = flax_setup(net, stored, binary_objective(), optax.adam(3e-3))
    return setup, naive(setup)


program = jax.jit(run_sequence)


def scores(sequence):
    """Return the precision-weighted Jaccard similarity after every task."""
    run = Run(build, Protocol(epochs=15), stored, sequence, jax.random.key(0))
    packed = program(run).evaluation  # bits, [tasks, tests, packed]
    classes = len(benchmark.class_names)
    predicted = jnp.unpackbits(packed, axis=-1, count=classes).astype(bool)
    labels = (sequence.test.labels[..., None] == jnp.arange(classes)).any(axis=1)
    tasks = jnp.arange(len(order.tasks))
    seen = sequence.class_task <= tasks[:, None]
    return task_score_matrix(predicted, labels, sequence.test_member, seen)


incomplete = scores(sequence)
labels = digits.target[~test], digits.target[test]
complete = scores(iirc(*labels, names, hierarchy, order, "complete").sequence)
for name, matrix in (("labels of the task", incomplete), ("all labels so far", complete)):
    print(f"{name:19}", np.asarray(matrix.union.precision_weighted_jaccard, float).round(2))

# %% [markdown]
# After every task, on the samples of all tasks so far. By task, where rows are "after learning" and
# columns "tested on":

# %%
axes = plot_accuracy_matrix(incomplete.by_task.precision_weighted_jaccard)

# %% tags=["check"]
without, with_all = (matrix.union.precision_weighted_jaccard for matrix in (incomplete, complete))
assert abs(without[0] - with_all[0]) < 0.02
assert np.all(without[1:] < with_all[1:])

# %% [markdown]
# A network that is only finetuned forgets whole tasks. `everlight paper iirc` has
# the paper's ten methods on IIRC-CIFAR and on a procedural world; the [runner](../guide/runner.md)
# has any other strategy on them.
