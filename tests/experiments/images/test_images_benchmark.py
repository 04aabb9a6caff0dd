"""Benchmarks of images: sizes of presets, networks that methods look into, order of training."""

from types import SimpleNamespace
from typing import get_args

import jax
import numpy as np
import pytest

from everlight.continual.methods.method import Requirement
from everlight.continual.methods.registry import METHODS
from everlight.models import MLP, NetworkRequest
from everlight_data.errors import DataError
from everlight_data.registry import IMAGE_SETS
from everlight_data.sets.data_set import DataSet
from everlight_data.sets.image_set import ImageSet
from everlight_experiments.continual.benchmarks.parts import module_of, network
from everlight_experiments.continual.benchmarks.run_data import SequenceId
from everlight_experiments.continual.training.programs import MethodPrograms
from everlight_experiments.continual.training.queue import check_jobs, jobs_of, train_jobs
from tests.experiments import command_runs


@pytest.fixture
def pictures(monkeypatch, rng):
    """Return a hundred classes of four training and four test images."""
    labels = np.tile(np.arange(100), 4)
    images = rng.integers(0, 256, (800, 32, 32, 3), dtype=np.uint8)
    complete = ImageSet("pictures", images, labels, labels, tuple(map(str, range(100))))
    monkeypatch.setitem(IMAGE_SETS, "cifar100", DataSet("", load=lambda request: complete))
    return complete


def loaded(*words):
    return command_runs.loaded("cifar100", *words)


def test_a_data_set_is_taken_in_its_presets_size(pictures):
    """The demo preset takes the first 20 classes at 16x16, or the given size."""
    small = loaded("--tasks", "3")
    images = small.data.shared(METHODS["naive"]).images
    assert images.shape == (160, 16, 16, 3)
    sequence = small.data.sequence(METHODS["naive"], SequenceId("evaluation", 0, 0))
    np.testing.assert_array_equal(np.bincount(sequence.class_task), [7, 7, 6])
    # Each is the mean of four pixels.
    block = pictures.images[0, 2:4, 4:6].astype(float).mean(axis=(0, 1))
    np.testing.assert_allclose(images[0, 1, 2], block, atol=0.51)
    full = loaded("--preset", "paper")
    assert full.data.shared(METHODS["naive"]).images.shape == (800, 32, 32, 3)
    with pytest.raises(DataError, match="--side 12; images of 32x32 shrink by integer factors"):
        loaded("--side", "12")


TINY = ("--classes", "4", "--tasks", "2", "--side", "8")


@pytest.mark.parametrize("name", ["HAT", "PackNet", "LUCIR"])
def test_methods_that_look_into_the_network_fit_that_of_pictures(pictures, name):
    """The methods are only traced, which refuses a layer that they do not find."""
    programs = MethodPrograms(loaded(*TINY, "--setting", "task-incremental"))
    assert jax.tree.leaves(programs.saved_shapes(METHODS[name]).learner.params)


def test_a_network_of_blocks_leaves_out_hat_and_packnet(pictures):
    deep = loaded(*TINY, "--net", "resnet:1", "--setting", "task-incremental")
    assert deep.training.words.startswith("reduced ResNet of 8 layers")
    assert "hidden layers" not in deep.setting.capabilities
    assert "stages" in deep.setting.capabilities


def test_methods_of_heads_learn_on_the_inputs_or_on_features_of_a_pretrained_network():
    net = network("mlp:5", NetworkRequest(10, 8), (8, 8, 1))
    assert module_of(net, METHODS["RanPAC"]) == MLP(10, ())
    assert module_of(net, METHODS["RanPAC"], pretrained=True) == net.make("linear")
    assert module_of(net, METHODS["LUCIR"]) == net.make("cosine")


def test_facts_of_a_run_are_those_of_its_seed_too(pictures):
    """The order of classes in the configuration is not a seed."""
    assert "order" not in loaded(*TINY).fingerprint(METHODS["naive"])


def test_methods_of_other_processes_come_last():
    """They train ER and EWC; EWC is free again once naive is trained."""
    taken, order, checked = {"EWC", "ER"}, [], []

    class Shared:
        def check(self, method):
            assert not order
            checked.append(method.name)

        def is_elsewhere(self, method, seeds):
            return method.name in taken

        def outcome(self, method, seeds):
            order.append(method.name)
            taken.discard("EWC")
            return SimpleNamespace(final=np.zeros(seeds), score="accuracy")

    setting = SimpleNamespace(capabilities=frozenset(get_args(Requirement)))
    benchmark = SimpleNamespace(setting=setting, row=lambda method: method)
    rows = [METHODS[name] for name in ("naive", "EWC", "ER", "joint")]
    column = "task-incremental"
    runners, jobs = {column: Shared()}, jobs_of({column: benchmark}, rows, 2)
    check_jobs(runners, jobs)
    outcomes = train_jobs(runners, jobs)
    assert order == ["naive", "EWC", "joint", "ER"]
    assert checked == ["naive", "EWC", "ER", "joint"]
    assert list(outcomes[column]) == ["naive", "EWC", "ER", "joint"]
