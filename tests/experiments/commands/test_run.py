"""The command `run` at its smallest: widened, repeated, on a user's images, diverging."""

import json
import re

import numpy as np
import pytest
from PIL import Image

from everlight.continual.methods.registry import METHODS
from everlight_data.errors import DataError
from everlight_experiments.cli import options_of
from everlight_experiments.commands.load_and_train import OTHER_NAMES, selected_methods
from everlight_experiments.commands.run import run_benchmark

# One worker runs the group, so that the module's fixtures are computed once.
pytestmark = pytest.mark.xdist_group("continual run")

SMALLEST = "--epochs 1 --batch-size 64 --validation-seeds 1 --tasks 2"


def run(runs, words, *more, benchmark="digits"):
    words = [benchmark, *SMALLEST.split(), *words.split(), *more, "--runs", str(runs)]
    return run_benchmark(options_of("run", words))


def stored_runs(report):
    return {path.name: path.read_bytes() for path in (report.parent / "units").iterdir()}


@pytest.fixture(scope="module")
def narrow(tmp_path_factory):
    """Run one seed of naive; return the folder and its stored runs."""
    runs = tmp_path_factory.mktemp("runs")
    report = run(runs, "--methods naive --seeds 1")
    return runs, stored_runs(report)


WIDENED = "--methods naive", "nearest mean", "--seeds", "3"


@pytest.fixture(scope="module")
def widened(narrow):
    """Run the same with two more seeds and one more method."""
    return run(narrow[0], *WIDENED)


def test_seeds_and_methods_added_to_a_finished_run_train_nothing_again(narrow, widened, tmp_path):
    _, before = narrow
    after = stored_runs(widened)
    assert set(before) == {"class-incremental-naive-0.npz", "cost-class-incremental-naive.npz"}
    assert len(after) == 2 * (3 + 1)
    assert {name: after[name] for name in before} == before
    config = json.loads((widened.parent / "config.json").read_text())["settings"]["config"]
    assert (config["protocol"]["epochs"], config["learning_rate"]) == (1, 0.02)
    lines = (widened.parent / "metrics.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines if '"class-incremental-naive-0"' in line]
    # The run was trained once and recorded after every task.
    assert sum("seconds" in event and "event" not in event for event in events) == 1
    recorded = [event["over_time"] for event in events if "over_time" in event]
    with np.load(widened.parent / "results.npz") as results:
        accuracy = results["class-incremental/naive/accuracy"]
    assert recorded
    for item in recorded:
        np.testing.assert_allclose(item, accuracy[0])
    # At once they come to the same bits.
    at_once = stored_runs(run(tmp_path, "--methods naive --seeds 3"))
    assert at_once == {name: stored for name, stored in after.items() if "naive" in name}


def test_each_seed_has_an_order_of_its_own(widened):
    with np.load(widened.parent / "results.npz") as results:
        by_task = results["class-incremental/naive/accuracy by task"]
        assert by_task.shape == (3, 2, 2)
        assert len(np.unique(by_task.reshape(3, -1), axis=0)) == 3
        assert np.all(results["class-incremental/nearest mean/seconds"] > 0)


def test_events_of_joint_training_have_no_score_before_its_only_task(tmp_path):
    report = run(tmp_path, "--methods joint --net linear --seeds 1")
    lines = (report.parent / "metrics.jsonl").read_text().splitlines()
    scores = {
        event["unit"]: event["over_time"]
        for event in map(json.loads, lines)
        if "over_time" in event
    }
    assert scores["class-incremental-joint-0"][0] is None
    assert None not in (
        scores["class-incremental-joint-0"][1],
        *scores["class-incremental-naive-0"],
    )


def test_the_report_states_the_options(widened):
    text = widened.read_text(encoding="utf-8")
    for promised in (
        "handwritten digits",
        "3 evaluation seeds (0 to 2), each with its own order of classes",
        "Nothing was selected: all values of hyper-parameters were given or published.",
        "2 tasks of 5 classes",
        "1 epoch per task in batches of 64",
        "Method naive trains on one task after the other",
    ):
        assert promised in text


def test_changes_of_results_are_refused(narrow):
    with pytest.raises(DataError, match=r"learning_rate.*0\.02.*0\.1"):
        run(narrow[0], "--methods naive --learning-rate 0.1")


def test_runs_that_diverge_are_nan_and_reported(tmp_path):
    report = run(tmp_path, "--methods naive --learning-rate 100 --seeds 1 --epochs 3")
    with np.load(report.parent / "results.npz") as results:
        assert np.all(np.isnan(results["class-incremental/naive/accuracy by task"]))
        assert results["class-incremental/naive/diverged_at"][0, 0] == 0
    text = report.read_text(encoding="utf-8")
    assert "A lower learning rate may help where runs diverged." in text
    assert re.search(r"<td>naive</td>\s*<td>diverged in 1 of 1</td>", text)


def test_a_folder_of_ones_own_images_with_strange_names(tmp_path, rng):
    """A mean separates the four classes; names are text in the page and in its pictures."""
    names = ["<script>alert(1)</script>", "a & b $x$", "c\nd", "\udcffé 猫"]
    for place, name in enumerate(name.replace("/", "∕") for name in names):
        (tmp_path / "images" / name).mkdir(parents=True)
        for number in range(6):
            pixels = rng.integers(60 * place, 60 * place + 20, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "images" / name / f"{number}.png")

    def run_images(words):
        arguments = "--data", str(tmp_path / "images"), "--methods", "nearest mean"
        arguments += "--metrics", "accuracy by class"
        return run(tmp_path, f"--side 8 --seeds 1 {words}", *arguments, benchmark="images")

    report = run_images("")
    with np.load(report.parent / "results.npz") as results:
        result = results["class-incremental/nearest mean/accuracy by task"]
    np.testing.assert_array_equal(result[0, 1], [1, 1])
    text = report.read_text(encoding="utf-8")
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)" in text
    for shown in ("a &amp; b $x$", "c\\nd", "\\udcffé 猫"):
        assert shown in text
    assert "images: 24 images of 4 classes, of which 4 test" in text
    # Others at the same place are not part of that run.
    Image.new("RGB", (8, 8)).save(tmp_path / "images" / "c\nd" / "0.png")
    with pytest.raises(DataError, match=r"another configuration \(data: "):
        run_images("")
    with pytest.raises(DataError, match=r"--tasks 5 of 4 classes; give 4 or fewer"):
        run_images("--tasks 5")


