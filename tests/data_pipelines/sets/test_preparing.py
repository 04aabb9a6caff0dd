"""Files are prepared once, whole, from the published source, and after a stop."""

import hashlib
import json
from collections import namedtuple

import pytest

from everlight_data.errors import DataError
from everlight_data.formats.originals import Original
from everlight_data.sets import preparing
from everlight_data.sets.preparing import MANIFEST, copies, prepare_files


@pytest.fixture
def two_files(tmp_path):
    """Write a source of one file, and return a recipe's run, its results and its folder."""
    source = tmp_path / "source.txt"
    source.write_bytes(b"content")
    created = []

    def recipe(published):
        (name,) = (file.name for file in published.files())

        def make(copy):
            created.append(copy)
            return published.read(name, 100) + copy.encode()

        return {copy: lambda copy=copy: make(copy) for copy in ("a", "b")}

    def run():
        return prepare_files(source, tmp_path / "out", recipe, "Get it again.", 1000)

    return run, created, tmp_path / "out"


def test_complete_files_are_not_prepared_again(two_files):
    run, created, folder = two_files
    assert run() == ["a", "b"]
    assert run() == []
    assert created == ["a", "b"]
    entry = json.loads((folder / MANIFEST).read_text())["files"]["b"]
    digest = hashlib.sha256(b"contentb").hexdigest()
    assert entry == {"bytes": 8, "sha256": digest, "source": "source.txt"}
    (folder / "a").write_bytes(b"contentA")
    (folder / "b").unlink()
    assert run() == ["a", "b"]
    assert (folder / "a").read_bytes() == b"contenta"


def test_stopped_it_goes_on_with_what_is_not_made(two_files, monkeypatch):
    run, created, folder = two_files
    write = preparing._write_manifest

    def stop(*arguments):
        write(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(preparing, "_write_manifest", stop)
    with pytest.raises(KeyboardInterrupt):
        run()
    monkeypatch.setattr(preparing, "_write_manifest", write)
    (folder / "b.unfinished").write_bytes(b"half")
    assert run() == ["b"]
    assert created == ["a", "b"]
    assert {path.name for path in folder.iterdir()} - {".lock"} == {"a", "b", MANIFEST}


def test_a_disk_that_is_too_small_is_reported_before_anything_is_made(two_files, monkeypatch):
    run, created, _ = two_files
    usage = namedtuple("usage", "free")
    monkeypatch.setattr("shutil.disk_usage", lambda folder: usage(1_000_500))
    with pytest.raises(DataError, match=r"out: 1\.0 MB are needed in .*out, but 1\.0 MB are free"):
        run()
    assert created == []


@pytest.mark.parametrize("content", ["{", '{"files": {"a": {"bytes": 7}}}'])
def test_a_damaged_manifest_is_named(two_files, content):
    run, _, folder = two_files
    run()
    (folder / MANIFEST).write_text(content)
    with pytest.raises(DataError, match=r"manifest\.json is damaged.*Delete it and prepare again"):
        run()


@pytest.mark.parametrize(
    ("original", "message"),
    [
        (
            Original(8, "0" * 64),
            "has 7 bytes, expected 8: it is truncated or not the expected file",
        ),
        (Original(7, "0" * 64), "has sha256 ed7002b4.*, expected 0000.*: it is damaged"),
        (Original(7, "0" * 32), "has md5 9a0364b9.*, expected 0000.*: it is damaged"),
    ],
)
def test_another_file_than_the_published_one_is_refused(two_files, tmp_path, original, message):
    with pytest.raises(DataError, match=message):
        prepare_files(
            tmp_path / "source.txt", tmp_path / "out", copies(99, {}), "Again.", 9, original
        )
    with pytest.raises(DataError, match=message):
        prepare_files(tmp_path, tmp_path / "out", copies(99, {"source.txt": original}), "Again.", 9)
    assert not list((tmp_path / "out").glob("*.txt"))
