"""CORe50 (Lomonaco and Maltoni, CoRL 2017): 50 objects in 11 sessions of about 300 frames each.

`prepare_core50` reads the release once into a folder; `load_core50` maps that folder's files.
"""

import io
import json
import os
import sys
import zlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial as bind
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int, UInt8
from tqdm import tqdm

from data_pipelines.arrays import map_npy, take
from data_pipelines.errors import DataError, MissingDataError
from data_pipelines.files import opened, read_json
from data_pipelines.images.core50_release import (
    FRAME_COUNTS,
    SIDE,
    SIZE,
    SOURCE,
    Manifest,
    check_counts,
    decode_frame,
    list_frames,
    opened_release,
)
from data_pipelines.images.image_set import block_means
from data_pipelines.locations import locate
from data_pipelines.writing import (
    cannot_write,
    check_room,
    locked_folder,
    make_folder,
    read_sealed,
    remove,
    remove_unfinished,
    save_sealed,
    written_whole,
)

FOLDER = "core50"
MANIFEST = "manifest.npz"
BLOCK = 512
"""Frames with a checksum of their own."""
_AGAIN = "Prepare CORe50 again: only what is damaged is read anew."
_BUSY = "Wait until it has prepared CORe50."

CATEGORIES = (
    *("plug_adapter", "mobile_phone", "scissor", "light_bulb", "can"),
    *("glass", "ball", "marker", "cup", "remote_control"),
)
OBJECTS = tuple(f"{category}{number}" for category in CATEGORIES for number in range(1, 6))


Block = Callable[[int, int], list[np.ndarray] | np.ndarray]
"""From the first frame and that behind the last to the frames."""


class Core50(NamedTuple):
    """Frames in the order of session, object and frame; what each shows, one entry a frame."""

    name: str
    """How a report calls the set."""
    images: UInt8[np.ndarray, "n side side 3"]
    session: Int[np.ndarray, "n"]
    """0 to 10."""
    object: Int[np.ndarray, "n"]
    """0 to 49."""
    frame: Int[np.ndarray, "n"]
    """Time in the recording, 20 a second; some numbers are missing."""
    object_names: tuple[str, ...]
    category_names: tuple[str, ...]


def category_of(objects: Int[np.ndarray, "*n"]) -> Int[np.ndarray, "*n"]:
    """The category, 0 to 9, of each object: five that follow each other share one."""
    return objects // 5


def prepare_core50(source: Path | str, destination: Path | str, partial: bool = False) -> Manifest:
    """Read the release into `destination`: `images_128.npy`, uint8 `[n, 128, 128, 3]`, a manifest.

    Done once: a call after a whole one reads the release's list of files and what was prepared, one
    after a killed one goes on where that stopped, to the same bytes, and other frames in the source
    start anew. Every block of frames has a checksum, in `images_128.crc32`; a block that is not as
    it was written is written again.

    Args:
      source: the release's folder or zip, `s{1..11}/o{1..50}/C_{ss}_{oo}_{fff}.png` anywhere in it.
      destination: a folder, created where missing.
      partial: prepare an incomplete release too.

    Returns:
      What was found; it lies in the destination as `manifest.npz`.

    Raises:
      MissingDataError: no source, or no frame in it.
      DataError: the release is incomplete (named: sessions, objects, how many frames of how many)
        and not `partial`; a file of it is damaged, no 128x128 RGB image, there twice or none of
        CORe50's (named); the disk is too small, or another process prepares there.
    """
    source, destination = Path(source), Path(destination)
    with opened_release(source) as (files, read):
        names, manifest = list_frames(files, source)
        check_counts(manifest.counts(), source, partial)
        make_folder(destination)
        with (
            locked_folder(destination, _BUSY),
            ThreadPoolExecutor(os.cpu_count()) as threads,
        ):

            def block(start: int, stop: int) -> list[np.ndarray]:
                return list(threads.map(bind(decode_frame, read, source), names[start:stop]))

            _prepare_in(destination, manifest, block)
    return manifest


def _prepare_in(folder: Path, manifest: Manifest, block: Block) -> None:
    remove_unfinished(folder)
    images = folder / f"images_{SIDE}.npy"
    if not _is_prepared_from(folder, manifest):
        for stale in folder.glob("images_*"):
            remove(stale)
    _write_manifest(folder, manifest)
    try:
        _fill(images, len(manifest.frame), SIDE, block)
    except DataError:
        # What has a checksum is gone on with; less than that is of no use.
        if not _sums_path(images).exists():
            for path in (images.with_suffix(".part"), folder / MANIFEST):
                remove(path)
        raise


def load_core50(
    side: int = SIDE, folder: Path | str | None = None, partial: bool = False
) -> Core50:
    """CORe50 as `prepare_core50` left it; the images are mapped into memory, not read.

    Args:
      side: of the images; less than 128 is the mean of blocks, computed once, into a file beside.
      folder: where it was prepared; None is `core50` below EVERLIGHT_DATA.
      partial: load it even where frames are missing; the result's name counts them.

    Raises:
      MissingDataError: nothing is prepared there, or not to its end.
      DataError: a side that does not divide 128, missing frames (named) without `partial`, a
        damaged file (by its checksums), or no room for the smaller images.
    """
    if side < 1 or SIDE % side:
        raise DataError(f"side={side}; give a divisor of {SIDE}, the side of the release's frames.")
    how = f"{SOURCE}, by `python -m experiments data prepare core50 RELEASE` or prepare_core50"
    folder = locate(FOLDER, how, SIZE) if folder is None else Path(folder)
    whole = folder / f"images_{SIDE}.npy"
    for path in (folder / MANIFEST, whole):
        if not path.exists():
            raise MissingDataError(
                f"{path} does not exist: CORe50 ({SIZE}) is not prepared there, or not to its end. "
                f"Prepare it from {how}; a preparation that was stopped goes on."
            )
    manifest = _read_manifest(folder / MANIFEST)
    check_counts(manifest.counts(), folder, partial)
    count, official = len(manifest.frame), FRAME_COUNTS.sum()
    images = _map(whole, count, SIDE)
    if side < SIDE:
        smaller = folder / f"images_{side}.npy"
        if not all(_right_blocks(smaller, count, side)):
            _check_sums(whole, count)
            _fill(smaller, count, side, bind(_shrink, images, side))
        images = _map(smaller, count, side)
    else:
        _check_sums(whole, count)
    return Core50(
        "CORe50" if count == official else f"CORe50, {count:,} of {official:,} frames",
        images,
        manifest.session,
        manifest.object,
        manifest.frame,
        OBJECTS,
        CATEGORIES,
    )


