"""CORe50 (Lomonaco and Maltoni, CoRL 2017): 50 objects in 11 sessions of about 300 frames each.

`prepare_core50` reads the release once into a folder; `load_core50` maps that folder's files.
"""

import json
import os
import shutil
import sys
import zipfile
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial as bind
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int, UInt8
from tqdm import tqdm

from data_pipelines.core50_release import (
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
from data_pipelines.errors import DataError, MissingDataError
from data_pipelines.image_set import block_means
from data_pipelines.locations import locate

FOLDER = "core50"
MANIFEST = "manifest.npz"
BLOCK = 512
"""Frames between two notes of how far a file is filled."""

CATEGORIES = (
    *("plug_adapter", "mobile_phone", "scissor", "light_bulb", "can"),
    *("glass", "ball", "marker", "cup", "remote_control"),
)
OBJECTS = tuple(f"{category}{number}" for category in CATEGORIES for number in range(1, 6))


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

    Done once: a call after a whole one reads only the release's list of files, one after a killed
    one goes on where that stopped, to the same bytes, and other frames in the source start anew.

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
        CORe50's (named); or the disk is too small.
    """
    source, destination = Path(source), Path(destination)
    with opened_release(source) as (files, read):
        names, manifest = list_frames(files, source)
        check_counts(manifest.counts(), source, partial)
        destination.mkdir(parents=True, exist_ok=True)
        if not _is_prepared_from(destination, manifest):
            for stale in destination.glob("images_*"):
                stale.unlink()
        _write_manifest(destination, manifest)
        with ThreadPoolExecutor(os.cpu_count()) as threads:

            def block(start: int, stop: int) -> list[np.ndarray]:
                return list(threads.map(bind(decode_frame, read, source), names[start:stop]))

            _fill(destination / f"images_{SIDE}.npy", len(names), SIDE, block)
    return manifest


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
        damaged file, or no room for the smaller images.
    """
    if side < 1 or SIDE % side:
        raise DataError(f"side={side}; give a divisor of {SIDE}, the side of the release's frames.")
    how = f"{SOURCE}, by `python -m experiments core50 prepare RELEASE` or prepare_core50"
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
        _fill(folder / f"images_{side}.npy", count, side, bind(_shrink, images, side))
        images = _map(folder / f"images_{side}.npy", count, side)
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
    written = folder / "manifest.part.npz"
    np.savez(written, **manifest._replace(aside=json.dumps(manifest.aside))._asdict())
    written.replace(folder / MANIFEST)


def _read_manifest(path: Path) -> Manifest:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            fields = {name: arrays[name] for name in Manifest._fields}
        fields |= {"source": str(fields["source"]), "aside": json.loads(str(fields["aside"]))}
    except (KeyError, ValueError, EOFError, OSError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(
            f"{path} is damaged or another file ({error}). Delete it and prepare CORe50 again."
        ) from error
    return Manifest(**fields)


def _is_prepared_from(folder: Path, manifest: Manifest) -> bool:
    """Whether the folder was prepared, wholly or not, from these very frames."""
    if not (folder / MANIFEST).exists():
        return False
    earlier = _read_manifest(folder / MANIFEST)
    return all(map(np.array_equal, earlier[1:-1], manifest[1:-1]))


def _fill(
    path: Path,
    count: int,
    side: int,
    block: Callable[[int, int], list[np.ndarray] | np.ndarray],
) -> None:
    """Write blocks of frames into an .npy, which gets its name once it is whole."""
    if path.exists():
        return
    part, note = path.with_suffix(".part"), path.with_suffix(".done")
    done = int(note.read_text()) if part.exists() and note.exists() else 0
    needed, free = (count - done) * side * side * 3, shutil.disk_usage(path.parent).free
    # Writing to a mapped file on a full disk would end the process without a word.
    if needed > free:
        raise DataError(f"{path} needs {needed / 1e9:.1f} GB more, but {free / 1e9:.1f} are free.")
    if not done:
        note.unlink(missing_ok=True)
    images = np.lib.format.open_memmap(
        part, "r+" if done else "w+", np.uint8, (count, side, side, 3)
    )
    interval = 0.2 if sys.stderr.isatty() else 30.0
    with tqdm(None, path.name, count, initial=done, unit="frame", mininterval=interval) as bar:
        for start in range(done, count, BLOCK):
            stop = min(start + BLOCK, count)
            images[start:stop] = block(start, stop)
            images.flush()
            _note(note, stop)
            bar.update(stop - start)
    part.replace(path)
    note.unlink(missing_ok=True)


def _note(path: Path, done: int) -> None:
    written = path.with_suffix(".new")
    written.write_text(str(done))
    written.replace(path)


def _shrink(images: np.ndarray, side: int, start: int, stop: int) -> np.ndarray:
    return block_means(images[start:stop], side)


def _map(path: Path, count: int, side: int) -> UInt8[np.ndarray, "n side side 3"]:
    try:
        images = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError, OSError) as error:
        raise DataError(f"{path} is damaged ({error}). Delete it and prepare it again.") from error
    if images.shape != (count, side, side, 3) or images.dtype != np.uint8:
        raise DataError(
            f"{path} is {images.dtype} of {images.shape}, but the manifest beside it names {count} "
            "frames. Delete it and prepare it again."
        )
    return images
