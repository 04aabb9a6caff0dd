"""Preparation of data sets from their publishers' files, with checksums and resumption.

A folder's `manifest.json` records size, SHA-256 and source of every prepared file. A file that
still matches the manifest is not made again.
"""

import hashlib
import io
import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from everlight_data.errors import DataError
from everlight_data.formats.archives import Archive, Folder, inflate, opened_source
from everlight_data.formats.files import MAX_RELEASE_BYTES, MAX_TEXT_BYTES, opened, refusing
from everlight_data.formats.originals import Original, check_original
from everlight_data.formats.tables import read_json
from everlight_data.locks import locked_folder
from everlight_data.writing import (
    check_room,
    make_folder,
    remove,
    remove_unfinished,
    written_whole,
)

MANIFEST = "manifest.json"
_BUSY = "Wait until it has prepared the data set."

Source = Archive | Folder
"""An opened release."""
Files = Mapping[str, Callable[[], bytes]]
"""Mapping from the name of each file to a function that makes its content."""
Recipe = Callable[[Source], Files]
"""Function from an opened release to its files; each file's content is made on demand."""


def prepare_files(
    source: Path,
    folder: Path,
    recipe: Recipe,
    remedy: str,
    room: int,
    original: Original | None = None,
    together: bool = False,
) -> list[str]:
    """Make a data set's files in a folder, except those that already match the manifest.

    Args:
      source: the release, a folder or a file.
      folder: destination folder, created if missing.
      recipe: function from the opened release to its files.
      remedy: sentence that every error message ends with.
      room: bytes that all files take.
      original: size and hash of the source, if it is a single file and they are known.
      together: True if files of different sources do not fit together. Then a missing or altered
        file is made again with all others, of which the old ones are removed first.

    Returns:
      Names of the files that this call made.

    Raises:
      MissingDataError: the source does not exist.
      DataError: the source is damaged, incomplete or another file, the disk is too small, or
        another process prepares the same folder.
    """
    if original is not None and not source.is_dir():
        with opened(source, MAX_RELEASE_BYTES, remedy) as stream:
            check_original(stream, source, original, remedy)
    with opened_source(source, remedy) as published:
        with refusing(source, remedy):
            files = recipe(published)
        make_folder(folder)
        with locked_folder(folder, _BUSY):
            remove_unfinished(folder)
            manifest = read_manifest(folder)
            created = [name for name in files if not is_whole(folder / name, manifest.get(name))]
            if created:
                check_room(folder, room, folder.name)
            if created and together:
                created = list(files)
            for name in created:
                with refusing(source, remedy):
                    content = files[name]()
                # Only now is it known that the source can be read.
                if together and name == created[0]:
                    _remove_files(folder, created, manifest)
                with written_whole(folder / name) as unfinished:
                    unfinished.write_bytes(content)
                manifest[name] = _manifest_entry(content, source)
                _write_manifest(folder, manifest)
    return created


def read_manifest(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the manifest's entries by file; empty if there is no manifest.

    Raises:
      DataError: the manifest is damaged.
    """
    path = folder / MANIFEST
    if not path.exists():
        return {}
    remedy = "Delete it and prepare again."
    table = read_json(path, remedy)
    with refusing(path, remedy):
        entries = {str(name): dict(entry) for name, entry in table["files"].items()}
        for name, entry in entries.items():
            if not isinstance(entry.get("bytes"), int) or not isinstance(entry.get("sha256"), str):
                raise ValueError(f"{name} lacks its size or its hash")
        return entries


def is_whole(path: Path, entry: Mapping[str, Any] | None) -> bool:
    """Return True if a file has the size and hash of its entry in the manifest."""
    if entry is None or not path.is_file() or path.stat().st_size != entry["bytes"]:
        return False
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest() == entry["sha256"]


def find(source: Source, name: str) -> str:
    """Return the one file of a source whose path ends with a name.

    A source that is a single file returns that file.

    Raises:
      DataError: there is no such file, or several.
    """
    files = source.files()
    if len(files) == 1:
        return files[0].name
    paths = matching(source, lambda path: f"/{path}".endswith(f"/{name}"))
    if len(paths) != 1:
        matches = f"matches several files, {paths[0]} and {paths[1]}" if paths else "was not found"
        raise DataError(f"{source.path}: {name} {matches}. {source.remedy}")
    return paths[0]


def matching(source: Source, condition: Callable[[str], object]) -> list[str]:
    """Return the sorted names of a source's files that satisfy a condition."""
    # Archives made on a Mac hold a copy of every name.
    names = (member.name for member in source.files())
    return sorted(name for name in names if "__MACOSX/" not in name and condition(name))


def read_member_text(source: Source, name: str) -> str:
    """Return the text of a source's file, which may be compressed as `name.gz`.

    Raises:
      DataError: there is no such file, or several.
      ValueError: it is not UTF-8, or its compressed content is damaged or too large.
    """
    packed = matching(source, lambda path: f"/{path}".endswith(f"/{name}.gz"))
    path = find(source, f"{name}.gz" if packed else name)
    content = source.read(path, MAX_TEXT_BYTES)
    if path.endswith(".gz"):
        content = inflate(content, MAX_TEXT_BYTES, gzip=True)
    return content.decode("utf-8")


def parse_numbers(text: str) -> np.ndarray:
    """Return all numbers of a text, without lines that begin with #."""
    lines = (line for line in text.splitlines() if not line.lstrip().startswith("#"))
    return np.array(" ".join(lines).split(), float)


def one_file(name: str, make: Callable[[Source], bytes]) -> Recipe:
    """Return the recipe of one file with the content that `make` returns."""
    return lambda source: {name: lambda: make(source)}


def copies(limit: int, known: Mapping[str, Original], optional: Iterable[str] = ()) -> Recipe:
    """Return the recipe of files that loaders read as published.

    Args:
      limit: maximum number of bytes of a file.
      known: required files with their known size and hash.
      optional: further files, copied if the source has them.
    """

    def read(source: Source, name: str, path: str) -> bytes:
        content = source.read(path, limit)
        original = known.get(name)
        if original is not None:
            check_original(io.BytesIO(content), f"{source.path}: {path}", original, source.remedy)
        return content

    def recipe(source: Source) -> Files:
        paths = {name: find(source, name) for name in known}
        for name in optional:
            if matching(source, lambda path, name=name: f"/{path}".endswith(f"/{name}")):
                paths[name] = find(source, name)
        return {
            name: lambda name=name, path=path: read(source, name, path)
            for name, path in paths.items()
        }

    return recipe


def npz(**arrays: np.ndarray) -> bytes:
    """Return the bytes of an `.npz` file; equal arrays give equal bytes."""
    stream = io.BytesIO()
    np.savez_compressed(stream, **arrays)
    return stream.getvalue()


def _manifest_entry(content: bytes, source: Path) -> dict[str, Any]:
    digest = hashlib.sha256(content).hexdigest()
    return {"bytes": len(content), "sha256": digest, "source": source.name}


def _remove_files(folder: Path, names: Iterable[str], manifest: dict[str, dict[str, Any]]) -> None:
    for name in names:
        remove(folder / name)
        manifest.pop(name, None)
    _write_manifest(folder, manifest)


def _write_manifest(folder: Path, manifest: Mapping[str, dict[str, Any]]) -> None:
    with written_whole(folder / MANIFEST) as unfinished:
        unfinished.write_text(json.dumps({"files": manifest}, indent=1, sort_keys=True))
