"""Runs trained together and stored one by one: read back, killed and continued, diverged."""

import json
import re
import signal

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.continual import run_sequence
from everlight.continual.engine.run import Run
from everlight_data.errors import DataError
from everlight_data.runs.checkpoints import Checkpoints
from everlight_experiments.continual.training.runs import group_name, has_diverged, train_runs
from everlight_experiments.run_folder.folder import RunFolder
from everlight_experiments.run_folder.options import ExperimentOptions
from tests.continual.engine.linear_net import DATA
from tests.continual.engine.many_runs import PROTOCOL, build
from tests.experiments.images.ewc_runs import TRAINING, ewc_runs, keep, train
from tests.experiments.processes.child_processes import end, pair_of_processes, start, stored_runs
from tests.experiments.run_folder.agem_run import checkpoints_of, folder_in, train_agem


def run_folder(tmp_path):
    return RunFolder("paper", "run", ExperimentOptions(runs=tmp_path))


def test_runs_trained_together_equal_single_runs(tmp_path):
    program = jax.jit(lambda d, s, k: run_sequence(Run(build, PROTOCOL, d, s, k)))
    for run, arrays in zip(ewc_runs(), train(run_folder(tmp_path)), strict=True):
        single = program((DATA, run.run_data), run.sequence, run.key)
        np.testing.assert_allclose(arrays["losses"], single.losses, atol=1e-5)
        np.testing.assert_allclose(arrays["accuracy"], keep(single)["accuracy"], atol=0.11)
        assert not has_diverged(arrays)


def test_stored_runs_are_read_back_and_the_others_have_the_same_bits(tmp_path):
    folder = run_folder(tmp_path)
    first = train(folder, ewc_runs()[1:2])
    both = train(folder)
    for name in first[0]:
        np.testing.assert_array_equal(first[0][name], both[1][name])
    assert not list(folder.checkpoints.iterdir())
    with pytest.raises(DataError, match=r"hyperparameter: stored 0.3, now 0.5"):
        train(folder, ewc_runs((1.0, 3.0, 0.5)))


def test_a_diverged_run_is_reported_and_its_neighbors_are_kept(tmp_path, capsys):
    requested = ewc_runs((1.0, 1e30, 0.3))
    stored = train(run_folder(tmp_path), requested)
    assert [has_diverged(arrays) for arrays in stored] == [False, True, False]
    # The penalty is first felt in the second task.
    assert "EWC-1: diverged in task 2 of " in capsys.readouterr().out


def test_nan_that_jax_looks_for_ends_with_the_run_and_its_place(tmp_path):
    with jax.debug_nans(True), pytest.raises((FloatingPointError, RuntimeError)) as raised:
        train(run_folder(tmp_path), ewc_runs((1e30,)))
    lines = [str(raised.value), *getattr(raised.value, "__notes__", ())]
    assert re.search(r"EWC-0: .* in task 2 of \d+, epoch \d of \d", lines[-1])


def test_events_of_tasks_are_complete_whatever_stops_a_run(tmp_path):
    """A crash while the second run's second task is reported repeats the event."""
    full, events = {}, []

    def note(run, task, result):
        full[run.name, task] = np.asarray(jax.tree.leaves(result.learner.params)[0])

    train_runs(run_folder(tmp_path / "a"), ewc_runs(), TRAINING, note)
    tasks = ewc_runs()[0].sequence.tasks.id.shape[0]
    assert set(full) == {(run.name, task) for run in ewc_runs() for task in range(tasks)}

    def note_or_crash(run, task, result):
        events.append((run.name, task))
        if events.count(("EWC-1", 1)) == 1 and events[-1] == ("EWC-1", 1):
            raise OSError("no room")
        actual = np.asarray(jax.tree.leaves(result.learner.params)[0])
        np.testing.assert_array_equal(actual, full[run.name, task])

    parts = ewc_runs(), TRAINING, note_or_crash
    with pytest.raises(OSError, match="no room"):
        train_runs(run_folder(tmp_path / "b"), *parts)
    train_runs(run_folder(tmp_path / "b"), *parts)
    # No event of the earlier runs is repeated.
    assert set(events) == set(full)
    assert {events.count(("EWC-0", task)) for task in range(tasks)} == {1}


def start_child(tmp_path, folder, devices, *stop, distributed=None):
    arguments = (tmp_path / folder, distributed, *map(int, stop))
    return start("stopped_runs", tmp_path, *arguments, JAX_NUM_CPU_DEVICES=str(devices))


def start_two(tmp_path, folder, *stop):
    """Start a run of two processes, of which the second stops."""
    both = zip(pair_of_processes(), ((), stop), strict=True)
    return [start_child(tmp_path, folder, 1, *stops, distributed=item) for item, stops in both]


