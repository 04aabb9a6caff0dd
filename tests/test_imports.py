"""Imports go one way: experiments over data over lib, and packages without a cycle."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LAYERS = {
    "everlight": ROOT / "lib",
    "everlight_data": ROOT / "data_pipelines",
    "everlight_experiments": ROOT / "experiments",
}


def imported(path: Path) -> Iterator[str]:
    """Yield the modules that a file imports, also within functions."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            assert not node.level, f"{path}: give the whole name of what is imported"
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (each.name for each in node.names)


@pytest.mark.parametrize("package", LAYERS)
def test_a_layer_imports_itself_and_those_below(package):
    above = list(LAYERS)[list(LAYERS).index(package) + 1 :]
    found = [
        f"{path.relative_to(ROOT)} imports {name}"
        for path in (LAYERS[package] / package).rglob("*.py")
        for name in imported(path)
        if name.split(".")[0] in above
    ]
    assert found == []


@pytest.mark.parametrize("layer", LAYERS)
def test_packages_have_no_cycle(layer):
    """A package is a folder, or a file beside them; the command line itself imports by name."""
    folder = LAYERS[layer] / layer
    packages = {path.stem for path in folder.iterdir() if path.stem[:2] != "__"}
    needs: dict[str, set[str]] = defaultdict(set)
    for path in folder.rglob("*.py"):
        package = path.relative_to(folder).parts[0].removesuffix(".py")
        for name in imported(path):
            root, *parts = name.split(".")
            if root == layer and parts and parts[0] != package:
                needs[package].add(parts[0])
    assert set(needs) - {"__init__", "__main__"} <= packages
    assert set(TopologicalSorter(needs).static_order()) >= set(needs)


def test_no_module_of_the_library_imports_a_private_name_of_another():
    found = [
        f"{path.relative_to(ROOT)} imports {node.module}.{name.name}"
        for path in LAYERS["everlight"].rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
        for name in node.names
        if name.name.startswith("_") and not name.name.startswith("__")
    ]
    assert found == []


def test_rows_and_parts_of_strategies_import_no_strategy_but_naive_finetuning():
    """Strategies import them, so that there would be a circle."""
    package = "everlight.continual.strategies"
    folder = LAYERS["everlight"] / "everlight" / "continual"
    below = [folder / "method.py", folder / "ema.py", *(folder / "strategies/parts").glob("*.py")]
    found = {name for path in below for name in imported(path) if name.startswith(package)}
    others = {name for name in found if not name.startswith(f"{package}.parts")}
    assert others == {f"{package}.naive"}


def test_the_runner_of_methods_imports_no_paper():
    folder = LAYERS["everlight_experiments"] / "everlight_experiments"
    found = {
        name.split(".")[1]
        for path in (folder / "continual").rglob("*.py")
        for name in imported(path)
        if name.startswith("everlight_experiments.")
    }
    assert found == {"continual", "report", "run_folder"}
