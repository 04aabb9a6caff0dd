"""Checkpoints: pytrees of arrays with a JSON description, written whole or not at all (orbax)."""

import json
from pathlib import Path
from typing import Any, NamedTuple

import jax
import orbax.checkpoint as ocp

from data_pipelines.errors import DataError, MissingDataError
from experiments.common.run_folder import as_json, name_differences


class Checkpoint(NamedTuple):
    """A pytree and the plain facts stored beside it."""

    state: Any
    facts: dict


class Checkpoints:
    """Numbered checkpoints in one folder; the newest few are kept.

    Orbax writes into a temporary folder and renames it, so a run killed while writing leaves the
    checkpoint before it as the newest.
    """

    def __init__(self, folder: Path, keep: int = 2):
        """Opens the folder, or makes it."""
        options = ocp.CheckpointManagerOptions(max_to_keep=keep, enable_async_checkpointing=False)
        self.folder = Path(folder).absolute()
        handlers = {"state": ocp.StandardCheckpointHandler(), "facts": ocp.JsonCheckpointHandler()}
        self._manager = ocp.CheckpointManager(self.folder, item_handlers=handlers, options=options)

    def save(self, step: int, state: Any, facts: dict | None = None) -> None:
        """Writes a checkpoint; returns when it is on disk.

        Raises:
          DataError: the folder holds a checkpoint with this number or a later one.
        """
        written = self._manager.save(
            step,
            args=ocp.args.Composite(
                state=ocp.args.StandardSave(state), facts=ocp.args.JsonSave(as_json(facts or {}))
            ),
        )
        if not written:
            raise DataError(
                f"{self.folder} holds checkpoint {self.newest()}; {step} would not follow it. "
                "Save under a later number, or delete that folder."
            )

    def newest(self) -> int | None:
        """The number of the newest whole checkpoint, or None."""
        return self._manager.latest_step()

    def newest_of(self, facts: dict) -> int | None:
        """The newest whole checkpoint, or None; it must have been saved with these facts.

        Raises:
          DataError: it was saved with others; the differences are named.
        """
        step = self.newest()
        if step is None:
            return None
        changed = name_differences(self.facts(step), facts)
        if changed:
            raise DataError(
                f"{self.folder} holds checkpoints of another configuration ({changed}). "
                "Delete that folder, or give this run a --tag of its own."
            )
        return step

    def facts(self, step: int) -> dict:
        """The description stored with a checkpoint, without reading its arrays."""
        restored = self._manager.restore(
            step, args=ocp.args.Composite(facts=ocp.args.JsonRestore())
        )
        return restored["facts"]

    def restore(self, step: int, like: Any) -> Checkpoint:
        """Reads a checkpoint into the structure, shapes and dtypes of `like`.

        Raises:
          DataError: the checkpoint holds another structure; the first differences are named.
        """
        abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, like)
        stored = self._manager.item_metadata(step)["state"]
        _refuse_other_structure(self.folder / str(step), stored, abstract)
        restored = self._manager.restore(
            step,
            args=ocp.args.Composite(
                state=ocp.args.StandardRestore(abstract), facts=ocp.args.JsonRestore()
            ),
        )
        return Checkpoint(restored["state"], restored["facts"])


def open_existing(folder: Path) -> Checkpoints:
    """The checkpoints of a folder that must hold one.

    Raises:
      MissingDataError: the folder is missing or holds no whole checkpoint.
    """
    if not Path(folder).is_dir():
        raise MissingDataError(f"{folder} is no checkpoint folder; train a net first (README)")
    checkpoints = Checkpoints(folder)
    if checkpoints.newest() is None:
        raise MissingDataError(f"{folder} holds no whole checkpoint; train a net first (README)")
    return checkpoints


def _refuse_other_structure(path: Path, stored: Any, wanted: Any) -> None:
    there, here = _shapes(stored), _shapes(wanted)
    differences = [
        f"{name}: {there.get(name, 'absent')} there, {here.get(name, 'absent')} wanted"
        for name in sorted(set(there) | set(here))
        if there.get(name) != here.get(name)
    ]
    if differences:
        raise DataError(
            f"{path} was written with another configuration: {'; '.join(differences[:5])}"
        )


def _shapes(tree: Any) -> dict[str, str]:
    def name(path: tuple) -> str:
        # NamedTuple fields come back from disk as dictionary keys.
        parts = [getattr(p, "name", getattr(p, "key", getattr(p, "idx", p))) for p in path]
        return "/".join(str(part) for part in parts)

    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {name(path): json.dumps([*leaf.shape]) + str(leaf.dtype) for path, leaf in leaves}
