"""Networks of a user's file that begin with the weights of a file or an orbax checkpoint."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import orbax.checkpoint as ocp
import pytest

from everlight.continual.methods.registry import METHODS
from everlight.trees import named_leaves
from everlight_data.errors import DataError, MissingDataError
from everlight_data.pretrained.user_weights import load_user_weights
from everlight_experiments.continual.benchmarks.run_data import SequenceId
from everlight_experiments.images.benchmark import compose
from everlight_experiments.images.config import DIGITS
from tests.refusals import refused

FILE = """
import flax.linen as nn
from flax import nnx

class Linen(nn.Module):
    classes: int

    @nn.compact
    def __call__(self, images, train):
        x = nn.Dense(6, name="first")(images.reshape(len(images), -1))
        x = nn.BatchNorm(use_running_average=not train, name="norm")(x)
        return nn.Dense(self.classes, name="head")(nn.relu(x))

class Module(nnx.Module):
    def __init__(self, classes, rngs):
        self.first = nnx.Linear(64, 6, rngs=rngs)
        self.norm = nnx.BatchNorm(6, rngs=rngs)
        self.last = nnx.Linear(6, classes, rngs=rngs)

    def __call__(self, images):
        return self.last(nnx.relu(self.norm(self.first(images.reshape(len(images), -1)))))
"""
HEADS = {"Linen": "head", "Module": "last"}


def setup_of(tmp_path, name, path=None, classes=4):
    (tmp_path / "mine.py").write_text(FILE)
    net = f"{tmp_path / 'mine.py'}:{name}"
    config = replace(DIGITS, net=net, classes=classes, tasks=(2,), pretrained=path)
    benchmark = compose(config, runs=tmp_path)
    method = METHODS["naive"]
    sequence = benchmark.data.sequence(method, SequenceId("evaluation", 0, 0))
    return benchmark.training.setup(method, benchmark.run_data(method, sequence))[0]


def weights_of(tmp_path, name, classes):
    """Return weights of a network with so many classes, none of them at its initial value."""
    params, stats = setup_of(tmp_path, name, classes=classes).init(jax.random.key(7))
    tree = {"params": params, "batch_stats": stats}
    return jax.tree.map(lambda leaf: leaf + 0.25, tree)


def save(folder, tree, form):
    if form == "npz":
        np.savez(folder / "weights.npz", **named_leaves(tree))
        return folder / "weights.npz"
    if form == "manager":
        with ocp.CheckpointManager(folder / "steps") as manager:
            for step in (3, 12):
                values = jax.tree.map(lambda leaf, step=step: leaf * (step == 12), tree)
                manager.save(step, args=ocp.args.StandardSave(values))
        return folder / "steps"
    with ocp.StandardCheckpointer() as writer:
        writer.save(folder / "weights", tree)
    return folder / "weights"


@pytest.mark.parametrize("form", ["npz", "checkpoint", "manager"])
@pytest.mark.parametrize("name", HEADS)
@pytest.mark.parametrize("classes", [4, 10])
def test_networks_begin_with_all_layers_but_a_head_of_other_classes(tmp_path, name, form, classes):
    tree = weights_of(tmp_path, name, classes)
    begun = setup_of(tmp_path, name, save(tmp_path, tree, form)).init(jax.random.key(1))
    drawn = setup_of(tmp_path, name).init(jax.random.key(1))
    is_drawn = name == "Linen" or classes == 10
    for part, values, initial in zip(("params", "batch_stats"), begun, drawn, strict=True):
        for path, leaf in named_leaves(values).items():
            is_head = path.startswith(HEADS[name]) and is_drawn
            source = initial if is_head else tree[part]
            np.testing.assert_array_equal(leaf, named_leaves(source)[path])


def test_all_differences_stand_in_one_message(tmp_path):
    tree = weights_of(tmp_path, "Linen", 4)
    params = tree["params"]
    params["more"] = {"kernel": jnp.ones(3)}
    params["first"]["kernel"] = jnp.ones((64, 5))
    del params["norm"]["scale"]
    message = refused(
        None, lambda: setup_of(tmp_path, "Linen", save(tmp_path, tree, "npz")), DataError
    )
    assert "missing: norm/scale" in message
    assert "unexpected: more/kernel" in message
    assert "of another shape: first/kernel (64, 5) in place of (64, 6)" in message


def test_arrays_without_the_names_of_collections_are_parameters(tmp_path):
    tree = weights_of(tmp_path, "Linen", 4)
    with pytest.raises(DataError, match="missing: norm/mean, norm/var"):
        setup_of(tmp_path, "Linen", save(tmp_path, tree["params"], "npz"))


def save_items(folder, step=3, **items):
    """Save a step of several items: the values that fill their only array."""
    trees = {name: {"kernel": np.full(2, value, np.float32)} for name, value in items.items()}
    with ocp.CheckpointManager(folder) as manager:
        saved = {name: ocp.args.StandardSave(tree) for name, tree in trees.items()}
        manager.save(step, args=ocp.args.Composite(**saved))
    return folder


@pytest.mark.parametrize(
    ("items", "value"),
    [
        ({"ema_params": 0, "params": 1, "state": 2}, 1),
        ({"ema_params": 0, "state": 2}, 2),
        ({"network": 3}, 3),
    ],
)
def test_the_item_of_parameters_is_read_beside_others_and_files_are_no_steps(
    tmp_path, items, value
):
    folder = save_items(tmp_path / "steps", **items)
    (folder / "7").write_text("no folder")
    assert load_user_weights(folder).params["kernel"].tolist() == [value, value]


def test_several_items_without_a_known_name_are_refused(tmp_path):
    folder = save_items(tmp_path / "steps", ema_params=0, network=1)
    message = r"steps/3 holds the checkpoints ema_params, network\. Give the folder of one\.$"
    refused(message, lambda: load_user_weights(folder), DataError)
    assert load_user_weights(folder / "3" / "network").params["kernel"].tolist() == [1, 1]


def test_a_folder_without_a_checkpoint_and_damaged_weights_are_refused(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(MissingDataError, match="holds no checkpoint"):
        setup_of(tmp_path, "Linen", tmp_path / "empty")
    tree = weights_of(tmp_path, "Linen", 4)
    tree["params"]["first"]["bias"] = jnp.full(6, jnp.nan)
    with pytest.raises(DataError, match="first/bias is float32, or not finite"):
        setup_of(tmp_path, "Linen", save(tmp_path, tree, "checkpoint"))
