"""The registry of data sets: which files it imports, and names that two of them declare."""

import subprocess
import sys
from types import SimpleNamespace

import pytest

from everlight_data import registry
from everlight_data.errors import DataError
from everlight_data.registry import DATA_SETS, ORDER, collect_data_sets, data_set_modules
from everlight_data.sets.data_set import DataSet


def test_the_published_sets_come_in_the_order_of_tables():
    assert tuple(DATA_SETS)[: len(ORDER)] == ORDER


def test_a_file_with_rows_is_a_data_set_and_others_are_not_imported(tmp_path, monkeypatch):
    (tmp_path / "images").mkdir()
    (tmp_path / "images/digits.py").write_text("DATA_SETS = {}")
    (tmp_path / "images/helper.py").write_text("'DATA_SETS = {} stands in other files.'")
    (tmp_path / "registry.py").write_text("DATA_SETS = {}")
    (tmp_path / "images/core50").mkdir()
    (tmp_path / "images/core50/prepared.py").write_text("DATA_SETS = {}")
    monkeypatch.setattr(registry, "_PACKAGE", tmp_path)
    assert [module.__name__ for module in data_set_modules()] == [
        "everlight_data.images.core50.prepared",
        "everlight_data.images.digits",
    ]


@pytest.mark.parametrize("kind", ["color", "facts", "images"])
def test_files_beside_data_sets_are_data_sets(kind):
    """Helpers are in folders, so that the listing of a kind shows its sets."""
    folder = registry._PACKAGE / kind
    files = {f"everlight_data.{kind}.{file.stem}" for file in folder.glob("[!_]*.py")}
    assert files <= {module.__name__ for module in data_set_modules()}


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
