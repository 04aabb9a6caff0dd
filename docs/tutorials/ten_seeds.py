# %% [markdown]
# # A compiled sequence over ten seeds
#
# One number of one run says little about a continual learner: it hangs on the order of the classes,
# the first weights and the order of the samples. A whole sequence of tasks is a pure function of
# its key here, so ten of them are one compiled program. The data are scikit-learn's 8×8 digits, in
# five tasks of two.

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
print(images.shape, np.bincount(digits.target).min(), "of the rarest digit")

# %% [markdown]
# ## Two strategies, ten seeds each
#
# `train` draws for every seed its order of classes, first weights and order of samples, and gives
# accuracy matrices `[seeds, tasks, tasks]`, task-masked and class-incremental.

# %%
net = MLP(10, hidden=(64,))
strategies = {
    "finetuning": naive,
    "replay of 200": lambda setup: experience_replay(setup, buffer_size=200),
}
found = {}
for name, strategy in strategies.items():
    started = time.monotonic()
    found[name] = train(net, images, digits.target, strategy, tasks=5, seeds=10)
    print(f"{name}: {time.monotonic() - started:.1f} s for ten sequences, compiling included")

# %%
for name, trained in found.items():
    print(name)
    print(trained.table())

# %% [markdown]
# What differs by less than the deviations needs more seeds, or a comparison order by order:

# %%
scores = {name: trained.class_incremental.accuracy for name, trained in found.items()}
gains = scores["replay of 200"] - scores["finetuning"]
print("replay less finetuning, by seed:", np.round(gains, 2))

canvas, panels = plt.subplots(1, 2, figsize=(9, 3.6), layout="constrained")
for panel, scenario in zip(panels, ("task_masked", "class_incremental"), strict=True):
    matrices = {name: getattr(trained, scenario) for name, trained in found.items()}
    curves = {name: np.asarray(jax.vmap(accuracy_over_time)(m)) for name, m in matrices.items()}
    plots.plot_accuracy_over_time(curves, panel).set_title(scenario.replace("_", " "))
    panel.legend(loc="lower left")

# %% [markdown]
# Bands are one standard deviation over the ten orders. [Many runs at once](../guide/many_runs.md)
# has the function below `train`, for grids of strengths, checkpoints and several devices.
