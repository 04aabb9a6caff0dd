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
PACKAGES = {
    "lib": "everlight",
    "data_pipelines": "everlight_data",
    "experiments": "everlight_experiments",
}
"""Folder of the sources of each installed package."""
SUBPACKAGES = ("color", "continual", "metrics", "models", "scenarios")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """Build the sdist, and the wheel from it."""
    source, folder = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    left_out = shutil.ignore_patterns("*.egg-info", "__pycache__")
    for root in PACKAGES:
        shutil.copytree(ROOT / root, source / root, ignore=left_out)
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), source]
    answer = subprocess.run(command, capture_output=True, text=True)
    assert answer.returncode == 0, answer.stdout[-2000:] + answer.stderr[-2000:]
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist, wheel


@pytest.mark.slow
def test_the_wheel_has_every_file_of_the_three_packages_and_nothing_else(built):
    sources = {
        (folder, str(path.relative_to(ROOT / folder)))
        for folder, package in PACKAGES.items()
        for path in (ROOT / folder / package).rglob("*")
        if path.suffix in (".py", ".html", ".js") or path.name == "py.typed"
    }
    with zipfile.ZipFile(built[1]) as wheel:
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert names == {name for _, name in sources}
    with tarfile.open(built[0]) as sdist:
        packed = {name.partition("/")[2] for name in sdist.getnames()}
    assert {"/".join(item) for item in sources} | {"LICENSE", "README.md"} <= packed


@pytest.fixture(scope="module")
def install(built, tmp_path_factory):
    """Return a function that makes an environment of the wheel and its extras' requirements.

    Required packages are linked from this environment.
    """

    def installed(*extras):
        folder = tmp_path_factory.mktemp("clean")
        venv.create(folder, with_pip=True)
        command = ("-m", "pip", "install", "--quiet", "--no-index", "--no-deps", built[1])
        subprocess.run([folder / "bin/python", *command], check=True, env=CLEAN)
        (packages,) = (folder / "lib").glob("python*/site-packages")
        for name in required_by(requirements_in(built[1]), frozenset(extras)):
            link_package(name, packages)
        return folder, packages

    return installed


CLEAN = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}


@pytest.mark.slow
def test_the_library_works_with_its_own_requirements_alone(install):
    folder, packages = install()
    assert {"jax", "flax", "optax", "scipy"} <= {path.name for path in packages.iterdir()}
    assert not (packages / "matplotlib").exists()

    imports = "; ".join(f"import everlight.{room}" for room in SUBPACKAGES)
    report = "import everlight; print(everlight.__version__, everlight.__file__)"
    run = execute(folder / "bin/python", "-c", f"{imports}; {report}")
    assert run.returncode == 0, run.stderr[-2000:]
    version, file = run.stdout.split()
    declared = re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version == declared[1]
    assert Path(file).is_relative_to(packages)

    plots = execute(folder / "bin/python", "-c", "import everlight.plots")
    assert "No module named 'matplotlib'" in plots.stderr


@pytest.mark.slow
def test_the_command_works_in_an_empty_folder_without_the_checkout(install, tmp_path):
    folder, _ = install("experiments")
    command = folder / "bin/everlight"
    run = execute(
        command, "run", "digits", "--methods", "naive", "ER", "--seeds", "2", cwd=tmp_path
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert (tmp_path / "runs/run-digits-demo/report.html").is_file()
    assert str(ROOT) not in (tmp_path / "runs/run-digits-demo/report.html").read_text()

    shown = execute(command, "illuminant", "estimate", "--help", cwd=tmp_path)
    assert shown.returncode == 0, shown.stderr[-2000:]
    assert "usage: everlight illuminant estimate" in shown.stdout


def execute(*command, cwd=None):
    return subprocess.run(command, capture_output=True, text=True, env=CLEAN, cwd=cwd)


def requirements_in(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [item for item in archive.namelist() if item.endswith(".dist-info/METADATA")]
        lines = archive.read(name).decode().splitlines()
    return [line.partition(": ")[2] for line in lines if line.startswith("Requires-Dist: ")]


def required_by(requirements: list[str], extras: frozenset[str] = frozenset()) -> set[str]:
    """Return names of all packages that are needed, indirectly too."""
    needed: set[str] = set()
    waiting = [(Requirement(item), extras) for item in requirements]
    while waiting:
        requirement, requested = waiting.pop()
        if requirement.marker and not any(
            requirement.marker.evaluate({"extra": extra}) for extra in ("", *requested)
        ):
            continue
        name = requirement.name.lower()
        if name in needed and not requirement.extras:
            continue
        needed.add(name)
        others = importlib.metadata.requires(name) or []
        waiting += [(Requirement(item), frozenset(requirement.extras)) for item in others]
    return needed


def link_package(name: str, target: Path) -> None:
    """Link a package's installed files, folder by folder."""
    package = importlib.metadata.distribution(name)
    tops = {file.parts[0] for file in package.files if file.parts[0] not in ("..", "__pycache__")}
    for top in tops:
        link = target / top
        if not link.exists():
            link.symlink_to(package.locate_file(top))
