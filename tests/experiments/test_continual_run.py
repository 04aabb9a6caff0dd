"""The one runner at its smallest: widened, diverging, on a user's images, refused."""

import json
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image

from everlight.continual import Batch
from everlight.continual.engine.tasks import init_learner
from everlight.continual.registry import METHODS, Needs
from everlight_data.errors import DataError
from everlight_data.images.digits import load_digits
from everlight_experiments.cli import options_of
from everlight_experiments.commands.benchmarks import load
from everlight_experiments.commands.run import given_hyperparameters, rows_of, run_benchmark
from everlight_experiments.continual.benchmark import Draw, RunData

# What its module prepares is prepared once.
pytestmark = pytest.mark.xdist_group("continual run")

SMALLEST = ("--epochs", "1", "--batch-size", "64", "--tasks", "2", "--validation-seeds", "1")


def run(runs, *words, benchmark="digits"):
    return run_benchmark(options_of("run", [benchmark, *SMALLEST, *words, "--runs", str(runs)]))


def digits(*words):
    options = options_of("run", ["digits", *words])
    return load(options)["class-incremental"]


def units_of(report):
    return {path.name: path.read_bytes() for path in (report.parent / "units").iterdir()}


@pytest.fixture(scope="module")
def narrow(tmp_path_factory):
    """One seed of naive, and what it left."""
    runs = tmp_path_factory.mktemp("runs")
    report = run(runs, "--methods", "naive", "--seeds", "1")
    return runs, units_of(report)


@pytest.fixture(scope="module")
def widened(narrow):
    """The same run with two seeds more and a method more."""
    return run(narrow[0], "--methods", "nearest mean", "--seeds", "3")


