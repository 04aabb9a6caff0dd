"""Costs of a run before it is trained: sizes by the arrays themselves, steps as they are taken."""

import jax
import pytest

from everlight.continual import Protocol
from everlight.continual.engine.cost.estimate import Estimate, count_sequence_steps, estimate_run
from everlight.continual.engine.cost.targets import PEAKS
from everlight.continual.engine.run import Run
from tests.contracts.strategies import DATA, KEY, PROTOCOL, SEQUENCE, build_with
from tests.single_run import drive_run


def run(name="EWC"):
    return Run(build_with(name), PROTOCOL, DATA, SEQUENCE, KEY)


def test_sizes_equal_the_arrays_of_a_run_and_a_step_is_timed_on_zeros():
    """A step of 0.1 million operations takes between a microsecond and a second."""
    result = estimate_run(run(), jax.devices()[0], timed_steps=3)
    first = next(drive_run(run()))
    assert result.parameters == 6 * 16 + 16 * 20
    assert result.data_bytes == sum(leaf.nbytes for leaf in jax.tree.leaves(DATA))
    assert result.state_bytes == sum(leaf.nbytes for leaf in jax.tree.leaves(first))
    # Backward costs twice as much as forward, for 8 samples; penalty and optimizer come on top.
    products = 3 * 2 * 8 * result.parameters
    assert products / 2 < result.operations < 3 * products
    assert 1e-6 < result.step_seconds < 1
    assert result.kernels is None


def test_counted_steps_equal_the_steps_of_a_run():
    """The driver's count is the reference; exemplars of earlier classes are counted too."""
    for name, replayed in (("naive", 0), ("ER-balanced", 3)):
        *_, last = drive_run(run(name))
        assert count_sequence_steps(PROTOCOL, SEQUENCE, replayed) == last.result.usage.steps[-1]
    of_steps = Protocol(epochs=2, first_epochs=5, batch_size=8, epoch_steps=7, select="last")
    assert count_sequence_steps(of_steps, SEQUENCE) == 5 * 7 + 9 * 2 * 7


@pytest.mark.parametrize(
    ("kind", "operations", "bandwidth"),
    [("TPU v5 lite", 197e12, 819e9), ("NVIDIA H100 80GB HBM3", 989e12, 3.35e12)],
)
def test_the_least_a_step_takes_is_bounded_by_its_operations_or_by_its_bytes(
    kind, operations, bandwidth
):
    least = PEAKS[kind].least_seconds
    assert least({"flops": operations, "bytes accessed": 1.0}) == pytest.approx(1)
    assert least({"flops": 1.0, "bytes accessed": 2 * bandwidth}) == pytest.approx(2)


def test_runs_at_once_share_the_data():
    result = Estimate(1, 100, 20, 30, 1.0, None)
    assert [result.max_runs(memory) for memory in (90, 149, 150, 349)] == [0, 0, 1, 4]
