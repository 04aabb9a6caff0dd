"""Folders of raw pairs that cannot be used; nothing is decoded."""

import zlib

import pytest

from everlight_data.color.charts import pair_files
from everlight_data.color.charts.pair_files import MIN_PAIRS, find_pairs
from everlight_data.errors import DataError
from everlight_data.formats.files import read_bytes
from tests import refusals
from tests.data_pipelines.color.charts.raw_pairs import CONTENT, write_pairs


@pytest.fixture
def folder(tmp_path):
    return write_pairs(tmp_path)


def refused(folder, message):
    refusals.refused(message, lambda: find_pairs(folder), DataError)


def test_pairs_are_found_by_their_common_names(folder):
    assert [pair.name for pair in find_pairs(folder)] == [f"IMG_{i}" for i in range(MIN_PAIRS)]


def test_pairs_are_in_the_order_of_names_without_extension(folder):
    for view in ("main", "second"):
        for name in ("a b", "a-1", "a"):
            (folder / view / f"{name}.dng").write_bytes(CONTENT)
    names = [pair.name for pair in find_pairs(folder)]
    assert names[-3:] == ["a", "a b", "a-1"]


def test_every_file_is_summed_once(folder, monkeypatch):
    read = []

    def counted(path, *rest):
        read.append(path.name)
        return read_bytes(path, *rest)

    monkeypatch.setattr(pair_files, "read_bytes", counted)
    first, *_ = find_pairs(folder)
    assert len(read) == 2 * MIN_PAIRS
    assert first.checksums == dict.fromkeys(("main", "second"), zlib.crc32(CONTENT))


def test_files_without_partners_are_named(folder):
    (folder / "main" / "IMG_1.dng").unlink()
    refused(folder, r"IMG_1 in only one of main and second")


def test_too_few_pairs_are_refused(folder):
    for view in ("main", "second"):
        (folder / view / "IMG_1.dng").unlink()
    refused(folder, r"in has 5 pairs; 6 under different illuminants are the minimum")
    for index in (0, 2, 3, 4):
        for view in ("main", "second"):
            (folder / view / f"IMG_{index}.dng").unlink()
    refused(folder, r"in has 1 pair; 6 under")


def test_two_files_of_one_name_are_refused(folder):
    (folder / "main" / "IMG_1.cr2").write_bytes(b"")
    refused(folder, r"main has two files whose names differ only in the extension; leave one")
