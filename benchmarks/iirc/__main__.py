"""`python -m benchmarks.iirc --authors FOLDER [METHOD ...]`: IIRC compared with its authors' code.

FOLDER is a checkout of chandar-lab/IIRC. Both sides read one archive in CIFAR-100's format, made of
Tiny-ImageNet's first 100 classes below EVERLIGHT_DATA, or with --cifar100 of CIFAR-100. The
authors' code needs torch and Pillow; EVERLIGHT_IIRC may name the Python of an environment that has
them. The table has pw-JS after every
task in the mean over seeds. With --steps it has the greatest differences of weights after every
task, where both sides have the same initial weights, batches and exemplars.
"""

import argparse
import json
import shutil
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

from benchmarks.iirc.cases import CASES
from benchmarks.iirc.comparison import rows_of, table
from benchmarks.iirc.equations import EQUATIONS
from benchmarks.iirc.inputs import CIFAR, DESCRIPTION, Workload
from benchmarks.iirc.runs import (
    AUTHORS_SCORES,
    EVERLIGHT_SCORES,
    VARIABLE,
    Authors,
    authors_python,
    compare_steps,
    same_material,
    scores_in,
    train_both,
)
from everlight_data.errors import DataError


def main(arguments: list[str] | None = None) -> None:
    """Print whether both sides have the same inputs, and a table."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.iirc",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("method", nargs="*", help="names of methods; none is all")
    parser.add_argument("--authors", type=Path, required=True, help="checkout of the authors' code")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", action="store_true", help="compare weights step by step")
    parser.add_argument(
        "--cifar100", action="store_true", help="CIFAR-100 in place of Tiny-ImageNet"
    )
    parser.add_argument(
        "--authors-equations",
        action="store_true",
        help=f"train everlight's {' and '.join(EQUATIONS)} with the authors' equations",
    )
    parser.add_argument("--keep", type=Path, help="folder of finished runs, which are read back")
    options = parser.parse_args(arguments)
    names = [case.name for case in CASES]
    unknown = [name for name in options.method if name not in names]
    if unknown:
        parser.error(f"no method {unknown[0]!r}; there are {', '.join(names)}")
    if options.steps and options.cifar100:
        parser.error("--steps compares on images of its own; leave --cifar100 out")
    if options.steps and options.authors_equations:
        parser.error("--steps has a row with the authors' equation; leave --authors-equations out")
    if options.seeds < 2 and not options.steps:
        parser.error(f"--seeds {options.seeds} has no spread; give 2 or more")
    python = authors_python()
    if python is not None and shutil.which(python) is None:
        parser.error(f"{VARIABLE} names {python}, which does not exist")
    if python is None:
        parser.error(f"torch or Pillow is missing: name a Python that has them in {VARIABLE}")
    authors = Authors(python, options.authors)
    cases = [case for case in CASES if case.name in (options.method or names)]
    with tempfile.TemporaryDirectory() as temporary:
        folder = options.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if options.steps:
            print("| method | task | weights | change | batch statistics | same exemplars |")
            print("| --- | --- | --- | --- | --- | --- |")
            for case in cases:
                for equation in (False, True) if case.name in EQUATIONS else (False,):
                    rows = compare_steps(authors, folder, case, equation)
                    name = f"{case.name}, the authors' equation" if equation else case.name
                    for task, row in enumerate(rows, 1):
                        values = f"{row.weights:.1e} | {row.moved:.1e} | {row.statistics:.1e}"
                        same, count = row.exemplars
                        print(f"| {name} | {task} | {values} | {same} of {count} |", flush=True)
            return
        workload = CIFAR if options.cifar100 else Workload()
        described = folder / DESCRIPTION
        if described.exists() and json.loads(described.read_text("utf-8")) != asdict(workload):
            parser.error(f"--keep {folder} has runs of other data or settings; give another folder")
        same, count = same_material(authors, workload, folder)
        equal = "the same" if same else "DIFFERENT"
        print(f"{equal} samples, labels and layers; {count:,} parameters\n", flush=True)
        equations = options.authors_equations
        train_both(authors, workload, folder, cases, options.seeds, equations)
        files = AUTHORS_SCORES, EVERLIGHT_SCORES[equations]
        sides = (scores_in(folder / name) for name in files)
        print(table(rows_of(*sides, [case.name for case in cases])))


if __name__ == "__main__":
    try:
        main()
    except DataError as error:
        sys.exit(str(error))
