"""The wheel and the sdist: built, and imported with what the wheel says it needs and no more."""

import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
ROOMS = ("color", "continual", "metrics", "models", "scenarios")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The sdist, and the wheel that is made of it."""
    source, folder = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    shutil.copytree(ROOT / "lib", source / "lib", ignore=shutil.ignore_patterns("*.egg-info"))
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), source]
    answer = subprocess.run(command, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stdout[-2000:] + answer.stderr[-2000:]
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist, wheel


@pytest.mark.slow
def test_the_wheel_has_every_file_of_the_library_and_nothing_else(built):
    sources = {
        str(path.relative_to(ROOT / "lib"))
        for path in (ROOT / "lib/everlight").rglob("*")
        if path.suffix == ".py" or path.name == "py.typed"
    }
    with zipfile.ZipFile(built[1]) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert names == sources
    with tarfile.open(built[0]) as sdist:
        packed = {name.partition("/")[2] for name in sdist.getnames()}
    assert {f"lib/{name}" for name in sources} | {"LICENSE", "README.md"} <= packed


@pytest.mark.slow
def test_the_wheel_works_with_its_own_requirements_alone(built, tmp_path):
    """In a new environment, into which the required packages are linked from this one."""
    venv.create(tmp_path / "clean", with_pip=True)
    python = tmp_path / "clean/bin/python"
    install = [python, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", built[1]]
    clean = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    subprocess.run(install, check=True, env=clean)
    (packages,) = (tmp_path / "clean/lib").glob("python*/site-packages")
    needed = required_by(requirements_in(built[1]))
    assert {"jax", "flax", "optax", "scipy"} <= needed
    for name in needed:
        link_package(name, packages)
    assert not (packages / "matplotlib").exists()

    imports = "; ".join(f"import everlight.{room}" for room in ROOMS)
    report = "import everlight; print(everlight.__version__, everlight.__file__)"
    run = subprocess.run(
        [python, "-c", f"{imports}; {report}"], capture_output=True, text=True, env=clean
    )
    assert run.returncode == 0, run.stderr[-2000:]
    version, file = run.stdout.split()
    declared = re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version == declared[1]
    assert Path(file).is_relative_to(packages)

    plots = subprocess.run(
        [python, "-c", "import everlight.plots"], capture_output=True, text=True, env=clean
    )
    assert "No module named 'matplotlib'" in plots.stderr


def requirements_in(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [each for each in archive.namelist() if each.endswith(".dist-info/METADATA")]
        lines = archive.read(name).decode().splitlines()
    return [line.partition(": ")[2] for line in lines if line.startswith("Requires-Dist: ")]


def required_by(requirements: list[str], extras: frozenset[str] = frozenset()) -> set[str]:
    """Names of all packages that are needed, by way of others too."""
    needed: set[str] = set()
    waiting = [(Requirement(each), extras) for each in requirements]
    while waiting:
        requirement, asked = waiting.pop()
        if requirement.marker and not any(
            requirement.marker.evaluate({"extra": extra}) for extra in ("", *asked)
        ):
            continue
        name = requirement.name.lower()
        if name in needed and not requirement.extras:
            continue
        needed.add(name)
        others = importlib.metadata.requires(name) or []
        waiting += [(Requirement(each), frozenset(requirement.extras)) for each in others]
    return needed


def link_package(name: str, target: Path) -> None:
    """Links what a package installed, folder by folder."""
    package = importlib.metadata.distribution(name)
    tops = {file.parts[0] for file in package.files if file.parts[0] not in ("..", "__pycache__")}
    for top in tops:
        link = target / top
        if not link.exists():
            link.symlink_to(package.locate_file(top))
