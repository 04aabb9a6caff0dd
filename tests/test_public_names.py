"""The rooms' public names: complete, documented, quick to import."""

import ast
import importlib
import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from docs.make_api import PAGE, ROOMS, render

STRATEGIES = {
    *("naive", "cumulative", "joint", "ewc", "si", "mas", "lwf", "imm", "expert_gate", "cwr"),
    *(
        "balanced_replay",
        "experience_replay",
        "der_plus_plus",
        "er_ace",
        "er_tricks",
        "gdumb",
        "hal",
        "agem",
        "gem",
    ),
    *("icarl", "lucir", "bic", "streaming_lda", "nearest_mean", "ranpac", "packnet", "hat"),
}


def test_the_page_of_public_names_is_what_the_rooms_declare():
    assert PAGE.read_text(encoding="utf-8") == render(), "run python docs/make_api.py"


def test_arguments_stand_beside_names_with_short_defaults():
    page = PAGE.read_text(encoding="utf-8")
    scenario = next(line for line in page.splitlines() if line.startswith("| `core50` |"))
    assert scenario.endswith("train_sessions=…, test_sessions=(2, 6, 9), kept=None` |")
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
    import everlight.continual as continual

    wanted = {*STRATEGIES, "run_sequence", "drive_runs", "Protocol", "flax_setup"}
    wanted |= {"StoredImages", "softmax_objective", "binary_objective", "fixed_test_objective"}
    assert wanted | {"embedding_objective", "online_protocol"} <= set(continual.__all__)


def test_every_file_of_a_strategy_has_its_factory_among_the_public_names():
    """So that a new file cannot be forgotten; files of shared parts are named here."""
    import everlight.continual.strategies as strategies

    shared = {
        "__init__",
        "bias_correction",
        "clustering",
        "exemplars",
        "frozen",
        "head_finetuning",
        "hidden_units",
        "importance",
        "memory",
        "merging",
        "prototype_losses",
        "prototype_mixing",
        "quadratic",
        "random_ridge",
    }
    for path in Path(strategies.__file__).parent.glob("*.py"):
        if path.stem in shared:
            continue
        tree = ast.parse(path.read_text(encoding="utf-8"))
        functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
        assert functions & set(strategies.__all__), f"{path.name}: none of it in __init__.__all__"


def test_importing_the_library_reads_no_data_package_and_takes_no_more_than_its_parts():
    """JAX, Flax, optax and SciPy alone; the time is theirs, measured in docs/performance.md."""
    code = (
        "import sys; import everlight.continual, everlight.color, everlight.metrics; "
        "print(*sorted({name.split('.')[0] for name in sys.modules}))"
    )
    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.split()
    heavy = {"orbax", "tensorflow_datasets", "rawpy", "colour", "sklearn", "matplotlib", "torch"}
    assert not heavy & set(loaded)
