"""Checksums of a user's files: they change with every module of the user that a file imports."""

import sys
import textwrap
import zlib

import pytest

from everlight_data.user_code.objects import load_object

FORM = "give a function"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Yield a folder of modules that can be imported, and forget them afterwards."""
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in {*sys.modules} - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text))


def version(folder):
    return load_object(f"{folder / 'own.py'}:make", "--net", FORM).version


def test_a_file_without_modules_of_the_user_has_its_own_checksum(folder):
    text = "import os, jax.numpy as jnp\nfrom everlight.continual import naive\nmake = naive\n"
    write(folder / "own.py", text)
    write(folder / "beside.py", "a = 1")
    assert version(folder) == f"{zlib.crc32(text.encode()):08x}"


@pytest.mark.parametrize(
    ("imports", "changed"),
    [
        ("import first_helper", "first_helper.py"),
        ("import first_helper as other", "second_helper.py"),
        ("from first_helper import width", "second_helper.py"),
        ("from first_helper import *", "first_helper.py"),
        ("def make():\n    import first_helper", "second_helper.py"),
        ("try:\n    import first_helper\nexcept ImportError:\n    pass", "first_helper.py"),
        ("import importlib\nimportlib.import_module('first_helper')", "second_helper.py"),
        ("from importlib import import_module\nimport_module('first_helper')", "first_helper.py"),
        ("__import__('parts_of_mine.layers')", "parts_of_mine/layers.py"),
        (
            "import importlib\nimportlib.import_module(name='parts_of_mine.layers')",
            "parts_of_mine/layers.py",
        ),
        (
            "import importlib\nimportlib.import_module('.layers', 'parts_of_mine')",
            "parts_of_mine/layers.py",
        ),
        (
            "import importlib\nimportlib.import_module('..sizes', package='parts_of_mine.deep')",
            "parts_of_mine/sizes.py",
        ),
        ("__import__(name='first_helper')", "second_helper.py"),
        ("import parts_of_mine.layers", "parts_of_mine/layers.py"),
        ("import parts_of_mine.layers", "parts_of_mine/__init__.py"),
        ("from parts_of_mine import layers", "parts_of_mine/sizes.py"),
        ("from parts_of_mine.layers import width", "parts_of_mine/deep/values.py"),
        ("from no_init_of_mine import values", "no_init_of_mine/values.py"),
    ],
)
def test_checksums_change_with_imported_modules(folder, imports, changed):
    write(folder / "own.py", f"def make(): pass\n{imports}\n")
    write(folder / "first_helper.py", "import second_helper\nwidth = second_helper.width")
    write(folder / "second_helper.py", "import first_helper\nwidth = 8")
    write(folder / "parts_of_mine/__init__.py", "a = 1")
    write(folder / "parts_of_mine/layers.py", "from . import sizes\nfrom .sizes import width")
    write(folder / "parts_of_mine/sizes.py", "from .deep.values import width")
    write(folder / "parts_of_mine/deep/__init__.py", "from ..deep import values")
    write(folder / "parts_of_mine/deep/values.py", "width = 8")
    write(folder / "no_init_of_mine/values.py", "width = 8")
    write(folder / "unused.py", "width = 8")
    first = version(folder)
    assert version(folder) == first
    write(folder / "unused.py", "width = 9")
    assert version(folder) == first
    path = folder / changed
    path.write_text(path.read_text() + "\nmore = 1\n")
    assert version(folder) != first


def test_a_module_that_cannot_be_read_as_python_is_in_the_checksum(folder):
    write(folder / "own.py", "def make():\n    import first_helper\n")
    write(folder / "first_helper.py", "def (")
    first = version(folder)
    write(folder / "first_helper.py", "def [")
    assert version(folder) != first
