"""Lines on progress of a real run, what a terminal shows of it, and its curves in TensorBoard."""

import fcntl
import json
import os

import numpy as np
import pytest

from everlight_data.errors import DataError
from everlight_data.runs.configs import write_config
from everlight_experiments.cli import options_of
from everlight_experiments.commands.kept_runs import read_kept_run
from everlight_experiments.commands.run import run_benchmark
from everlight_experiments.commands.watch import WatchOptions, watch
from everlight_experiments.commands.watched_run import WatchedRun
from everlight_experiments.continual.training.estimate import REPORT
from tests.experiments.report.event_files import read_events

TASKS, EPOCHS, SEEDS = 2, 3, 2


def train(runs):
    words = f"digits --methods ER joint --seeds {SEEDS} --tasks {TASKS} --epochs {EPOCHS}"
    return run_benchmark(options_of("run", [*words.split(), "--runs", str(runs)])).parent


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return train(tmp_path_factory.mktemp("runs"))


def lines_of(run, **values):
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if values.items() <= line.items()]


def test_every_task_has_a_line_with_the_numbers_of_the_results(run):
    lines = lines_of(run, event="progress")
    assert len(lines) == 3 * SEEDS * TASKS
    with np.load(run / "results.npz") as results:
        for method in ("naive", "ER"):
            curves = results[f"class-incremental/{method}/accuracy"]
            steps = results[f"class-incremental/{method}/steps"]
            for seed in range(SEEDS):
                unit = f"class-incremental-{method}-{seed}"
                with np.load(run / "units" / f"{unit}.npz") as stored:
                    losses = stored["losses"][:, -1]
                mine = lines_of(run, event="progress", unit=unit)
                assert [line["accuracy"] for line in mine] == curves[seed].tolist()
                assert [line["loss"] for line in mine] == losses.tolist()
                assert [line["step"] for line in mine] == steps[seed].tolist()
                assert [line["epoch"] for line in mine] == [EPOCHS, 2 * EPOCHS]
                assert not any(line["diverged"] for line in mine)
                assert all(line["steps_per_second"] > 0 for line in mine)


def test_joint_training_has_no_loss_and_no_score_before_its_only_task(run):
    before, last = lines_of(run, event="progress", unit="class-incremental-joint-0")
    assert before["step"] == 0
    assert before["loss"] is None
    assert "accuracy" not in before
    with np.load(run / "results.npz") as results:
        assert last["accuracy"] == results["class-incremental/joint/accuracy"][0, -1]
    assert last["loss"] > 0


def test_the_estimate_comes_before_the_first_method_and_counts_its_runs(run):
    lines = lines_of(run)
    (estimate,) = lines_of(run, event="estimate")
    assert [row["runs"] for row in estimate["methods"]] == [SEEDS] * 3
    total = sum(row["seconds"] for row in estimate["methods"])
    assert estimate["seconds"] == pytest.approx(estimate["passed"] + total + REPORT)
    events = [line.get("event") for line in lines]
    assert events.index("estimate") < events.index("progress")
    assert events.count("compiling") == events.count("compiled") == 3


def test_a_finished_run_is_shown_and_its_curves_are_written(run, capsys):
    watch(WatchOptions(run, tensorboard=True))
    out = capsys.readouterr().out
    last = lines_of(run, unit="class-incremental-ER-1", event="progress")[-1]
    row = next(line for line in out.splitlines() if line.startswith("class-incremental, ER"))
    assert f"{SEEDS}/{SEEDS}" in row
    assert f"{TASKS}/{TASKS}" in row
    assert f"{last['step']}/{last['step']}" in row
    assert f"{last['loss']:.4f}" in row
    assert f"accuracy {last['accuracy']:.3f}" in row
    assert "finished: " in out
    curve = [
        (step, value)
        for tag, step, value in read_events(run / "tensorboard")
        if tag == "class-incremental-ER-1/loss"
    ]
    lines = lines_of(run, unit="class-incremental-ER-1", event="progress")
    assert curve == [(line["step"], np.float32(line["loss"])) for line in lines]


def test_another_start_of_a_finished_run_writes_no_line_again(run):
    before = (run / "metrics.jsonl").read_text()
    train(run.parent)
    assert (run / "metrics.jsonl").read_text() == before


def test_a_run_stays_finished_when_its_networks_are_read(run):
    """Reading opens the folder of a benchmark that prepares something there."""
    before = (run / "config.json").stat().st_mtime_ns
    folder = read_kept_run(run).open_folder()
    assert (run / "config.json").stat().st_mtime_ns == before
    assert WatchedRun(folder.path).state(silent=3600) == "finished"


def unfinished(tmp_path, lines):
    (tmp_path / "units").mkdir()
    write_config(tmp_path / "config.json", {"seed": 0}, {})
    path = tmp_path / "metrics.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    os.utime(path, (0, 0))
    return tmp_path


LINE = {"event": "progress", "unit": "a", "method": "x, ER", "task": 0, "tasks": 2, "epoch": 3}
LINE |= {"epochs": 6, "step": 40, "loss": 0.25, "validation": None, "accuracy": 0.5}
LINE |= {"diverged": False, "seconds": 2.0, "steps_per_second": 20.0}


def test_a_run_whose_process_is_gone_is_reported(tmp_path, capsys):
    run = unfinished(tmp_path, [LINE | {"steps_per_second": 0.3815}])
    lock = run / "units" / "a.npz.lock"
    lock.touch()
    with lock.open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        watched = WatchedRun(run)
        watched.read()
        assert watched.state(silent=1e6) == "training"
    with pytest.raises(SystemExit, match=r"no process trains .* any more"):
        watch(WatchOptions(run))
    printed = capsys.readouterr().out
    assert "40/~80" in printed
    assert " 0.38 " in printed


def test_a_run_that_loads_data_without_a_part_is_not_reported_as_stopped(tmp_path):
    """The claim of its process counts for as long as it takes."""
    run = unfinished(tmp_path, [LINE])
    watched = WatchedRun(run)
    watched.read()
    lock = run / "process-12-34.lock"
    lock.touch()
    with lock.open("r+") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        assert watched.state(silent=1e6) == "training"
    assert watched.state(silent=1e6) == "stopped"


def test_a_file_that_became_shorter_is_read_again(tmp_path):
    run = unfinished(tmp_path, [LINE, LINE | {"method": "y"}])
    watched = WatchedRun(run)
    assert len(watched.read()) == 2
    (run / "metrics.jsonl").write_text(json.dumps(LINE | {"method": "z"}) + "\n")
    assert len(watched.read()) == 1
    assert list(watched.methods) == ["z"]


def test_time_left_follows_the_estimate_and_a_line_cut_short_waits(tmp_path):
    estimate = {"event": "estimate", "methods": [{"method": "x, ER", "runs": 2, "seconds": 8.0}]}
    watched = WatchedRun(unfinished(tmp_path, [estimate, LINE]))
    path = tmp_path / "metrics.jsonl"
    with path.open("a") as stream:
        stream.write('{"event": "progr')
    assert len(watched.read()) == 2
    assert watched.methods["x, ER"].seconds_left == pytest.approx(8 * 0.75)
    path.write_text(json.dumps(LINE) + "\n")
    assert watched.read() == [LINE]
    assert watched.methods["x, ER"].seconds_left is None


def test_a_folder_without_a_run_is_refused(tmp_path):
    with pytest.raises(DataError, match=r"config\.json does not exist\. Name the folder"):
        watch(WatchOptions(tmp_path))
