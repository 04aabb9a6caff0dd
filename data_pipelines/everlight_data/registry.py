"""Registry of data sets: the rows that files of the data package declare as `DATA_SETS`.

A new data set is one file of a folder such as `images`, or a folder there. `everlight data` and
`everlight run --data` read the rows.
"""

import importlib
import re
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from everlight_data.errors import DataError
from everlight_data.sets.data_set import DataSet

# fmt: off
ORDER = (
    "cameras", "illuminants", "munsell", "psychtoolbox", "camera-matrices", "s20", "nus-thumbnails",
    "cube-plus-thumbnails", "nus8", "digits", "fashion-mnist", "mnist", "procedural",
    "tiny-imagenet", "tiny-imagenet-64", "cifar10", "cifar100", "imagenet", "core50", "vrd",
    "vrd-vectors", "glove", "raw",
)
"""Data sets in the order of tables; others follow by name."""
# fmt: on
_PACKAGE = Path(__file__).parent
_HAS_ROWS = re.compile(r"^DATA_SETS\b", re.MULTILINE)


def data_set_modules() -> list[ModuleType]:
    """Return the modules of the packages that declare rows.

    Others are not imported, since many need JAX, which takes seconds.
    """
    files = sorted(_PACKAGE.glob("*/**/*.py"))
    rows = [file for file in files if _HAS_ROWS.search(file.read_text(encoding="utf-8"))]
    inner = (file.relative_to(_PACKAGE).with_suffix("").parts for file in rows)
    return [importlib.import_module(".".join(("everlight_data", *parts))) for parts in inner]


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
