"""Rows that files declare: their order, files without any, and two rows of one name."""

import importlib
import re

import pytest

from everlight.declared_rows import declared_rows
from tests.refusals import refused


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Return a function that imports a package whose files have the constants of a table."""

    def import_package(name, files):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
        for file, text in files.items():
            head = "from types import SimpleNamespace as Row\n"
            (tmp_path / name / f"{file}.py").write_text(head + text)
        monkeypatch.syspath_prepend(tmp_path)
        return importlib.import_module(name)

    return import_package


def test_rows_of_the_first_files_then_by_file_and_no_others(package):
    """A file without the constant has no rows; a name of `first` may be of another package."""
    one = package(
        "rows_in_order",
        {
            "zebra": "ROWS = (Row(name='b'), Row(name='a'))",
            "aardvark": "ROWS = (Row(name='c'),)",
            "newt": "ROWS = (Row(name='h'),)",
            "mole": "ROWS = (Row(name='g'),)",
            "last": "ROWS = (Row(name='d'),)",
            "bare": "OTHERS = (Row(name='e'),)",
        },
    )
    two = package("rows_behind", {"aardvark": "ROWS = (Row(name='f'),)"})
    rows = declared_rows((one, two), "ROWS", first=("absent", "zebra", "last"))
    assert list(rows) == ["b", "a", "d", "c", "g", "h", "f"]
    assert all(row.name == name for name, row in rows.items())


@pytest.mark.parametrize(
    ("name", "files"), [("rows_of_two", ("left", "right")), ("rows_of_one", ("twice", "twice"))]
)
def test_two_rows_of_one_name_are_refused_with_both_files(package, name, files):
    rows = "Row(name='same')," * (3 - len({*files}))
    rows_package = package(name, dict.fromkeys(files, f"ROWS = ({rows})"))
    both = " and ".join(re.escape(f"{name}.{file}") for file in files)
    refused(f"^{both} declare 'same'; rename one$", lambda: declared_rows((rows_package,), "ROWS"))
