"""A process that reads checkpoints of which one file each is cut short, changed or gone."""

import shutil
import sys
from pathlib import Path

import jax
import jax.numpy as jnp

from everlight_data.runs.checkpoints import Checkpoints

ARRAYS = 40
"""A small run's number of arrays: more reads than are answered when the first one fails."""


def main(folder: Path) -> None:
    """Print the checkpoint's state after every damage."""
    state = {f"a{number}": jnp.arange(5000.0) * number for number in range(ARRAYS)}
    full, copy = folder / "whole", folder / "copy"
    Checkpoints(full).save(1, state, {"x": 1})
    for path in sorted(path for path in full.rglob("*") if path.is_file()):
        for damage in ("cut", "changed", "gone"):
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(full, copy)
            damaged, content = copy / path.relative_to(full), bytearray(path.read_bytes())
            damaged.unlink()
            if damage == "cut":
                damaged.write_bytes(content[: len(content) // 2])
            if damage == "changed":
                content[len(content) // 2 : len(content) // 2 + 1] = b"?"
                damaged.write_bytes(content)
            print(f"{damage}: {path.relative_to(full)}")
            Checkpoints(copy).resume({"x": 1}, lambda: jax.eval_shape(lambda: state))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
