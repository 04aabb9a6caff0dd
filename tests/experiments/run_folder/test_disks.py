"""Full, read-only or slow disks: one line, nothing earlier lost, the same command continues."""

import gc
import os
import shutil
import signal
import subprocess
import threading
import time

import jax.numpy as jnp
import numpy as np
import pytest

from everlight_data.errors import DataError
from everlight_data.runs import checkpoints as checkpoint
from everlight_data.runs.checkpoints import Checkpoints
from everlight_data.writing import read_sealed, written_whole
from everlight_experiments.report.plots import new_canvas, save
from everlight_experiments.report.writer import Report, write_report
from everlight_experiments.run_folder.folder import RunFolder
from everlight_experiments.run_folder.interruption import StoppedError, stop_on_signals
from everlight_experiments.run_folder.options import ExperimentOptions


def mount(*arguments):
    command = shutil.which("mount")
    return command and subprocess.run([command, *arguments], capture_output=True, check=False)


@pytest.fixture
def disk(tmp_path):
    """Yield a file system of 4 MB in memory."""
    place = tmp_path / "disk"
    place.mkdir()
    mounted = mount("-t", "tmpfs", "-o", "size=4m", "tmpfs", str(place))
    if not mounted or mounted.returncode:
        pytest.skip("mounting is not allowed here")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=False)


def remount(disk, options):
    assert mount("-o", f"remount,{options}", str(disk)).returncode == 0


def fill(disk):
    """Write a file that takes the rest of the disk."""
    with (disk / "filler").open("wb", buffering=0) as stream:
        for size in (1 << 16, 1 << 10, 1):
            try:
                while True:
                    stream.write(bytes(size))
            except OSError:
                continue
    return disk / "filler"


def noise(count):
    """Return numbers that compression does not shorten."""
    return np.random.default_rng(0).normal(size=count)


def curves(folder):
    canvas, (axis,) = new_canvas()
    axis.plot(noise(100))
    return save(canvas, folder.path / "curves.png")


