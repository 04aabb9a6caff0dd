"""Location of data below EVERLIGHT_DATA, and messages where it is missing."""

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


@pytest.mark.parametrize("value", [None, "", "there"])
def test_the_message_names_the_data_and_the_variable(tmp_path, monkeypatch, value):
    if value is None:
        monkeypatch.delenv("EVERLIGHT_DATA", raising=False)
    else:
        monkeypatch.setenv("EVERLIGHT_DATA", value and str(tmp_path))
    assert data_root() == (tmp_path if value else None)
    with pytest.raises(MissingDataError) as caught:
        locate("set/a.npz", "Download it from the authors' page (20 kB).")
    reasons = (str(tmp_path / "set" / "a.npz"), "does not exist")
    for part in (*(reasons if value else ("EVERLIGHT_DATA is not set",)), "set/a.npz", "20 kB"):
        assert part in str(caught.value)
    assert "the authors' page" in str(caught.value)


def test_a_folder_that_is_not_there_is_named_itself(tmp_path, monkeypatch):
    monkeypatch.setenv("EVERLIGHT_DATA", str(tmp_path / "lost"))
    with pytest.raises(MissingDataError, match=r"EVERLIGHT_DATA=.*lost, and so set/a.npz in it,"):
        locate("set/a.npz", "Download it (20 kB).")


def test_missing_data_is_caught_as_a_missing_file_and_as_bad_data(monkeypatch):
    monkeypatch.delenv("EVERLIGHT_DATA", raising=False)
    for kind in (FileNotFoundError, DataError, ValueError):
        with pytest.raises(kind):
            locate("a", "b")
