"""Results of finished runs of methods, read from their folders."""

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from everlight_data.errors import DataError
from everlight_data.files import read_json
from everlight_data.images.class_names import printable
from everlight_data.writing import read_sealed

_WAY_OUT = "Name the folder of a finished run of methods, such as `everlight run`."


class FinishedRun(NamedTuple):
    """Results of a run."""

    name: str
    """Name of its folder."""
    data: tuple[int, ...]
    """Checksums of images and of their labels."""
    draws: Int[np.ndarray, "seeds"]
    """Checksum of which samples come when, for each seed."""
    score: str
    """Name of the metric in `finals`."""
    finals: dict[str, dict[str, Float[np.ndarray, "_"]]]
    """Final scores of the seeds by setting and method; NaN where a run diverged."""
    options: dict[str, Any]
    """Options by name, those of the configuration too."""


def read_finished_run(folder: Path) -> FinishedRun:
    """Return the results of a run's folder.

    Raises:
      MissingDataError: results.npz or config.json does not exist.
      DataError: one of them is damaged, or of another kind of run.
    """
    path = folder / "results.npz"
    arrays = read_sealed(path, _WAY_OUT)
    if missing := {"draws", "data", "measure"} - set(arrays):
        raise DataError(f"{path} lacks {', '.join(sorted(missing))}. {_WAY_OUT}")
    score = str(arrays["measure"])
    finals: dict[str, dict[str, np.ndarray]] = {}
    for key, values in arrays.items():
        setting, _, rest = key.partition("/")
        method, _, metric = rest.rpartition("/")
        if metric == score and method:
            finals.setdefault(setting, {})[method] = values[:, -1]
    stored = read_json(folder / "config.json", _WAY_OUT)
    options = _flat("", stored.get("settings", {}))
    # After the first three come checksums of features.
    data = tuple(arrays["data"].tolist()[:3])
    name = printable(folder.resolve().name)
    return FinishedRun(name, data, arrays["draws"], score, finals, options)


def name_other_options(runs: Sequence[FinishedRun], ignored: Collection[str] = ()) -> str:
    """Return each option that differs between runs, with its values in their order, as text."""
    names = sorted({name for run in runs for name in run.options}.difference(ignored))
    said = []
    for name in names:
        values = [run.options.get(name) for run in runs]
        if any(value != values[0] for value in values):
            said.append(f"{name}: {' | '.join(printable(str(value)) for value in values)}")
    return "; ".join(said) or "none"


def _flat(name: str, part: Any) -> dict[str, Any]:
    """Return options by name, those of parts after a dot and those of the configuration alone."""
    if not isinstance(part, dict):
        return {name: part}
    before = "" if name in ("", "config") else f"{name}."
    found: dict[str, Any] = {}
    for key, value in part.items():
        found |= _flat(f"{before}{key}", value)
    return found