WRITERS = {
    "units/EWC-0.npz": lambda folder: folder.save_part("EWC-0", {}, x=noise(10_000)),
    "results.npz": lambda folder: folder.save_results(x=noise(10_000)),
    "report.html": lambda folder: write_report(
        folder.path, "x" * 100_000, Report([("Selection rule", "")])
    ),
    "curves.png": curves,
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_leaves_what_was_there_and_the_same_call_goes_on(disk, name):
    folder = RunFolder("paper", "run", ExperimentOptions(runs=disk))
    WRITERS[name](folder)
    path = folder.path / name
    before = path.read_bytes()
    filler = fill(disk)
    with pytest.raises(
        DataError, match=rf"{path.name} cannot be written \(No space.*same command again"
    ):
        WRITERS[name](folder)
    assert path.read_bytes() == before
    assert not list(folder.path.rglob("*.unfinished"))
    filler.unlink()
    WRITERS[name](folder)


def test_a_checkpoint_on_a_full_disk_leaves_the_one_before(disk):
    states = {step: {"x": jnp.asarray(noise(50_000 * step), jnp.float32)} for step in (1, 2)}
    Checkpoints(disk / "c").save(1, states[1])
    filler = fill(disk)
    with pytest.raises(DataError, match=r"checkpoints: 1\.4 MB are needed .*\d+ kB are free"):
        Checkpoints(disk / "c").save(2, states[2])
    assert {path.name for path in (disk / "c").iterdir()} == {"1"}
    filler.unlink()
    Checkpoints(disk / "c").save(2, states[2])
    restored = Checkpoints(disk / "c").restore(2, states[2]).state
    np.testing.assert_array_equal(restored["x"], states[2]["x"])


@pytest.mark.parametrize("limit", ["size", "nr_inodes"])
def test_a_disk_that_fills_at_any_write_of_a_checkpoint_keeps_the_one_before(
    disk, monkeypatch, capfd, limit
):
    """The disk has room for each number of blocks, or of files, until the next checkpoint fits."""
    monkeypatch.setattr(checkpoint, "check_room", lambda *arguments: None)
    states = {
        step: {"x": jnp.asarray(noise(2_000) * step, jnp.float32), "y": jnp.arange(9) * step}
        for step in (1, 2)
    }

    def resumed():
        step, state = Checkpoints(disk / "c").resume({"a": 1}, lambda: states[2])
        for name, expected in states[step].items():
            np.testing.assert_array_equal(state[name].view(jnp.int32), expected.view(jnp.int32))
        return step

    def refusal():
        try:
            Checkpoints(disk / "c").save(2, states[2], {"a": 1})
        except DataError as error:
            return str(error)
        return None

    Checkpoints(disk / "c").save(1, states[1], {"a": 1})
    used, left = os.statvfs(disk), 0
    taken = {"size": used.f_blocks - used.f_bfree, "nr_inodes": used.f_files - used.f_ffree}[limit]
    unit = {"size": used.f_bsize, "nr_inodes": 1}[limit]
    capfd.readouterr()
    remount(disk, f"{limit}={taken * unit}")
    while (message := refusal()) is not None:
        assert message == (
            f"{disk / 'c' / '2'} cannot be written (No space left on device). The checkpoints "
            "before it are kept; free disk space and run the same command again to continue."
        )
        assert {path.name for path in (disk / "c").iterdir()} == {"1"}
        remount(disk, "size=4m,nr_inodes=1000")
        assert resumed() == 1
        left += 1
        remount(disk, f"{limit}={(taken + left) * unit}")
    assert left > 10, "the checkpoint is small"
    remount(disk, "size=4m,nr_inodes=1000")
    assert resumed() == 2
    gc.collect()  # Writes that nobody waited for report here.
    assert capfd.readouterr().err == ""


def test_writes_that_outlive_the_one_that_failed_leave_nothing(tmp_path, monkeypatch):
    """Orbax writes the arrays in several threads, and raises the first one's error."""
    checkpoints, late = Checkpoints(tmp_path), []

    def others():
        for part in range(10):
            folder = tmp_path / "1.orbax-checkpoint-tmp" / "state" / str(part)
            folder.mkdir(parents=True)
            time.sleep(0.01)

    def fail(*arguments, **options):
        late.append(threading.Thread(target=others))
        late[0].start()
        raise ValueError("no room")

    monkeypatch.setattr(checkpoints._manager, "save", fail)
    with pytest.raises(DataError, match="no room"):
        checkpoints.save(1, {"x": jnp.zeros(3)})
    late[0].join()
    assert not list(tmp_path.iterdir())


def test_a_read_only_disk_is_reported_in_one_line(disk):
    settings = ExperimentOptions(runs=disk)
    folder = RunFolder("paper", "run", settings)
    folder.save_results(x=noise(3))
    before = (folder.path / "results.npz").read_bytes()
    del folder
    remount(disk, "ro")
    for make in (
        lambda: RunFolder("paper", "run", settings),
        lambda: RunFolder("paper", "other", settings),
    ):
        with pytest.raises(DataError, match="cannot be written \\(Read-only file system"):
            make()
    with pytest.raises(DataError, match="Read-only"), written_whole(disk / "x") as unfinished:
        unfinished.write_text("x")
    remount(disk, "rw")
    folder = RunFolder("paper", "run", settings)
    assert (folder.path / "results.npz").read_bytes() == before


def test_a_signal_while_a_slow_disk_writes_leaves_what_was_there(tmp_path, monkeypatch):
    folder = RunFolder("paper", "run", ExperimentOptions(runs=tmp_path))
    folder.save_results(x=np.zeros(3))
    sync = os.fsync

    def slow(handle):
        signal.raise_signal(signal.SIGTERM)
        time.sleep(0.2)
        sync(handle)

    monkeypatch.setattr(os, "fsync", slow)

    @stop_on_signals()
    def stopped():
        folder.save_results(x=np.ones(3))

    with pytest.raises(StoppedError):
        stopped()
    assert not list(folder.path.rglob("*.unfinished"))
    assert read_sealed(folder.path / "results.npz", "")["x"].mean() == 0


def test_a_removed_folder_is_named_and_its_disk_space_is_not_checked(tmp_path):
    folder = tmp_path / "run"

    def write():
        folder.mkdir()
        with written_whole(folder / "metrics.jsonl") as unfinished:
            shutil.rmtree(folder)
            unfinished.write_text("a")

    with pytest.raises(DataError, match="folder was removed or moved meanwhile"):
        write()
