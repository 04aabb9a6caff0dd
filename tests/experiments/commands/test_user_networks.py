"""Networks of a user's file, of NNX and of Equinox, from the command line to the report."""

import numpy as np
import pytest

from everlight.models import NetworkRequest
from everlight_data.errors import DataError
from everlight_data.images.digits import load_digits
from everlight_experiments import load_net
from everlight_experiments.cli import options_of
from everlight_experiments.commands.run import run_benchmark
from everlight_experiments.continual.benchmarks.parts import network, network_capabilities
from everlight_experiments.plasticity.command import run_plasticity
from tests.experiments.command_runs import arrays_of, run

NNX = """
from flax import nnx
from everlight.continual import Outputs

class Net(nnx.Module):
    def __init__(self, classes, rngs):
        self.hidden = nnx.Linear(64, 16, rngs=rngs)
        self.norm = nnx.BatchNorm(16, rngs=rngs)
        self.head = nnx.Linear(16, classes, rngs=rngs)

    def __call__(self, images):
        features = nnx.relu(self.norm(self.hidden(images.reshape(len(images), -1))))
        return Outputs(self.head(features), features)
"""
LINEN = """
import flax.linen as nn

class Logits(nn.Module):
    classes: int

    @nn.compact
    def __call__(self, images, train):
        return nn.Dense(self.classes, name="last")(images.reshape(len(images), -1) / 4)

def net(classes):
    return Logits(classes)

def wide(classes):
    return Logits(classes + 3)
"""
EQUINOX = """
import equinox as eqx
import jax
from everlight.continual import Outputs

class Module(eqx.Module):
    hidden: eqx.nn.Linear
    norm: eqx.nn.BatchNorm
    head: eqx.nn.Linear

    def __init__(self, classes, key):
        first, second = jax.random.split(key)
        self.hidden = eqx.nn.Linear(64, 16, key=first)
        self.norm = eqx.nn.BatchNorm(16, "batch", mode="batch")
        self.head = eqx.nn.Linear(16, classes, key=second)

    def __call__(self, image, state):
        normed, state = self.norm(self.hidden(image.reshape(-1)), state)
        features = jax.nn.relu(normed)
        return Outputs(self.head(features), features), state

def Net(classes, key):
    return eqx.nn.make_with_state(Module)(classes, key)
"""


@pytest.mark.parametrize(
    ("text", "package"), [(NNX, "flax"), (EQUINOX, "equinox")], ids=["nnx", "equinox"]
)
def test_a_network_of_a_file_learns_and_is_kept(text, package, tmp_path):
    pytest.importorskip(package, reason=f"{package} is not installed (its extra)")
    (tmp_path / "mine.py").write_text(text)
    words = ("digits", "--net", f"{tmp_path / 'mine.py'}:Net", "--methods", "ER")
    short = ("--seeds", "1", "--tasks", "2", "--epochs", "2", "--keep-nets")
    report = run(tmp_path, *words, *short)
    matrices = arrays_of(report)["class-incremental/ER/accuracy by task"]
    assert matrices.shape == (1, 2, 2)
    assert matrices[:, 1].mean() > 0.6
    net = load_net(report.parent, "ER", 0, 1)
    digits = load_digits()
    right = net.predict(digits.images[-200:]).argmax(axis=1) == digits.test_labels[-200:]
    assert right.mean() > 0.5
    assert set(net.learner.params) == {"hidden", "norm", "head"}


def test_results_of_a_changed_file_are_refused(tmp_path):
    """Its Linen network returns logits alone."""
    path = tmp_path / "mine.py"
    path.write_text(LINEN)
    short = ["--seeds", "1", "--tasks", "2", "--epochs", "1", "--methods", "naive"]
    words = tmp_path, "digits", "--net", f"{path}:net", *short
    report = run(*words)
    assert arrays_of(report)["class-incremental/naive/accuracy by task"][0, 0, 0] > 0.6
    # The run continues with the same file.
    assert run(*words) == report
    path.write_text(LINEN.replace("/ 4", "* 0"))
    with pytest.raises(DataError, match=r"net_version: stored '\w+', now '\w+'.*--tag"):
        run(*words)


