"""Reader of CORe50 (Lomonaco and Maltoni, CoRL 2017).

The set has 50 objects in 11 sessions of about 300 frames each. `prepare_core50` reads the release
once into a folder; `load_core50` maps that folder's files into memory.
"""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from functools import partial as bind
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int, UInt8

from everlight_data.errors import DataError, MissingDataError
from everlight_data.formats.arrays import take
from everlight_data.formats.tables import parse_json
from everlight_data.images.core50.blocks import BUSY, REMEDY, Block, FrameFile
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
from everlight_data.sets.data_set import DataSet, PreparationRequest
from everlight_data.sets.image_set import block_means
from everlight_data.sets.loading import loaded_once
from everlight_data.writing import make_folder, read_sealed, remove, remove_unfinished, save_sealed

FOLDER = "core50"
FRAME_TABLE = "manifest.npz"
FRAMES = f"images_{SIDE}.npy"

# fmt: off
CATEGORY_NAMES = (
    "plug_adapter", "mobile_phone", "scissor", "light_bulb", "can",
    "glass", "ball", "marker", "cup", "remote_control",
)
# fmt: on
OBJECT_NAMES = tuple(f"{category}{number}" for category in CATEGORY_NAMES for number in range(1, 6))


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


def object_category(objects: Int[np.ndarray, "*n"]) -> Int[np.ndarray, "*n"]:
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
        with locked_folder(destination, BUSY), ThreadPoolExecutor(os.cpu_count()) as threads:

            def block(start: int, stop: int) -> list[np.ndarray]:
                return list(threads.map(bind(decode_frame, read, source), names[start:stop]))

            _prepare_folder(destination, table, block)
    return table


def _frame_file(folder: Path, count: int, side: int) -> FrameFile:
    return FrameFile(folder / f"images_{side}.npy", count, side)


def _prepare_folder(folder: Path, table: FrameTable, block: Block) -> None:
    remove_unfinished(folder)
    images = _frame_file(folder, len(table.frame), SIDE)
    if not _is_prepared_from(folder, table):
        for stale in folder.glob("images_*"):
            remove(stale)
    _write_frame_table(folder, table)
    try:
        images.write(block)
    except DataError:
        # Blocks with a checksum can be continued; anything less is useless.
        if not images.sums_path.exists():
            for path in (images.part.path, folder / FRAME_TABLE):
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
        raise DataError(
            f"--side {side}; give a divisor of {SIDE}, the side of the release's frames."
        )
    row = DATA_SETS["core50"]
    folder = row.locate() if folder is None else Path(folder)
    for path in (folder / FRAME_TABLE, folder / FRAMES):
        if not path.exists():
            raise MissingDataError(
                f"{path} does not exist: CORe50 is not prepared there, or incompletely. "
                f"{row.remedy} An interrupted preparation continues."
            )
    table = _read_frame_table(folder / FRAME_TABLE)
    check_counts(table.counts(), folder, partial)
    count, official = len(table.frame), FRAME_COUNTS.sum()
    original, frames = (_frame_file(folder, count, size) for size in (SIDE, side))
    full_size = original.map()
    if side == SIDE:
        original.check()
    elif not all(frames.valid_blocks()):
        original.check()
        frames.write(lambda first, end: block_means(full_size[first:end], side))
    return Core50(
        "CORe50" if count == official else f"CORe50, {count:,} of {official:,} frames",
        frames.map(),
        table.session,
        table.object,
        table.frame,
        OBJECT_NAMES,
        CATEGORY_NAMES,
    )


def _write_frame_table(folder: Path, table: FrameTable) -> None:
    fields = table._replace(aside=json.dumps(table.aside))._asdict()
    save_sealed(folder / FRAME_TABLE, **fields)


def _read_frame_table(path: Path) -> FrameTable:
    arrays = read_sealed(path, "Delete it and prepare CORe50 again.")
    fields = dict(
        zip(FrameTable._fields, take(arrays, path, FrameTable._fields, REMEDY), strict=True)
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


def _prepare(_: DataSet, request: PreparationRequest) -> str:
    table = prepare_core50(request.source, request.folder, request.partial)
    aside = ", ".join(f"{count:,} {name}" for name, count in table.aside.items())
    return (
        f"{len(table.frame):,} of {FRAME_COUNTS.sum():,} frames, "
        f"{len(np.unique(table.object))} objects in {len(np.unique(table.session))} "
        f"sessions; ignored files: {aside}"
    )


DATA_SETS = {
    "core50": DataSet(
        "CORe50: 164,866 frames (128x128) of 50 objects in 11 sessions",
        files=(f"{FOLDER}/{FRAME_TABLE}", f"{FOLDER}/{FRAMES}"),
        owner=OWNER,
        source=f"{ARCHIVE} ({ARCHIVE_SIZE}), or the folder with its files",
        size_bytes=8_104_000_000,
        prepare=_prepare,
        accepts_partial=True,
    )
}
