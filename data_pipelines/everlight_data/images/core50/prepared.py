"""Reader of CORe50 (Lomonaco and Maltoni, CoRL 2017).

The set has 50 objects in 11 sessions of about 300 frames each. `prepare_core50` reads the release
once into a folder; `load_core50` maps that folder's files into memory.
"""

import io
import json
import os
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial as bind
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int, UInt8

from everlight_data.errors import DataError, MissingDataError
from everlight_data.formats.arrays import dtype_and_shape, map_npy, take
from everlight_data.formats.files import MAX_RELEASE_BYTES, opened
from everlight_data.formats.tables import parse_json, read_json
from everlight_data.images.core50.release import (
    ARCHIVE,
    ARCHIVE_SIZE,
    FRAME_COUNTS,
    OWNER,
    SIDE,
    FrameTable,
    check_counts,
    decode_frame,
    list_frames,
    opened_release,
)
from everlight_data.locks import locked_folder
from everlight_data.progress import progress
from everlight_data.sets.data_set import DataSet
from everlight_data.sets.image_set import block_means
from everlight_data.sets.loading import loaded_once
from everlight_data.writing import (
    cannot_write,
    check_room,
    make_folder,
    read_sealed,
    remove,
    remove_unfinished,
    save_sealed,
    written_whole,
)

FOLDER = "core50"
FRAME_TABLE = "manifest.npz"
BLOCK = 512
"""Frames per checksum."""
_REMEDY = "Prepare CORe50 again; only damaged parts are read again."
_BUSY = "Wait until it has prepared CORe50."

# fmt: off
CATEGORIES = (
    "plug_adapter", "mobile_phone", "scissor", "light_bulb", "can",
    "glass", "ball", "marker", "cup", "remote_control",
)
# fmt: on
OBJECTS = tuple(f"{category}{number}" for category in CATEGORIES for number in range(1, 6))


Block = Callable[[int, int], list[np.ndarray] | np.ndarray]
"""Function from a range of frames, first and end, to the frames."""


class Core50(NamedTuple):
    """Frames sorted by session, object and time, with one label entry per frame."""

    name: str
    """Name of the set in reports."""
    images: UInt8[np.ndarray, "n side side 3"]
    session: Int[np.ndarray, "n"]
    """Session of each frame, 0 to 10."""
    object: Int[np.ndarray, "n"]
    """Object of each frame, 0 to 49."""
    frame: Int[np.ndarray, "n"]
    """Time in the recording at 20 frames per second; some numbers are missing."""
    object_names: tuple[str, ...]
    category_names: tuple[str, ...]


def category_of(objects: Int[np.ndarray, "*n"]) -> Int[np.ndarray, "*n"]:
    """Return the category, 0 to 9, of each object; five consecutive objects share one."""
    return objects // 5


def prepare_core50(
    source: Path | str, destination: Path | str, partial: bool = False
) -> FrameTable:
    """Convert the release to `images_128.npy`, uint8 `[n, 128, 128, 3]`, and a table.

    A call after a complete one only compares the release's file list and the prepared files. A call
    after an interrupted one continues to the same bytes. If the source has other frames,
    preparation starts over. Every block of frames has a checksum in `images_128.crc32`; damaged
    blocks are written again.

    Args:
      source: the release's folder or zip, with `s{1..11}/o{1..50}/C_{ss}_{oo}_{fff}.png` at any
        depth.
      destination: destination folder, created if missing.
      partial: accept an incomplete release.

    Returns:
      Table of the frames found, which the destination holds as `manifest.npz`.

    Raises:
      MissingDataError: the source does not exist, or holds no frame.
      DataError: the release is incomplete and `partial` is False; the message gives sessions,
        objects and counts. Or a file is damaged, not a 128x128 RGB image, duplicated or not
        CORe50's; the message names it. Or the disk is too small, or another process prepares the
        same folder.
    """
    source, destination = Path(source), Path(destination)
    with opened_release(source) as (files, read):
        names, table = list_frames(files, source)
        check_counts(table.counts(), source, partial)
        make_folder(destination)
        with locked_folder(destination, _BUSY), ThreadPoolExecutor(os.cpu_count()) as threads:

            def block(start: int, stop: int) -> list[np.ndarray]:
                return list(threads.map(bind(decode_frame, read, source), names[start:stop]))

            _prepare_in(destination, table, block)
    return table