def test_rows_of_plasticity_of_a_changed_file_are_refused(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(LINEN)
    arguments = ["regression", "--net", f"{path}:net", "--runs", str(tmp_path), "--seeds", "1"]
    words = [*arguments, "--methods", "naive", "--tasks", "2", "--samples", "20"]
    run_plasticity(options_of("plasticity", words))
    path.write_text(LINEN.replace("/ 4", "* 0"))
    with pytest.raises(DataError, match="net_version"):
        run_plasticity(options_of("plasticity", words))


CHAIN = """
import flax.linen as nn
from everlight.continual import Outputs

class Net(nn.Module):
    classes: int

    @nn.compact
    def __call__(self, images, train):
        values = nn.relu(nn.Dense(8, name="hidden1")(images.reshape(len(images), -1)))
        return Outputs(nn.Dense(self.classes, name="head")(values), values, {"hidden1": values})
"""


def final_accuracies(net, folder, *words):
    arguments = ("digits", "--net", net, "--seeds", "1", "--tasks", "2", "--epochs", "2", *words)
    results = arrays_of(run(folder, *arguments))
    return {name: item for name, item in results.items() if name.endswith("accuracy by task")}


def test_named_layers_of_a_file_give_the_bits_of_the_same_built_in_network(tmp_path):
    """They have the same initial weights and the same steps; each method changes the result."""
    (tmp_path / "mine.py").write_text(CHAIN)
    words = ("--methods", "WA", "CBP", "ReDo", "--hyperparameters", "CBP=0.1", "ReDo=0.1")
    words += ("--method-arguments", "CBP:maturity=2", "ReDo:period=5")
    user_network = final_accuracies(f"{tmp_path / 'mine.py'}:Net", tmp_path / "own", *words)
    built_in = final_accuracies("mlp:8", tmp_path / "built_in", *words)
    # Finetuning is trained beside them.
    assert len(user_network) == len({values.tobytes() for values in user_network.values()}) == 4
    for name, values in built_in.items():
        np.testing.assert_array_equal(user_network[name], values)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (CHAIN, {"named head", "hidden layers"}),
        (CHAIN.replace('name="head"', 'name="last"'), set()),
        (CHAIN.replace(', {"hidden1": values}', ""), {"named head"}),
        (NNX, {"named head"}),
    ],
)
def test_layers_of_a_file_meet_requirements_by_their_names(text, named, tmp_path):
    """No network here sets the kind of its head, or states stages."""
    (tmp_path / "mine.py").write_text(text)
    net = network(f"{tmp_path / 'mine.py'}:Net", NetworkRequest(10, 8), (8, 8, 1))
    linen = {"layer inputs", "layer outputs"} if text is not NNX else set()
    assert network_capabilities(net) == named | linen


@pytest.mark.parametrize(
    ("words", "shape"),
    [
        (("run", "digits"), r"\(2, 13\) for 2 images of 10 classes"),
        (("run", "iirc"), r"\(2, \d+\) for 2 images of \d+ classes"),
        (("plasticity", "regression"), r"\(2, 4\) for 2 images of 1 classes"),
    ],
    ids=" ".join,
)
def test_a_head_of_another_width_is_refused_before_a_folder_is_made(words, shape, tmp_path):
    (tmp_path / "mine.py").write_text(LINEN)
    runs = tmp_path / "runs"
    command, *others = words
    arguments = [*others, "--net", f"{tmp_path / 'mine.py'}:wide", "--runs", str(runs)]
    start = {"run": run_benchmark, "plasticity": run_plasticity}[command]
    message = rf"^--net .*mine.py:wide: net returns outputs of shape {shape}"
    with pytest.raises(DataError, match=message):
        start(options_of(command, arguments))
    assert not runs.exists()
