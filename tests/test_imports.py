"""Imports go one way: experiments over data over lib, and packages without a cycle."""

import ast
import os
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import numpy as np
import pytest
from packaging.requirements import Requirement

from everlight_data.color.charts.chart_colors import reference_colors
from everlight_data.color.photographs.linear_pictures import read_picture
from everlight_data.color.photographs.sample_photograph import load_sample_photograph
from everlight_data.color.raw_files.capture_data import read_capture
from everlight_data.color.raw_files.dng import write_linear_tiff
from everlight_data.color.raw_files.raw import read_raw
from everlight_data.color.spectra.library import embedded_library
from everlight_data.errors import MissingPackageError
from everlight_data.iirc.metadata import official_metadata
from everlight_data.images.digits import load_digits
from everlight_data.images.published_forms.tfds_sets import read_prepared
from everlight_data.optional_packages import PACKAGES, import_package, missing_package
from everlight_experiments.cli import main
from tests.dng_writer import write_dng
from tests.syntax_trees import READER, tree_of

pytestmark = READER
ROOT = Path(__file__).parents[1]
LAYERS = {
    "everlight": ROOT / "lib",
    "everlight_data": ROOT / "data_pipelines",
    "everlight_experiments": ROOT / "experiments",
}
LATE = ("colour", "imagecodecs", "rawpy", "sklearn", "tensorflow_datasets", "tifffile")
"""Modules of packages that single readers need, and that no command imports at its start."""
NEEDED = {
    "everlight_data/tfds_builders.py": {"tensorflow_datasets"},
    "everlight_experiments/core50_static/paper.py": {"sklearn"},
}
"""Files that are of no use without a package of `LATE`."""
START = """
import sys
for name in {blocked}:
    sys.modules[name] = None
from everlight_experiments.cli import COMMANDS, _import_target
for name, command in COMMANDS.items():
    if name != "paper core50-static":
        for place in filter(None, (command.target, command.options)):
            _import_target(place)
import everlight_data.image_requests
print(len(COMMANDS))
"""


def imported(path: Path) -> Iterator[str]:
    """Yield the modules that a file imports, also within functions."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ImportFrom | ast.Import):
            assert not getattr(node, "level", 0), f"{path}: give the whole name of the import"
            yield from names_of(node)


def names_of(node: ast.Import | ast.ImportFrom) -> list[str]:
    """Return the modules that a statement imports."""
    if isinstance(node, ast.ImportFrom):
        return [node.module]
    return [alias.name for alias in node.names]


@pytest.mark.parametrize("package", LAYERS)
def test_a_layer_imports_itself_and_those_below(package):
    above = list(LAYERS)[list(LAYERS).index(package) + 1 :]
    result = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in (LAYERS[package] / package).rglob("*.py")
        for name in imported(path)
        if name.split(".")[0] in above
    ]
    assert result == []


@pytest.mark.parametrize("layer", LAYERS)
def test_packages_have_no_cycle(layer):
    """A package is a folder, or a file beside them; the command line itself imports by name."""
    folder = LAYERS[layer] / layer
    packages = {path.stem for path in folder.iterdir() if path.stem[:2] != "__"}
    dependencies: dict[str, set[str]] = defaultdict(set)
    for path in folder.rglob("*.py"):
        package = path.relative_to(folder).parts[0].removesuffix(".py")
        for name in imported(path):
            root, *parts = name.split(".")
            if root == layer and parts and parts[0] != package:
                dependencies[package].add(parts[0])
    assert set(dependencies) - {"__init__", "__main__"} <= packages
    assert set(TopologicalSorter(dependencies).static_order()) >= set(dependencies)


def folders_below(folder: Path) -> list[Path]:
    """Return a package's folder and all packages in it."""
    return sorted(path.parent for path in folder.rglob("__init__.py"))


def parts_imported(folder: Path, layer: str) -> dict[str, set[str]]:
    """Return, by file or folder directly in a package, the others of them that it imports."""
    package = folder.relative_to(LAYERS[layer]).parts
    parts = {path.stem for path in folder.iterdir()}
    by_part: dict[str, set[str]] = defaultdict(set)
    for path in folder.rglob("*.py"):
        importer = path.relative_to(folder).parts[0].removesuffix(".py")
        for name in full_names(path):
            *above, part = name.split(".")[: len(package) + 1]
            if tuple(above) == package and part in parts - {importer}:
                by_part[importer].add(part)
    return by_part


