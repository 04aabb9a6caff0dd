"""Costs of the papers' presets: steps by hand, sizes by the arrays themselves."""

import importlib.util

import jax
import numpy as np
import pytest

from everlight.continual import Protocol
from everlight.continual.engine.run import Run
from everlight.continual.registry import METHODS, Needs
from everlight_data.errors import DataError, MissingDataError
from everlight_experiments import cost
from everlight_experiments.continual.benchmark import RunData, own_data
from tests.contracts.strategies import (
    CLASSES,
    DATA,
    KEY,
    PROTOCOL,
    SEQUENCE,
    TASKS,
    build_with,
)
from tests.driving import drive_run


def begin(method, data):
    """Return the setup of the strategies' contract, whose data are features alone."""
    setup, _ = build_with("naive")(data.shared)
    return setup, Needs(TASKS, CLASSES, exemplars_per_class=3, importance_samples=64)


def work(name="EWC", protocol=PROTOCOL, replayed=0):
    return cost.Work("digits", METHODS[name], begin, protocol, DATA, SEQUENCE, replayed)


def test_sizes_are_those_of_the_arrays_that_a_run_has():
    found = cost.estimate(work(), jax.devices()[0])
    build, protocol, _, sequence = work().parts
    data = RunData(DATA, own_data(SEQUENCE))
    first = next(drive_run(Run(build, protocol, data, sequence, KEY)))
    assert found.parameters == 6 * 16 + 16 * 20
    assert found.data_bytes == sum(leaf.nbytes for leaf in jax.tree.leaves(data))
    assert found.state_bytes == sum(leaf.nbytes for leaf in jax.tree.leaves(first))
    # Forward, and backward twice as much, of 8 samples; the penalty and the optimizer beside it.
    products = 3 * 2 * 8 * found.parameters
    assert products / 2 < found.operations < 3 * products


def test_steps_are_counted_as_they_are_taken():
    """By the driver's own count; exemplars of earlier classes are passed over too."""
    *_, last = drive_run(Run(build_with("naive"), PROTOCOL, DATA, SEQUENCE, KEY))
    assert cost.steps_of(work("naive")) == last.result.usage.steps[-1]
    *_, last = drive_run(Run(build_with("experience replay"), PROTOCOL, DATA, SEQUENCE, KEY))
    assert cost.steps_of(work("ER-balanced", replayed=3)) == last.result.usage.steps[-1]
    of_steps = Protocol(epochs=2, first_epochs=5, batch_size=8, epoch_steps=7, select="last")
    assert cost.steps_of(work(protocol=of_steps)) == 5 * 7 + 9 * 2 * 7


def test_the_papers_steps_by_hand():
    assert cost.steps_of(cost.icifar()) == 10 * 22 * int(np.ceil(4_500 / 32))
    assert cost.steps_of(cost.core50_nc("Mid-CaffeNet")) == 2_000 + 8 * 300


def test_a_row_is_printed_for_every_run(capsys, monkeypatch):
    monkeypatch.setattr(cost, "WORKS", (work,))
    cost.run_cost(cost.CostOptions())
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    *rest, hours, at_once = lines[2].split()
    assert rest[:3] == ["digits:", "EWC", "416"]
    assert hours == "–"
    assert int(at_once.replace(",", "")) > 1000


def test_a_step_is_timed_on_zeros():
    """Between a microsecond and a second a step, of 0.1 million operations."""
    found = cost.estimate(work(), jax.devices()[0], timed=True)
    assert 1e-6 < found.step_seconds < 1
    with pytest.raises(DataError, match="--timed is for --device here"):
        cost.run_cost(cost.CostOptions(device="tpu-v5e", timed=True))


def test_the_least_a_step_takes_is_bounded_by_its_operations_or_by_its_bytes():
    assert cost.least_seconds({"flops": 197e12, "bytes accessed": 1}) == pytest.approx(1)
    assert cost.least_seconds({"flops": 1, "bytes accessed": 2 * 819e9}) == pytest.approx(2)


def test_runs_at_once_share_the_data():
    found = cost.Estimate(1, 100, 20, 30, 1.0, 1, None)
    assert [found.at_once(memory) for memory in (90, 149, 150, 349)] == [0, 0, 1, 4]


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="extra tpu not installed")
def test_a_step_on_a_tpu_copies_no_data_set():
    """Of 184 MB of images; laid out as images are, 742 MB were copied within a step."""
    found = cost.estimate(cost.icifar(), cost.chips_of_a_v5e()[0])
    assert found.data_bytes > 180e6
    assert found.working_bytes < 50e6


@pytest.mark.skipif(importlib.util.find_spec("libtpu") is not None, reason="libtpu is installed")
def test_without_the_tpu_s_compiler_the_extra_is_named():
    with pytest.raises(MissingDataError, match="install the extra tpu"):
        cost.run_cost(cost.CostOptions(device="tpu-v5e"))
