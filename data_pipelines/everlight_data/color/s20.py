"""The S20 two-camera set: 162 image pairs of a phone's main and wide-angle camera, as released.

It is published at SamsungLabs/two-camera-white-balance (Abdelhamed, Punnappurath, Brown, CVPR
2021), CC BY-NC-SA 4.0. The paper counts 156 pairs, the release has 162. The raw images (DNG) and
the augmented metadata, 99 re-illuminations of each pair, are not in the repository itself.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from everlight_data.errors import DataError, MissingDataError
from everlight_data.formats.archives import opened_archive
from everlight_data.formats.files import read_bytes
from everlight_data.formats.matlab import read_mat
from everlight_data.formats.originals import Original
from everlight_data.formats.unpickle import load_npy_restricted
from everlight_data.sets.data_set import DataSet, file_by_file
from everlight_data.sets.preparing import copies

OWNER = "SamsungLabs/two-camera-white-balance on GitHub, CC BY-NC-SA 4.0"
ARCHIVE = "Metadata_Image_Pairs.zip"
FOLDS_FILE = "s20_idx_3_parts_no_rep.mat"
AUGMENTED_ARCHIVE = "Metadata_Image_Pairs_Augment_99.zip"
AUGMENTED_FOLDS = "s20_idx_3_parts.mat"
MAX_PAIR_BYTES = 20_000
"""Limit on the size of a pair's file, which has 1.3 kB."""
MAX_PAIRS = 20_000
"""Limit on the pairs of a folder or an archive; the augmented set has 16,038."""
_REMEDY = f"Download it again from {OWNER}."


class S20(NamedTuple):
    """Image pairs sorted by name; camera 1 is the main one.

    `transform_*` map colours as rows from camera 1 to 2, `*_reverse` from 2 to 1. The authors
    fitted them to the entire image or to the chart, after dividing every pixel by its R+G+B, so
    rows sum to about 1. Illuminants are the chart's, in the cameras' raw scale. `folds` holds the
    authors' three sets of test indices.
    """

    names: tuple[str, ...]
    illuminant_main: Float[np.ndarray, "n 3"]
    illuminant_second: Float[np.ndarray, "n 3"]
    as_shot_neutral_main: Float[np.ndarray, "n 3"]
    as_shot_neutral_second: Float[np.ndarray, "n 3"]
    transform_image: Float[np.ndarray, "n 3 3"]
    transform_image_reverse: Float[np.ndarray, "n 3 3"]
    transform_chart: Float[np.ndarray, "n 3 3"]
    transform_chart_reverse: Float[np.ndarray, "n 3 3"]
    folds: tuple[Int[np.ndarray, "k"], ...]


_KEYS = {
    "illuminant_main": "wb_gt_1",
    "illuminant_second": "wb_gt_2",
    "as_shot_neutral_main": "as_shot_neutral_1",
    "as_shot_neutral_second": "as_shot_neutral_2",
    "transform_image": "transform_image_1to2",
    "transform_image_reverse": "transform_image_2to1",
    "transform_chart": "transform_chart_1to2",
    "transform_chart_reverse": "transform_chart_2to1",
}
"""Key of the release by field of `S20`."""


def load_s20(path: Path | None = None) -> S20:
    """Load S20's released ground truth, transforms and folds, as float32.

    Args:
      path: folder with `Metadata_Image_Pairs.zip`, or that archive unpacked
        (`Metadata_Image_Pairs/RAW_xxxx.npy`), and `s20_idx_3_parts_no_rep.mat`. None is
        `s20_two_camera` below EVERLIGHT_DATA.

    Raises:
      MissingDataError: the folder or a file does not exist.
      DataError: a file is damaged, a pair lacks a value, or the folds do not partition the set.
    """
    folder = DATA_SETS["s20"].locate() if path is None else path
    names, pairs = [], []
    for file, content in _pair_files(folder):
        names.append(Path(file).stem)
        pairs.append(_read_pair(content, file))
    columns = {field: np.stack([pair[field] for pair in pairs]) for field in _KEYS}
    return S20(tuple(names), **columns, folds=_read_folds(folder / FOLDS_FILE, len(names)))


class AugmentedS20(NamedTuple):
    """The authors' re-illuminated pairs: row `i * copies + c` is copy c of pair i of `S20`.

    `folds` holds the rows on which the authors test each fold during training, `[3, k * copies]`.
    """

    transforms: Float[np.ndarray, "m 3 3"]
    illuminants: Float[np.ndarray, "m 3"]
    copies: int
    folds: Int[np.ndarray, "3 k"]