def test_seeds_and_methods_added_to_a_finished_run_train_nothing_anew(narrow, widened, tmp_path):
    _, before = narrow
    after = units_of(widened)
    assert set(before) == {"class-incremental-naive-0.npz", "cost-class-incremental-naive.npz"}
    assert len(after) == 2 * (3 + 1)
    assert {name: after[name] for name in before} == before
    stored = json.loads((widened.parent / "config.json").read_text())["settings"]
    assert (stored["seeds"], stored["config"]["learning_rate"]) == (3, 0.02)
    lines = (widened.parent / "metrics.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines if '"class-incremental-naive-0"' in line]
    # Trained once, and its score is logged once.
    assert sum("seconds" in event for event in events) == 1
    (logged,) = [event for event in events if "over_time" in event]
    with np.load(widened.parent / "results.npz") as results:
        finals = results["class-incremental/naive/accuracy"]
    np.testing.assert_allclose(logged["over_time"], finals[0])
    # All at once they have the same bits.
    at_once = units_of(run(tmp_path, "--methods", "naive", "--seeds", "3"))
    assert at_once == {name: kept for name, kept in after.items() if "naive" in name}


def test_each_seed_has_an_order_of_its_own(widened):
    with np.load(widened.parent / "results.npz") as results:
        matrices = results["class-incremental/naive/accuracy by task"]
        assert matrices.shape == (3, 2, 2)
        assert len(np.unique(matrices.reshape(3, -1), axis=0)) == 3
        assert np.all(results["class-incremental/nearest mean/seconds"] > 0)


def test_the_report_says_what_was_used(widened):
    text = widened.read_text(encoding="utf-8")
    for promised in (
        "handwritten digits",
        "3 evaluation seeds (0 to 2), each with its own order of classes",
        "validation samples, averaged over 1 validation seeds",
        "2 tasks of 5 classes",
        "1 epochs per task in batches of 64",
    ):
        assert promised in text


def test_what_changes_results_is_refused(narrow):
    with pytest.raises(
        DataError, match=r"other settings \(config.learning_rate: 0\.02 there, 0\.1 now"
    ):
        run(narrow[0], "--methods", "naive", "--learning-rate", "0.1")


def test_runs_that_diverge_are_nan_and_named(tmp_path):
    words = ("--methods", "naive", "--learning-rate", "100", "--seeds", "1", "--epochs", "3")
    report = run(tmp_path, *words)
    with np.load(report.parent / "results.npz") as results:
        assert np.all(np.isnan(results["class-incremental/naive/accuracy by task"]))
        assert results["class-incremental/naive/diverged_at"][0, 0] == 0
    text = report.read_text(encoding="utf-8")
    assert "Diverged runs, shown as nan: naive, class-incremental: 1 of 1 runs." in text
    assert re.search(r"<td>naive</td>\s*<td>nan</td>", text)


def test_a_folder_of_ones_own_images_with_strange_names(tmp_path, rng):
    """Four classes that a mean distinguishes; names are text in the page and in its pictures."""
    names = ["<script>alert(1)</script>", "a & b $x$", "c\nd", "\udcffé 猫"]
    for place, name in enumerate(name.replace("/", "∕") for name in names):
        (tmp_path / "images" / name).mkdir(parents=True)
        for number in range(6):
            pixels = rng.integers(60 * place, 60 * place + 20, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "images" / name / f"{number}.png")
    words = ("--data", str(tmp_path / "images"), "--side", "8", "--seeds", "1")
    words = (*words, "--methods", "nearest mean")
    report = run(tmp_path, *words, benchmark="images")
    with np.load(report.parent / "results.npz") as results:
        matrices = results["class-incremental/nearest mean/accuracy by task"]
        np.testing.assert_array_equal(matrices[0, 1], [1, 1])
    text = report.read_text(encoding="utf-8")
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)" in text
    for shown in ("a &amp; b $x$", "c\\nd", "\\udcffé 猫"):
        assert shown in text
    assert "images: 24 images of 4 classes, of which 4 test" in text
    # Others at the same place are no part of that run.
    Image.new("RGB", (8, 8)).save(tmp_path / "images" / "c\nd" / "0.png")
    with pytest.raises(DataError, match=r"of another configuration \(data: "):
        run(tmp_path, *words, benchmark="images")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--methods", "ewc"), r"no method 'ewc'; did you mean 'EWC'\? There are"),
        (("--methods",), r"--methods without a name"),
        (
            ("--methods", "HAT"),
            r"HAT needs the task identity at test.*; give --setting task-incremental",
        ),
        (("--methods", "LUCIR-CNN"), r"no method 'LUCIR-CNN'; did you mean 'LUCIR'"),
        (("--methods", "BiC-whole-pwJS"), r"BiC-whole-pwJS needs several labels per sample"),
        (("--tasks", "11"), r"--tasks 11 of 10 classes; give 10 or fewer"),
        (("--buffer-size", "9"), r"--buffer-size 9 for 10 classes; give 10 or more"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is_written(tmp_path, words, message):
    with pytest.raises(DataError, match=message):
        run(tmp_path / "runs", *words)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--seeds", "0"), r"--seeds 0; give 1 or more"),
        (("--seeds", "1001"), r"--seeds 1001; give 1,000 or less"),
        (("--learning-rate", "nan"), r"--learning-rate nan; give"),
        (("--setting",), r"--setting without a name; there are task-incremental"),
        (("--side", "5"), r"--side 5; give 8 or more"),
        (("--test-every", "1"), r"--test-every 1; give 2 or more"),
        (("--replay-batch-size", "0"), r"--replay-batch-size 0; give 1 or more"),
    ],
)
def test_values_out_of_bounds_are_refused_with_the_bounds(capsys, words, message):
    with pytest.raises(SystemExit):
        options_of("run", ["digits", *words])
    assert re.search(message, " ".join(capsys.readouterr().err.replace("│", " ").split()))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("images",), r"give --data: the name of an image set, .* a folder with one sub-folder"),
        (("digit",), r"no benchmark 'digit'; did you mean 'digits'\? There are 'digi"),
        (("iirc", "--setting", "online"), r"--setting is not for iirc, which has its own"),
        (("--seeds", "3"), r"name a benchmark first; there are digits, fashion-mnist"),
        (("digits:big",), r"no preset 'big'"),
    ],
)
def test_a_benchmark_that_cannot_be_run_is_refused(tmp_path, words, message):
    with pytest.raises(DataError, match=message):
        run_benchmark(options_of("run", [*words, "--runs", str(tmp_path / "runs")]))
    assert not (tmp_path / "runs").exists()


