"""The folder of a run, `runs/<command>-<name>-<preset>[-<tag>]/`, the same for every run."""

import contextlib
import dataclasses
import os
import tempfile
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from everlight_data.errors import DataError, MissingDataError
from everlight_data.formats.files import read_text, refusing
from everlight_data.formats.tables import read_json
from everlight_data.locks import LOCK, lock_folder, locked_folder, try_lock
from everlight_data.runs.claims import Claims
from everlight_data.runs.configs import (
    RESTORE,
    config_content,
    file_state,
    read_config,
    write_content,
)
from everlight_data.runs.descriptions import (
    as_json,
    name_differences,
    read_described,
    save_described,
)
from everlight_data.runs.events import PART, PROGRESS, append_event, append_new_events, whole_events
from everlight_data.runs.processes import is_first
from everlight_data.writing import (
    FOLDER_GONE,
    UNFINISHED,
    make_folder,
    remove,
    remove_unfinished,
    save_sealed,
)
from everlight_experiments.run_folder.interruption import stop_if_requested
from everlight_experiments.run_folder.options import TEXTS, FolderOptions
from everlight_experiments.run_folder.processes import broadcast_from_first

REMEDY = "Wait for its end, or give this run a --tag of its own."
PATIENCE = 600
"""Seconds to wait for a folder that another process locks; a report takes less."""
RESULTS = "results.npz"
"""File of the arrays that every number of the report is computed from."""
METRICS = "metrics.jsonl"
"""File of a run's events."""
NETS = "models"
"""Folder of the networks that a run keeps."""
TENSORBOARD = "tensorboard"
"""Folder of TensorBoard's event files."""
COMPILING, COMPILED, ESTIMATE = "compiling", "compiled", "estimate"
"""Values of `event` in lines on compilation and on the estimated duration."""
REPEATED_EVENTS = frozenset({COMPILING, COMPILED, ESTIMATE, PROGRESS})
"""Values of `event` in lines that a run writes again if nothing else of it is kept."""
PROCESS = "process-"
"""Beginning of the names of lock files, one per process that works in a shared folder."""
PARTS = "units"
"""Folder of the finished parts of a run, such as training runs; stored run folders have it."""
_OPENED: "weakref.WeakSet[RunFolder]" = weakref.WeakSet()
"""Folders that this process opened and still uses."""


