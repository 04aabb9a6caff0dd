"""Runs trained together and kept as units: read back, killed and continued, diverged."""

import json
import os
import signal
import socket
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.continual import naive, run_sequence
from everlight.continual.engine.run import Run
from everlight_data.errors import DataError
from everlight_data.runs.checkpoints import Checkpoints
from everlight_experiments.continual import train_runs
from everlight_experiments.continual.train_runs import (
    Unit,
    UnitTraining,
    has_diverged,
    train_units,
)
from everlight_experiments.run_folder.folder import RunFolder
from everlight_experiments.run_folder.settings import RunSettings
from tests.continual.engine.test_driver import DATA, PROTOCOL, build, join, some_runs
from tests.continual.engine.test_sequence import linear_setup
from tests.experiments.a_unit import checkpoints_of, folder_in, train_unit


def units(hyperparameters=(1.0, 3.0, 0.3)):
    runs = some_runs(np.float32(hyperparameters))
    return [
        Unit(
            f"EWC-{number}",
            {"hyperparameter": hyperparameter},
            *jax.tree.map(lambda a, n=number: a[n], (runs.sequence, runs.key, runs.run_data)),
        )
        for number, hyperparameter in enumerate(hyperparameters)
    ]


def keep(result):
    return {"losses": result.losses, "accuracy": result.evaluation.class_incremental}


TRAINING = UnitTraining(build, PROTOCOL, DATA, keep, join)


def train(folder, asked=None):
    return train_units(folder, asked or units(), TRAINING)


def run_folder(tmp_path):
    return RunFolder("paper", "run", RunSettings(runs=tmp_path))


def test_each_unit_is_what_it_is_alone(tmp_path):
    program = jax.jit(lambda d, s, k: run_sequence(Run(build, PROTOCOL, d, s, k)))
    for unit, arrays in zip(units(), train(run_folder(tmp_path)), strict=True):
        alone = program((DATA, unit.run_data), unit.sequence, unit.key)
        np.testing.assert_allclose(arrays["losses"], alone.losses, atol=1e-5)
        np.testing.assert_allclose(arrays["accuracy"], keep(alone)["accuracy"], atol=0.11)
        assert not has_diverged(arrays)


def test_what_is_there_is_read_back_and_the_rest_comes_to_the_same_bits(tmp_path):
    folder = run_folder(tmp_path)
    first = train(folder, units()[1:2])
    both = train(folder)
    for name in first[0]:
        np.testing.assert_array_equal(first[0][name], both[1][name])
    assert not list(folder.checkpoints.iterdir())
    with pytest.raises(DataError, match=r"hyperparameter: stored 0.3, now 0.5"):
        train(folder, units((1.0, 3.0, 0.5)))


def test_a_stopped_wave_does_not_stand_in_the_way_of_others_that_begin_alike(tmp_path):
    """Two devices; a wave of the first and third runs is stopped, then the first two are one."""
    code = (
        "import jax, sys; jax.config.update('jax_num_cpu_devices', 2)\n"
        "from pathlib import Path\n"
        "from everlight_experiments.continual import train_runs\n"
        "from tests.experiments.test_train_runs import *\n"
        "folder, every = run_folder(Path(sys.argv[1])), units()\n"
        "def stop(*_, **__): raise KeyboardInterrupt\n"
        "save, RunFolder.save_unit = RunFolder.save_unit, stop\n"
        "train_runs.Checkpoints.due = lambda self: True\n"
        "try: train(folder, [every[0], every[2]])\n"
        "except KeyboardInterrupt: print(len(list(folder.checkpoints.iterdir())))\n"
        "RunFolder.save_unit = save\n"
        "print(len(train(folder)), len(list(folder.checkpoints.iterdir())))\n"
    )
    called = [sys.executable, "-c", code, str(tmp_path)]
    done = subprocess.run(called, capture_output=True, text=True, check=False)
    assert done.stdout.split()[-3:] == ["1", "3", "0"], done.stderr


def test_one_that_diverges_is_told_and_its_neighbors_are_kept(tmp_path, capsys):
    asked = units((1.0, 1e30, 0.3))
    kept = train(run_folder(tmp_path), asked)
    assert [has_diverged(arrays) for arrays in kept] == [False, True, False]
    # The penalty is first felt in the second task.
    assert "EWC-1: the loss is not finite at task 1, epoch " in capsys.readouterr().out


