"""Sizes of the problems on which networks lose plasticity; every field is an option.

Problems:
  regression: slowly changing regression (Dohare et al. 2024), bits of which one flips per task.
  permuted: images with another order of the pixels in every task.
  permuted-labels: images with other names of the classes in every task.
  class-pairs: two classes per task, as in continual ImageNet (Dohare et al. 2024).
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from everlight.checks import Between
from everlight_experiments.run_folder.options import Count, Rate


@dataclass(frozen=True)
class PlasticityConfig:
    """Configuration of a problem."""

    data: str = ""
    """Image set of permuted, permuted-labels and class-pairs: digits, fashion-mnist, mnist,
    tiny-imagenet, tiny-imagenet-64, cifar10, cifar100, or your own as in everlight run images."""
    classes: Annotated[int, Between(2, 1_000_000)] | None = None
    """Number of classes, the first ones; None is all."""
    side: Annotated[int, Between(8, 512)] | None = None
    """Side of the images in pixels; None is the data set's."""
    tasks: Annotated[int, Between(2, 1_000_000)] = 50
    """Number of tasks. Compilation does not grow with it; permuted stores an order of the pixels
    per task."""
    samples: Count = 500
    """Samples drawn per task."""
    batch_size: Count = 1
    """Samples per training step."""
    net: str = "mlp:5"
    """Network, as in everlight run."""
    learning_rate: Rate = 0.01
    """Learning rate of gradient descent."""
    flips: Literal["one", "all"] = "one"
    """Bits of regression that change between tasks: one of the slow bits, or all are redrawn, as in
    the authors' code by default."""


_IMAGES = PlasticityConfig(
    "fashion-mnist", tasks=50, samples=3200, batch_size=16, net="mlp:100,100"
)
CONFIGS: Mapping[str, PlasticityConfig] = {
    "regression": PlasticityConfig(),
    "permuted": _IMAGES,
    "permuted-labels": _IMAGES,
    "class-pairs": replace(
        _IMAGES, data="tiny-imagenet", side=16, tasks=50, samples=2000, net="cnn:16,32,64"
    ),
}
"""Configurations by problem."""
READERS = {
    "data": "problems of images",
    "classes": "problems of images",
    "side": "problems of images",
    "flips": "regression",
}
"""Problems, in words, by the options that only some of them read."""
