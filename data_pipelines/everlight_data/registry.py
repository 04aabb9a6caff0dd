"""Registry of data sets: the rows that files of the data package declare as `DATA_SETS`.

A new data set is one file of a folder of `KINDS` such as `images`, or a folder there, whose
`__init__` imports the rows. `everlight data` and `everlight run --data` read the rows.
"""

import importlib
import pkgutil
from collections.abc import Iterable
from types import ModuleType

from everlight_data.errors import DataError
from everlight_data.sets.data_set import DataSet

# fmt: off
ORDER = (
    "cameras", "illuminants", "munsell", "psychtoolbox", "camera-matrices", "s20", "nus-thumbnails",
    "cube-plus-thumbnails", "intel-tau-thumbnails", "raspberry-pi-awb", "nus8", "digits",
    "fashion-mnist", "mnist", "procedural", "tiny-imagenet", "tiny-imagenet-64", "cifar10",
    "cifar100", "imagenet", "core50", "vrd", "vrd-vectors", "glove", "raw",
)
"""Data sets in the order of tables; others follow by name."""
# fmt: on
KINDS = ("color", "facts", "images")
"""Folders whose files and folders are data sets, or folders of helpers without rows."""


def data_set_modules(package: str = "everlight_data") -> list[ModuleType]:
    """Return the modules that declare rows: folders of the package, and files of its `KINDS`.

    Other files are not imported, since many need JAX, which takes seconds.
    """
    names = [f"{package}.{entry.name}" for entry in _entries(package) if entry.ispkg]
    for kind in KINDS:
        names += [f"{package}.{kind}.{entry.name}" for entry in _entries(f"{package}.{kind}")]
    modules = map(importlib.import_module, names)
    return [module for module in modules if hasattr(module, "DATA_SETS")]


def _entries(package: str) -> list[pkgutil.ModuleInfo]:
    """Return the files and folders of a package by name."""
    entries = pkgutil.iter_modules(importlib.import_module(package).__path__)
    return sorted(entries, key=lambda entry: entry.name)


def collect_data_sets(modules: Iterable[ModuleType]) -> dict[str, DataSet]:
    """Return the rows of all modules by the data sets' names, in the order of tables.

    Raises:
      DataError: two modules declare one name; the message has both.
    """
    rows: dict[str, DataSet] = {}
    declared_by: dict[str, str] = {}
    for module in modules:
        for name, row in module.DATA_SETS.items():
            if name in rows:
                raise DataError(
                    f"{declared_by[name]} and {module.__name__} declare {name!r}; rename one"
                )
            declared_by[name], rows[name] = module.__name__, row
    names = [name for name in ORDER if name in rows] + sorted(rows.keys() - {*ORDER})
    return {name: rows[name] for name in names}


DATA_SETS = collect_data_sets(data_set_modules())
"""All data sets by name."""
STORED_SETS = {name: row for name, row in DATA_SETS.items() if row.files}
"""Data sets with files below EVERLIGHT_DATA, which `everlight data` lists."""
IMAGE_SETS = {name: row for name, row in DATA_SETS.items() if row.load}
"""Data sets with labelled images, which `everlight run --data` takes."""
PHOTOGRAPH_SETS = {
    name: row.read_photographs for name, row in DATA_SETS.items() if row.read_photographs
}
"""Readers of releases of photographs with measured illuminants, which `--release` takes."""
