"""Mutated files of every kind, in a process of their own: no crash, hang, traceback or bomb."""

import os
import re
import subprocess
import sys

import pytest

from everlight_data.errors import DataError
from tests.data_pipelines.hostile_files.fuzzed_files import READERS

CASES, SECONDS = 1_000, 1_200
TEXTS = {".csv", ".txt", ".asc", ".wp"}
"""Endings of files of which the first half may be a file."""


# Smaller images of CORe50 are made again from the larger ones.
@pytest.mark.parametrize("reader", sorted(READERS.keys() - {"core50_prepared"}))
def test_a_file_that_is_cut_short_is_refused_by_name(tmp_path, monkeypatch, rng, reader):
    monkeypatch.setenv("EVERLIGHT_DATA", str(tmp_path))
    files, read = READERS[reader](tmp_path, rng)
    for path in (path for path in files if path.suffix not in TEXTS):
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 2])
        with pytest.raises(DataError, match=re.escape(path.name)):
            read()
        path.write_bytes(content)
    read()


def fuzz(tmp_path, seed, count, *readers):
    command = [
        sys.executable,
        "-m",
        "tests.data_pipelines.hostile_files.fuzz_readers",
        str(seed),
        str(count),
    ]
    environment = os.environ | {"TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [*command, *readers],
        env=environment,
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    case = (tmp_path / "case.txt").read_text()
    assert done.returncode == 0, f"{case}: {done.returncode}\n{done.stderr[-3000:]}"


def test_a_few_mutations_of_every_kind_of_file(tmp_path):
    fuzz(tmp_path, 1, 12, *READERS)


@pytest.mark.slow
@pytest.mark.parametrize("reader", READERS)
def test_many_mutations(tmp_path, reader):
    fuzz(tmp_path, 2, CASES, reader)
