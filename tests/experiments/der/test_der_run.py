"""The command of DER's table on digits: columns, settings by benchmark, and the printed numbers."""

from dataclasses import replace

import jax
import numpy as np
import pytest

from everlight.continual import Protocol
from everlight_data.errors import DataError
from everlight_experiments.cli import options_of
from everlight_experiments.continual.training.programs import MethodPrograms
from everlight_experiments.der import config as settings
from everlight_experiments.der import paper
from everlight_experiments.images.benchmark import shapes
from everlight_experiments.images.config import config_of
from everlight_experiments.images.methods.published_settings import PUBLISHED
from tests.experiments.command_runs import arrays_of
from tests.refusals import refused

FULL = settings.PAPER_PRESETS["paper"]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    words = ["--runs", str(tmp_path_factory.mktemp("runs"))]
    tiny = replace(settings.PAPER_PRESETS["demo"], benchmarks=("permuted-digits",), seeds=1)
    options = replace(options_of("paper der", words), config=replace(tiny, methods=("SGD", "ER")))
    report = paper.PAPER.run(options)
    return report, arrays_of(report)


def test_methods_with_a_memory_have_a_column_per_buffer(results):
    report, arrays = results
    assert arrays["permuted-digits, no memory/SGD/accuracy"].shape == (1, 4)
    column = "permuted-digits, buffer of 200/ER"
    assert np.isfinite(arrays[f"{column}/accuracy"][0, -1])
    assert arrays[f"{column}/stored_samples"].max() == 200
    assert "permuted-digits, no memory/ER/accuracy" not in arrays
    # Digits are not the paper's data.
    assert "Published and own numbers" not in report.read_text()


@pytest.mark.parametrize(
    ("benchmark", "data", "size", "method"),
    [
        ("permuted-mnist", ("mnist", "permuted"), 200, "DER++"),
        ("rotated-mnist", ("mnist", "rotated"), 500, "DER"),
        ("split-cifar10", ("cifar10", "classes"), 5120, "ER"),
        ("split-cifar100", ("cifar100", "classes"), 500, "DER++"),
        ("split-cifar100", ("cifar100", "classes"), 2000, "BiC"),
        ("split-tiny-imagenet", ("tiny-imagenet", "classes"), 200, "DER"),
    ],
)
def test_every_method_has_the_settings_of_its_data_and_buffer(benchmark, data, size, method):
    """The numbers are tested in `images/methods/test_published_settings.py`."""
    expected = PUBLISHED[data].with_buffer(size)[method]
    config = FULL.benchmark_of(benchmark, size)
    chosen = config_of(config, settings.PAPER_METHODS[method])
    for name in ("learning_rate", "replay_batch_size", "arguments"):
        assert getattr(chosen, name) == getattr(expected, name)
    assert chosen.buffer_size == size


def test_coefficients_of_methods_without_a_memory_are_those_of_the_benchmark():
    permuted, rotated = (FULL.benchmark_of(name, 200) for name in settings.MNIST_STREAMS)
    # The authors' penalty is twice the project's.
    assert permuted.grids["online EWC"] == rotated.grids["online EWC"] == (1.4,)
    assert (permuted.grids["SI"], rotated.grids["SI"]) == ((0.5,), (1.0,))
    assert config_of(rotated, settings.PAPER_METHODS["joint"]).learning_rate == 0.2


def test_methods_are_trained_with_the_coefficient_of_their_benchmark():
    config = replace(FULL, benchmarks=("rotated-digits",), methods=("online EWC", "SI", "ER"))
    options = options_of("paper der", [])
    jobs = paper.PAPER.experiment(config, None, options).jobs
    by_name = {job.method.name: job.method.hyperparameters for job in jobs}
    # ER has none.
    assert by_name == {"online EWC": (1.4,), "SI": (1.0,), "ER": ()}


def test_methods_and_buffers_without_settings_are_left_out():
    """Mammoth has none for GEM and HAL on Tiny-ImageNet, nor for EWC and SI on CIFAR-100."""
    names = {
        (benchmark, size): [method.name for method in FULL.column_of(benchmark, size).methods]
        for benchmark in ("split-cifar100", "split-tiny-imagenet")
        for size in (None, 500)
    }
    assert names["split-tiny-imagenet", 500] == ["ER", "A-GEM", "iCaRL", "DER", "DER++"]
    assert names["split-cifar100", None] == ["SGD", "joint"]
    assert "X-DER-RPC" in names["split-cifar100", 500]
    assert FULL.sizes_of("split-cifar100") == [500, 2000]
    assert FULL.sizes_of("rotated-mnist") == [200, 500, 5120]


@pytest.mark.parametrize(
    ("name", "size", "methods"),
    [
        ("split-cifar10", 200, ("SGD", "ER", "A-GEM", "iCaRL", "DER++")),
        ("split-cifar100", 500, ("ER", "ER-ACE", "BiC", "X-DER-RPC")),
        ("split-tiny-imagenet", 200, ("SGD", "iCaRL", "DER++")),
    ],
)
def test_benchmarks_for_an_accelerator_compile_with_their_methods(name, size, methods):
    config = FULL.benchmark_of(name, size)
    small = replace(
        config,
        classes=10,
        per_class=(4, 2),
        side=64 if name == "split-tiny-imagenet" else 32,
        net="resnet18:2",
        tasks=(5,),
        protocol=Protocol(epochs=1, batch_size=4, select="last"),
    )
    programs = MethodPrograms(shapes("der", small, "class-incremental"))
    for method in methods:
        assert jax.tree.leaves(programs.saved_shapes(settings.PAPER_METHODS[method]).learner.params)


def test_printed_numbers_are_of_methods_and_buffers_of_the_command():
    for reference in paper.REFERENCES:
        assert reference.method in FULL.methods
        assert 0 < reference.published.mean < 1
    columns = {reference.column for reference in paper.REFERENCES}
    offered = {
        paper.column_of(name, size)
        for name in FULL.benchmarks
        for size in (None, *FULL.sizes_of(name))
    }
    assert columns <= offered


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--methods BiC", "none of --methods has settings"),
        (
            "--buffer-sizes 200 300",
            "--buffer-sizes 300 has no settings for permuted-d.*; give some of 200, 500, 5120$",
        ),
        (
            "--benchmarks permuted-digits split-cifar100",
            "--benchmarks split-cifar100 has no .* buffer of 200; give --buffer-sizes 500 2000$",
        ),
    ],
)
def test_methods_and_buffers_without_settings_for_any_benchmark_are_refused(
    words, message, tmp_path
):
    options = options_of("paper der", [*words.split(), "--runs", str(tmp_path)])
    refused(message, lambda: paper.PAPER.run(options), DataError)
