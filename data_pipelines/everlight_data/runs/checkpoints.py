"""Checkpoints: pytrees of arrays with a JSON description, written atomically (orbax).

Beside the arrays lies a record: the checkpoint's number, what it was saved with, and every array's
shape, type and checksum. Anything that differs from the record is rejected. If arrays lie on the
devices of several processes, each process writes and checks its own part in a shared folder. On
disk the fingerprint's key is "facts", as in checkpoints of earlier versions.
"""

import contextlib
import errno
import os
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
import orbax.checkpoint as ocp

from everlight.trees import (
    array_checksum,
    describe_array,
    is_random_key,
    named_leaves,
    tree_bytes,
    words_of_keys,
)
from everlight_data.errors import DataError, MissingDataError
from everlight_data.names import name_first
from everlight_data.runs.descriptions import as_json, json_checksum, name_differences
from everlight_data.runs.orbax_messages import silence_orbax, unawaited_unreported
from everlight_data.runs.processes import gather_arrays, is_first, synchronize
from everlight_data.texts import one_line
from everlight_data.writing import check_room

SECONDS_AT_STAKE = 10.0
"""Seconds of work that a kill may lose besides the current step; writing takes 0.2 seconds."""
LATE_WRITES = 50
"""Attempts to remove a half-written checkpoint; the next start removes what remains."""
DAMAGED = ".damaged"
"""Added to the name of a checkpoint that is rejected as damaged."""

UNDECODABLE = (
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    EOFError,
    FileNotFoundError,
    IsADirectoryError,
    NotADirectoryError,
)
"""Errors of orbax about files that are missing or were changed. Other errors, such as too little
memory or too many open files, leave the checkpoint as it is."""
STATUS_OF_MACHINE = re.compile(
    "(RESOURCE_EXHAUSTED|PERMISSION_DENIED|UNAUTHENTICATED|UNAVAILABLE|ABORTED|CANCELLED|UNKNOWN"
    "|INTERNAL|DEADLINE_EXCEEDED)\\b"
)
"""Beginning of tensorstore's messages, all of them a `ValueError`, that are not about the files."""


class DamagedCheckpointError(DataError):
    """Error about a checkpoint whose content differs from what was saved."""


class OtherStructureError(DataError):
    """Error about a checkpoint of other arrays than those that are expected."""


class Checkpoint(NamedTuple):
    """A pytree and the fingerprint stored beside it: what it was computed from, in JSON."""

    state: Any
    fingerprint: dict


class Resumed(NamedTuple):
    """The newest intact checkpoint of a run: its number and state."""

    step: int
    state: Any


