"""Feeds mutated files to readers: `SEED COUNT READER ...`; ends badly where a reader does.

A reader may return or refuse by a DataError of one line that names a file. Anything else is a
failure, printed as one line of reader and case, by which it can be repeated. So is a mutated file
that takes more than `TIMES_MEMORY` times the memory of the valid one, or `TIMES_SECONDS` times its
time; files are small, so that a file may always take `FREE_MEMORY` and `FREE_SECONDS`. Memory of
native libraries is not traced: the process's own may grow by `MEMORY`.
"""

import os
import resource
import signal
import sys
import tempfile
import time
import traceback
import tracemalloc
import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from everlight_data.errors import DataError
from tests.data_pipelines.hostile_files.fuzzed_files import READERS, Read

SECONDS = 20
MEMORY = 500_000_000
TIMES_MEMORY, TIMES_SECONDS = 4, 5
FREE_MEMORY, FREE_SECONDS = 2_000_000, 0.5
SHOWN = 1_500
"""Characters that a message may have."""


PIECES = (
    *(b"\x00" * 4, b"\xff" * 4, b"\xff\xff\xff\x7f", b"\x00\x00\x00\x80", b"\x80", b"9" * 30),
    *(b"-1", b"1e300", b"nan", b"true", b'"', b",", b"\n", b"[" * 600, b"{", b"\xff\xfe", b"PK"),
    *(b"(1, 2)", b"|O", b"<f8", b"h\x00", b"]", b"R", b"b", b"."),
)


def mutated(content: bytes, rng: np.random.Generator) -> bytes:
    """Flip, cut or double some bytes, or replace them by pieces that readers interpret."""
    changed = bytearray(content)
    for _ in range(rng.integers(1, 4)):
        start = int(rng.integers(len(changed) + 1))
        # Headers are where most is decided.
        start = start % 200 if rng.random() < 0.4 else start
        length = int(rng.integers(1, 40))
        piece = PIECES[rng.integers(len(PIECES))]
        match int(rng.integers(6)):
            case 0 if changed:
                for place in rng.integers(0, len(changed), rng.integers(1, 9)):
                    changed[place] ^= 1 << int(rng.integers(8))
            case 1:
                del changed[start:]
            case 2:
                del changed[start : start + length]
            case 3:
                changed[start:start] = changed[start : start + length] * int(rng.integers(1, 5))
            case 4:
                changed[start : start + len(piece)] = piece
            case _:
                changed[start:start] = piece
    return bytes(changed)


def mutate(path: Path, rng: np.random.Generator) -> None:
    """Change a file, or a member of an archive, which is then written again as valid."""
    if zipfile.is_zipfile(path) and rng.random() < 0.7:
        with zipfile.ZipFile(path) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        names = list(members)
        chosen = names[rng.integers(len(names))]
        members[chosen] = mutated(members[chosen], rng)
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, content in members.items():
                archive.writestr(name, content)
    else:
        path.write_bytes(mutated(path.read_bytes(), rng))


class Taken(NamedTuple):
    """Memory and time of reading a file, and the fault of its reader, if any."""

    memory: int
    seconds: float
    problem: str | None


def measured(read: Read, names: set[str]) -> Taken:
    """Read a file; measure the peak of Python's and NumPy's memory and the processor's time."""
    tracemalloc.start()
    started = time.process_time()
    try:
        result = problem(read, names)
        return Taken(tracemalloc.get_traced_memory()[1], time.process_time() - started, result)
    finally:
        tracemalloc.stop()


def names_of(path: Path) -> set[str]:
    """Return the names of a file, its folder and its members; a refusal has one of them."""
    members = zipfile.ZipFile(path).namelist() if zipfile.is_zipfile(path) else []
    return {path.name, path.parent.name, *members}


def excess(valid: Taken, mutated: Taken) -> str | None:
    """Return the amounts of memory or time where a mutated file takes too much, else None."""
    memory = max(FREE_MEMORY, TIMES_MEMORY * valid.memory)
    seconds = max(FREE_SECONDS, TIMES_SECONDS * valid.seconds)
    if mutated.memory > memory:
        return f"{mutated.memory:,} bytes, the valid file {valid.memory:,}"
    if mutated.seconds > seconds:
        return f"{mutated.seconds:.2f} s, the valid file {valid.seconds:.2f} s"
    return None


def problem(read: Read, names: set[str]) -> str | None:
    """Return the fault of how a reader took a file; a refusal must have one of the names."""
    signal.alarm(SECONDS)
    try:
        read()
    except DataError as error:
        message = str(error)
        if "\n" in message or len(message) > SHOWN:
            return f"a message of {len(message)} characters or several lines: {message[:300]!r}"
        if not any(name in message for name in names):
            return f"a message that names none of the files: {message!r}"
    # Every other error is a fault, running out of memory and AssertionErrors included.
    except BaseException:
        return traceback.format_exc()
    finally:
        signal.alarm(0)
    return None


def hang(number: int, frame: object) -> None:
    raise TimeoutError(f"more than {SECONDS} s")


def fuzz(name: str, seed: int, count: int) -> None:
    """Read changed files, and end the process where a case fails."""
    place = Path(tempfile.gettempdir())
    for case in range(count):
        rng = np.random.default_rng((seed, case))
        # The case is written first, so that a crash shows it.
        (place / "case.txt").write_text(f"{name}, seed {seed}, case {case}")
        with tempfile.TemporaryDirectory(dir=place) as folder:
            os.environ["EVERLIGHT_DATA"] = folder
            files, read = READERS[name](Path(folder), rng)
            if case == 0:
                # Caches and modules are there from now on.
                read()
                before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
            names = {name for path in files for name in names_of(path)}
            valid = measured(read, names)
            mutate(files[rng.integers(len(files))], rng)
            taken = measured(read, names)
            result = valid.problem or taken.problem
            if result is None and excess(valid, taken):
                # A module that a refusal imports counts the first time alone.
                result = excess(valid, measured(read, names))
        grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
        if result is None and grown > MEMORY:
            result = f"{grown / 1e6:.0f} MB of memory"
        if result is not None:
            sys.exit(f"{name}, seed {seed}, case {case}: {result}")
    print(f"{name}: {count} cases, {grown / 1e6:.0f} MB", flush=True)


if __name__ == "__main__":
    signal.signal(signal.SIGALRM, hang)
    for reader in sys.argv[3:]:
        fuzz(reader, int(sys.argv[1]), int(sys.argv[2]))
