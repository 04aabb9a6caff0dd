"""Budgets of operations per task: steps in proportion to a method's operations, and refusals."""

from dataclasses import replace

import pytest

from everlight.continual.methods.registry import METHODS
from everlight_data.errors import DataError
from everlight_experiments.continual.training.programs import MethodPrograms
from everlight_experiments.images import benchmark as images_benchmark
from everlight_experiments.images import config

CONFIG = replace(config.DIGITS, compute_budget=100, tasks=(5,), net="mlp:64")


def programs_of(**changes):
    return MethodPrograms(images_benchmark.compose(replace(CONFIG, **changes)))


def protocol_of(name, **changes):
    return programs_of(**changes).protocol(METHODS[name])


def test_a_budget_of_naive_steps_is_that_many_for_naive():
    result = protocol_of("naive")
    assert (result.epochs, result.epoch_steps, result.batch_size) == (1, 100, 16)


@pytest.mark.parametrize(("replayed", "steps"), [(16, 50), (48, 25)])
def test_replay_has_fewer_steps_as_its_batches_are_larger(replayed, steps):
    """A step's products take operations in proportion to the samples of both batches."""
    assert protocol_of("ER", replay_batch_size=replayed).epoch_steps == pytest.approx(
        steps, rel=0.1
    )


def test_joint_training_has_the_budget_of_all_tasks():
    assert protocol_of("joint").epoch_steps == pytest.approx(500, rel=0.02)


def test_counting_steps_leaves_the_build_by_which_programs_are_found_again():
    programs = programs_of()
    build = programs.build(METHODS["ER"])
    programs.protocol(METHODS["ER"])
    assert programs.build(METHODS["ER"]) is build


def test_methods_without_training_steps_are_refused():
    with pytest.raises(DataError, match="compute-budget counts training steps, and GDumb"):
        protocol_of("GDumb")
    with pytest.raises(DataError, match="compute-budget: the online setting is one pass"):
        images_benchmark.compose(CONFIG, setting="online")
