"""What a run leaves behind: `runs/<paper>-<run>-<scale>[-<tag>]/`, the same for every run."""

import dataclasses
import importlib.metadata
import json
import platform
import subprocess
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np

from data_pipelines.errors import DataError

Scale = Literal["demo", "cpu", "paper"]


@dataclass(frozen=True)
class RunSettings:
    """The settings that every run has; a run's own extend them and give `scale` its default."""

    scale: Scale = "demo"
    """demo: minutes, no data; cpu: real data on two cores; paper: the paper's own settings."""
    seed: int = 0
    """Of everything that is drawn."""
    tag: str = ""
    """Added to the name of the run's folder."""
    runs: Path = Path("runs")
    """Where run folders are made."""


def check_methods(asked: Sequence[str] | None, known: Iterable[str]) -> None:
    """Refuses names of methods that there are not, and an option without any.

    Raises:
      DataError: which, and what there is.
    """
    if asked is None:
        return
    if not asked:
        raise DataError(f"--methods without a name; there are {', '.join(known)}")
    unknown = set(asked) - set(known)
    if unknown:
        raise DataError(f"no method {sorted(unknown)}; there are {', '.join(known)}")


def as_json(values: dict) -> dict:
    """Values as they are read back from JSON: tuples become lists, what it cannot hold text."""
    return json.loads(json.dumps(values, default=str))


def name_differences(stored: dict, chosen: dict) -> str:
    """What two descriptions differ in, for an error message; empty where they agree."""
    chosen = as_json(chosen)
    return "; ".join(
        f"{name}: {stored.get(name)!r} there, {chosen.get(name)!r} now"
        for name in sorted(set(stored) | set(chosen))
        if stored.get(name) != chosen.get(name)
    )


PACKAGES = ("everlight", "jax", "jaxlib", "flax", "optax", "orbax-checkpoint", "numpy")


class RunFolder:
    """One run's folder: config.json, metrics.jsonl, results.npz, units/, checkpoints/, plots,
    report.html.

    A folder that was begun with the same settings is continued; with other settings it is refused,
    so that no run is ever resumed into another's results.
    """

    def __init__(self, paper: str, run: str, settings: RunSettings):
        """Opens or creates the folder of `settings`.

        Raises:
          DataError: the folder holds a run with other settings, which are named; or the seed is
            negative, the tag no part of a name, or the folder cannot be made.
        """
        if settings.seed < 0:
            raise DataError(f"--seed {settings.seed}; give 0 or more")
        if Path(settings.tag).name != settings.tag:
            raise DataError(f"--tag {settings.tag!r} becomes part of a folder's name; leave out /")
        tag = f"-{settings.tag}" if settings.tag else ""
        self.path = Path(settings.runs) / f"{paper}-{run}-{settings.scale}{tag}"
        self.checkpoints = self.path / "checkpoints"
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise DataError(
                f"{self.path} cannot be made ({error.strerror}); give another --runs"
            ) from error
        chosen = as_json(dataclasses.asdict(settings))
        config = self.path / "config.json"
        # A run that was refused or stopped before it saved anything claims nothing.
        begun = any(other != config for other in self.path.iterdir())
        if begun and config.exists():
            _refuse_other_settings(config, chosen)
        self._opened, self._continued = time.monotonic(), begun
        # Whole or not at all, so that a run killed here can be continued.
        unfinished = config.with_suffix(".unfinished")
        unfinished.write_text(json.dumps({"settings": chosen, "made_with": _made_with()}, indent=2))
        unfinished.replace(config)
        print(
            f"{'goes on in' if begun else 'writes to'} {self.path}; the first minute or two is "
            "compilation",
            flush=True,
        )

    def duration(self) -> str:
        """How long the run has taken, and on what, for its report."""
        before = "; continued: what was done before is not counted" if self._continued else ""
        seconds = time.monotonic() - self._opened
        return f"{seconds:.0f} s on {jax.devices()[0].device_kind}{before}"

    def log(self, **event: Any) -> None:
        """Appends one event to metrics.jsonl; what is no number is null there."""
        text = json.dumps(event, default=_plain)
        valid = json.loads(text, parse_constant=lambda name: None)
        with (self.path / "metrics.jsonl").open("a") as stream:
            stream.write(json.dumps(valid) + "\n")

    def save_unit(self, name: str, facts: dict, **arrays: np.ndarray) -> None:
        """Keeps the results of a finished part of the run, whole or not at all."""
        path = self._unit(name)
        path.parent.mkdir(exist_ok=True)
        unfinished = path.with_suffix(".unfinished")
        with unfinished.open("wb") as stream:
            np.savez_compressed(stream, facts=json.dumps(facts), **arrays)
        unfinished.replace(path)

    def read_unit(self, name: str, facts: dict) -> dict[str, np.ndarray] | None:
        """The results of a finished part, or None.

        Raises:
          DataError: they were saved with other facts; the message names the difference.
        """
        path = self._unit(name)
        if not path.exists():
            return None
        with np.load(path, allow_pickle=False) as stored:
            arrays = dict(stored)
        changed = name_differences(json.loads(arrays.pop("facts").item()), facts)
        if changed:
            raise DataError(
                f"{path} is of another configuration ({changed}). Delete {self.path}, or give "
                "this run a --tag of its own."
            )
        return arrays

    def _unit(self, name: str) -> Path:
        return self.path / "units" / f"{name}.npz"

    def save_results(self, **arrays: np.ndarray) -> Path:
        """Writes the raw arrays that every number of the report is computed from."""
        path = self.path / "results.npz"
        np.savez_compressed(path, **{name: np.asarray(value) for name, value in arrays.items()})
        return path


def _refuse_other_settings(config: Path, chosen: dict) -> None:
    stored = json.loads(config.read_text())["settings"]
    # Where the folder lies is no setting: it may be moved, or named from another directory.
    changed = name_differences(stored | {"runs": None}, chosen | {"runs": None})
    if changed:
        raise DataError(
            f"{config.parent} holds a run with other settings ({changed}). "
            "Give this one a --tag of its own, or delete that folder."
        )


def _commit() -> str | None:
    command = ["git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:  # no git on this machine
        return None
    return answer.stdout.strip() or None


def _made_with() -> dict:
    return {
        "commit": _commit(),
        "device": jax.devices()[0].device_kind,
        "python": platform.python_version(),
        "packages": {name: importlib.metadata.version(name) for name in PACKAGES},
    }


def _plain(value: Any) -> Any:
    array = np.asarray(value)
    return array.item() if array.ndim == 0 else array.tolist()
