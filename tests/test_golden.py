"""The comparison of two commits' arrays, on which restructurings rely."""

import numpy as np

from tests.golden import arrays_of, compare, record

OLD = {
    "digits/EWC/matrices": np.array([[0.5, np.nan]]),
    "digits/EWC/names": np.array(["a", "b"]),
    "digits/EWC/steps": np.array([3, 4]),
    "digits/SI/steps": np.array([3, 4]),
}


def test_every_difference_between_arrays_has_a_line():
    new = {
        "digits/EWC/matrices": np.array([[0.75, np.nan]]),
        "digits/EWC/names": np.array(["a", "c"]),
        "digits/ER/steps": np.array([3, 4]),
        "digits/SI/steps": np.array([3.0, 4.0, 5.0]),
    }
    assert compare(OLD, new) == [
        "digits/EWC/steps: missing",
        "digits/ER/steps: new",
        "digits/EWC/matrices: 1 of 2 values differ, by at most 0.25",
        "digits/EWC/names: 1 of 2 values differ",
        "digits/SI/steps: int64[2] became float64[3]",
    ]
    renamed = {name.replace("EWC", "ewc"): array.copy() for name, array in OLD.items()}
    assert compare(OLD, renamed, [("/EWC/", "/ewc/")]) == []


def test_a_recorded_command_is_not_run_again_and_times_are_left_out(tmp_path):
    (tmp_path / "done" / "run").mkdir(parents=True)
    np.savez(tmp_path / "done" / "run" / "results.npz", seconds=1.0, steps=2.0)
    record(tmp_path, tmp_path, {"done": ("no", "command")})
    assert set(arrays_of(tmp_path)) == {"done/steps"}