class Checkpoints:
    """Numbered checkpoints in one folder; the newest few are kept.

    Orbax writes into a temporary folder and renames it, so a run killed while writing leaves the
    checkpoint before it as the newest, and the next start removes what was half written.
    """

    def __init__(self, folder: Path, keep: int = 2, read_only: bool = False):
        """Open the folder, or make it; `read_only` changes nothing in it."""
        options = ocp.CheckpointManagerOptions(
            # Orbax sets these itself if they are left out, with a warning each.
            save_interval_steps=0 if read_only else 1,
            max_to_keep=None if read_only else keep,
            enable_async_checkpointing=False,
            create=not read_only,
            read_only=read_only,
        )
        silence_orbax()
        self.folder = Path(folder).absolute()
        self._keep = keep
        self._since = time.monotonic()
        if not read_only and is_first():
            self._remove_half_written()
        synchronize(f"checkpoints in {self.folder.name}")
        handlers = {"state": ocp.StandardCheckpointHandler(), "facts": ocp.JsonCheckpointHandler()}
        self._manager = ocp.CheckpointManager(self.folder, item_handlers=handlers, options=options)

    def due(self) -> bool:
        """Return True if enough was done since the last checkpoint to save the state."""
        late = time.monotonic() - self._since >= SECONDS_AT_STAKE
        # Processes that train together write together.
        return bool(gather_arrays(np.array(late)).any())

    def save(self, step: int, state: Any, fingerprint: dict | None = None) -> None:
        """Write a checkpoint; return when it is on disk.

        Raises:
          DataError: the folder holds a checkpoint with this number or a later one, or the disk has
            no room for it or cannot be written; those before it are kept.
        """
        # Checked before the first one, for the most that the folder will hold at a time.
        copies = 1 if self.newest() is not None else self._keep + 1
        check_room(self.folder, tree_bytes(state) * copies, "a run's checkpoints")
        checksums = _gather_checksums(_array_checksums(state))
        record = {"step": step, "facts": as_json(fingerprint or {}), "arrays": checksums}
        args = ocp.args.Composite(
            state=ocp.args.StandardSave(state),
            facts=ocp.args.JsonSave({"record": record, "crc32": json_checksum(record)}),
        )
        try:
            with unawaited_unreported():
                written = self._manager.save(step, args=args)
        # A full disk makes tensorstore and orbax raise errors of several kinds.
        except Exception as error:
            if is_first():
                self._remove_when_written()
            full = os.strerror(errno.ENOSPC)
            reason = full if full in str(error) else one_line(error)
            raise DataError(
                f"{self.folder / str(step)} cannot be written ({reason}). The checkpoints before "
                "it are kept; free disk space and run the same command again to continue."
            ) from error
        if not written:
            raise DataError(
                f"{self.folder} holds checkpoint {self.newest()}; checkpoint {step} is not newer. "
                "Save under a later number, or delete that folder."
            )
        self._since = time.monotonic()

    def renew(self, step: int, state: Any, fingerprint: dict) -> None:
        """Save as `save` does, in place of checkpoints of this number or later; an equal one stays.

        Raises:
          DataError: as for `save`, except that later numbers are not errors.
        """
        numbers = [number for number in self.numbers() if number >= step]
        if step in numbers:
            with contextlib.suppress(DamagedCheckpointError, OtherStructureError):
                if _array_checksums(self.restore(step, state).state) == _array_checksums(state):
                    return
        for number in numbers:
            self._manager.delete(number)
        self.save(step, state, fingerprint)

    def _remove_when_written(self) -> None:
        """Remove the folder until it stays removed; other threads may still write to it."""
        for _ in range(LATE_WRITES):
            self._remove_half_written()
            time.sleep(0.02)
            if not self._half_written():
                return

    def _remove_half_written(self) -> None:
        for path in self._half_written():
            shutil.rmtree(path, ignore_errors=True)

    def _half_written(self) -> list[Path]:
        return list(self.folder.glob("*.orbax-checkpoint-tmp*"))

    def newest(self) -> int | None:
        """Return the number of the newest complete checkpoint, or None."""
        return self._manager.latest_step()

    def resume(self, fingerprint: dict, like: Callable[[], Any]) -> Resumed | None:
        """Return the newest intact checkpoint, or None.

        A damaged checkpoint is set aside with a message, and the one before it is taken.

        Args:
          fingerprint: fingerprint with which it must have been saved.
          like: function that returns the structure, shapes and dtypes of the state.

        Raises:
          DataError: the checkpoint was saved with another fingerprint or holds another structure;
            the message has the differences.
        """
        while (step := self.newest()) is not None:
            state, damage = None, None
            try:
                changed = name_differences(self.fingerprint(step), fingerprint)
                if changed:
                    raise DataError(
                        f"{self.folder} holds checkpoints of another configuration ({changed}). "
                        "Delete that folder, or give this run a --tag of its own."
                    )
                state = self.restore(step, like()).state
            except DamagedCheckpointError as error:
                damage = error
            if not gather_arrays(np.array(damage is not None)).any():
                return Resumed(step, state)
            self._set_aside(step)
            before = self.newest()
            instead = "starts again" if before is None else f"continues at {before}"
            print(f"{damage or 'damaged'}; it is set aside, and the run {instead}.", flush=True)
        return None

    def _set_aside(self, step: int) -> None:
        if is_first():
            (damaged,) = (path for path in self.folder.iterdir() if path.name == str(step))
            aside = damaged.with_name(damaged.name + DAMAGED)
            shutil.rmtree(aside, ignore_errors=True)
            damaged.rename(aside)
        synchronize(f"checkpoint {step} set aside")
        self._manager.reload()

    def numbers(self) -> list[int]:
        """Return the numbers of the complete checkpoints, ascending."""
        return sorted(self._manager.all_steps())

    def fingerprint(self, step: int) -> dict:
        """Return the fingerprint stored with a checkpoint, without reading its arrays.

        Raises:
          DamagedCheckpointError: the checkpoint is not what was written, or was written under
            another number.
        """
        return self._record(step)["facts"]

    def _record(self, step: int) -> dict:
        path = self.folder / str(step)
        stored = self._item(step, "facts", ocp.args.JsonRestore())
        try:
            record, checksum = stored["record"], stored["crc32"]
            _check_record(record)
        except UNDECODABLE as error:
            raise DamagedCheckpointError(
                f"{path} is damaged, or of an earlier version ({one_line(error)})"
            ) from error
        if checksum != json_checksum(record):
            raise DamagedCheckpointError(f"{path} is damaged: its record's checksum differs")
        if record["step"] != step:
            raise DamagedCheckpointError(f"{path} is a copy of checkpoint {record['step']}")
        return record

    def _item(self, step: int, name: str, args: ocp.args.CheckpointArgs) -> Any:
        """Read one of the two items of a checkpoint, "state" or "facts"."""
        path = self.folder / str(step)
        try:
            with unawaited_unreported():
                items = self._manager.restore(step, args=ocp.args.Composite(**{name: args}))
            return items[name]
        except Exception as error:
            # Orbax wraps some errors in an `Exception`.
            cause = error.__cause__ if type(error) is Exception else error
            if not isinstance(cause, UNDECODABLE):
                raise
            reason = one_line(cause)
            if STATUS_OF_MACHINE.match(str(cause)):
                raise OSError(errno.EIO, reason, str(path)) from error
            raise DamagedCheckpointError(f"{path} is damaged ({reason})") from error

    def restore(self, step: int, like: Any) -> Checkpoint:
        """Read a checkpoint into the structure, shapes and dtypes of `like`.

        Where `like` states no devices, arrays are put on this process's first device, on however
        many they were written.

        Raises:
          DamagedCheckpointError: the checkpoint is not what was written, to the bit.
          OtherStructureError: the checkpoint holds other arrays; the first differences are named.
          OSError: it cannot be read now, damaged or not.
        """
        abstract = jax.tree.map(_local_struct, like)
        path, record = self.folder / str(step), self._record(step)
        _refuse_other_structure(path, record["arrays"], abstract)
        return Checkpoint(self._state(step, record, abstract), record["facts"])

    def arrays(self, step: int) -> dict[str, np.ndarray]:
        """Return the arrays of a checkpoint of any structure, by their path.

        Random keys are returned as integers.

        Raises:
          DamagedCheckpointError: the checkpoint is not what was written, to the bit.
        """
        state = self._state(step, self._record(step), None)
        return {name: np.asarray(words_of_keys(leaf)) for name, leaf in named_leaves(state).items()}

    def _state(self, step: int, record: dict, like: Any) -> Any:
        path = self.folder / str(step)
        state = self._item(step, "state", ocp.args.StandardRestore(like))
        checksums = _array_checksums(state)
        expected = _local_checksums(record["arrays"])
        wrong = [name for name, value in expected.items() if checksums.get(name) != value]
        if wrong:
            raise DamagedCheckpointError(
                f"{path} is damaged: the checksums of {name_first(wrong)} differ"
            )
        return state