class RunFolder:
    """Folder of one run, which the same settings continue; other settings are refused.

    One process at a time works in it, or any number if the folder is shared. Each process claims
    the parts that it computes; the claims of a process that dies are free again. Joined processes
    (`processes.py`) count as one: their first process claims, reads and writes for all.

    The object holds the folder's lock while it opens the folder and, until the object is gone, from
    the start where one process works alone, from its results on where the folder is shared.
    """

    def __init__(
        self,
        command: str,
        name: str,
        options: FolderOptions,
        *,
        shared: bool = False,
        trains: bool = True,
    ):
        """Open or create the folder.

        Args:
          command, name: parts of the folder's name; a preset, if there is one, and the tag follow.
          options: options of the run.
          shared: whether all work is divided into parts, so that other processes may take part.
          trains: False where only networks are read; config.json of a run is then left as it is.

        Raises:
          DataError: the folder holds a run with other settings, which are named, or another process
            works in it alone; a setting is out of its bounds; the folder cannot be made; or
            processes were joined for a run that is not shared.
        """
        if jax.process_count() > 1 and not shared:
            raise DataError(f"{command} {name} is a run of one process; leave out --distributed")
        words = command, name, getattr(options, "preset", ""), options.tag
        self.path = Path(options.runs) / "-".join(word for word in words if word)
        self.checkpoints = self.path / "checkpoints"
        self._shared, self._trains, self._claims = shared, trains, Claims()
        self._reuse_announced, self._opened = False, time.monotonic()
        self._is_new, self._written = False, None
        self._methods: dict[str, Any] = {}
        self._lock = contextlib.ExitStack()
        chosen = as_json(dataclasses.asdict(options))
        # The number of processes changes no result.
        chosen.pop("distributed", None)
        self._config = config_content(chosen)
        broadcast_from_first(lambda: self._open(options))
        if not is_first():
            # Nobody reads the files that this process writes.
            self._scratch = tempfile.TemporaryDirectory()
            self.path, self._continued = Path(self._scratch.name), False
            write_content(self.path / "config.json", self._config)

    def _open(self, options: FolderOptions) -> None:
        make_folder(self.path)
        with contextlib.ExitStack() as opening:
            opening.callback(lock_folder(self.path, REMEDY, self._patience).release)
            self._make_config(options)
            _OPENED.add(self)
            if self._shared:
                # Between parts it claims none; whoever watches the run sees this claim. Watching
                # holds it for a moment.
                process = self.path / f"{PROCESS}{os.getpid()}-{id(self)}"
                self._claims.claim(process, PATIENCE)
                weakref.finalize(self, self._claims.release_all)
            else:
                self._lock = opening.pop_all()
        where = f"{jax.device_count()} × {jax.devices()[0].device_kind}"
        print(
            f"{'resuming in' if self._continued else 'writes to'} {self.path}, on {where}; the "
            "first minutes may be compilation",
            flush=True,
        )

    @property
    def _patience(self) -> float:
        """Seconds to wait for a process that is opening a shared folder, or writing its report."""
        return PATIENCE if self._shared else 0

    def _make_config(self, options: FolderOptions) -> None:
        """Write config.json, or check that the options are those of the run in the folder."""
        self._is_new = not (self.path / "config.json").exists()
        remove_unfinished(self.path)
        for path in (self.path / PARTS).glob(f"*{UNFINISHED}"):
            part = path.with_name(path.name.removesuffix(UNFINISHED))
            # Another process may just be writing it.
            if self._claims.claim(part):
                remove(path)
                self._claims.release(part)
        config = self.path / "config.json"
        # A run that was killed before it saved anything claims nothing.
        self._continued, in_use = self._holds_work(), self._is_in_use()
        if not self._continued and not in_use:
            # The epochs of its lines are learned again.
            remove(self.path / METRICS)
        # The folder of runs may have moved, or be named from another directory.
        free = "runs", *options.run_selectors
        recorded = {}
        if self._continued:
            recorded = read_config(config, self._config["settings"], free, TEXTS, options.paths)
        # Results keep the settings that they have until this process replaces them.
        has_results = self._continued and (self.path / RESULTS).exists()
        # `everlight watch` takes a run for finished whose report is newer.
        if self._trains or not self._continued:
            write_content(config, recorded if has_results else recorded | self._config)
        self._written = file_state(config)
        if in_use and self._trains and options.run_selectors:
            names = ", ".join(name.replace("_", "-") for name in options.run_selectors)
            print(
                f"another process works in {self.path}; the report and config.json will be those "
                f"of the process that ends last, with its own {names}",
                flush=True,
            )

    def _is_in_use(self) -> bool:
        """Return True if another process trains runs in the folder."""
        return any(map(self._claims.is_elsewhere, claimed_in(self.path)))

    def _holds_work(self) -> bool:
        """Return True if the folder has results or checkpoints, not only lines on progress."""
        others = [
            path
            for path in self.path.rglob("*")
            if path.name != "config.json"
            and not path.name.endswith(LOCK)
            and not path.is_dir()
            and path.parent != self.path / TENSORBOARD
        ]
        if others != [self.path / METRICS]:
            return bool(others)
        return any(event.get("event") not in REPEATED_EVENTS for event in self.read_events())

    def remove_empty(self) -> None:
        """Remove the folder if this process made it and it holds no work; end all claims."""
        # A folder that cannot be removed is in nobody's way.
        with contextlib.suppress(OSError, DataError):
            self._claims.release_all()
            lock = try_lock(self.path / LOCK) if self._is_as_opened() else None
            if lock is None:
                return
            unused = self._is_as_opened()
            if unused:
                for path in sorted(self.path.rglob("*"), reverse=True):
                    path.rmdir() if path.is_dir() else path.unlink()
                self.path.rmdir()
            # A lock of a removed file would keep no process out.
            lock.release(force=unused)

    def _is_as_opened(self) -> bool:
        unchanged = self._is_new and file_state(self.path / "config.json") == self._written
        return unchanged and not self._holds_work()

    def duration(self) -> str:
        """Return the duration of the run and its device, for the report."""
        before = "; continued: what was done before is not counted" if self._continued else ""
        return f"{self.seconds_since_opened():.0f} s on {jax.devices()[0].device_kind}{before}"

    def seconds_since_opened(self) -> float:
        """Return the seconds since this process opened the folder."""
        return time.monotonic() - self._opened

    def record_method_arguments(self, name: str, arguments: Mapping[str, Any]) -> None:
        """Write the arguments of a method into config.json; those of later starts may differ.

        Results keep the arguments that they have until this process replaces them.
        """
        self._methods[name] = as_json(arguments)
        config = self.path / "config.json"
        # Another process that opens a shared folder removes what is half written there.
        with locked_folder(self.path, REMEDY, self._patience):
            self._refuse_gone()
            if (self.path / RESULTS).exists():
                return
            content, since = read_json(config, REMEDY), file_state(config)
            content["methods"] = {**content.get("methods", {}), name: self._methods[name]}
            write_content(config, content)
            if since == self._written:
                self._written = file_state(config)

    def log(self, **event: Any) -> None:
        """Append one event to metrics.jsonl, unless it is there; NaN is null."""
        append_event(self.path / METRICS, event)

    def log_new(self, events: Sequence[Mapping[str, Any]]) -> None:
        """Append events that metrics.jsonl does not have."""
        append_new_events(self.path / METRICS, events)

    def log_part(self, name: str, **event: Any) -> None:
        """Append an event of a part to metrics.jsonl."""
        self.log(**{PART: name}, **event)

    def seconds_of_parts(self) -> dict[str, float | None]:
        """Return the logged seconds of finished parts by name; None of one that was continued."""
        events = [event for event in self.read_events() if {"seconds", PART} <= event.keys()]
        return {event[PART]: event["seconds"] for event in events if "event" not in event}

    def read_events(self) -> list[dict[str, Any]]:
        """Return the events in metrics.jsonl, except lines that a kill cut short.

        Raises:
          DataError: the file is damaged.
        """
        path = self.path / METRICS
        if not path.exists():
            return []
        remedy = "Delete it and run the same command again; only times of the report are lost."
        text = read_text(path, remedy)
        with refusing(path, remedy):
            return whole_events(text)

    def has_part(self, name: str) -> bool:
        """Return True if a part is finished, whatever its fingerprint."""
        return self._part(name).exists()

    def claim_part(self, name: str) -> bool:
        """Claim a part of a shared run for this process until it is saved or given up."""
        path = self._part(name)
        held = broadcast_from_first(lambda: {"claimed": np.array(self._claims.claim(path))})
        return bool(held["claimed"])

    def release_part(self, name: str) -> None:
        """Let another process claim a part."""
        self._claims.release(self._part(name))

    def all_claimed_by_others(self, names: Sequence[str]) -> bool | None:
        """Return True if other processes compute all unfinished parts; None where none is left."""

        def held() -> dict[str, np.ndarray]:
            paths = [path for path in map(self._part, names) if not path.exists()]
            return {"held": np.array(list(map(self._claims.is_elsewhere, paths)), bool)}

        claims = broadcast_from_first(held)["held"]
        return bool(claims.all()) if len(claims) else None

    def computed(
        self, name: str, fingerprint: dict, compute: Callable[[], dict[str, np.ndarray]]
    ) -> dict[str, np.ndarray]:
        """Return the saved arrays of a part; a missing part is computed and saved."""
        arrays = self.read_part(name, fingerprint)
        if arrays is None:
            arrays = compute()
            # One of several processes is enough.
            if self.claim_part(name):
                self.save_part(name, fingerprint, **arrays)
        return arrays

    def save_part(self, name: str, fingerprint: dict, **arrays: np.ndarray) -> None:
        """Keep the results of a finished part of the run, whole or not at all; end its claim."""
        stop_if_requested()
        if not is_first():
            return
        self._refuse_gone()
        save_described(self._part(name), name, fingerprint, **arrays)
        self.release_part(name)

    def _refuse_gone(self) -> None:
        # Opening the folder wrote it.
        if not (self.path / "config.json").exists():
            raise DataError(f"{self.path / 'config.json'} does not exist. {FOLDER_GONE}")

    def read_part(self, name: str, fingerprint: dict) -> dict[str, np.ndarray] | None:
        """Return the results of a finished part; None where there are none or they are damaged.

        Raises:
          DataError: they were saved with another fingerprint; the message names the difference.
        """
        return broadcast_from_first(lambda: self._read(name, fingerprint))

    def _read(self, name: str, fingerprint: dict) -> dict[str, np.ndarray] | None:
        path = self._part(name)
        try:
            stored, arrays = read_described(path, name, "It is computed again.")
        except MissingDataError:
            return None
        except DataError as error:
            print(error, flush=True)
            return None
        changed = name_differences(stored, fingerprint)
        if changed:
            raise DataError(
                f"{path} belongs to another configuration ({changed}). Delete {self.path}, or give "
                "this run a --tag of its own."
            )
        if not self._reuse_announced:
            self._reuse_announced = True
            print(
                f"Reusing results in {path.parent}; code changes are not detected (except "
                "--strategy and --net files). Use --tag to start a new run.",
                flush=True,
            )
        return arrays

    def _part(self, name: str) -> Path:
        return self.path / PARTS / f"{name}.npz"

    def save_results(self, **arrays: np.ndarray) -> Path:
        """Write the arrays that every number of the report is computed from.

        config.json gets settings and methods' arguments of this process, since those of another
        start may differ.
        """
        stop_if_requested()
        self._refuse_gone()
        if self._shared:
            # Processes write results and report one after another, with the same content.
            self._lock.callback(lock_folder(self.path, REMEDY, patience=-1).release)
        path, config = self.path / RESULTS, self.path / "config.json"
        stored = read_json(config, RESTORE)
        content = stored | self._config
        if self._methods:
            content["methods"] = {**stored.get("methods", {}), **self._methods}
        if content != stored:
            # A kill in between leaves no results, rather than those of other settings.
            remove(path)
            write_content(config, content)
        save_sealed(path, **{name: np.asarray(value) for name, value in arrays.items()})
        return path


def claimed_in(folder: Path) -> list[Path]:
    """Return what processes claim in a run's folder, or claimed when they were killed."""
    locks = *(folder / PARTS).glob(f"*{LOCK}"), *folder.glob(f"{PROCESS}*{LOCK}")
    return [path.with_name(path.name.removesuffix(LOCK)) for path in locks]


def remove_empty_folders() -> None:
    """Remove folders that this process made for runs that ended before they saved anything."""
    for folder in list(_OPENED):
        folder.remove_empty()
