"""Mutated files of every kind, in a process of their own: no crash, hang, traceback or bomb."""

import os
import subprocess
import sys

import pytest

from tests.data_pipelines.fuzzed_files import READERS

CASES, SECONDS = 1_000, 1_200


def fuzz(tmp_path, seed, count, *readers):
    command = [sys.executable, "-m", "tests.data_pipelines.fuzz_readers", str(seed), str(count)]
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
