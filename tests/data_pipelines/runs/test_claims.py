"""Claims on files: one holder each, nothing left of them, and where other processes hold all."""

import subprocess
import sys
import threading

import filelock

from everlight_data.runs.claims import Claims

CONTENDER = """
import os, sys, time
from pathlib import Path
from everlight_data.runs.claims import Claims

part, held = Path(sys.argv[1]), Path(sys.argv[2])
claims, count, end = Claims(), 0, time.monotonic() + 1.5
while time.monotonic() < end:
    if claims.claim(part):
        # Fails if another process holds the claim.
        os.close(os.open(held, os.O_CREAT | os.O_EXCL))
        held.unlink()
        claims.release(part)
        count += 1
    claims.is_elsewhere(part)
print(count)
"""


def test_two_processes_never_hold_one_claim(tmp_path):
    """Every release removes the lock file, which the other process may have opened."""
    words = [sys.executable, "-c", CONTENDER, str(tmp_path / "part"), str(tmp_path / "held")]
    processes = [
        subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for process in processes:
        printed, errors = process.communicate(timeout=60)
        assert process.returncode == 0, errors
        assert int(printed) > 0


def test_a_claim_waits_for_a_process_that_only_looks(tmp_path):
    claims, path = Claims(), tmp_path / "process-1"
    looking = filelock.FileLock(f"{path}.lock", thread_local=False)
    looking.acquire()
    assert not claims.claim(path)
    threading.Timer(0.2, looking.release).start()
    assert claims.claim(path, patience=30)
    claims.release_all()


def test_a_file_that_another_process_holds_is_elsewhere(tmp_path):
    claims, units = Claims(), tmp_path / "units"
    free, taken = units / "free.npz", units / "taken.npz"
    assert claims.claim(free)
    # The system's lock of a file that is opened again holds against this process too.
    other = filelock.FileLock(f"{taken}.lock")
    other.acquire()
    assert not claims.claim(taken)
    assert [claims.is_elsewhere(path) for path in (free, taken)] == [False, True]
    other.release()
    assert not claims.is_elsewhere(taken)
    claims.release_all()
    # Processes that look for work meanwhile find what is free.
    assert not claims.is_elsewhere(free)
    assert not list(free.parent.iterdir())
    claims.release(free)