def epochs_in(tmp_path, folder):
    """Return the number of epochs of single runs, over all processes."""
    lines = (tmp_path / folder / "paper-run-demo" / "metrics.jsonl").read_text().splitlines()
    return sum(json.loads(line).get("runs", 0) for line in lines)


KILL, TERM = signal.SIGKILL, signal.SIGTERM
STOPS = [(KILL, 3), (TERM, 2), (KILL, 7), (KILL, 5)]
"""Signals and epochs: in the first task; for a last checkpoint; at the end of two runs, epoch 13;
in the third run."""


@pytest.mark.slow
def test_runs_killed_or_stopped_anywhere_end_with_the_same_bits(tmp_path):
    """Three runs are on two devices, so that the third is trained after the first two."""
    end(start_child(tmp_path, "whole", 2))
    for stop in STOPS:
        end(start_child(tmp_path, "stopped", 2, *stop), -stop[0])
    end(start_child(tmp_path, "stopped", 2))
    full, stopped = stored_runs(tmp_path / "whole"), stored_runs(tmp_path / "stopped")
    assert sorted(full) == [f"EWC-{number}.npz" for number in range(3)]
    assert full == stopped


@pytest.mark.slow
def test_processes_share_a_folder_and_one_that_is_killed_is_replaced(tmp_path):
    """Each of three takes a run; the first is killed in its sixth epoch, four of them saved."""
    stop = KILL, 5
    first = start_child(tmp_path, "shared", 1, *stop)
    others = [start_child(tmp_path, "shared", 1) for _ in range(2)]
    end(first, -KILL)
    for child in others:
        end(child)
    assert sorted(stored_runs(tmp_path / "shared")) == [f"EWC-{number}.npz" for number in range(3)]
    # Three runs of 13 epochs, and what the killed one had learned since its checkpoint.
    assert epochs_in(tmp_path, "shared") in (39, 40)
    for run, arrays in zip(ewc_runs(), train(run_folder(tmp_path / "shared")), strict=True):
        single = train(run_folder(tmp_path / "alone"), [run])[0]
        np.testing.assert_allclose(arrays["losses"], single["losses"], atol=1e-5)


@pytest.mark.slow
def test_two_joined_processes_give_the_bits_of_one_that_has_as_many_devices(tmp_path):
    """One of them, killed in its sixth epoch, takes the other along; then both continue."""
    end(start_child(tmp_path, "one", 2))
    for child in start_two(tmp_path, "two"):
        end(child)
    first, second = start_two(tmp_path, "killed", KILL, 5)
    end(second, -KILL)
    # The first one waits for the other for a minute and a half before it gives up.
    first.kill()
    first.communicate()
    assert not stored_runs(tmp_path / "killed").keys() & {"EWC-0.npz", "EWC-1.npz"}
    for child in start_two(tmp_path, "killed"):
        end(child)
    full = stored_runs(tmp_path / "one")
    assert sorted(full) == [f"EWC-{number}.npz" for number in range(3)]
    assert stored_runs(tmp_path / "two") == stored_runs(tmp_path / "killed") == full
    # Two groups of two runs, the second filled up. Four epochs were saved; the fifth was learned
    # twice, and perhaps the sixth.
    assert epochs_in(tmp_path, "two") == 52
    assert epochs_in(tmp_path, "killed") in (54, 56)


# ---- One run alone


def test_checkpoints_of_another_configuration_are_refused_by_name(tmp_path):
    folder_in(tmp_path)
    other = {"strategy": "ewc", "hyperparameter": 10.0}
    Checkpoints(checkpoints_of(tmp_path)).save(4, {"a": jnp.zeros(2)}, {"runs": [other]})
    with pytest.raises(DataError, match=r"runs: stored .*'hyperparameter': 10.0.*, now .*"):
        train_agem(tmp_path, tmp_path / "result.npz")


def test_checkpoints_that_a_killed_run_left_of_a_finished_part_are_removed(tmp_path):
    train_agem(tmp_path, tmp_path / "whole.npz")
    checkpoints = checkpoints_of(tmp_path)
    left = checkpoints / "20" / "state"
    left.mkdir(parents=True)
    (left / "array").write_bytes(b"half removed")
    # Groups that begin alike have checkpoints of other names.
    first, *others = ewc_runs()
    assert len({group_name([first, other]) for other in others}) == 2
    # This group was stopped and not formed again, and the other run is not requested.
    (checkpoints.parent / "A-GEM and 1 more 0123abcd").mkdir()
    other = checkpoints.parent / "EWC-1" / "10"
    other.mkdir(parents=True)
    train_agem(tmp_path, tmp_path / "again.npz")
    assert list(checkpoints.parent.iterdir()) == [other.parent]
