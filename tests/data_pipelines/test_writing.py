"""Files written whole, sealed, locked; what other processes and full disks do to them."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
import time

import imagecodecs
import numpy as np
import pytest

from everlight_data import writing
from everlight_data.errors import DataError
from everlight_data.images.core50.prepared import prepare_core50
from everlight_data.locks import lock_folder
from everlight_data.runs.claims import Claims

ARRAYS = {"accuracy": np.arange(12.0).reshape(3, 4), "name": np.array("naïve")}


def test_sealed_arrays_are_read_back_also_by_numpy(tmp_path):
    path = tmp_path / "unit.npz"
    writing.save_sealed(path, **ARRAYS)
    with np.load(path, allow_pickle=False) as plain:
        for actual in (dict(plain), writing.read_sealed(path, "Again.")):
            assert actual.keys() == ARRAYS.keys()
            for name, array in ARRAYS.items():
                assert actual[name].dtype == array.dtype
                np.testing.assert_array_equal(actual[name], array)
    assert [item.name for item in tmp_path.iterdir()] == ["unit.npz"]


def test_every_flipped_byte_and_every_truncation_is_found(tmp_path):
    path = tmp_path / "unit.npz"
    writing.save_sealed(path, **ARRAYS)
    content = path.read_bytes()
    for place in range(len(content)):
        damaged = bytearray(content)
        damaged[place] ^= 1 + place % 255
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=r"unit\.npz has changed since it was written.*Again\."):
            writing.read_sealed(path, "Again.")
        path.write_bytes(content[:place])
        with pytest.raises(DataError, match=r"unit\.npz"):
            writing.read_sealed(path, "Again.")


def test_the_arrays_are_those_of_the_bytes_that_were_checked(tmp_path, monkeypatch):
    path = tmp_path / "unit.npz"
    writing.save_sealed(path, x=np.zeros(2))
    content = path.read_bytes()
    writing.save_sealed(path, x=np.ones(2))
    monkeypatch.setattr(writing, "read_bytes", lambda *arguments: content)
    np.testing.assert_array_equal(writing.read_sealed(path, "Again.")["x"], np.zeros(2))


def test_failed_writing_leaves_the_former_file(tmp_path):
    path = tmp_path / "report.html"
    path.write_text("before")

    def fail(error):
        with writing.written_whole(path) as unfinished:
            unfinished.write_text("half")
            raise error

    message = r"report\.html cannot be written \(No space left.*same command again"
    with pytest.raises(DataError, match=message):
        fail(OSError(28, "No space left on device"))
    with pytest.raises(KeyboardInterrupt):
        fail(KeyboardInterrupt)
    assert path.read_text() == "before"
    assert [item.name for item in tmp_path.iterdir()] == ["report.html"]


def test_leftovers_of_a_killed_process_are_removed(tmp_path):
    (tmp_path / "report.html.unfinished").write_text("half")
    (tmp_path / "report.html").write_text("whole")
    writing.remove_unfinished(tmp_path)
    assert [item.name for item in tmp_path.iterdir()] == ["report.html"]


HOLDER = """
import sys, time
from pathlib import Path
from everlight_data.locks import lock_folder
lock = lock_folder(Path(sys.argv[1]), "Wait.")
print("held", flush=True)
time.sleep(60)
"""


def hold(folder):
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([".", *sys.path])}
    command = [sys.executable, "-c", HOLDER, str(folder)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True)
    assert process.stdout.readline() == "held\n"
    return process


def test_a_second_process_is_refused_until_the_first_ends_even_killed(tmp_path):
    process = hold(tmp_path)
    with pytest.raises(DataError, match=r"is in use by another process\. Wait\."):
        lock_folder(tmp_path, "Wait.")
    process.send_signal(signal.SIGKILL)
    process.wait()
    started = time.monotonic()
    lock = lock_folder(tmp_path, "Wait.")
    assert time.monotonic() - started < 1
    assert lock_folder(tmp_path, "Wait.") is lock, "the same process may claim it again"
    lock.release(force=True)
    hold(tmp_path).kill()


def test_too_little_disk_space_is_reported_with_both_numbers(tmp_path, monkeypatch):
    usage = type("Usage", (), {"free": 5_000_000})
    monkeypatch.setattr("everlight_data.writing.shutil.disk_usage", lambda path: usage)
    writing.check_room(tmp_path, 4_000_000, "a checkpoint")
    with pytest.raises(DataError, match=r"a checkpoint: 5\.0 MB are needed .* 5\.0 MB are free"):
        writing.check_room(tmp_path, 4_000_001, "a checkpoint")


def test_a_second_preparation_of_core50_is_refused_while_one_goes_on(tmp_path):
    frame = tmp_path / "release" / "s1" / "o1" / "C_01_01_000.png"
    frame.parent.mkdir(parents=True)
    frame.write_bytes(imagecodecs.png_encode(np.zeros((128, 128, 3), np.uint8)))
    prepared = tmp_path / "prepared"
    prepared.mkdir()
    process = hold(prepared)
    with pytest.raises(DataError, match=r"prepared is in use by another process\. Wait until"):
        prepare_core50(tmp_path / "release", prepared, partial=True)
    process.kill()
    process.wait()
    prepare_core50(tmp_path / "release", prepared, partial=True)


def test_a_folder_in_the_place_of_a_file_is_reported_and_stays(tmp_path):
    (tmp_path / "corrected.png").mkdir()
    with (
        pytest.raises(DataError, match=r"corrected\.png cannot be written"),
        writing.written_whole(tmp_path / "corrected.png") as unfinished,
    ):
        unfinished.write_bytes(b"picture")
    assert [item.name for item in tmp_path.iterdir()] == ["corrected.png"]


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks_is_refused(tmp_path, monkeypatch, number):
    """Network file systems may be mounted without locks, and then the system's call refuses."""

    def refuse(descriptor, operation):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    folder = tmp_path / str(number)
    folder.mkdir()
    with pytest.raises(DataError, match=r"without locks of files \(flock\).* local disk: --runs"):
        lock_folder(folder, "Wait.")
    with pytest.raises(DataError, match="without locks"):
        Claims().claim(folder / "unit.npz")
    # Nothing stands in the way of a start where there are locks.
    monkeypatch.undo()
    lock_folder(folder, "Wait.").release()
