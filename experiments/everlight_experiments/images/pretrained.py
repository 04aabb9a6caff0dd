"""Networks that begin with given layers (`--pretrained`): a ViT's checkpoint, or a run's network.

Methods that train additions or prompts (`Method.adapt`) freeze the layers; those that compute
features, or train a head alone, leave them as they are; all others train them too.
"""

from pathlib import Path
from typing import NamedTuple

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from everlight.continual import Setup, StoredImages
from everlight.continual.methods.method import Method, StrategyArguments
from everlight.models import Network, VisionTransformer, with_layers
from everlight.trees import named_leaves
from everlight_data.errors import DataError, MissingDataError
from everlight_data.pretrained.vit_weights import pretrained_vit
from everlight_data.runs.checkpoints import open_existing
from everlight_experiments.continual.training.runner import NETS

RELEASED = (np.full(1, 0.5), np.full(1, 0.5))
"""Mean and deviation of all channels, 0 to 1, in the training of the ViTs of Google's release."""


class Pretrained(NamedTuple):
    """Images, and the layers with which networks begin."""

    stored: StoredImages
    layers: dict[str, PyTree]


def is_released(path: Path) -> bool:
    """Return True if a path names a checkpoint of Google's release, and no run's folder."""
    return path.suffix == ".npz"


def load_layers(path: Path, net: Network, shape: tuple[int, int, int]) -> dict[str, PyTree]:
    """Return the layers below the head from an .npz of a ViT, or of naive in a run's folder.

    The run's network is that of its first seed after its last task, `--keep-nets`.

    Args:
      path: path of the file or folder.
      net: network that begins with them.
      shape: height, width and channels of the images.

    Raises:
      MissingDataError: there is no such file, or no network in the folder.
      DataError: the file is damaged, or the layers are of another network.
    """
    module = net.make("linear")
    if is_released(path):
        if not isinstance(module, VisionTransformer):
            raise DataError(f"--pretrained {path} is for --net vit; this network is {net.note}")
        return pretrained_vit(path, module, shape[0])
    if not net.named or not isinstance(module, nn.Module):
        raise DataError(
            "--pretrained needs a linen network with a linear last layer named head; give another "
            "--net"
        )
    shapes = jax.eval_shape(
        lambda: module.init(jax.random.key(0), jnp.zeros((1, *shape)), False)["params"]
    )
    folders = sorted(
        path.glob(f"{NETS}/*/naive/*"), key=lambda folder: (folder.parts[:-1], int(folder.name))
    )
    if not folders:
        raise MissingDataError(
            f"--pretrained {path}: no network of naive; give a run's folder with --keep-nets, or "
            "an .npz of a vision transformer"
        )
    checkpoints = open_existing(min(folders, key=lambda folder: int(folder.name)))
    arrays = checkpoints.arrays(checkpoints.numbers()[-1])
    layers = {name: layer for name, layer in shapes.items() if name != "head"}

    def stored_array(name: str, leaf: jax.ShapeDtypeStruct) -> jax.Array:
        array = arrays.get(f"learner/params/{name}")
        if array is None or array.shape != leaf.shape:
            state = "absent" if array is None else f"of shape {array.shape}"
            raise DataError(
                f"--pretrained {path}: {name} is {state}, not {leaf.shape}; give the network of "
                "that run as --net"
            )
        return jnp.asarray(array)

    leaves = [stored_array(name, leaf) for name, leaf in named_leaves(layers).items()]
    return jax.tree.unflatten(jax.tree.structure(layers), leaves)


def with_pretrained_layers(
    setup: Setup,
    module: object,
    layers: dict[str, PyTree],
    method: Method,
    arguments: StrategyArguments,
) -> Setup:
    """Return the setup that a method has on a network with pretrained layers below its head."""
    if method.adapt is not None:
        return method.adapt(setup, module, layers, arguments)
    begun = with_layers(setup, layers)
    if method.trains == "head":
        return begun._replace(
            trainable=lambda params: {
                name: jax.tree.map(lambda _, key=name: key not in layers, layer)
                for name, layer in params.items()
            }
        )
    return begun
