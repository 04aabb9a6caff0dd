"""The tool that compares all arrays of two commits."""

import numpy as np
import pytest

from tests.golden import COMMANDS, arrays_of, check, compare, record

OLD = {
    "digits/told/EWC/matrices": np.array([[0.5, np.nan]]),
    "digits/told/EWC/names": np.array(["a", "b"]),
    "digits/told/EWC/steps": np.array([3, 4]),
}


def test_equal_arrays_have_no_line():
    assert compare(OLD, {name: array.copy() for name, array in OLD.items()}) == []


def test_what_is_missing_new_or_different_has_a_line():
    new = {
        "digits/told/EWC/matrices": np.array([[0.75, np.nan]]),
        "digits/told/EWC/names": np.array(["a", "c"]),
        "digits/told/SI/steps": np.array([3, 4]),
    }
    assert compare(OLD, new) == [
        "digits/told/EWC/steps: missing",
        "digits/told/SI/steps: new",
        "digits/told/EWC/matrices: 1 of 2 values differ, by at most 0.25",
        "digits/told/EWC/names: 1 of 2 values differ",
    ]


def test_another_kind_of_array_is_told():
    new = OLD | {"digits/told/EWC/steps": np.array([3.0, 4.0, 5.0])}
    assert compare(OLD, new) == ["digits/told/EWC/steps: int64[2] became float64[3]"]


def test_renamed_arrays_are_compared_under_their_new_names():
    new = {name.replace("told", "task-incremental"): array for name, array in OLD.items()}
    assert len(compare(OLD, new)) == 6
    assert compare(OLD, new, [("/told/", "/task-incremental/")]) == []


def test_arrays_are_named_by_command_and_times_left_out(tmp_path):
    folder = tmp_path / "digits" / "continual-digits-demo"
    folder.mkdir(parents=True)
    arrays = {"told/EWC/seconds": np.ones(1), "told/EWC/steps": np.ones(1), "draws": np.ones(1)}
    np.savez(folder / "results.npz", **arrays)
    assert set(arrays_of(tmp_path)) == {"digits/told/EWC/steps", "digits/draws"}


def test_a_command_is_recorded_once(tmp_path, request):
    """A small command, whose second recording runs nothing."""
    words = ("run", "digits", "--seeds", "1", "--methods", "naive", "--epochs", "1")
    record(tmp_path, request.config.rootpath, {"small": words})
    first = arrays_of(tmp_path)
    record(tmp_path, request.config.rootpath, {"small": ("no", "command")})
    assert first
    assert compare(first, arrays_of(tmp_path)) == []


@pytest.mark.slow
def test_nothing_changed_since_this_commit():
    """Also what is to be run by hand at every step of a restructuring."""
    assert set(COMMANDS) >= {"digits", "icifar", "iirc", "core50", "facts", "radiometric", "nus"}
    assert check("HEAD", []) == []
