"""Networks that begin with given layers (`--pretrained`): of a release, a user's file or a run.

Methods that train additions or prompts (`Method.adapt`) freeze the layers; those that compute
features, or train a head alone, leave them as they are; all others train them too.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import PyTree

from everlight.continual import (
    ComputedInputs,
    Setup,
    StoredImages,
    network_setup,
    softmax_objective,
)
from everlight.continual.methods.method import Method, StrategyArguments
from everlight.models import Network, VisionTransformer, with_layers
from everlight.trees import named_leaves
from everlight_data.errors import DataError, MissingDataError
from everlight_data.pretrained.user_weights import FORMS, NetworkWeights, load_user_weights
from everlight_data.pretrained.vit_weights import pretrained_vit
from everlight_data.runs.checkpoints import open_existing
from everlight_experiments.run_folder.folder import NETS

RELEASED = (np.full(1, 0.5), np.full(1, 0.5))
"""Mean and deviation of all channels, 0 to 1, in the training of the ViTs of Google's release."""


class Layers(NamedTuple):
    """Parameters by layer, and batch statistics, with which a network begins."""

    params: dict[str, PyTree]
    batch_stats: dict[str, PyTree]


class Pretrained(NamedTuple):
    """Images, and the layers with which networks begin."""

    stored: StoredImages
    layers: Layers


def is_released(path: Path | None, net: str) -> bool:
    """Return True if a path and `--net` name a checkpoint of Google's release of ViTs."""
    return path is not None and path.suffix == ".npz" and net.partition(":")[0] == "vit"


def load_layers(path: Path, net: Network, shape: tuple[int, int, int]) -> Layers:
    """Return the layers below the head from a file or folder.

    It is an .npz of a ViT of Google's release; an .npz or orbax checkpoint of the user's own
    network; or a run's folder, whose network is naive's of the first seed after the last task.

    Args:
      path: path of the file or folder.
      net: network that begins with them.
      shape: height, width and channels of the images.

    Raises:
      MissingDataError: there is no such file, or no network in the folder.
      DataError: the file is damaged, or has other arrays than the network; the message has all
        differences.
    """
    module = net.make("linear")
    if isinstance(module, VisionTransformer) and path.suffix == ".npz":
        return Layers(pretrained_vit(path, module, shape[0]), {})
    inputs = ComputedInputs(lambda index: jnp.zeros((len(index), *shape)), shape)
    setup = network_setup(module, inputs, softmax_objective(), optax.identity())
    params, batch_stats = jax.eval_shape(setup.init, jax.random.key(0))
    weights = _weights_of_run(path) if any(path.glob(f"{NETS}/*")) else load_user_weights(path)
    head = _head(net, params, weights.params)
    below = {name: layer for name, layer in params.items() if name not in head}
    if not below:
        raise DataError(
            f"--pretrained {path} has another number of classes than --net, {net.note}, in a layer "
            "that holds the whole network, so that nothing of it would be loaded; name its layers "
            "as attributes of the network, and not as members of one list"
        )
    expected = named_leaves(below), named_leaves(batch_stats)
    stored = _without_layers(weights.params, head), weights.batch_stats
    differences = [
        line
        for shapes, arrays in zip(expected, stored, strict=True)
        for line in _differences(shapes, arrays)
    ]
    if differences:
        raise DataError(
            f"--pretrained {path} differs from --net, {net.note}: {'; '.join(differences)}. Only "
            "the head may differ: a layer named head, or one of another number of classes."
        )
    return Layers(_tree(below, stored[0]), _tree(batch_stats, stored[1]))


def _weights_of_run(run: Path) -> NetworkWeights:
    """Return the arrays of naive's network of a run's first seed after its last task."""
    folders = sorted(
        run.glob(f"{NETS}/*/naive/*"), key=lambda folder: (folder.parts[:-1], int(folder.name))
    )
    if not folders:
        raise MissingDataError(
            f"--pretrained {run}: no network of naive; give a run's folder with --keep-nets, or "
            f"{FORMS}"
        )
    checkpoints = open_existing(min(folders, key=lambda folder: int(folder.name)))
    arrays = checkpoints.arrays(checkpoints.numbers()[-1])
    parts = [f"learner/{name}/" for name in NetworkWeights._fields]
    return NetworkWeights(
        *(
            {
                name.removeprefix(part): leaf
                for name, leaf in arrays.items()
                if name.startswith(part)
            }
            for part in parts
        )
    )


def _head(net: Network, params: PyTree, weights: Mapping[str, np.ndarray]) -> set[str]:
    """Return the layers that are not taken: the head, or those of another number of classes."""
    if net.named:
        return {"head"}
    shapes = named_leaves(params)
    return {
        name.partition("/")[0]
        for name, array in weights.items()
        if name in shapes
        and array.shape[:-1] == shapes[name].shape[:-1]
        and array.shape[-1:] != shapes[name].shape[-1:] == (net.classes,)
    }


def _without_layers(arrays: Mapping[str, np.ndarray], layers: set[str]) -> dict[str, np.ndarray]:
    return {name: array for name, array in arrays.items() if name.partition("/")[0] not in layers}


def _differences(
    shapes: Mapping[str, jax.ShapeDtypeStruct], arrays: Mapping[str, np.ndarray]
) -> list[str]:
    """Return what is missing, unexpected or of another shape, in words."""
    common = [name for name in shapes if name in arrays]
    other = [
        f"{name} {arrays[name].shape} in place of {shapes[name].shape}"
        for name in common
        if arrays[name].shape != shapes[name].shape
    ]
    named = {
        "missing": [name for name in shapes if name not in arrays],
        "unexpected": [name for name in arrays if name not in shapes],
        "of another shape": other,
    }
    return [f"{what}: {', '.join(names)}" for what, names in named.items() if names]


def _tree(shapes: PyTree, arrays: Mapping[str, np.ndarray]) -> PyTree:
    """Return the arrays as a tree of these shapes and dtypes."""
    leaves = [jnp.asarray(arrays[name], leaf.dtype) for name, leaf in named_leaves(shapes).items()]
    return jax.tree.unflatten(jax.tree.structure(shapes), leaves)


def with_pretrained_layers(
    setup: Setup,
    module: object,
    layers: Layers,
    method: Method,
    arguments: StrategyArguments,
) -> Setup:
    """Return the setup that a method has on a network with pretrained layers below its head."""
    if method.adapt is not None:
        return method.adapt(setup, module, layers.params, arguments)
    begun = with_layers(setup, *layers)
    if method.trains == "head":
        return begun._replace(
            trainable=lambda params: {
                name: jax.tree.map(lambda _, key=name: key not in layers.params, layer)
                for name, layer in params.items()
            }
        )
    return begun
