"""`python -m benchmarks.gpu`: cases in processes of their own, within the time, and continued."""

import json
import os
import time

import pytest

from benchmarks.gpu import schedule, suite, table
from benchmarks.gpu.__main__ import main
from benchmarks.gpu.cases import CASES, Case, Unavailable
from docs.tools.measured import tables_in

MODULE = "tests.benchmarks.gpu_cases"
ALL_SMALL_S = 400
"""Bound on all cases at their least sizes, on a busy machine."""


@pytest.fixture
def setup(monkeypatch):
    """Replace device and versions, so that no process loads JAX; a test may change them."""
    known = {"device": "a device", "jax": "1"}
    monkeypatch.setattr(schedule, "_setup", lambda seconds, small: dict(known))
    return known


def case(name, *arguments, **fields):
    return Case(name, f"{MODULE}:{name}", arguments, **{"expected": 1, **fields})


def results(output):
    return {one["case"]: one for one in json.loads(output.read_text())["results"]}


def test_a_case_that_fails_or_lacks_something_costs_itself_alone(setup, tmp_path, capsys):
    output = tmp_path / "gpu.json"
    cases = case("broken"), case("lacking"), case("quick", 2.5)
    schedule.measure(cases, 60, output, small=True)
    result = results(output)
    assert result["quick"]["values"] == {"value": 2.5}
    assert (result["quick"]["state"], result["quick"]["setup"]) == ("complete", setup)
    assert (result["broken"]["state"], result["broken"]["values"]) == ("failed", {"first": 1})
    assert "MemoryError: too large" in result["broken"]["reason"]
    assert result["lacking"]["state"] == "skipped"
    printed = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in printed[1:] if ": " in line][-1] == "quick"
    assert any(line.startswith("lacking: skipped") and "no such thing" in line for line in printed)


def test_complete_cases_of_the_same_versions_are_not_run_again(setup, tmp_path, capsys):
    output = tmp_path / "gpu.json"
    schedule.measure([case("quick", 1.0)], 60, output, small=True)
    # The same name with another value tells whether it was run.
    schedule.measure([case("quick", 2.0)], 60, output, small=True)
    assert results(output)["quick"]["values"] == {"value": 1.0}
    assert f"quick: is in {output}" in capsys.readouterr().out
    setup["jax"] = "2"
    schedule.measure([case("quick", 3.0)], 60, output, small=True)
    values = [one["values"]["value"] for one in json.loads(output.read_text())["results"]]
    assert values == [1.0, 3.0]


def test_a_case_is_stopped_at_its_limit_with_all_its_processes(setup, tmp_path):
    output = tmp_path / "gpu.json"
    begin = time.monotonic()
    schedule.measure([case("slow", limit=3)], 60, output, small=True)
    assert time.monotonic() - begin < 15
    result = results(output)["slow"]
    assert (result["state"], result["values"]["first"]) == ("stopped", 1)
    for _ in range(50):
        if not _runs(result["values"]["process"]):
            break
        time.sleep(0.1)
    assert not _runs(result["values"]["process"])


def test_the_time_is_kept_and_what_does_not_fit_is_skipped_aloud(setup, tmp_path, capsys):
    output = tmp_path / "gpu.json"
    begin = time.monotonic()
    cases = case("slow"), case("quick", 1.0, expected=60)
    schedule.measure(cases, schedule.GRACE + 4, output, small=False)
    assert time.monotonic() - begin < schedule.GRACE + 5
    assert list(results(output)) == ["slow"]
    assert "quick: skipped, 60 s expected, 0 s left" in capsys.readouterr().out


def test_a_file_of_something_else_is_refused_and_kept(setup, tmp_path):
    output = tmp_path / "gpu.json"
    output.write_text('{"a": 1}')
    with pytest.raises(SystemExit, match=r"gpu\.json is not a file of this command"):
        main(["--seconds", "60", "--output", str(output)])
    assert output.read_text() == '{"a": 1}'


def test_options_and_cases_that_do_not_exist_are_named(capsys):
    for words, message in ((["devise"], "no case 'devise'; there are device"), ([], "--table")):
        with pytest.raises(SystemExit):
            main(words)
        assert message in capsys.readouterr().err


