"""Compare the arrays of all commands before and after a change of structure, by name.

    python -m tests.golden record build/golden/new              # every command, demo size, one seed
    python -m tests.golden compare build/golden/old build/golden/new [--map renamed.json]
    python -m tests.golden check [--commit HEAD~1] [--map renamed.json]   # both, from a clean tree

`check` records a commit's arrays with that commit's own code and list of commands, then those of
the working tree, and compares them. A map is a JSON list of pairs, regular expression and
replacement, which lead from an old name (`command/array`) to the new one. The exit status is 1
where an array is missing, new or different; each is printed with how many values differ and by how
much. Times are left out.
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np

SEEDS = ("--seeds", "1")
COMMANDS: dict[str, tuple[str, ...]] = {
    "digits": ("run", "digits", *SEEDS, "--methods", "EWC", "ER", "LUCIR", "iCaRL"),
    "tasks": ("run", "digits", *SEEDS, "--setting", "task-incremental", "--methods", "HAT", "SI"),
    "procedural": ("run", "procedural", *SEEDS, "--methods", "EWC", "ER", "DER++"),
    "grid": ("grid", "--benchmarks", "digits", *SEEDS, "--methods", "EWC", "ER"),
    "tune": ("tune", "digits", "--vary", "learning-rate=0.01,0.1"),
    "icifar": ("paper", "cl-metrics", *SEEDS),
    "iirc": ("paper", "iirc", "--configurations", "1"),
    "core50": ("paper", "core50", "--orders", "1"),
    "static": ("paper", "core50-static"),
    "facts": ("paper", "facts", *SEEDS),
    "radiometric": ("paper", "two-camera"),
    "nus": ("paper", "two-camera", "--preset", "nus-demo", *SEEDS),
    "s20": ("paper", "two-camera", "--preset", "s20-demo", *SEEDS),
}
"""Recorded commands by a name that stays when a command's words change."""
TIMES = re.compile(r"(^|/)seconds$")


def record(folder: Path, tree: Path, commands: dict[str, Sequence[str]]) -> None:
    """Run commands with a tree's code, each into its own folder; finished ones are kept."""
    roots = ("lib", "data_pipelines", "experiments", ".")
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(str(tree / root) for root in roots)}
    for name, words in commands.items():
        if list((folder / name).glob("*/results.npz")):
            continue
        print(f"{name}: {' '.join(words)}", flush=True)
        runs = ("--runs", str(folder.resolve() / name))
        program = (sys.executable, "-m", "everlight_experiments", *words, *runs)
        with (folder / f"{name}.log").open("w") as log:
            subprocess.run(program, cwd=tree, env=environment, stdout=log, stderr=log, check=True)


def arrays_of(folder: Path) -> dict[str, np.ndarray]:
    """Return all recorded arrays by `command/array`, without times."""
    results = {}
    for path in sorted(folder.glob("*/*/results.npz")):
        name = path.relative_to(folder).parts[0]
        with np.load(path) as arrays:
            results |= {f"{name}/{key}": arrays[key] for key in arrays.files}
    return {name: array for name, array in results.items() if not TIMES.search(name)}


def compare(
    old: dict[str, np.ndarray], new: dict[str, np.ndarray], renamed: Sequence[Sequence[str]] = ()
) -> list[str]:
    """Return a line for every array that is missing, new or different.

    Args:
      old, new: arrays by name.
      renamed: pairs of a regular expression and its replacement, applied to old names in order.
    """
    mapped = {}
    for name, array in old.items():
        for pattern, replacement in renamed:
            name = re.sub(pattern, replacement, name)
        mapped[name] = array
    lines = [f"{name}: missing" for name in sorted(mapped.keys() - new.keys())]
    lines += [f"{name}: new" for name in sorted(new.keys() - mapped.keys())]
    for name in sorted(mapped.keys() & new.keys()):
        difference = _difference(mapped[name], new[name])
        if difference:
            lines.append(f"{name}: {difference}")
    return lines


def _difference(old: np.ndarray, new: np.ndarray) -> str:
    if (old.shape, old.dtype) != (new.shape, new.dtype):
        return f"{old.dtype}{list(old.shape)} became {new.dtype}{list(new.shape)}"
    numbers = old.dtype.kind in "fiub"
    same = (old == new) | ((old != old) & (new != new)) if numbers else old == new
    if np.all(same):
        return ""
    message = f"{np.sum(~same)} of {old.size} values differ"
    if not numbers:
        return message
    away = np.abs(old.astype(float) - new.astype(float))[~same]
    return f"{message}, by at most {np.nanmax(away):.3g}" if np.isfinite(away).any() else message


def check(commit: str, renamed: Sequence[Sequence[str]]) -> list[str]:
    """Record a commit and the working tree, and compare them."""
    local = Path(__file__).resolve().parent.parent
    number = subprocess.check_output(("git", "rev-parse", commit), cwd=local, text=True).strip()
    stored, now = local / "build" / "golden" / number, local / "build" / "golden" / "now"
    shutil.rmtree(now, ignore_errors=True)
    for folder in (stored, now):
        folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        tree = Path(name) / "tree"
        subprocess.run(
            ("git", "worktree", "add", "--detach", str(tree), number), cwd=local, check=True
        )
        try:
            program = (sys.executable, "-m", "tests.golden", "record", str(stored))
            subprocess.run(program, cwd=tree, check=True)
        finally:
            subprocess.run(("git", "worktree", "remove", "--force", str(tree)), cwd=local)
    record(now, local, COMMANDS)
    return compare(arrays_of(stored), arrays_of(now), renamed)


def main() -> None:
    """Parse the command line; see the module's docstring."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("action", choices=("record", "compare", "check"))
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--commit", default="HEAD~1", help="that the working tree is compared with")
    parser.add_argument("--map", type=Path, help="JSON list of [regular expression, replacement]")
    inputs = parser.parse_args()
    renamed = json.loads(inputs.map.read_text()) if inputs.map else []
    if inputs.action == "record":
        (folder,) = inputs.folders
        folder.mkdir(parents=True, exist_ok=True)
        record(folder, Path.cwd(), COMMANDS)
        return
    if inputs.action == "compare":
        lines = compare(*map(arrays_of, inputs.folders), renamed)
    else:
        lines = check(inputs.commit, renamed)
    print("\n".join(lines) or "all arrays are equal")
    sys.exit(bool(lines))


if __name__ == "__main__":
    main()