def test_what_tasks_leave_is_told_to_the_end_whatever_stops_it(tmp_path):
    """A crash as the second run's second task is told: it comes again."""
    whole, told = {}, []

    def note(unit, task, result):
        whole[unit.name, task] = np.asarray(jax.tree.leaves(result.learner.params)[0])

    train_units(run_folder(tmp_path / "a"), units(), TRAINING, note)
    tasks = units()[0].sequence.tasks.id.shape[0]
    assert set(whole) == {(unit.name, task) for unit in units() for task in range(tasks)}

    def note_or_crash(unit, task, result):
        told.append((unit.name, task))
        if told.count(("EWC-1", 1)) == 1 and told[-1] == ("EWC-1", 1):
            raise OSError("no room")
        found = np.asarray(jax.tree.leaves(result.learner.params)[0])
        np.testing.assert_array_equal(found, whole[unit.name, task])

    parts = units(), TRAINING, note_or_crash
    with pytest.raises(OSError, match="no room"):
        train_units(run_folder(tmp_path / "b"), *parts)
    train_units(run_folder(tmp_path / "b"), *parts)
    # Of the runs before it none is told again.
    assert set(told) == set(whole)
    assert {told.count(("EWC-0", task)) for task in range(tasks)} == {1}


def noisy(data):
    """Naive finetuning whose memory is a random key, from which every step's noise is drawn."""
    setup = linear_setup(data)
    base = naive(setup)

    def grads(memory, learner, batch, task, key):
        gradient, info = base.grads((), learner, batch, task, key)
        noise = jax.tree.map(lambda g: 0.1 * jax.random.normal(memory, g.shape), gradient)
        return jax.tree.map(jnp.add, gradient, noise), info

    def after_step(memory, learner, info, key):
        return jax.random.split(memory)[0], learner

    return setup, base._replace(init=lambda key, learner: key, grads=grads, after_step=after_step)


def test_a_memory_that_holds_a_random_key_goes_on_to_the_same_bits(tmp_path, monkeypatch):
    """Stopped after seven epochs, six of them saved."""

    def kept(result):
        return {**keep(result), "key": jax.random.key_data(result.memory)}

    training = UnitTraining(noisy, PROTOCOL, DATA, kept)
    parts = [unit._replace(run_data=()) for unit in units()[:1]], training
    monkeypatch.setattr(Checkpoints, "due", lambda self: True)
    (whole,) = train_units(run_folder(tmp_path / "whole"), *parts)
    driven = train_runs.drive_runs

    def stopping(*arguments):
        for epoch, state in enumerate(driven(*arguments), start=1):
            if epoch == 7:
                raise OSError("stopped")
            yield state

    monkeypatch.setattr(train_runs, "drive_runs", stopping)
    with pytest.raises(OSError, match="stopped"):
        train_units(run_folder(tmp_path / "stopped"), *parts)
    monkeypatch.setattr(train_runs, "drive_runs", driven)
    (checkpoints,) = run_folder(tmp_path / "stopped").checkpoints.iterdir()
    assert Checkpoints(checkpoints).newest() == 6
    (resumed,) = train_units(run_folder(tmp_path / "stopped"), *parts)
    for name in whole:
        np.testing.assert_array_equal(resumed[name], whole[name])


