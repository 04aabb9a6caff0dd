# %% [markdown]
# # A compiled sequence over ten seeds
#
# The result of a continual learner depends on the task order, the initial weights and the order of
# the samples, so one run is not enough. A whole task sequence is a pure function of its key here,
# and ten of them are one compiled program. The data are scikit-learn's 8×8 digits, in five tasks of
# two classes.

# %%
import time

import jax
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits

from everlight import plots
from everlight.continual import experience_replay, naive, train
from everlight.metrics import accuracy_over_time
from everlight.models import MLP

digits = load_digits()
images = np.repeat(digits.images[..., None] * 15, 3, axis=-1).astype(np.uint8)  # [n, 8, 8, 3]
print(images.shape, "at least", np.bincount(digits.target).min(), "images per digit")

# %% [markdown]
# ## Two strategies, ten seeds each
#
# For every seed `train` draws a task order, initial weights and an order of samples. It returns
# accuracy matrices `[seeds, tasks, tasks]`, class-incremental and task-masked: with the scores
# masked to the classes of the task at test.

# %%
net = MLP(10, hidden=(64,))
strategies = {
    "finetuning": naive,
    "replay of 200": lambda setup: experience_replay(setup, buffer_size=200),
}
runs = {}
for name, strategy in strategies.items():
    started = time.monotonic()
    runs[name] = train(net, images, digits.target, strategy, tasks=5, seeds=10)
    print(f"{name}: {time.monotonic() - started:.1f} s for ten sequences, compilation included")

# %%
for name, trained in runs.items():
    print(name)
    print(trained.table())

# %% [markdown]
# Differences below the deviations need more seeds, or a comparison seed by seed:

# %%
scores = {name: trained.class_incremental.accuracy for name, trained in runs.items()}
gains = scores["replay of 200"] - scores["finetuning"]
print("replay minus finetuning, by seed:", np.round(gains, 2))

canvas, panels = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
for panel, accuracies in zip(panels, ("task_masked", "class_incremental"), strict=True):
    matrices = {name: getattr(trained, f"{accuracies}_matrices") for name, trained in runs.items()}
    curves = {name: np.asarray(jax.vmap(accuracy_over_time)(m)) for name, m in matrices.items()}
    plots.plot_accuracy_over_time(curves, panel).set_title(accuracies.replace("_", " "))
    panel.legend(loc="lower left")

# %% tags=["check"]
assert gains.shape == (10,)
assert gains.min() > 0.1
assert scores["replay of 200"].std() > 0

# %% [markdown]
# Bands are one standard deviation over the ten task orders. [Many runs at
# once](../guide/many_runs.md) has the function below `train`, for grids of hyper-parameters,
# checkpoints and several devices.
