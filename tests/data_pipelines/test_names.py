"""Names that a user gives, and objects of a user's files: what is refused, and with which words."""

import pytest

from everlight_data.errors import DataError, MissingDataError
from everlight_data.names import check_name, nearest_names
from everlight_data.python_files import load_object


def test_the_nearest_names_come_first_whatever_their_case():
    known = ["EWC", "ER", "DER++", "joint", "SI"]
    assert nearest_names("ewc", known)[0] == "EWC"
    assert nearest_names("jiont", known) == ["joint"]
    assert nearest_names("xyz", known) == []
    check_name("method", "ER", known)
    with pytest.raises(DataError, match=r"^no method 'ewc'; did you mean 'EWC'.*There are 'EWC', "):
        check_name("method", "ewc", known)
    with pytest.raises(DataError, match=r"^no method 'xyz'\. There are 'EWC', "):
        check_name("method", "xyz", known)


def test_an_object_of_a_file_comes_with_its_module_and_the_file_s_checksum(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from dataclasses import dataclass\n\n@dataclass\nclass Net:\n    width: int = 3\n"
    )
    found = load_object(f"{path}:Net", "--net", "give FILE.py:NAME")
    assert found.value().width == 3
    assert found.module.Net is found.value
    path.write_text(path.read_text().replace("3", "4"))
    again = load_object(f"{path}:Net", "--net", "give FILE.py:NAME")
    assert again.value().width == 4
    assert again.version != found.version


@pytest.mark.parametrize(
    ("content", "asked", "kind", "message"),
    [
        ("a = 1", "mine.py", DataError, r"^--net 'mine\.py'; give FILE"),
        ("a = 1", "mine.py:1", DataError, r"^--net 'mine\.py:1'; give FILE"),
        ("a = 1", "other.py:a", MissingDataError, r"other\.py does not exist. For --net give FILE"),
        ("small = 1", "mine.py:smal", DataError, r"has no 'smal'\. Did you mean 'small'"),
        ("1 / 0", "mine.py:a", DataError, r"cannot be run \(ZeroDivisionError: division by zero\)"),
    ],
)
def test_what_is_no_object_of_a_file_is_named(tmp_path, monkeypatch, content, asked, kind, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(content)
    with pytest.raises(kind, match=message):
        load_object(asked, "--net", "give FILE.py:NAME")
