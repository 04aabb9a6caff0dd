"""requirements.lock: the versions of constraints.txt, each with hashes, and nothing missing."""

import importlib.metadata
import re
from pathlib import Path

from packaging.markers import default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
ENTRIES = re.split(r"\n(?=\w)", (ROOT / "requirements.lock").read_text(encoding="utf-8"))


def pins(lines):
    results = {}
    for line in lines:
        requirement = Requirement(line)
        results.setdefault(canonicalize_name(requirement.name), []).append(requirement)
    return results


LOCKED = pins(entry.partition(" \\")[0] for entry in ENTRIES)
CONSTRAINTS = pins((ROOT / "constraints.txt").read_text(encoding="utf-8").split())


def test_every_entry_has_the_tested_version_and_hashes():
    for entry in ENTRIES:
        assert re.findall(r"--hash=sha256:[0-9a-f]{64}\b", entry), entry
    for name, (locked,) in LOCKED.items():
        # Windows alone needs what the machine of the tests does not install.
        if name in CONSTRAINTS:
            assert locked.specifier == CONSTRAINTS[name][0].specifier, name
        else:
            assert locked.marker is not None, name


def test_the_lock_has_all_requirements_of_the_experiments():
    """These include requirements of requirements, as the installed packages state them."""
    requested, seen = ["everlight[experiments]"], set()
    while requested:
        requirement = Requirement(requested.pop())
        name = canonicalize_name(requirement.name)
        if (name, *sorted(requirement.extras)) in seen:
            continue
        seen.add((name, *sorted(requirement.extras)))
        assert name == "everlight" or name in LOCKED, name
        for line in importlib.metadata.requires(name) or ():
            needed = Requirement(line)
            extras = requirement.extras or {""}
            environments = [default_environment() | {"extra": extra} for extra in extras]
            if needed.marker is None or any(map(needed.marker.evaluate, environments)):
                requested.append(str(needed))
    assert len(seen) > 50
