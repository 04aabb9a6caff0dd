"""The registry of data sets: which files it imports, and names that two of them declare."""

import ast
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from everlight_data import registry
from everlight_data.errors import DataError
from everlight_data.registry import DATA_SETS, ORDER, collect_data_sets, data_set_modules
from everlight_data.sets.data_set import DataSet


def test_the_published_sets_come_in_the_order_of_tables():
    assert tuple(DATA_SETS)[: len(ORDER)] == ORDER


def write_package(folder, rows_by_file):
    """Write a package of data sets whose files declare the given rows."""
    for file, rows in rows_by_file.items():
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(rows)
    for package in [folder, *(path for path in folder.rglob("*") if path.is_dir())]:
        (package / "__init__.py").touch()


def test_files_and_folders_with_rows_are_data_sets_and_helpers_are_not_imported(
    tmp_path, monkeypatch
):
    rows = "DATA_SETS: dict = {}"
    helper = "raise ImportError('a helper')"
    files = {
        "color/one.py": rows,
        "facts/two.py": "from drawn_sets.color.one import DATA_SETS",
        "images/several/__init__.py": rows,
        "images/several/parts.py": helper,
        "images/helpers/part.py": helper,
        "world/__init__.py": rows,
        "world/render.py": helper,
        "locks.py": helper,
    }
    write_package(tmp_path / "drawn_sets", files)
    monkeypatch.syspath_prepend(tmp_path)
    assert [module.__name__ for module in data_set_modules("drawn_sets")] == [
        "drawn_sets.world",
        "drawn_sets.color.one",
        "drawn_sets.facts.two",
        "drawn_sets.images.several",
    ]


@pytest.mark.parametrize("kind", registry.KINDS)
def test_files_beside_data_sets_are_data_sets(kind):
    """Helpers are in folders, so that the listing of a kind shows its sets."""
    folder = Path(registry.__file__).parent / kind
    files = {f"everlight_data.{kind}.{file.stem}" for file in folder.glob("[!_]*.py")}
    assert files <= {module.__name__ for module in data_set_modules()}


def test_every_row_that_a_file_assigns_is_listed():
    """A row in a folder of helpers, or of a folder whose `__init__` lacks it, would be missed."""
    folder = Path(registry.__file__).parent
    files = [file for file in folder.glob("*/**/*.py") if file.name != "__init__.py"]
    assigned = {
        key.value
        for file in files
        for node in ast.parse(file.read_text(encoding="utf-8")).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "DATA_SETS"
        for key in node.value.keys
    }
    assert assigned == DATA_SETS.keys()


def test_a_name_that_two_files_declare_is_refused():
    one, other = (
        SimpleNamespace(__name__=name, DATA_SETS={"x": DataSet("")}) for name in ("one", "other")
    )
    with pytest.raises(DataError, match=r"^one and other declare 'x'; rename one$"):
        collect_data_sets([one, other])


def test_a_row_without_files_states_how_to_name_them():
    with pytest.raises(DataError, match=r"^'digits of a package' has no files; name them by"):
        DataSet("digits of a package").locate()


def test_sets_without_a_place_follow_by_name():
    rows = {"b": DataSet(""), "a": DataSet(""), "glove": DataSet("")}
    assert [*collect_data_sets([SimpleNamespace(__name__="one", DATA_SETS=rows)])] == [
        *("glove", "a", "b")
    ]


@pytest.mark.cpu
def test_the_list_of_data_sets_needs_no_jax():
    program = "import sys, everlight_data.registry; print('jax' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "False\n", done.stderr