def test_given_hyperparameters_replace_the_grids_of_the_table_and_of_the_benchmark(tmp_path):
    words = ("--methods", "EWC", "MAS", "LwF", "--hyperparameters", "LwF=2", "EWC=1e6,1e2,1e2")
    options = options_of("run", ["digits", *words])
    rows = {row.name: row.hyperparameters for row in rows_of(digits(), options)}
    assert rows["EWC"] == (100, 1e6)
    assert rows["LwF"] == (2,)
    assert rows["MAS"] == METHODS["MAS"].hyperparameters
    # The published one stays a row where there is a choice.
    assert "MAS, published" in rows
    assert "LwF, published" not in rows
    # iCIFAR has a grid of its own for EWC, which the given value replaces, too.
    words = ("--methods", "EWC", "--hyperparameters", "EWC=7", "--seeds", "1", "--classes", "4")
    report = run(tmp_path, *words, "--per-class", "8", "4", benchmark="icifar")
    with np.load(report.parent / "results.npz") as results:
        assert results["class-incremental/EWC/hyperparameter"] == 7
        assert not results["class-incremental/EWC/tried"].size


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("EWC=1", r"no method with hyperparameters .*: 'EWC'\. There are 'LwF'\."),
        ("LWF=1", r"no method with hyperparameters .*: 'LWF'; did you mean 'LwF'"),
        ("LwF", r"--hyperparameters 'LwF'; give NAME=NUMBER,\.\.\., as in EWC=1e2"),
        ("LwF=1,x", r"--hyperparameters 'LwF=1,x'; could not convert.* 'x'"),
        ("LwF=-1", r"--hyperparameters 'LwF=-1'; give finite numbers of 0 or more"),
    ],
)
def test_hyperparameters_that_cannot_be_are_refused(asked, message):
    with pytest.raises(DataError, match=message):
        given_hyperparameters([asked], [METHODS["LwF"], METHODS["naive"]])


def test_a_buffer_size_is_that_of_every_memory():
    """In all, for exemplars and reservoirs."""
    needs = Needs(tasks=5, classes=10, exemplars_per_class=20, buffer_size=60)
    for name in ("iCaRL", "iCaRL-CNN", "LUCIR", "BiC", "ER-balanced", "A-GEM"):
        assert METHODS[name].given(needs)["buffer_size"] == 60
        assert "buffer_size" not in METHODS[name].given(needs._replace(buffer_size=None))
    for name in ("ER", "DER++", "ER-ACE", "GDumb"):
        assert METHODS[name].given(needs)["buffer_size"] == 60
        assert METHODS[name].given(needs._replace(buffer_size=None))["buffer_size"] == 200
    assert METHODS["GEM"].given(needs)["per_task"] == 12
    found = digits("--buffer-size", "60")
    assert found.facts(METHODS["ER"])["buffer_size"] == 60
    assert found.training.endswith("replay memory of 60 samples in total")


DRAWING = ("ER", "DER++", "ER-ACE", "A-GEM")


@pytest.mark.parametrize(("size", "drawn"), [(None, 16), (64, 64)])
def test_the_replay_batch_size_is_that_of_the_methods_that_draw_and_of_no_other(size, drawn):
    found = digits(*(("--replay-batch-size", str(size)) if size else ()))
    assert ("replayed in batches of 64" in found.training) == (size == 64)
    sequence = found.sequence(METHODS["naive"], Draw("evaluation", 0, 0))
    data = RunData(found.shared(METHODS["naive"]), found.own(sequence))
    task = jax.tree.map(lambda leaf: leaf[0], sequence.tasks)
    key, index = jax.random.key(0), jnp.arange(16)
    batch = Batch(index, index[:, None], jnp.ones(16), jnp.zeros(16, bool))
    for name in DRAWING:
        setup, needs = found.begin(METHODS[name], data)
        strategy = METHODS[name].make(setup, needs)

        def draw(strategy=strategy, setup=setup):
            memory = strategy.init(key, init_learner(setup, 10, key))
            return strategy.draw(memory, batch, task, key)

        leaves = jax.tree.leaves(jax.eval_shape(draw), is_leaf=lambda leaf: isinstance(leaf, Batch))
        assert {leaf.index.shape[0] for leaf in leaves if isinstance(leaf, Batch)} == {drawn}
    others = set(METHODS) - set(DRAWING)
    assert not any("replay_batch_size" in METHODS[name].given(needs) for name in others)


@pytest.mark.parametrize("use", ["evaluation", "validation"])
def test_orders_are_of_one_shape_and_no_test_sample_selects(use):
    found, labels = digits(), load_digits().train_labels
    train, shapes = len(labels), set()
    for number in (0, 1, 5):
        sequence = found.sequence(METHODS["naive"], Draw(use, 0, number))
        shapes.add(str(jax.tree.map(np.shape, sequence)))
        tests = np.unique(sequence.test.index[sequence.test.mask])
        trained = np.unique(sequence.tasks.train.index[sequence.tasks.train.mask])
        assert np.all(tests < train) if use == "validation" else np.all(tests >= train)
        assert not set(tests) & set(trained)
        # A tenth of every class validates, and is trained on by no order.
        assert len(trained) == train - sum(np.bincount(labels) // 10)
        assert not np.any(sequence.tasks.valid.mask)
    assert len(shapes) == 1