def load_augmented_s20(pairs: int, path: Path | None = None) -> AugmentedS20 | None:
    """Return the released re-illuminations as the authors' loader reads them, or None without them.

    Files are sorted by name; each holds a dictionary with `wb_gt_1` and `transform_image_1to2`. A
    pair's copies are consecutive and include the pair itself.

    Args:
      pairs: number of pairs that `load_s20` gives.
      path: folder as for `load_s20`. It may hold `Metadata_Image_Pairs_Augment_99.zip`, or that
        archive unpacked, and then `s20_idx_3_parts.mat`.

    Raises:
      MissingDataError: re-illuminations exist without their folds.
      DataError: a file is damaged, the number of copies varies, or the folds do not match.
    """
    folder = DATA_SETS["s20"].locate() if path is None else path
    if not ((folder / AUGMENTED_ARCHIVE).exists() or (folder / AUGMENTED_ARCHIVE[:-4]).is_dir()):
        return None
    fields, files = ("illuminant_main", "transform_image"), _pair_files(folder, AUGMENTED_ARCHIVE)
    read = [_read_pair(content, file, fields) for file, content in files]
    copies, rest = divmod(len(read), pairs)
    if rest:
        raise DataError(
            f"{folder / AUGMENTED_ARCHIVE} holds {len(read)} files, not a multiple of {pairs} "
            f"pairs. {_REMEDY}"
        )
    folds = _read_folds(folder / AUGMENTED_FOLDS, len(read), "idx_parts")
    return AugmentedS20(
        transforms=np.stack([pair["transform_image"] for pair in read]),
        illuminants=np.stack([pair["illuminant_main"] for pair in read]),
        copies=copies,
        folds=np.stack(folds),
    )


def _pair_files(folder: Path, name: str = ARCHIVE) -> Iterator[tuple[str, bytes]]:
    """Yield name and bytes of every RAW_xxxx.npy, sorted by name; one at a time is in memory."""
    archive, unpacked = folder / name, folder / Path(name).stem
    if archive.exists():
        with opened_archive(archive, _REMEDY) as members:
            files = sorted(file.name for file in members.files() if file.name.endswith(".npy"))
            _check_count(archive, len(files))
            for file in files:
                yield f"{archive}/{file}", members.read(file, MAX_PAIR_BYTES)
    else:
        files = sorted(unpacked.glob("*.npy"))
        _check_count(unpacked, len(files))
        for path in files:
            yield str(path), read_bytes(path, MAX_PAIR_BYTES, _REMEDY)
    if not files:
        raise MissingDataError(
            f"Neither {archive} nor {unpacked}/RAW_xxxx.npy holds a pair. Download them from "
            f"{OWNER}."
        )


def _check_count(source: Path, count: int) -> None:
    if count > MAX_PAIRS:
        raise DataError(
            f"{source} holds {count:,} pairs, more than the limit of {MAX_PAIRS:,}. {_REMEDY}"
        )


def _read_pair(content: bytes, file: str, fields: Iterable[str] = _KEYS) -> dict[str, np.ndarray]:
    array = load_npy_restricted(content, file)
    pair = array.item() if array.dtype == object and array.size == 1 else None
    if not isinstance(pair, dict):
        raise DataError(f"{file} does not hold one dictionary. {_REMEDY}")
    values = {}
    for field in fields:
        key, shape = _KEYS[field], (3, 3) if field.startswith("transform") else (3,)
        if key not in pair:
            raise DataError(f"{file} has no {key!r}. {_REMEDY}")
        value = np.asarray(pair[key])
        if value.size == np.prod(shape):
            value = value.reshape(shape)  # the authors' own loader squeezes illuminants
        if value.shape != shape or value.dtype.kind != "f" or not np.isfinite(value).all():
            raise DataError(f"{file}: {key!r} is not {shape} finite numbers. {_REMEDY}")
        values[field] = value.astype(np.float32)
    return values


def _read_folds(
    path: Path, count: int, variable: str = "idx_parts_no_rep"
) -> tuple[np.ndarray, ...]:
    if not path.exists():
        raise MissingDataError(f"{path} does not exist. Download it from {OWNER}.")
    (folds,) = read_mat(path, [variable])
    members, occurrences = np.unique(folds, return_counts=True)
    problems = {
        "more than once": members[occurrences > 1],
        "outside the set": members[(members < 0) | (members >= count)],
        "in no fold": np.setdiff1d(np.arange(count), members),
    }
    faults = [f"{kind}: {indices.tolist()}" for kind, indices in problems.items() if indices.size]
    if faults:
        raise DataError(
            f"The folds of {path} do not partition the {count} pairs; {'; '.join(faults)}. "
            f"Use folds and pairs of the same release: {OWNER}."
        )
    return tuple(folds.astype(np.int32))


_ORIGINALS = {
    ARCHIVE: Original(171_339, "5218924cc2197aaff71658481aac960205f78f9e4f5ace6693daf551a94b332b"),
    FOLDS_FILE: Original(848, "751ae22b9a1a8c14dcf203c466a96bb53638e62737c73930fc22c51682d035e9"),
}
_MAX_BYTES = 100_000_000
"""Size limit of a file; the largest one is the augmented metadata."""
DATA_SETS = {
    "s20": DataSet(
        "S20: illuminants, transforms and folds of 162 image pairs of a phone's two cameras",
        files=(f"s20_two_camera/{ARCHIVE}", f"s20_two_camera/{FOLDS_FILE}"),
        owner=OWNER,
        source=f"the repository's folder data, optionally with {AUGMENTED_ARCHIVE}, linked there",
        size_bytes=200_000,
        prepare=file_by_file(copies(_MAX_BYTES, _ORIGINALS, (AUGMENTED_ARCHIVE, AUGMENTED_FOLDS))),
    )
}