def full_names(path: Path) -> Iterator[str]:
    """Yield the modules that a file imports, and everything that it takes from modules."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{item.name}" for item in node.names)
        if isinstance(node, ast.Import):
            yield from (item.name for item in node.names)


@pytest.mark.parametrize("layer", ["everlight_data", "everlight_experiments"])
def test_files_and_folders_of_a_folder_have_no_cycle(layer):
    """At every depth; in the library, strategies and registry, and parts and naive, are circles."""
    folders = folders_below(LAYERS[layer] / layer)
    assert len(folders) > 10
    for folder in folders:
        # A cycle is an error that names it.
        TopologicalSorter(parts_imported(folder, layer)).prepare()


def test_no_module_of_the_library_imports_a_private_name_of_another():
    result = [
        f"{path.relative_to(ROOT)} imports {node.module}.{name.name}"
        for path in LAYERS["everlight"].rglob("*.py")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ImportFrom)
        for name in node.names
        if name.name.startswith("_") and not name.name.startswith("__")
    ]
    assert result == []


def test_a_name_is_imported_from_the_module_that_defines_it():
    """Packages re-export their public names; other modules re-export nothing."""
    imports = {}
    for folder in LAYERS.values():
        for path in folder.rglob("*.py"):
            module = ".".join(path.relative_to(folder).with_suffix("").parts)
            body = tree_of(path).body
            nodes = [node for node in body if isinstance(node, ast.ImportFrom)]
            imports[module] = {item.asname or item.name for node in nodes for item in node.names}
    indirect = [
        f"{path.relative_to(ROOT)}: {node.module} does not define {item.name}"
        for folder in (*LAYERS.values(), ROOT / "tests", ROOT / "benchmarks")
        for path in folder.rglob("*.py")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ImportFrom)
        for item in node.names
        if item.name in imports.get(node.module, ())
    ]
    assert indirect == []


def test_tests_of_the_library_import_no_experiment():
    """The library's rooms can be tested without the folder of the experiments."""
    rooms = [path.name for path in (LAYERS["everlight"] / "everlight").iterdir() if path.is_dir()]
    files = [path for room in rooms for path in (ROOT / "tests" / room).rglob("*.py")]
    assert len(files) > 100
    result = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in files
        for name in imported(path)
        if name.startswith(("everlight_experiments", "tests.experiments"))
    ]
    assert result == []


def test_no_module_imports_a_module_of_tests():
    """Shared code is in helpers, so that a test file can be moved or removed."""
    result = [
        f"{path.relative_to(ROOT)} imports {name}"
        for folder in ("tests", "docs", "benchmarks")
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ImportFrom) and node.module.startswith("tests")
        for name in (node.module, *(f"{node.module}.{item.name}" for item in node.names))
        if re.search(r"\.test_\w+$", name) and (ROOT / f"{name.replace('.', '/')}.py").exists()
    ]
    assert result == []


def test_the_library_neither_reads_nor_sets_the_environment():
    variables = re.compile(r"environb?|getenvb?|putenv|unsetenv")
    result = [
        f"{path.relative_to(ROOT)}, line {node.lineno}"
        for path in LAYERS["everlight"].rglob("*.py")
        for node in ast.walk(tree_of(path))
        for name in [
            getattr(node, {ast.Attribute: "attr", ast.alias: "name"}.get(type(node), "id"), "")
        ]
        if variables.fullmatch(name)
    ]
    assert result == []


def test_rows_and_parts_of_strategies_import_no_strategy_but_naive_finetuning():
    """Strategies import them, so that there would be a circle."""
    package = "everlight.continual.strategies"
    folder = LAYERS["everlight"] / "everlight" / "continual"
    below = [
        folder / "methods/method.py",
        folder / "ema.py",
        *(folder / "strategies/parts").glob("*.py"),
    ]
    result = {name for path in below for name in imported(path) if name.startswith(package)}
    others = {name for name in result if not name.startswith(f"{package}.parts")}
    assert others == {f"{package}.naive"}


def test_the_runner_of_methods_imports_no_paper():
    folder = LAYERS["everlight_experiments"] / "everlight_experiments"
    result = {
        name.split(".")[1]
        for path in (folder / "continual").rglob("*.py")
        for name in imported(path)
        if name.startswith("everlight_experiments.")
    }
    assert result == {"continual", "report", "run_folder"}


