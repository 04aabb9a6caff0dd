"""Claims on files: one holder each, nothing left of them, and where other processes hold all."""

import filelock

from everlight_data.runs.claims import Claims


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
