"""config.json of a run's folder: its settings, and what it was made with."""

import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Sequence
from pathlib import Path

import jax

from everlight_data.descriptions import json_checksum, name_differences
from everlight_data.errors import DataError
from everlight_data.files import read_json, refusing
from everlight_data.writing import written_whole

PACKAGES = ("everlight", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")
TEXTS = ("chosen", "features_chosen")
"""Fields of a configuration that the report quotes and nothing else reads."""
FLAGS = ("JAX_", "XLA_FLAGS", "LIBTPU_INIT_ARGS", "NVIDIA_TF32_OVERRIDE")
"""Beginnings of the environment's names that may change numbers, but for those of caches."""


def state_of(config: Path) -> tuple[int, int]:
    """Another one after every writing, which replaces the file."""
    state = config.stat()
    return state.st_ino, state.st_mtime_ns


def write_config(config: Path, chosen: dict, told: dict) -> None:
    """Write config.json: the settings, what made the run, and what was added before."""
    content = {"settings": chosen, "made_with": _made_with(), "crc32": json_checksum(chosen)}
    with written_whole(config) as unfinished:
        unfinished.write_text(json.dumps({**told, **content}, indent=2))


def read_config(config: Path, chosen: dict, widening: Sequence[str]) -> dict:
    """Return the content of config.json if it is of a run with these settings."""
    way_out = (
        "It tells what the run in this folder was begun with, and nothing else does: put it back, "
        "give this run a --tag of its own, or delete the folder."
    )
    content = read_json(config, way_out)
    with refusing(config, way_out):
        stored = content["settings"]
        if content["crc32"] != json_checksum(stored):
            raise ValueError("its checksum differs")
    # Where the folder lies is no setting: it may be moved, or named from another directory.
    free = dict.fromkeys(("runs", *widening))
    changed = name_differences(_deciding(stored) | free, _deciding(chosen) | free)
    if changed:
        raise DataError(
            f"{config.parent} holds a run with other settings ({changed}). "
            "Give this one a --tag of its own, or delete that folder."
        )
    return content


def _deciding(settings: dict) -> dict:
    """Return the settings without what only the report says."""
    config = settings.get("config")
    if not isinstance(config, dict):
        return settings
    return settings | {"config": {key: x for key, x in config.items() if key not in TEXTS}}


def _commit() -> str | None:
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:  # no git on this machine
        return None
    commit = answer.stdout.strip()
    changed = (
        commit
        and subprocess.run(
            [*command[:3], "status", "--porcelain", "--untracked-files=no"],
            capture_output=True,
            text=True,
            check=False,
        ).stdout.strip()
    )
    return f"{commit}, with uncommitted changes" if changed else commit or None


def _made_with() -> dict:
    return {
        "commit": _commit(),
        "devices": {"number": jax.device_count(), "kind": jax.devices()[0].device_kind},
        "flags": {
            name: value
            for name, value in sorted(os.environ.items())
            if name.startswith(FLAGS) and "CACHE" not in name
        },
        "python": platform.python_version(),
        "packages": {name: importlib.metadata.version(name) for name in PACKAGES},
    }