def _prepare_in(folder: Path, table: FrameTable, block: Block) -> None:
    remove_unfinished(folder)
    images = folder / f"images_{SIDE}.npy"
    if not _is_prepared_from(folder, table):
        for stale in folder.glob("images_*"):
            remove(stale)
    _write_frame_table(folder, table)
    try:
        _write_frames(images, len(table.frame), SIDE, block)
    except DataError:
        # Blocks with a checksum can be continued; anything less is useless.
        if not _sums_path(images).exists():
            for path in (images.with_suffix(".part"), folder / FRAME_TABLE):
                remove(path)
        raise


@loaded_once
def load_core50(
    side: int = SIDE, folder: Path | str | None = None, partial: bool = False
) -> Core50:
    """Load CORe50 as prepared by `prepare_core50`; images are mapped into memory.

    The file of frames is read once to compare its checksums, 8.1 GB for the whole release.

    Args:
      side: side of the images in pixels. If it is below 128, images are block means, which are
        computed once and stored in a file.
      folder: folder of the prepared set; None is `core50` below EVERLIGHT_DATA.
      partial: accept missing frames; the result's name states their number.

    Raises:
      MissingDataError: the set is not prepared, or not completely.
      DataError: `side` does not divide 128, frames are missing without `partial`, a checksum
        differs, or there is no space for the smaller images.
    """
    if side < 1 or SIDE % side:
        raise DataError(f"side={side}; give a divisor of {SIDE}, the side of the release's frames.")
    row = DATA_SETS["core50"]
    folder = row.locate() if folder is None else Path(folder)
    original_path = folder / f"images_{SIDE}.npy"
    for path in (folder / FRAME_TABLE, original_path):
        if not path.exists():
            raise MissingDataError(
                f"{path} does not exist: CORe50 is not prepared there, or incompletely. "
                f"{row.remedy} An interrupted preparation continues."
            )
    table = _read_frame_table(folder / FRAME_TABLE)
    check_counts(table.counts(), folder, partial)
    count, official = len(table.frame), FRAME_COUNTS.sum()
    original = images = _map_images(original_path, count, SIDE)
    if side < SIDE:
        smaller = folder / f"images_{side}.npy"
        if not all(_valid_blocks(smaller, count, side)):
            _check_sums(original_path, count)
            _write_frames(
                smaller, count, side, lambda first, end: block_means(original[first:end], side)
            )
        images = _map_images(smaller, count, side)
    else:
        _check_sums(original_path, count)
    return Core50(
        "CORe50" if count == official else f"CORe50, {count:,} of {official:,} frames",
        images,
        table.session,
        table.object,
        table.frame,
        OBJECTS,
        CATEGORIES,
    )


def _write_frame_table(folder: Path, table: FrameTable) -> None:
    fields = table._replace(aside=json.dumps(table.aside))._asdict()
    save_sealed(folder / FRAME_TABLE, **fields)


def _read_frame_table(path: Path) -> FrameTable:
    arrays = read_sealed(path, "Delete it and prepare CORe50 again.")
    fields = dict(
        zip(FrameTable._fields, take(arrays, path, FrameTable._fields, _REMEDY), strict=True)
    )
    fields |= {"source": str(fields["source"]), "aside": parse_json(str(fields["aside"]))}
    return FrameTable(**fields)


def _is_prepared_from(folder: Path, table: FrameTable) -> bool:
    """Return True if the folder was prepared, even incompletely, from the same frames."""
    try:
        earlier = _read_frame_table(folder / FRAME_TABLE)
    except MissingDataError:
        return False
    except DataError as error:
        print(f"{error} It is being prepared again.", flush=True)
        return False
    return all(
        np.array_equal(getattr(earlier, name), getattr(table, name))
        for name in ("session", "object", "frame", "size")
    )


def _write_frames(path: Path, count: int, side: int, block: Block) -> None:
    """Write blocks of frames to an .npy file, which gets its name once it is complete.

    Blocks whose checksums match are kept.
    """
    part, sums_path = path.with_suffix(".part"), _sums_path(path)
    with locked_folder(path.parent, _BUSY):
        if path.exists() and not part.exists():
            if all(_valid_blocks(path, count, side)):
                return
            path.replace(part)
        valid = _valid_blocks(part, count, side)
        sums = _read_sums(sums_path, len(valid)) if any(valid) else [None] * len(valid)
        check_room(path.parent, valid.count(False) * BLOCK * side * side * 3, path.name)
        try:
            _write_blocks(part, count, side, valid, sums, block)
            part.replace(path)
        except OSError as error:
            if isinstance(error, DataError):
                raise
            raise cannot_write(part, error) from error


