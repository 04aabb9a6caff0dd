"""Mutated files of every kind, in a process of their own: no crash, hang, traceback or bomb."""

import os
import re
import subprocess
import sys

import pytest

from everlight_data.errors import DataError, MissingDataError
from tests.data_pipelines.hostile_files.fuzzed_files import READERS

CASES, SECONDS = 1_000, 1_200
TEXTS = {".csv", ".txt", ".asc", ".wp"}
"""Endings of files of which the first half may be a file."""
OPTIONAL = {
    *(".lock", "images_32.crc32", "images_32.npy", "manifest.json"),
    # Fewer tasks, and clicks beside the homography.
    *("B2_facts.csv", "charts.json"),
}
"""Files that a folder may lack."""
OTHER_WORDS = {
    "B1_facts.csv": r"B<k>_facts\.csv for k in \[2\]",
    "real_illum_568.mat": r"real_illum_568\*\.mat",
    "8D5U5524.png": "0 images below png/",
    "a_001.tiff": r"<camera>/<set>/<name>\.tiff",
}
"""Words that stand for a missing file's name where any of several names would do."""
DAMAGED_AS_A_WHOLE = {"folds", "user_images", "gehler_release"}
"""Readers whose missing files are a fault of a set that is there."""


# Smaller images of CORe50 are made again from the larger ones.
@pytest.mark.parametrize("reader", sorted(READERS.keys() - {"core50_prepared"}))
def test_a_file_that_is_cut_short_is_refused_by_name(tmp_path, monkeypatch, rng, reader):
    monkeypatch.setenv("EVERLIGHT_DATA", str(tmp_path))
    files, read = READERS[reader](tmp_path, rng)
    for path in (path for path in files if path.suffix not in TEXTS):
        content = path.read_bytes()
        for part in (0, 16, 2):
            path.write_bytes(content[: len(content) // part] if part else b"")
            with pytest.raises(DataError, match=re.escape(path.name)):
                read()
        path.write_bytes(content)
    read()


# The bytes of an .npy file are read by others.
@pytest.mark.parametrize("reader", sorted(READERS.keys() - {"npy_objects"}))
def test_a_missing_file_is_named_with_its_remedy(tmp_path, monkeypatch, rng, reader):
    monkeypatch.setenv("EVERLIGHT_DATA", str(tmp_path))
    files, read = READERS[reader](tmp_path, rng)
    kind = DataError if reader in DAMAGED_AS_A_WHOLE else MissingDataError
    for path in (path for path in files if path.name not in OPTIONAL):
        elsewhere = path.rename(path.with_name("elsewhere"))
        words = OTHER_WORDS.get(path.name, re.escape(path.name))
        with pytest.raises(kind, match=rf"{words}.*[.;] [A-Za-z].*\.?$"):
            read()
        elsewhere.rename(path)


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