def _write_manifest(folder: Path, manifest: Manifest) -> None:
    fields = manifest._replace(aside=json.dumps(manifest.aside))._asdict()
    save_sealed(folder / MANIFEST, **fields)


def _read_manifest(path: Path) -> Manifest:
    arrays = read_sealed(path, "Delete it and prepare CORe50 again.")
    fields = dict(zip(Manifest._fields, take(arrays, path, Manifest._fields, _AGAIN), strict=True))
    fields |= {"source": str(fields["source"]), "aside": json.loads(str(fields["aside"]))}
    return Manifest(**fields)


def _is_prepared_from(folder: Path, manifest: Manifest) -> bool:
    """Whether the folder was prepared, wholly or not, from these very frames."""
    try:
        earlier = _read_manifest(folder / MANIFEST)
    except MissingDataError:
        return False
    except DataError as error:
        print(f"{error} It is prepared anew.", flush=True)
        return False
    return all(map(np.array_equal, earlier[1:-1], manifest[1:-1]))


def _fill(path: Path, count: int, side: int, block: Block) -> None:
    """Write blocks of frames into an .npy, which gets its name once it is whole.

    Blocks that are there as their checksums say stay, whoever wrote them.
    """
    part, sums_path = path.with_suffix(".part"), _sums_path(path)
    with locked_folder(path.parent, _BUSY):
        if path.exists() and not part.exists():
            if all(_right_blocks(path, count, side)):
                return
            path.replace(part)
        right = _right_blocks(part, count, side)
        sums = _read_sums(sums_path, len(right)) if any(right) else [None] * len(right)
        check_room(path.parent, right.count(False) * BLOCK * side * side * 3, path.name)
        try:
            _write_blocks(part, (count, side), right, sums, block)
            part.replace(path)
        except OSError as error:
            if isinstance(error, DataError):
                raise
            raise cannot_write(part, error) from error


def _write_blocks(
    part: Path,
    size: tuple[int, int],
    right: Sequence[bool],
    sums: list[int | None],
    block: Block,
) -> None:
    """Write the blocks that are not right, each with its checksum."""
    (count, side), header = size, _header(*size)
    done = min(BLOCK * right.count(True), count)
    interval = 0.2 if sys.stderr.isatty() else 30.0
    bar = tqdm(None, part.stem, count, initial=done, unit="frame", mininterval=interval)
    # Not mapped: writing to a mapped file on a full disk ends the process.
    with bar, part.open("r+b" if part.exists() else "w+b") as stream:
        stream.write(header)
        stream.truncate(len(header) + count * side * side * 3)
        for number in np.flatnonzero(~np.array(right)).tolist():
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
    """The checksum of each block, None of one that was not written."""
    sums = read_json(path, _AGAIN)
    if not isinstance(sums, list) or len(sums) != blocks:
        raise DataError(f"{path} has no checksum for each of {blocks} blocks. {_AGAIN}")
    return sums


def _right_blocks(path: Path, count: int, side: int) -> list[bool]:
    """Which blocks of a file are as they were written; none where there is no such file."""
    starts = range(0, count, BLOCK)
    header = _header(count, side)
    try:
        sums = _read_sums(_sums_path(path), len(starts))
        right = []
        with opened(path, 1 << 45, _AGAIN) as stream:
            if stream.read(len(header)) != header:
                return [False] * len(starts)
            for start, expected in zip(starts, sums, strict=True):
                length = (min(start + BLOCK, count) - start) * side * side * 3
                right.append(zlib.crc32(stream.read(length)) == expected)
            if stream.read(1):
                right[-1] = False
        return right
    except DataError:
        return [False] * len(starts)


def _check_sums(path: Path, count: int) -> None:
    _read_sums(_sums_path(path), len(range(0, count, BLOCK)))
    right = _right_blocks(path, count, SIDE)
    if not all(right):
        first = BLOCK * right.index(False)
        raise DataError(
            f"{path} is damaged: frames {first} to {min(first + BLOCK, count) - 1} are not what "
            f"was written ({right.count(False)} of {len(right)} blocks are not). {_AGAIN}"
        )


def _shrink(images: np.ndarray, side: int, start: int, stop: int) -> np.ndarray:
    return block_means(images[start:stop], side)


def _map(path: Path, count: int, side: int) -> UInt8[np.ndarray, "n side side 3"]:
    images = map_npy(path, _AGAIN)
    if images.shape != (count, side, side, 3) or images.dtype != np.uint8:
        raise DataError(
            f"{path} is {images.dtype} of {images.shape}, but the manifest beside it names {count} "
            f"frames. {_AGAIN}"
        )
    return images