@pytest.mark.parametrize("layer", LAYERS)
def test_packages_of_single_readers_are_imported_by_their_functions(layer):
    for path in (LAYERS[layer] / layer).rglob("*.py"):
        tree = tree_of(path)
        nodes = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        names = {name.split(".")[0] for node in nodes for name in names_of(node)}
        place = path.relative_to(LAYERS[layer]).as_posix()
        assert names & set(LATE) == NEEDED.get(place, set()), place


def test_every_command_starts_without_the_packages_of_single_readers():
    program = START.format(blocked=LATE)
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 20


def test_the_library_starts_without_the_packages_of_the_experiments():
    """The library needs JAX, Flax, optax and SciPy; `docs/pages/performance.md` has their time."""
    rooms = "everlight.color, everlight.continual, everlight.metrics"
    program = f"import sys, {rooms}; print(*{{name.partition('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert not {*LATE, "orbax", "matplotlib", "torch"} & {*done.stdout.decode().split()}


def test_a_benchmark_runs_without_the_packages_of_other_readers(tmp_path, monkeypatch):
    for module in set(LATE) - {"sklearn"}:
        monkeypatch.setitem(sys.modules, module, None)
    arguments = "run digits --methods naive --seeds 1 --epochs 1"
    main([*arguments.split(), "--runs", os.fspath(tmp_path)])
    assert [*tmp_path.rglob("report.html")]


def test_the_extras_of_optional_packages_are_those_of_the_project():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {
        extra: {Requirement(line).name for line in lines}
        for extra, lines in project["optional-dependencies"].items()
    }
    for package, extra in PACKAGES.values():
        assert package in extras[extra]
    # No module of this project imports importlib_resources; the data sets' library does.
    named = {package for package, extra in PACKAGES.values() if extra == "experiments"}
    assert named == extras["experiments"] - {"importlib_resources"}


def read_png(folder):
    path = folder / "a.png"
    header = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x02\0\0\0\x02\x10\x02\0\0\0"
    path.write_bytes(header)
    return read_picture(path, "Again.")


def read_dng(folder):
    return read_raw(write_dng(folder / "a.dng", np.full((24, 24, 3), 0.5), 512, 16383))


def read_tags(folder):
    (folder / "a.tif").write_bytes(b"II*\0")
    return read_capture(folder / "a.tif")


READERS = {
    "imagecodecs": [read_png],
    "rawpy": [read_dng],
    "tifffile": [
        read_tags,
        read_dng,
        lambda folder: write_linear_tiff(folder / "a.tif", np.zeros((2, 2, 3)), ""),
    ],
    "colour": [lambda folder: embedded_library(), lambda folder: reference_colors()],
    "sklearn": [lambda folder: load_digits(), lambda folder: load_sample_photograph()],
    "tensorflow_datasets": [read_prepared],
    "iirc": [lambda folder: official_metadata("iirc_cifar100")],
}


@pytest.mark.parametrize(
    ("module", "number"), [(name, k) for name in READERS for k in range(len(READERS[name]))]
)
def test_a_missing_package_is_named_with_its_extra(module, number, tmp_path, monkeypatch):
    if module == "tifffile":
        # The file is written before the package is missing.
        written = write_dng(tmp_path / "a.dng", np.full((24, 24, 3), 0.5), 512, 16383)
        monkeypatch.setitem(globals(), "write_dng", lambda *arguments: written)
    for name in [*sys.modules]:
        if name.partition(".")[0] == module:
            monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, module, None)
    package = PACKAGES[module][0]
    line = re.escape(f'{package} is not installed: pip install "everlight[experiments]"')
    with pytest.raises(MissingPackageError, match=f"^{line}$"):
        READERS[module][number](tmp_path)


def test_a_command_without_its_package_ends_with_one_line(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "tyro", None)
    monkeypatch.delitem(sys.modules, "everlight_experiments.command_help", raising=False)
    with pytest.raises(SystemExit) as end:
        main(["methods"])
    assert end.value.code == ('error: tyro is not installed: pip install "everlight[experiments]"')


def test_other_modules_are_no_packages_of_extras():
    assert missing_package(ModuleNotFoundError("none", name="a_module.part")) is None
    assert missing_package(ImportError("a library cannot be loaded", name="rawpy")) is None
    with pytest.raises(ModuleNotFoundError, match="a_module") as error:
        import_package("a_module_that_there_is_not")
    assert not isinstance(error.value, MissingPackageError)
