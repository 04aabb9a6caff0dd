"""Checksums by which `compare` pairs seeds: equal for the same tasks and test samples."""

from dataclasses import replace

import pytest

from everlight_data.runs.finished_runs import read_finished_run
from everlight_experiments.continual.benchmarks.run_data import SequenceId
from everlight_experiments.continual.training.queue import (
    order_checksums,
    save_outcomes,
    sequences_of,
)
from everlight_experiments.images.benchmark import compose
from everlight_experiments.images.config import DIGITS, Unevenness
from everlight_experiments.run_folder.folder import RunFolder
from everlight_experiments.run_folder.options import ExperimentOptions

PERMUTED = {"stream": "permuted", "tasks": (3,)}
SEEDED = {**PERMUTED, "stream_draws": "seeded"}
UNEVEN = {"order": "natural", "tasks": (2,)}


def orders(first=0, settings=("class-incremental",), **changes):
    """Return the checksums of two seeds of digits with these options."""
    config = replace(DIGITS, **changes)
    benchmarks = {name: compose(config, setting=name) for name in settings}
    ids = [SequenceId("evaluation", first, number) for number in range(2)]
    return order_checksums(benchmarks, ids, sequences_of(benchmarks, ids)).tolist()


@pytest.mark.parametrize(
    "changes",
    [
        {"validation_fraction": 0.5},
        {"protocol": replace(DIGITS.protocol, select="last")},
        {"settings": ("class-incremental", "online")},
    ],
)
def test_options_that_keep_tasks_and_test_samples_keep_the_checksums(changes):
    """Half of the training images are more than the test images, which are padded to as many."""
    assert orders(**changes) == orders()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({}, {"tasks": (2,)}),
        ({}, {"cycles": 2}),
        ({"per_class": (20, 5)}, {"per_class": (20, 6)}),
        ({}, {"stream": "split-domains"}),
        (PERMUTED, {**PERMUTED, "stream": "rotated"}),
        (PERMUTED, SEEDED),
        (UNEVEN, {**UNEVEN, "unevenness": Unevenness(blurry=0.1)}),
        *(
            (
                {**UNEVEN, "unevenness": Unevenness(**{name: 0.9})},
                {**UNEVEN, "unevenness": Unevenness(**{name: 0.8})},
            )
            for name in ("blurry", "recurring")
        ),
    ],
)
def test_other_streams_have_no_checksum_in_common(first, second):
    assert not {*orders(**first)} & {*orders(**second)}


@pytest.mark.parametrize(
    "changes", [{}, SEEDED, {**UNEVEN, "unevenness": Unevenness(recurring=0.5)}]
)
def test_checksums_follow_the_seed_that_draws_the_tasks(changes):
    """The second seed of a run is the first of a run that begins there."""
    first, second = orders(**changes)
    assert first != second
    assert orders(first=1, **changes)[0] == second


def test_seeds_with_equal_tasks_are_counted():
    """Every seed has a partner in another run although no seed changes the tasks."""
    first, second = orders(order="natural")
    assert first != second
    assert orders(first=7, order="natural") == [first, second]


def test_a_run_stores_a_checksum_for_each_seed(tmp_path):
    folder = RunFolder("run", "digits", ExperimentOptions(runs=tmp_path))
    benchmarks = {"class-incremental": compose(replace(DIGITS, validation_fraction=0.5))}
    save_outcomes(folder, benchmarks, seed=0, seeds=2, outcomes={})
    assert read_finished_run(folder.path).orders.tolist() == orders()
