"""Networks that begin with the layers of a run or of a released checkpoint, method by method."""

from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.continual.engine.tasks import init_learner
from everlight.continual.engine.updates import trainable_part
from everlight.continual.methods.method import INCOMPATIBILITIES, incompatibility
from everlight.continual.methods.registry import METHODS
from everlight.models import VisionTransformer, vit_layers
from everlight_data.errors import DataError, MissingDataError
from everlight_experiments import load_net
from everlight_experiments.cli import options_of
from everlight_experiments.commands.run import run_benchmark
from everlight_experiments.continual.benchmarks.run_data import SequenceId
from everlight_experiments.images.benchmark import compose
from everlight_experiments.images.config import DIGITS
from tests import refusals
from tests.models.released_vit import released_arrays

# One worker runs the group, so that the module's fixtures are computed once.
pytestmark = pytest.mark.xdist_group("pretrained")

NET = "vit:4,8,2,2"
ADDING = ("L2P", "DualPrompt", "CODA-Prompt", "LoRA", "InfLoRA", "EASE")
QUICK = ("--optimizer", "adam", "--learning-rate", "0.003", "--epochs", "1", "--batch-size", "64")


def run(runs, *words):
    arguments = ("digits", "--tasks", "2", *QUICK, "--seeds", "1", "--runs", str(runs), *words)
    return run_benchmark(options_of("run", arguments)).parent


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Return the folder of a run of the first five digits."""
    runs = tmp_path_factory.mktemp("runs")
    return run(runs, "--net", NET, "--classes", "5", "--methods", "naive", "--keep-nets")


def benchmark_of(tmp_path, path, net=NET, **changes):
    config = replace(DIGITS, net=net, first_class=5, tasks=(2,), pretrained=path, **changes)
    return compose(config, runs=tmp_path)


def setup_of(benchmark, name):
    method = METHODS[name]
    sequence = benchmark.data.sequence(method, SequenceId("evaluation", 0, 0))
    return benchmark.training.setup(method, benchmark.run_data(method, sequence))[0]


def below_the_head(params):
    return {name: layer for name, layer in params.items() if name != "head"}


def assert_equal(result, expected):
    jax.tree.map(np.testing.assert_array_equal, result, expected)


def test_networks_begin_with_the_last_ones_of_the_run(trained, tmp_path):
    benchmark = benchmark_of(tmp_path, trained)
    stored = below_the_head(load_net(trained, "naive", 0, 1).learner.params)
    plain = setup_of(benchmark, "naive").init(jax.random.key(3))[0]
    assert_equal(below_the_head(plain), stored)
    drawn = setup_of(benchmark_of(tmp_path, None), "naive").init(jax.random.key(3))[0]
    assert_equal(plain["head"], drawn["head"])
    assert plain["head"]["kernel"].shape == (8, 5)
    assert not np.array_equal(drawn["position"], plain["position"])
    # Other weights make other runs.
    assert len({*benchmark.data.checksums} - {*benchmark_of(tmp_path, None).data.checksums}) > 10
    assert f"begun with the layers of {trained}" in benchmark.training.words


def test_methods_freeze_the_layers_train_them_or_train_additions(trained, tmp_path):
    benchmark = benchmark_of(tmp_path, trained)
    expected = {
        "L2P": {"prompts", "head"},
        "DualPrompt": {"prompts", "head"},
        "CODA-Prompt": {"prompts", "head"},
        "LoRA": {"lora", "head"},
        "InfLoRA": {"lora", "merged", "head"},
        "EASE": {"adapters", "head"},
    }
    plain = setup_of(benchmark, "naive")
    images = plain.gather(jnp.arange(4), None)
    params = plain.init(jax.random.key(0))[0]
    features = plain.apply(params, {}, images, False, None)[0].features
    for name, layers in expected.items():
        setup = setup_of(benchmark, name)
        initial = setup.init(jax.random.key(0))[0]
        assert set(initial) == layers
        if name in ("LoRA", "InfLoRA", "EASE"):
            result = setup.apply(initial, {}, images, False, None)[0].features
            np.testing.assert_array_equal(result, features)
    # Class means and ridge regression read the features, and CWR trains the head alone.
    frozen = setup_of(benchmark, "SimpleCIL")
    initial = init_learner(frozen, 5, jax.random.key(0)).params
    assert_equal(below_the_head(initial), below_the_head(params))
    moved = trainable_part(frozen, initial, jax.tree.map(jnp.ones_like, initial))
    assert not any(map(np.any, jax.tree.leaves(below_the_head(moved))))
    assert np.all(moved["head"]["kernel"] == 1)
    assert plain.trainable is None


def test_additions_need_a_pretrained_transformer(tmp_path):
    plain, cnn = benchmark_of(tmp_path, None), benchmark_of(tmp_path, None, "cnn")
    for name in ADDING:
        for item in (plain, cnn):
            result = incompatibility(METHODS[name], item.setting.capabilities)
            assert result == INCOMPATIBILITIES["pretrained transformer"]


def test_a_released_checkpoint_has_its_own_normalization(tmp_path, rng):
    net = VisionTransformer(5, 4, 8, 2, 2, 32)
    arrays = released_arrays(net, 2, rng, channels=1)
    np.savez(tmp_path / "vit.npz", **arrays)
    setup = setup_of(benchmark_of(tmp_path, tmp_path / "vit.npz"), "naive")
    params = below_the_head(setup.init(jax.random.key(0))[0])
    assert_equal(params, vit_layers(net, arrays, 8))
    result = np.asarray(setup.gather(jnp.arange(3), None))
    expected = benchmark_of(tmp_path, None).data.images.images[:3] / 127.5 - 1
    np.testing.assert_allclose(result, expected, atol=1e-6)


@pytest.mark.slow
def test_every_method_of_a_pretrained_network_runs(trained, tmp_path):
    methods = (*ADDING, "SLCA", "SimpleCIL", "APER", "RanPAC")
    words = ("--first-class", "5", "--net", NET, "--pretrained", str(trained))
    values = ("--hyperparameters", "SLCA=0.01", "RanPAC=100", "--no-published")
    folder = run(tmp_path, *words, "--methods", *methods, *values)
    with np.load(folder / "results.npz") as results:
        for name in ("naive", *methods):
            assert np.all(results[f"class-incremental/{name}/accuracy"] > 0.1)
    report = (folder / "report.html").read_text(encoding="utf-8")
    assert "5 classes at 8×8 pixels, grey, after the first 5" in report


def test_unsuitable_pretrained_networks_are_refused_in_one_line(trained, tmp_path):
    def refused(message, *arguments, error=DataError, **changes):
        refusals.refused(message, lambda: benchmark_of(tmp_path, *arguments, **changes), error)

    refused("holds no checkpoint. Give an .npz of arrays", tmp_path, error=MissingDataError)
    refused("of another shape: .*block1/key/bias", trained, "vit:4,12,2,2")
    refused("does not exist. Give an .npz", tmp_path / "vit.npz", "cnn", error=MissingDataError)
    refused("both replace the network", trained, features="efficientnet-lite0")
