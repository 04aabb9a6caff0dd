"""Fixtures: a seeded generator, and real data with a skip that says what is missing."""

import gc
import sys
import zlib
from pathlib import Path

import hypothesis
import jax
import numpy as np
import pytest

from everlight_data.locations import data_root
from everlight_experiments.run_folder.compilation import release_programs

# Tracing makes so many objects that a tenth of the time went into looking for garbage among them.
gc.set_threshold(100_000, 20, 100)
# The first example of a property compiles, whatever the others take.
hypothesis.settings.register_profile("compiled", deadline=None)
hypothesis.settings.load_profile("compiled")

MEDIUM = {*(Path(__file__).parent / "medium_tests.txt").read_text(encoding="utf-8").split()}
"""Tests that take long, as `choose_medium.py` lists them, and fixtures that do: with a fixture, all
tests that take it."""


# Tests compare numbers with float64 at tolerances of 1e-4 and less. A GPU uses TF32 by default for
# products and convolutions, which errs by 1e-3, and a TPU bfloat16. On a CPU this changes no bit.
# `tests/contracts/test_matrix_precision.py` is about the default.
jax.config.update("jax_default_matmul_precision", "highest")


def pytest_addoption(parser):
    parser.addoption("--part", default="1/1", help="K/N runs the K-th of N parts of the tests")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    """Give a file's tests, or a group's, to one worker, which compiles what they share once.

    A group is in one part. Tests in `MEDIUM` are marked as medium.
    """
    part, parts = map(int, config.getoption("--part").split("/"))
    others = set()
    for item in items:
        file = item.nodeid.partition("::")[0]
        mark = item.get_closest_marker("xdist_group")
        name = item.nodeid if mark is None else mark.args[0]
        if zlib.crc32(name.encode()) % parts != part - 1:
            others.add(item)
        if mark is None:
            item.add_marker(pytest.mark.xdist_group(file))
        fixtures = {f"{file}::{fixture}" for fixture in item.fixturenames}
        if not MEDIUM.isdisjoint({item.nodeid.split("[")[0], *fixtures}):
            item.add_marker(pytest.mark.medium)
    if others:
        config.hook.pytest_deselected(items=list(others))
        items[:] = [item for item in items if item not in others]


def pytest_collection_finish():
    """Let garbage collection skip what was imported and collected, which lives until the end."""
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def programs_let_go():
    """Release compiled programs when a module's tests end."""
    yield
    release_programs()


@pytest.fixture(autouse=True)
def figures_closed():
    """Release pyplot's figures after every test."""
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def real_data():
    """Return a function that finds real data, wherever EVERLIGHT_DATA points in a test."""
    root = data_root()

    def find(relative: str) -> Path:
        if root is None or not (root / relative).exists():
            pytest.skip(f"{relative} is needed below EVERLIGHT_DATA; see docs/pages/guide/data.md")
        return root / relative

    return find
