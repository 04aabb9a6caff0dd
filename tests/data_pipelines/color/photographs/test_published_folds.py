"""Folds that are read from published splits."""

import numpy as np
import pytest
import scipy.io
import scipy.sparse

from everlight_data.color.photographs.published_folds import read_folds
from everlight_data.errors import DataError


def test_published_folds(tmp_path):
    parts = np.array([1, 2, 3, 3, 2, 1, 1])
    scipy.io.savemat(tmp_path / "folds.mat", {"indices": parts[:, None]})
    (tmp_path / "cvfolds.txt").write_text("1\n2\n3\n3\n2\n1\n1")
    for name in ("folds.mat", "cvfolds.txt"):
        folds = read_folds(tmp_path / name, 7)
        assert [fold.tolist() for fold in folds] == [[0, 5], [1, 4], [2, 3]]
        with pytest.raises(DataError, match="has 7 entries for 8 images"):
            read_folds(tmp_path / name, 8)
    (tmp_path / "cvfolds.txt").write_text("1\n2\n4\n")
    with pytest.raises(DataError, match=r"in no fold. Give .* each image's fold, 1 to 3"):
        read_folds(tmp_path / "cvfolds.txt", 3)


def write_splits(path, tests, trains):
    """Write FC4's layout: a cell per fold with the numbers of its images, from 1."""
    cells = {}
    for name, folds in (("te_split", tests), ("tr_split", trains)):
        cells[name] = np.empty((1, len(folds)), object)
        cells[name][0, :] = [np.array([fold]) for fold in folds]
    scipy.io.savemat(path, cells)


TESTS = [[1, 6, 7], [2, 5], [3, 4]]
TRAINS = [[2, 3, 4, 5], [1, 3, 4, 6, 7], [1, 2, 5, 6, 7]]


def test_folds_by_image_numbers(tmp_path):
    write_splits(tmp_path / "folds.mat", TESTS, TRAINS)
    folds = read_folds(tmp_path / "folds.mat", 7)
    assert [fold.tolist() for fold in folds] == [[0, 5], [1, 4], [2, 3]]


@pytest.mark.parametrize(
    ("tests", "trains", "message"),
    [
        (TESTS[:2], TRAINS[:2], "2 folds"),
        ([[1, 6], [2, 5], [3, 4]], TRAINS, "test images are not 1 to 7, each once"),
        (TESTS, [[1, 2, 3, 4, 5], *TRAINS[1:]], "in its own training part"),
    ],
)
def test_folds_that_are_no_split_are_refused(tmp_path, tests, trains, message):
    write_splits(tmp_path / "folds.mat", tests, trains)
    with pytest.raises(DataError, match=rf"folds\.mat.*{message}.*te_split"):
        read_folds(tmp_path / "folds.mat", 7)


@pytest.mark.parametrize(
    ("stored", "message"),
    [
        (
            {"indices": scipy.sparse.csc_matrix(np.array([[1.0, 2, 3]]))},
            "indices is complex or more than one",
        ),
        ({"indices": {"a": np.arange(3)}}, "indices"),
        ({"folds": np.arange(3)}, "has no variable indices"),
    ],
)
def test_folds_of_another_kind_are_named_by_their_variable(tmp_path, stored, message):
    """The message named te_split, which such a file never had."""
    path = tmp_path / "folds.mat"
    scipy.io.savemat(path, stored)
    with pytest.raises(DataError, match=rf"folds\.mat.*{message}.*Give a text file or `indices`"):
        read_folds(path, 3)
