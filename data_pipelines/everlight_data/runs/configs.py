"""The file config.json of a run's folder: settings, arguments, versions and devices."""

import importlib.metadata
import json
import os
import platform
import subprocess
from collections.abc import Collection
from pathlib import Path
from typing import Any

import jax

from everlight_data.errors import DataError
from everlight_data.formats.files import refusing
from everlight_data.formats.tables import read_json
from everlight_data.runs.descriptions import json_checksum, name_differences
from everlight_data.writing import written_whole

PACKAGES = ("everlight", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")
RESTORE = "Write back what it held, or delete the folder and run the same command again."
"""Advice for a run's config.json that is damaged during the run."""
FLAGS = ("JAX_", "XLA_FLAGS", "LIBTPU_INIT_ARGS", "NVIDIA_TF32_OVERRIDE")
"""Prefixes of environment variables that may change numbers, except those of caches."""


def file_state(config: Path) -> tuple[int, int]:
    """Return a value that changes whenever the file is written, since writing replaces it."""
    state = config.stat()
    return state.st_ino, state.st_mtime_ns


def config_content(chosen: dict) -> dict[str, Any]:
    """Return what config.json holds of settings, as `descriptions.as_json` returns them.

    It is the settings, versions and devices of this process, and a checksum.
    """
    return {"settings": chosen, "made_with": _environment(), "crc32": json_checksum(chosen)}


def write_content(config: Path, content: dict) -> None:
    """Write config.json whole or not at all; a file that cannot be written is a DataError."""
    with written_whole(config) as unfinished:
        unfinished.write_text(json.dumps(content, indent=2))


def write_config(config: Path, chosen: dict, previous: dict) -> None:
    """Write config.json: settings, arguments, versions and devices.

    Args:
      config: the file.
      chosen: settings, as `descriptions.as_json` returns them.
      previous: former content of the file, of which everything else is kept.

    Raises:
      DataError: the file cannot be written.
    """
    write_content(config, previous | config_content(chosen))


def read_any_config(config: Path, remedy: str) -> dict[str, Any]:
    """Return the content of config.json for any settings.

    Args:
      config: the file.
      remedy: sentence that every error message ends with.

    Raises:
      MissingDataError: the file does not exist.
      DataError: the file is damaged, or its settings were edited.
    """
    content = read_json(config, remedy)
    with refusing(config, remedy):
        stored = content["settings"]
        if content["crc32"] != json_checksum(stored):
            raise ValueError("its checksum differs")
        if not isinstance(stored, dict) or type(stored.get("seed", 0)) is not int:
            raise ValueError("its settings are not a mapping with an integer seed")
        if not isinstance(content.get("methods", {}), dict):
            raise ValueError("its methods are not a mapping")
    return content


def read_config(
    config: Path,
    chosen: dict,
    free: Collection[str] = (),
    texts: Collection[str] = (),
    paths: Collection[str] = (),
) -> dict:
    """Return the content of config.json if it is of a run with these settings.

    Args:
      config: the file.
      chosen: settings, as `descriptions.as_json` returns them.
      free: names of settings that may differ.
      texts: names of values at any depth that a report quotes and nothing else reads; they may
        differ, too.
      paths: names of settings that are paths; two spellings of one path are equal.

    Raises:
      MissingDataError: the file does not exist.
      DataError: the file is damaged, or of a run with other settings, which the message names.
    """
    remedy = (
        "Only this file has the settings of the run in this folder: restore it, give this run a "
        "--tag of its own, or delete the folder."
    )
    content = read_any_config(config, remedy)
    stored = content["settings"]
    ignored = dict.fromkeys([*free, *_equal_paths(paths, stored, chosen)])
    changed = name_differences(
        _drop_names(texts, stored) | ignored, _drop_names(texts, chosen) | ignored
    )
    if changed:
        raise DataError(
            f"{config.parent} holds a run with other settings ({changed}). "
            "Give this one a --tag of its own, or delete that folder."
        )
    return content


def _equal_paths(names: Collection[str], stored: dict, chosen: dict) -> list[str]:
    """Return the names of settings whose paths are one file or folder, however they are spelled."""
    resolved = [
        {name: Path(values[name]).resolve() for name in names if isinstance(values.get(name), str)}
        for values in (stored, chosen)
    ]
    return [name for name in names if resolved[0].get(name) == resolved[1].get(name) is not None]


def _drop_names(names: Collection[str], value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return {name: _drop_names(names, part) for name, part in value.items() if name not in names}


def _commit() -> str | None:
    """Return the full hash of the code's commit; None without git or outside its repository.

    An installation may lie in the folder of another repository, which does not track this file.
    """
    if _ask_git("ls-files", "--error-unmatch", Path(__file__).name) is None:
        return None
    words = ("describe", "--always", "--abbrev=40", "--exclude=*")
    return _ask_git(*words, "--dirty=, with uncommitted changes")


def _ask_git(*words: str) -> str | None:
    """Return what git prints in this file's folder; None if it fails or is absent."""
    command = ("git", "-C", str(Path(__file__).parent), *words)
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return None
    return answer.stdout.strip() or None if answer.returncode == 0 else None


def _environment() -> dict:
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
