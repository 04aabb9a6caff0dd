from pathlib import Path

import pytest

from everlight_data.errors import DataError, MissingDataError
from everlight_data.locations import data_root, locate


def test_an_existing_file_or_folder_is_found(tmp_path, monkeypatch):
    monkeypatch.setenv("EVERLIGHT_DATA", str(tmp_path))
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "a.npz").write_bytes(b"")
    assert data_root() == tmp_path
    assert locate("set/a.npz", "Buy it.") == tmp_path / "set" / "a.npz"
    assert locate("set", "Buy it.") == tmp_path / "set"


def test_the_home_folder_may_be_a_tilde(monkeypatch):
    monkeypatch.setenv("EVERLIGHT_DATA", "~/data")
    assert data_root() == Path.home() / "data"


@pytest.mark.parametrize("value", [None, ""])
def test_without_the_variable_the_message_says_what_to_get_and_set(monkeypatch, value):
    if value is None:
        monkeypatch.delenv("EVERLIGHT_DATA", raising=False)
    else:
        monkeypatch.setenv("EVERLIGHT_DATA", value)
    assert data_root() is None
    with pytest.raises(MissingDataError) as caught:
        locate("set/a.npz", "Download it (20 kB).")
    for part in ("set/a.npz", "EVERLIGHT_DATA is not set", "Download it (20 kB)."):
        assert part in str(caught.value)


def test_a_missing_file_is_named_with_its_source(tmp_path, monkeypatch):
    monkeypatch.setenv("EVERLIGHT_DATA", str(tmp_path))
    with pytest.raises(MissingDataError) as caught:
        locate("set/a.npz", "Download it (20 kB).")
    for part in (str(tmp_path / "set" / "a.npz"), "does not exist", "Download it (20 kB)."):
        assert part in str(caught.value)


def test_a_folder_that_is_not_there_is_named_itself(tmp_path, monkeypatch):
    monkeypatch.setenv("EVERLIGHT_DATA", str(tmp_path / "lost"))
    with pytest.raises(MissingDataError, match=r"EVERLIGHT_DATA=.*lost, and so set/a.npz in it,"):
        locate("set/a.npz", "Download it (20 kB).")


def test_missing_data_is_caught_as_a_missing_file_and_as_bad_data(monkeypatch):
    monkeypatch.delenv("EVERLIGHT_DATA", raising=False)
    for kind in (FileNotFoundError, DataError, ValueError):
        with pytest.raises(kind):
            locate("a", "b")
