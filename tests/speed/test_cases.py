"""Speed cases at their smallest sizes: contestants agree, and the table has what was measured."""

import time

import jax
import numpy as np
import pytest

from tests.speed import color, metrics, sequences
from tests.speed.cases import OURS, Case, Machine, measure, table

MACHINE = Machine(1e10, 1e10)
TINY = sequences.Sizes(2, 4, 10, 2, 8, (2, 2), 4, 1, fisher_samples=4, exemplars=2)
SMALL = {
    "transforms": lambda: color.color_transforms(MACHINE, 20, 24),
    "networks": lambda: color.illuminant_networks(MACHINE, 2, 2, 8, 4),
    "sequence": lambda: sequences.task_sequence(MACHINE, "experience replay", TINY),
    "many runs": lambda: sequences.many_runs(MACHINE, 2, TINY),
    "iirc": lambda: metrics.iirc_matrix(MACHINE, 3, 50),
    "herding": lambda: metrics.herding(MACHINE, 3, 20, 8, 4),
    "ranks": lambda: metrics.fact_ranks(MACHINE, 10, 40, 20, 8),
}


@pytest.mark.parametrize("name", SMALL)
def test_every_case_can_be_measured(name):
    case = SMALL[name]()._replace(rounds=1)
    timed = measure(case)
    assert next(iter(timed.seconds)) == OURS
    assert timed.ratios.keys() == case.contestants.keys() - {OURS}
    assert all(seconds > 0 for seconds in timed.seconds.values())


@pytest.mark.parametrize("name", ["transforms", "many runs", "herding", "ranks"])
def test_contestants_compute_the_same(name):
    ours, *others = (run() for run in SMALL[name]().contestants.values())
    for other in others:
        for mine, theirs in zip(jax.tree.leaves(ours), jax.tree.leaves(other), strict=True):
            theirs = np.reshape(theirs, np.shape(mine))
            np.testing.assert_allclose(mine, theirs, rtol=2e-4, atol=2e-5)


def test_a_compiled_and_a_driven_sequence_have_the_same_losses():
    ours, driven, *_ = SMALL["sequence"]().contestants.values()
    np.testing.assert_allclose(np.ravel(ours()), np.ravel(driven()), rtol=1e-4)


def test_ratios_are_medians_of_rounds_against_ours():
    def wait(seconds):
        return lambda: time.sleep(seconds)

    timed = measure(Case("waits", {OURS: wait(0.01), "other": wait(0.03)}, 0.005, 3))
    assert timed.seconds[OURS] == pytest.approx(0.01, rel=0.5)
    assert timed.ratios["other"] == pytest.approx(3, rel=0.5)
    lines = table([timed]).splitlines()
    assert len(lines) == 4
    assert lines[2].startswith("| waits | everlight |")
    assert lines[3].split("|")[5].strip() == ""
