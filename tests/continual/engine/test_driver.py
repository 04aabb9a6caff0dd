"""Many runs at once: each as if alone, whatever the chunks, the devices and its neighbours."""

import dataclasses
import json
import os
import subprocess
import sys

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.continual.engine import Run, diverged_runs, drive_runs, run_sequence
from everlight.continual.engine.run_states import epochs_done, first_divergence, result_of_run
from everlight.continual.strategies import naive
from everlight.meshes import runs_mesh
from tests.continual.engine.linear_net import DATA, built
from tests.continual.engine.many_runs import (
    PROTOCOL,
    REGULARIZATIONS,
    build,
    copied,
    some_runs,
    states,
)
from tests.refusals import refused

# One worker runs the group, so that the module's fixtures are computed once.
pytestmark = pytest.mark.xdist_group("many runs")


@pytest.fixture(scope="module")
def driven():
    return states(some_runs())


def test_runs_driven_together_equal_single_runs(driven):
    """Other programs round differently: losses agree to 1e-5, accuracies to a test sample."""
    runs = some_runs()
    program = jax.jit(lambda s, k, c: run_sequence(Run(build, PROTOCOL, (DATA, c), s, k)))
    for number in range(3):
        rows = (runs.sequence, runs.key, runs.run_data)
        single = program(*jax.tree.map(lambda leaf, n=number: leaf[n], rows))
        together = jax.tree.map(lambda leaf, n=number: leaf[n], driven[-1].result)
        np.testing.assert_allclose(together.losses, single.losses, atol=1e-5)
        chex.assert_trees_all_close(together.evaluation, single.evaluation, atol=0.11)
        chex.assert_trees_all_close(together.learner.params, single.learner.params, atol=1e-4)
        chex.assert_trees_all_equal(together.usage, single.usage)


def test_a_state_comes_after_every_chunk_and_at_every_task_s_end(driven):
    """Tasks of five, four and four epochs run in chunks of three."""
    assert [(int(s.task), int(s.epoch)) for s in driven] == [
        (0, 3), (1, 0), (1, 3), (2, 0), (2, 3), (3, 0)
    ]  # fmt: skip


def test_states_have_no_weak_types_which_would_compile_programs_twice():
    """A memory of Python's number has one; after its first update it has none."""

    def build_counting(data):
        setup, strategy = built(naive)(data[0])
        return setup, strategy._replace(
            init=lambda key, learner: jnp.full(3, -1),
            end_task=lambda memory, learner, task, key: (memory + task.id, learner),
        )

    for state in drive_runs(dataclasses.replace(some_runs(), build=build_counting), 3):
        assert not any(leaf.weak_type for leaf in jax.tree.leaves(state))


@pytest.mark.parametrize("chunk", [1, 2, 10])
def test_chunks_change_no_bit(driven, chunk):
    chex.assert_trees_all_equal(states(some_runs(), chunk)[-1], driven[-1])


@pytest.mark.parametrize("stopped_at", range(5))
def test_a_run_stopped_anywhere_continues_to_the_same_bits(driven, stopped_at):
    again = states(some_runs(), state=copied(driven[stopped_at]))
    assert len(again) == 5 - stopped_at
    chex.assert_trees_all_equal(again[-1], driven[-1])


def test_a_run_that_diverges_is_reported_and_stops_no_other(driven):
    *_, last = states(some_runs(REGULARIZATIONS.at[1].set(1e30)))
    np.testing.assert_array_equal(diverged_runs(PROTOCOL, last), [False, True, False])
    np.testing.assert_array_equal(diverged_runs(PROTOCOL, driven[2]), [False] * 3)
    # The penalty is first felt in the second task.
    (nowhere, (task, epoch), _) = first_divergence(PROTOCOL, last).tolist()
    assert (nowhere, task) == ([-1, -1], 1)
    losses = np.asarray(last.result.losses[1, 1, : PROTOCOL.epochs])
    np.testing.assert_array_equal(np.isfinite(losses), np.arange(len(losses)) < epoch)
    assert [epochs_done(PROTOCOL, state) for state in driven] == [3, 5, 8, 9, 12, 13]
    chex.assert_trees_all_equal(
        result_of_run(last, 2, runs_mesh()), jax.tree.map(lambda leaf: leaf[2], last.result)
    )
    for number in (0, 2):
        chex.assert_trees_all_equal(
            *(jax.tree.map(lambda leaf, n=number: leaf[n], s.result) for s in (last, driven[-1]))
        )


@pytest.fixture(scope="module")
def two_devices():
    """Return all results of one process with two devices, since every process starts JAX."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.continual.engine.two_devices"],
        env=os.environ | {"JAX_NUM_CPU_DEVICES": "2"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.cpu
def test_two_devices_give_the_results_of_one_device(driven, two_devices):
    """One device has two of three runs; then both devices share the batches of each run."""
    apart, shared = two_devices["losses"]
    np.testing.assert_allclose(apart, driven[-1].result.losses, atol=1e-5)
    np.testing.assert_allclose(shared, driven[-1].result.losses, atol=1e-4)


@pytest.mark.cpu
def test_devices_do_not_wait_for_each_other_where_one_run_fills_two(two_devices):
    assert two_devices["epochs"] == 10


@pytest.mark.cpu
def test_runs_do_not_talk_to_each_other(two_devices):
    """The compiled program has no collective."""
    assert two_devices["collectives"] == []


@pytest.mark.cpu
@pytest.mark.parametrize(("data", "shape"), [(1, [2]), (2, [1, 2])])
def test_the_compiler_shards_over_every_axis_of_the_mesh(two_devices, data, shape):
    """Explicit axes would require every function of a network to name shardings."""
    result = two_devices["sharded"][data - 1]
    assert result == [12, ["Auto"] * len(shape), shape]


def test_devices_that_cannot_be_shared_are_refused():
    with pytest.raises(ValueError, match="data=2 of 1 devices; give a divisor"):
        runs_mesh(jax.devices()[:1], data=2)


@pytest.mark.parametrize(
    ("field", "message"),
    [
        ("key", r"^run_data has the shape \(3,\), and key 2 runs; give every array a leading"),
        ("sequence", r"^sequence.tasks.train.index has the shape \(2, .*, and key 3 runs; give"),
        ("run_data", r"^run_data has the shape \(2,\), and key 3 runs; give every array a leading"),
    ],
)
def test_arrays_of_other_numbers_of_runs_are_refused(field, message):
    runs = some_runs()
    fewer = jax.tree.map(lambda leaf: leaf[:2], getattr(runs, field))
    refused(message, lambda: dataclasses.replace(runs, **{field: fewer}))
    refused(
        r"^run_data.1 has the shape \(\), and key 3 runs; give",
        lambda: dataclasses.replace(runs, run_data=(REGULARIZATIONS, jnp.float32(1))),
    )
