"""Folds that cross-validation tests in turn: drawn, or read from a published split of three."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from jaxtyping import Int

from everlight_data.errors import DataError
from everlight_data.formats.files import read_text, refusing
from everlight_data.formats.matlab import read_mat

FOLDS = 3
MAX_FOLDS = 8
"""Maximum number of folds of scenes; each two folds are another training."""
FOLD_LAYOUT = (
    "Give a text file or `indices` with each image's fold, 1 to 3, in the order of the images "
    "(of thumbnails that of the file, else that of the names), or `te_split` and `tr_split` with "
    "each fold's image numbers, from 1."
)


def draw_folds(count: int, seed: int) -> list[Int[np.ndarray, "k"]]:
    """Draw disjoint sets of test images of equal size; up to two images are in none."""
    drawn = np.random.default_rng(seed).permutation(count)
    return np.split(drawn[: count // FOLDS * FOLDS], FOLDS)


def draw_scene_folds(
    scenes: Int[np.ndarray, "n"], seed: int, limit: int = MAX_FOLDS
) -> list[Int[np.ndarray, "k"]]:
    """Draw at most `limit` folds of whole scenes, of one length (`padded_folds`)."""
    order = np.random.default_rng(seed).permutation(scenes.max() + 1)
    count = min(len(order), limit)
    rows = [np.flatnonzero(np.isin(scenes, order[fold::count])) for fold in range(count)]
    return padded_folds(rows)


def padded_folds(folds: Sequence[Int[np.ndarray, "_"]]) -> list[Int[np.ndarray, "k"]]:
    """Return folds whose shorter ones repeat rows, so that all have one length."""
    longest = max(map(len, folds))
    return [np.resize(fold, longest) for fold in folds]


def read_folds(path: Path, count: int) -> list[Int[np.ndarray, "k"]]:
    """Read three sets of test images of equal size from a published split.

    Larger folds lose their last images. Raises as `read_whole_folds` does.
    """
    folds = read_whole_folds(path, count)
    size = min(map(len, folds))
    return [fold[:size] for fold in folds]


def read_whole_folds(path: Path, count: int) -> list[Int[np.ndarray, "_"]]:
    """Read three sets of test images, perhaps of different sizes, from a published split.

    Two layouts are known: each image's fold (text, or a MATLAB
    file with `indices`), and FC4's MATLAB file with the image numbers of `te_split` and `tr_split`.

    Raises:
      MissingDataError: the file does not exist.
      DataError: the file does not assign every image to one of three folds.
    """
    if path.suffix == ".mat":
        folds = _matlab_folds(path, count)
    else:
        text = read_text(path, FOLD_LAYOUT)
        with refusing(path, FOLD_LAYOUT):
            assigned = np.array(text.split(), int)
        folds = _split_folds(path, assigned, count)
    if sum(map(len, folds)) < count or not all(map(len, folds)):
        raise DataError(f"{path} leaves images of {count} in no fold. {FOLD_LAYOUT}")
    return folds


def _matlab_folds(path: Path, count: int) -> list[Int[np.ndarray, "k"]]:
    try:
        (assigned,) = read_mat(path, ["indices"])
    except DataError as error:
        try:
            tests, trains = read_mat(path, ["te_split", "tr_split"])
        except DataError:
            raise DataError(f"{error} {FOLD_LAYOUT}") from None
    else:
        return _split_folds(path, assigned.ravel(), count)
    with refusing(path, FOLD_LAYOUT):
        folds, training = (
            [np.sort(np.asarray(cell, int).ravel()) - 1 for cell in cells.ravel()]
            for cells in (tests, trains)
        )
        if len(folds) != FOLDS or len(training) != FOLDS:
            raise ValueError(f"{len(folds)} folds")
        if sorted(np.concatenate(folds)) != list(range(count)):
            raise ValueError(f"test images are not 1 to {count}, each once")
        if any(np.intersect1d(*both).size for both in zip(folds, training, strict=True)):
            raise ValueError("a test image is in its own training part")
    return folds


def _split_folds(path: Path, assigned: np.ndarray, count: int) -> list[Int[np.ndarray, "k"]]:
    if len(assigned) != count:
        raise DataError(f"{path} has {len(assigned)} entries for {count} images. {FOLD_LAYOUT}")
    return [np.flatnonzero(assigned == fold) for fold in range(1, FOLDS + 1)]