def start_child(tmp_path, folder, devices, *stop, distributed=None):
    module = "tests.experiments.stopped_runs"
    command = [sys.executable, "-m", module, str(tmp_path / folder), str(distributed)]
    environment = {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "programs"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_NUM_CPU_DEVICES": str(devices),
    }
    return subprocess.Popen(
        [*command, *(str(int(each)) for each in stop)],
        env=os.environ | environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def end_child(child, *stop):
    errors = child.communicate()[1]
    assert child.returncode == -sum(stop[:1]), errors


def units_of(tmp_path, folder):
    kept = tmp_path / folder / "paper-run-demo" / "units"
    return {path.name: path.read_bytes() for path in kept.iterdir()}


def epochs_in(tmp_path, folder):
    """Of single runs, by whatever process."""
    lines = (tmp_path / folder / "paper-run-demo" / "metrics.jsonl").read_text().splitlines()
    return sum(json.loads(line).get("runs", 0) for line in lines)


KILL, TERM = signal.SIGKILL, signal.SIGTERM
STOPS = [(KILL, 3), (TERM, 2), (KILL, 7), (KILL, 5)]
"""In the first task; for a last checkpoint; where two runs end, at epoch 13; in the third run."""


@pytest.mark.slow
def test_killed_or_stopped_anywhere_they_end_with_the_same_bits(tmp_path):
    """Three runs on two devices, so that the third is trained after the first two."""
    end_child(start_child(tmp_path, "whole", 2))
    for stop in STOPS:
        end_child(start_child(tmp_path, "stopped", 2, *stop), *stop)
    end_child(start_child(tmp_path, "stopped", 2))
    whole, stopped = units_of(tmp_path, "whole"), units_of(tmp_path, "stopped")
    assert sorted(whole) == [f"EWC-{number}.npz" for number in range(3)]
    assert whole == stopped


@pytest.mark.slow
def test_processes_share_a_folder_and_one_that_is_killed_is_replaced(tmp_path):
    """Each of three takes a run; the first is killed in its sixth epoch, four of them saved."""
    stop = KILL, 5
    first = start_child(tmp_path, "shared", 1, *stop)
    others = [start_child(tmp_path, "shared", 1) for _ in range(2)]
    end_child(first, *stop)
    for child in others:
        end_child(child)
    assert sorted(units_of(tmp_path, "shared")) == [f"EWC-{number}.npz" for number in range(3)]
    # Three runs of 13 epochs, and what the killed one had learned since its checkpoint.
    assert epochs_in(tmp_path, "shared") in (39, 40)
    for unit, arrays in zip(units(), train(run_folder(tmp_path / "shared")), strict=True):
        alone = train(run_folder(tmp_path / "alone"), [unit])[0]
        np.testing.assert_allclose(arrays["losses"], alone["losses"], atol=1e-5)


def start_two(tmp_path, folder, *stop):
    """A run of two processes, of which the second stops."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = "127.0.0.1:{1}".format(*free.getsockname())
    return [
        start_child(tmp_path, folder, 1, *stops, distributed=f"{number}/2@{address}")
        for number, stops in enumerate(((), stop))
    ]


@pytest.mark.slow
def test_two_joined_processes_give_the_bits_of_one_that_has_as_many_devices(tmp_path):
    """Killed in its sixth epoch, one of them takes the other along; then both go on."""
    end_child(start_child(tmp_path, "one", 2))
    for child in start_two(tmp_path, "two"):
        end_child(child)
    first, second = start_two(tmp_path, "killed", KILL, 5)
    end_child(second, KILL)
    # It waits for the other for a minute and a half before it gives up.
    first.kill()
    first.communicate()
    assert not units_of(tmp_path, "killed").keys() & {"EWC-0.npz", "EWC-1.npz"}
    for child in start_two(tmp_path, "killed"):
        end_child(child)
    whole = units_of(tmp_path, "one")
    assert sorted(whole) == [f"EWC-{number}.npz" for number in range(3)]
    assert units_of(tmp_path, "two") == units_of(tmp_path, "killed") == whole
    # Two waves of two runs, the second filled up. Four epochs were saved; the fifth was learned
    # twice, and perhaps the sixth.
    assert epochs_in(tmp_path, "two") == 52
    assert epochs_in(tmp_path, "killed") in (54, 56)


# ---- One run alone


def run_sequence_child(tmp_path, folder, *moment):
    cache = {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "programs"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
    }
    command = [sys.executable, "-m", "tests.experiments.killed_sequence", str(tmp_path / folder)]
    command += [str(tmp_path / f"{folder}.npz"), *map(str, moment)]
    environment = os.environ | cache
    return subprocess.run(command, env=environment, capture_output=True, check=False).returncode


@pytest.mark.slow
def test_a_single_run_that_is_killed_anywhere_ends_with_the_same_bits(tmp_path):
    """Twenty times, every other one while a checkpoint is being written."""
    kills = 20
    assert run_sequence_child(tmp_path, "whole") == 0
    killed = sum(run_sequence_child(tmp_path, "killed", moment) == -9 for moment in range(kills))
    assert killed >= 0.75 * kills, "few processes lived to their kill"
    assert run_sequence_child(tmp_path, "killed") == 0
    with np.load(tmp_path / "whole.npz") as whole, np.load(tmp_path / "killed.npz") as resumed:
        assert len(whole.files) > 10
        for name in whole.files:
            np.testing.assert_array_equal(whole[name], resumed[name])


def test_checkpoints_of_another_configuration_are_refused_by_name(tmp_path):
    folder_in(tmp_path)
    other = {"strategy": "ewc", "hyperparameter": 10.0}
    Checkpoints(checkpoints_of(tmp_path)).save(4, {"a": jnp.zeros(2)}, {"runs": [other]})
    with pytest.raises(DataError, match=r"runs: stored .*'hyperparameter': 10.0.*, now .*"):
        train_unit(tmp_path, tmp_path / "result.npz")


def test_checkpoints_that_a_killed_run_left_of_a_finished_part_are_removed(tmp_path):
    train_unit(tmp_path, tmp_path / "whole.npz")
    checkpoints = checkpoints_of(tmp_path)
    left = checkpoints / "20" / "state"
    left.mkdir(parents=True)
    (left / "array").write_bytes(b"half removed")
    other = checkpoints.parent / "EWC-1" / "10"
    other.mkdir(parents=True)
    train_unit(tmp_path, tmp_path / "again.npz")
    assert list(checkpoints.parent.iterdir()) == [other.parent]