def _local_struct(leaf: Any) -> Any:
    """Return the shape and dtype of a leaf, on a device of this process for arrays."""
    if is_random_key(leaf):
        # Orbax would give the shape of its words.
        struct = jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=leaf.sharding)
    else:
        struct = ocp.utils.to_shape_dtype_struct(leaf)
    if not isinstance(struct, jax.ShapeDtypeStruct) or struct.sharding is not None:
        return struct
    sharding = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    return jax.ShapeDtypeStruct(struct.shape, struct.dtype, sharding=sharding)


def open_existing(folder: Path) -> Checkpoints:
    """Return the checkpoints of a folder that must hold one, for reading only.

    Raises:
      MissingDataError: the folder is missing or holds no complete checkpoint.
    """
    if not Path(folder).is_dir():
        raise MissingDataError(f"{folder} is not a checkpoint folder; train a net first")
    checkpoints = Checkpoints(folder, read_only=True)
    if checkpoints.newest() is None:
        raise MissingDataError(f"{folder} holds no complete checkpoint; train a net first")
    return checkpoints


def _check_record(record: dict[str, Any]) -> None:
    """Check the types of the values of a record that was read."""
    if not (isinstance(record["facts"], dict) and isinstance(record["step"], int)):
        raise ValueError("its record does not match the expected format")
    if any(not isinstance(shape, str) for shape, _ in record["arrays"].values()):
        raise ValueError("its arrays do not match the expected format")


def _refuse_other_structure(path: Path, stored: dict[str, list], state: Any) -> None:
    shapes = {name: shape for name, (shape, _) in stored.items()}
    expected = {name: describe_array(leaf) for name, leaf in named_leaves(state).items()}
    differences = [
        f"{name}: stored {shapes.get(name, 'absent')}, expected {expected.get(name, 'absent')}"
        for name in sorted(set(shapes) | set(expected))
        if shapes.get(name) != expected.get(name)
    ]
    if differences:
        raise OtherStructureError(
            f"{path} was written with another configuration: {'; '.join(differences[:5])}. Give "
            "the settings that it was written with, or another folder."
        )


def _array_checksums(tree: Any) -> dict[str, list]:
    """Return shape, type and checksum of every array, or of its parts on this process's devices."""
    return {
        name: [describe_array(leaf), array_checksum(leaf)]
        for name, leaf in named_leaves(tree).items()
    }


def _gather_checksums(checksums: dict[str, list]) -> dict[str, list]:
    """Return the checksums, with those of the parts on other processes' devices, by process."""
    if jax.process_count() == 1:
        return checksums
    parts = np.array([parts for _, parts in checksums.values()], np.uint32)
    gathered = gather_arrays(parts).transpose(1, 0, 2).reshape(len(parts), -1).tolist()
    return {
        name: [shape, all_parts]
        for (name, (shape, _)), all_parts in zip(checksums.items(), gathered, strict=True)
    }


def _local_checksums(checksums: dict[str, list]) -> dict[str, list]:
    """Return the checksums of this process's parts."""
    if jax.process_count() == 1:
        return checksums
    count, number = jax.local_device_count(), jax.process_index()
    local = slice(number * count, (number + 1) * count)
    return {name: [shape, parts[local]] for name, (shape, parts) in checksums.items()}
