"""The rooms' public names: complete, documented, quick to import."""

import importlib
import inspect
import subprocess
import sys

import pytest

from docs.tools.make_api import PAGE, ROOMS, render
from everlight import continual
from everlight.continual import strategies
from everlight.continual.registry import ORDER


def test_the_page_of_public_names_is_what_the_rooms_declare():
    assert PAGE.read_text(encoding="utf-8") == render(), "run python -m docs.tools.make_api"


def test_arguments_stand_beside_names_with_short_defaults():
    page = PAGE.read_text(encoding="utf-8")
    scenario = next(line for line in page.splitlines() if line.startswith("| `core50` |"))
    assert scenario.endswith("train_sessions=…, test_sessions=(2, 6, 9), frames=None` |")
    # Of a module's fields without those of every module.
    assert "| `classes=1000, dtype=…` |" in page


@pytest.mark.parametrize("room", ROOMS)
def test_every_public_name_is_there_and_documented(room):
    module = importlib.import_module(f"everlight.{room}")
    assert len(set(module.__all__)) == len(module.__all__)
    for name in module.__all__:
        public = getattr(module, name)
        assert public.__doc__ or not inspect.isroutine(public), name


def test_everlight_continual_has_every_strategy_and_the_engine():
    """Public functions are those of the files in the order of tables."""
    changes = {"predict_by_nearest_mean", "review_memory"}  # of any strategy, as --variants
    factories = {
        row.factory.__name__
        for module in map(importlib.import_module, [f"{strategies.__name__}.{n}" for n in ORDER])
        for row in module.METHODS.values()
    }
    assert set(strategies.__all__) - changes == factories
    wanted = {*strategies.__all__, "run_sequence", "drive_runs", "Protocol", "flax_setup"}
    wanted |= {"StoredImages", "softmax_objective", "binary_objective", "fixed_test_objective"}
    assert wanted | {"embedding_objective", "online_protocol"} <= set(continual.__all__)


def test_importing_the_library_reads_no_data_package_and_takes_no_more_than_its_parts():
    """JAX, Flax, optax and SciPy alone; the time is theirs, measured in docs/pages/performance.md."""
    code = (
        "import sys; import everlight.continual, everlight.color, everlight.metrics; "
        "print(*sorted({name.split('.')[0] for name in sys.modules}))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    heavy = {"orbax", "tensorflow_datasets", "rawpy", "colour", "sklearn", "matplotlib", "torch"}
    assert not heavy & set(loaded)
