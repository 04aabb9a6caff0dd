"""The tests of `make test-gpu` run on one accelerator, and the guide has the same selection."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = re.search(r"^GPU_TESTS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)[
    1
].split()
NEEDS_A_CPU = re.compile(
    r"subprocess|\.compile\(\)\.as_text|num_cpu_devices|JAX_PLATFORMS|imagecodecs|jpeg_tree|"
    r"everlight_experiments\.cli"
)


@pytest.mark.parametrize("page", ["docs/pages/guide/devices.md"])
def test_the_guide_has_the_same_folders_and_marks(page):
    text = (ROOT / page).read_text()
    assert f"{' '.join(FOLDERS)}\n" in text
    recipe = (ROOT / "Makefile").read_text().split("\ntest-gpu:")[1]
    assert '-m "not slow and not cpu"' in recipe
    assert 'python -m pytest -m "not slow and not cpu"' in text


@pytest.mark.parametrize("folder", FOLDERS)
def test_files_that_need_a_cpu_have_the_mark(folder):
    for path in (ROOT / folder).rglob("test_*.py"):
        text = path.read_text()
        if NEEDS_A_CPU.search(text):
            assert "@pytest.mark.cpu" in text, path
