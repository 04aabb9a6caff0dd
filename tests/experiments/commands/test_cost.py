"""Costs of the papers' presets: steps by hand, a row for each, and devices that are not there."""

import importlib.util

import jax
import numpy as np
import pytest

from everlight.continual.engine.cost.estimate import Estimate, count_sequence_steps, estimate_run
from everlight.continual.engine.cost.targets import chips_of_a_v5e
from everlight.continual.engine.sequence import initial_state
from everlight.continual.methods.registry import METHODS
from everlight_data.errors import DataError, MissingDataError
from everlight_experiments.commands import cost
from everlight_experiments.images.benchmark import compose
from everlight_experiments.images.config import DIGITS
from everlight_experiments.run_folder.compilation import describe_tpu
from tests.refusals import refused


def work():
    return cost.Work("digits", compose(DIGITS), METHODS["EWC"])


@pytest.mark.parametrize(
    ("created", "steps"),
    [
        (cost.icifar, 10 * 22 * int(np.ceil(4_500 / 32))),
        (lambda: cost.core50_nc("Mid-CaffeNet"), 2_000 + 8 * 300),
        (
            lambda: cost.der_on_images("split-cifar10", 10, (5000, 1000), 32),
            5 * 50 * int(np.ceil(10_000 / 32)),
        ),
    ],
)
def test_the_papers_steps_by_hand(created, steps):
    result = created()
    assert count_sequence_steps(result.run.protocol, result.run.sequence, result.replayed) == steps


@pytest.mark.parametrize("make", cost.WORKS)
def test_every_row_s_run_is_traced_to_its_parameters(make):
    params = initial_state(make().run).result.learner.params
    assert sum(leaf.size for leaf in jax.tree.leaves(params)) > 100_000


def test_a_row_is_printed_for_every_run(capsys, monkeypatch):
    monkeypatch.setattr(cost, "WORKS", (work,))
    cost.run_cost(cost.CostOptions())
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    *rest, hours, at_once = lines[2].split()
    assert rest[:3] == ["digits:", "EWC", "17,610"]
    assert hours == "–"
    assert int(at_once.replace(",", "")) > 1000


def test_a_step_is_not_timed_on_a_device_that_is_elsewhere():
    with pytest.raises(DataError, match="--timed is for --device here"):
        cost.run_cost(cost.CostOptions(device="tpu-v5e", timed=True))


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="extra tpu not installed")
def test_a_step_on_a_tpu_copies_no_data_set():
    """The images have 184 MB; in the layout of images every step copied 742 MB."""
    describe_tpu()
    result = estimate_run(cost.icifar().run, chips_of_a_v5e()[0])
    assert result.data_bytes > 180e6
    assert result.working_bytes < 50e6


@pytest.mark.parametrize(
    ("device", "package", "message"),
    [("tpu-v5e", "libtpu", "install the extra tpu"), ("h100", "jax_plugins", "extra cuda12 or")],
)
def test_without_the_device_s_compiler_the_extra_is_named(device, package, message):
    if importlib.util.find_spec(package):
        pytest.skip(f"{package} is installed")
    refused(message, lambda: cost.run_cost(cost.CostOptions(device=device)), MissingDataError)


@pytest.mark.parametrize("kernels", [505, None])
def test_kernels_of_a_gpu_are_printed(capsys, monkeypatch, kernels):
    result = Estimate(416, 0, 1, 1, 1.0, 0.5, kernels=kernels)
    monkeypatch.setattr(cost, "WORKS", (work,))
    monkeypatch.setattr(cost, "estimate_run", lambda *arguments: result)
    cost.run_cost(cost.CostOptions())
    _, header, row, _ = capsys.readouterr().out.splitlines()
    shown = header.endswith(" kernels"), row.endswith(" 505")
    assert shown == (kernels is not None,) * 2