def test_the_selection_of_tests_is_the_makefiles(monkeypatch, tmp_path):
    (tmp_path / "Makefile").write_text(
        'test-gpu: other\n\t$(BIN)python -m pytest -m "not slow and not cpu" tests/color\n'
        "other:\n\tpython -m pytest tests\n"
    )
    monkeypatch.setattr(suite, "ROOT", tmp_path)
    assert suite.selected_tests() == ["-m", "not slow and not cpu", "tests/color"]
    (tmp_path / "Makefile").write_text("test:\n\tpython -m pytest tests\n")
    with pytest.raises(Unavailable, match="no target test-gpu"):
        suite.selected_tests()


def one(name, jax, values, state="complete", ended="2026-11-27T10:00:00+00:00", small=False):
    setup = {"device": "NVIDIA H200", "jax": jax, "small": small}
    return {"case": name, "setup": setup, "state": state, "values": values, "ended": ended}


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("tests", {"failed tests": [], "exit status": 2}, "0 passed and 0 failed, and the others"),
        ("tests", {"passed": 3, "failed": 1, "exit status": 1}, "3 passed and 1 failed.\n"),
        (
            "paper",
            {"command": "everlight run", "continued": True, "run s": 3.2, "scores": {"ER": [0.5]}},
            "took 3 s in its last part, which continued earlier ones. Score",
        ),
    ],
)
def test_what_is_not_whole_is_stated(name, values, words):
    assert words in table.render([one(name, "1", values)])


def test_results_of_least_sizes_are_refused(tmp_path):
    (tmp_path / "gpu.json").write_text(json.dumps({"results": [one("a", "1", {}, small=True)]}))
    with pytest.raises(ValueError, match="has results of --small, which are no measurements"):
        table.write_table(tmp_path / "gpu.json", tmp_path / "page.md")


def test_the_table_has_the_newest_results_between_its_marks(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(f"# Page\nbefore\n{table.BEGIN}old\n{table.END}after\n")
    step = {"ms per step": 2.744, "images/s, all seeds": 46_500.2, "peak GB": None}
    (tmp_path / "gpu.json").write_text(
        json.dumps(
            {
                "results": [
                    one("a", "1", step, ended="2026-11-26T10:00:00+00:00"),
                    one("device", "2", {"TFLOP/s, bfloat16": 787.4}),
                    one("b", "2", step),
                    one("c", "2", step, state="stopped"),
                    one("tests", "2", {"passed": 9, "failed": 1, "error": 1}),
                ]
            }
        )
    )
    table.write_table(tmp_path / "gpu.json", page)
    text = page.read_text()
    (created,) = tables_in("page.md", text)
    assert created.rows == ("| b | 2.74 | 46,500 | – | – | – |",)
    assert "one NVIDIA H200 (jax 2), 2026-11-27" in text
    assert "787 TFLOP/s, bfloat16" in text
    assert "9 passed and 2 failed" in text
    assert text.startswith("# Page\nbefore\n")
    assert text.endswith("after\n")
    assert "old" not in text


def test_the_page_has_the_marks():
    text = table.PAGE.read_text(encoding="utf-8")
    assert text.count(table.BEGIN) == text.count(table.END) == 1


@pytest.mark.slow
def test_every_case_runs_at_its_least_size_and_is_not_run_twice(tmp_path, capsys):
    output = tmp_path / "gpu.json"
    begin = time.monotonic()
    main(["--small", "--seconds", str(ALL_SMALL_S), "--output", str(output)])
    assert time.monotonic() - begin < ALL_SMALL_S
    result = results(output)
    assert list(result) == [one.name for one in CASES]
    bad = {name: one for name, one in result.items() if one["state"] not in ("complete", "skipped")}
    assert bad == {}
    for name, one in result.items():
        if one["state"] == "skipped":
            assert "PyTorch" in name
    assert result["ResNet-32, bfloat16, seeds: 8"]["values"]["steps"] == 2 * 2 * 2
    assert result["tests"]["values"]["passed"] > 3
    assert result["paper"]["values"]["scores"]
    main(["--small", "--seconds", "60", "--output", str(output)])
    assert capsys.readouterr().out.count(f"is in {output}") == len(CASES) - sum(
        one["state"] == "skipped" for one in result.values()
    )


def _runs(number):
    try:
        os.kill(number, 0)
    except ProcessLookupError:
        return False
    # One that ended and that nothing waited for is there as a zombie.
    with open(f"/proc/{number}/stat") as stream:  # noqa: PTH123
        return stream.read().rpartition(")")[2].split()[0] != "Z"
