"""Write `docs/pages/licences.md`: the licences that the packages of `constraints.txt` state.

python -m docs.tools.make_licences
"""

import re
import textwrap
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = Path(__file__).parents[1] / "pages" / "licences.md"
HEAD = """# Licences of the packages

Written by `python -m docs.tools.make_licences` from the metadata of the installed packages that
`constraints.txt` pins: the field `License-Expression`, else the classifiers of licences, else the
first line of `License`. It is what their makers state, and no legal advice. everlight's own licence
is MIT.

| package | version | licence |
|---|---|---|
"""
LONGEST = 80


def pinned() -> list[str]:
    """Return the names of the packages of `constraints.txt`, in its order."""
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return [line.partition("==")[0] for line in lines if "==" in line]


def licence(package: Distribution) -> str:
    """Return what a package's metadata state; a dash where they state nothing."""
    metadata = package.metadata
    classified = [
        value.rpartition(" :: ")[2]
        for value in metadata.get_all("Classifier", [])
        if value.startswith("License ::") and value != "License :: OSI Approved"
    ]
    first = (metadata.get("License") or "").strip().splitlines()[:1]
    stated = metadata.get("License-Expression") or "; ".join(classified) or "".join(first)
    return re.sub(r"\s+", " ", stated).replace("|", "/")[:LONGEST] or "–"


def render() -> str:
    """Return the text of the page."""
    rows, missing = [], []
    for name in pinned():
        try:
            package = distribution(name)
        except PackageNotFoundError:
            missing.append(name)
            continue
        rows.append(f"| {name} | {package.version} | {licence(package)} |")
    sentence = f"Not installed where this was written: {', '.join(missing)}."
    left = f"\n{textwrap.fill(sentence, 100)}\n" if missing else ""
    return HEAD + "\n".join(rows) + "\n" + left


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
