"""Folders of raw pairs that cannot be used; nothing is decoded."""

import pytest

from everlight_data.color.charts.pair_files import MIN_PAIRS, find_pairs
from everlight_data.errors import DataError
from tests import refusals


@pytest.fixture
def folder(tmp_path):
    for view in ("main", "second"):
        (tmp_path / "in" / view).mkdir(parents=True)
        for index in range(MIN_PAIRS):
            (tmp_path / "in" / view / f"IMG_{index}.dng").write_bytes(b"no raw file")
    return tmp_path / "in"


def refused(folder, message):
    refusals.refused(message, lambda: find_pairs(folder), DataError)


def test_pairs_are_found_by_their_common_names(folder):
    assert [pair.name for pair in find_pairs(folder)] == [f"IMG_{i}" for i in range(MIN_PAIRS)]


def test_pairs_are_in_the_order_of_names_without_extension(folder):
    for view in ("main", "second"):
        for name in ("a b", "a-1", "a"):
            (folder / view / f"{name}.dng").write_bytes(b"no raw file")
    names = [pair.name for pair in find_pairs(folder)]
    assert names[-3:] == ["a", "a b", "a-1"]


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