def test_all_stands_for_every_method_also_beside_names():
    assert selected_methods(("all",)) == selected_methods(("ER", "all")) == list(METHODS)
    assert selected_methods(("ER", "EWC")) == ["EWC", "ER"]


def test_other_libraries_names_lead_to_methods_that_there_are():
    assert set(OTHER_NAMES.values()) <= METHODS.keys()
    assert not OTHER_NAMES.keys() & METHODS.keys()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--methods ewc", r"no method 'ewc'; did you mean 'EWC'"),
        ("--methods Replay", r"no method 'Replay'; it is 'ER' here$"),
        ("--methods ER SLDA", r"no method 'SLDA'; it is 'streaming LDA' here$"),
        ("--methods LUCIR-CNN", r"no method 'LUCIR-CNN'; did you mean 'LUCIR'"),
        ("--methods", r"--methods without a name"),
        ("--methods HAT", r"HAT needs the task identity at test.*; give --setting task-incremen"),
        ("--per-class 1 5", r"a class has one training image, .* --validation-fraction 0"),
        ("--hyperparameters EWC=1", r"no method with hyper-parameters .*: 'EWC'\. There are 'LwF'"),
    ],
)
def test_impossible_runs_are_refused_before_writing(tmp_path, capsys, words, message):
    with pytest.raises((DataError, SystemExit)) as caught:
        run(tmp_path / "runs", f"--methods LwF {words}")
    printed = capsys.readouterr()
    output = f"{printed.out}{printed.err}{caught.value}".replace("│", " ")
    assert re.search(message, " ".join(output.split())), output
    assert not (tmp_path / "runs").exists()


def test_settings_are_not_for_benchmarks_that_have_their_own(tmp_path):
    words = ["iirc", "--setting", "online", "--runs", str(tmp_path / "runs")]
    with pytest.raises(DataError, match="--setting is not for iirc, which has its own"):
        run_benchmark(options_of("run", words))
    assert not (tmp_path / "runs").exists()