def _write_blocks(
    part: Path, count: int, side: int, valid: Sequence[bool], sums: list[int | None], block: Block
) -> None:
    """Write the invalid blocks, each with its checksum."""
    header = _header(count, side)
    done = min(BLOCK * valid.count(True), count)
    bar = progress(part.stem, count, done, "frame")
    # Not mapped: writing to a mapped file on a full disk ends the process.
    with bar, part.open("r+b" if part.exists() else "w+b") as stream:
        stream.write(header)
        stream.truncate(len(header) + count * side * side * 3)
        for number in np.flatnonzero(~np.array(valid)).tolist():
            first, last = number * BLOCK, min((number + 1) * BLOCK, count)
            content = np.asarray(block(first, last)).tobytes()
            stream.seek(len(header) + first * side * side * 3)
            stream.write(content)
            stream.flush()
            sums[number] = zlib.crc32(content)
            with written_whole(_sums_path(part)) as unfinished:
                unfinished.write_text(json.dumps(sums))
            bar.update(last - first)
        os.fsync(stream.fileno())


def _header(count: int, side: int) -> bytes:
    stream = io.BytesIO()
    header = {"descr": "|u1", "fortran_order": False, "shape": (count, side, side, 3)}
    np.lib.format.write_array_header_1_0(stream, header)
    return stream.getvalue()


def _sums_path(path: Path) -> Path:
    return path.with_suffix(".crc32")


def _read_sums(path: Path, blocks: int) -> list[int | None]:
    """Return the checksum of each block, None for blocks not written yet."""
    sums = read_json(path, _REMEDY)
    if not isinstance(sums, list) or len(sums) != blocks:
        raise DataError(f"{path} does not have a checksum for each of {blocks} blocks. {_REMEDY}")
    return sums


def _valid_blocks(path: Path, count: int, side: int) -> list[bool]:
    """Return True for each block of a file that matches its checksum; all False without a file."""
    starts = range(0, count, BLOCK)
    header = _header(count, side)
    try:
        sums = _read_sums(_sums_path(path), len(starts))
        valid = []
        with opened(path, MAX_RELEASE_BYTES, _REMEDY) as stream:
            if stream.read(len(header)) != header:
                return [False] * len(starts)
            for start, expected in zip(starts, sums, strict=True):
                length = (min(start + BLOCK, count) - start) * side * side * 3
                valid.append(zlib.crc32(stream.read(length)) == expected)
            if stream.read(1):
                valid[-1] = False
        return valid
    except DataError:
        return [False] * len(starts)


def _check_sums(path: Path, count: int) -> None:
    _read_sums(_sums_path(path), len(range(0, count, BLOCK)))
    valid = _valid_blocks(path, count, SIDE)
    if not all(valid):
        first = BLOCK * valid.index(False)
        raise DataError(
            f"{path} is damaged: frames {first} to {min(first + BLOCK, count) - 1} differ from "
            f"their checksum ({valid.count(False)} of {len(valid)} blocks do). {_REMEDY}"
        )


def _map_images(path: Path, count: int, side: int) -> UInt8[np.ndarray, "n side side 3"]:
    images = map_npy(path, _REMEDY)
    if images.shape != (count, side, side, 3) or images.dtype != np.uint8:
        raise DataError(
            f"{path} has {dtype_and_shape(images)}, but its manifest lists {count} "
            f"frames. {_REMEDY}"
        )
    return images


def _prepare(source: Path, folder: Path, _: DataSet, partial: bool) -> str:
    table = prepare_core50(source, folder, partial)
    aside = ", ".join(f"{count:,} {name}" for name, count in table.aside.items())
    return (
        f"{len(table.frame):,} of {FRAME_COUNTS.sum():,} frames, "
        f"{len(np.unique(table.object))} objects in {len(np.unique(table.session))} "
        f"sessions; ignored files: {aside}"
    )


DATA_SETS = {
    "core50": DataSet(
        "CORe50: 164,866 frames (128x128) of 50 objects in 11 sessions",
        files=(f"{FOLDER}/{FRAME_TABLE}", f"{FOLDER}/images_{SIDE}.npy"),
        owner=OWNER,
        source=f"{ARCHIVE} ({ARCHIVE_SIZE}), or the folder with its files",
        bytes=8_104_000_000,
        prepare=_prepare,
    )
}
