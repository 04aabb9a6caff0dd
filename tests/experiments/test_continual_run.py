"""The one runner at its smallest: widened, on a user's images and strategy, diverging, refused."""

import dataclasses
import json
import re
from types import SimpleNamespace
from typing import get_args

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from everlight_experiments.common.plan_settings import changed_plan
from everlight_experiments.continual.own_strategy import load_strategy
from everlight_experiments.continual.plan import Plan
from everlight_experiments.continual.run import rows_of, run_continual, train_rows
from everlight_experiments.continual.table import ContinualRun
from PIL import Image

from everlight.continual import Batch, Protocol, run_sequence
from everlight.continual.engine.run import Run
from everlight.continual.engine.tasks import init_learner
from everlight.continual.registry import METHODS, Demand, Needs
from everlight.models import MLP
from everlight_data.errors import DataError
from everlight_data.images.digits import load_digits
from everlight_data.images.image_set import ImageSet
from everlight_experiments.cl_metrics import record as icifar
from everlight_experiments.continual import table
from everlight_experiments.continual.benchmark import Draw, Own, RunData, head_or
from everlight_experiments.continual.runner import Runner
from everlight_experiments.core50 import plans as core50
from everlight_experiments.facts import record as facts
from everlight_experiments.iirc import record as iirc

# What its module prepares is prepared once.
pytestmark = pytest.mark.xdist_group("continual run")

SMALLEST = {"benchmark": "digits", "epochs": 1, "batch_size": 64, "validation_seeds": 1, "tasks": 2}
OWN = """
from everlight.continual import naive

def mine(setup):
    return naive(setup)

def held(setup, buffer_size, hyperparameter, other=3):
    raise RuntimeError(f"{buffer_size}, {hyperparameter}, {other}")

def replaying(setup, replay_batch_size=5):
    raise RuntimeError(f"{replay_batch_size}")

def pulled(setup, hyperparameter):
    return naive(setup)

def wanting(setup, courage):
    return naive(setup)

def nothing(setup):
    return None

number = 3
"""


def run(runs, **asked):
    return run_continual(ContinualRun(runs=runs, **(SMALLEST | asked)))


def units_of(report):
    return {path.name: path.read_bytes() for path in (report.parent / "units").iterdir()}


@pytest.fixture(scope="module")
def narrow(tmp_path_factory):
    """One seed of naive, and what it left."""
    runs = tmp_path_factory.mktemp("runs")
    report = run(runs, methods=("naive",), seeds=1)
    return runs, units_of(report)


@pytest.fixture(scope="module")
def widened(narrow):
    """The same run with two seeds more and a method more."""
    return run(narrow[0], methods=("nearest mean",), seeds=3)


def test_seeds_and_methods_added_to_a_finished_run_train_nothing_anew(narrow, widened, tmp_path):
    _, before = narrow
    after = units_of(widened)
    assert set(before) == {"class-incremental-naive-0.npz", "cost-class-incremental-naive.npz"}
    assert len(after) == 2 * (3 + 1)
    assert {name: after[name] for name in before} == before
    plan = json.loads((widened.parent / "config.json").read_text())["plan"]
    assert (plan["epochs"], plan["learning_rate"], plan["online_batch"]) == (1, 0.02, 64)
    lines = (widened.parent / "metrics.jsonl").read_text().splitlines()
    events = [json.loads(line) for line in lines if '"class-incremental-naive-0"' in line]
    # Trained once, and told by task.
    assert sum("seconds" in event for event in events) == 1
    (told,) = [event for event in events if "over_time" in event]
    with np.load(widened.parent / "results.npz") as results:
        finals = results["class-incremental/naive/over_time"]
    np.testing.assert_allclose(told["over_time"], finals[0])
    # At once they come to the same bits.
    at_once = units_of(run(tmp_path, methods=("naive",), seeds=3))
    assert at_once == {name: kept for name, kept in after.items() if "naive" in name}


def test_each_seed_has_an_order_of_its_own(widened):
    with np.load(widened.parent / "results.npz") as results:
        matrices = results["class-incremental/naive/matrices"]
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
    with pytest.raises(DataError, match=r"other settings \(learning_rate: None there, 0\.1 now\)"):
        run(narrow[0], methods=("naive",), learning_rate=0.1)


@pytest.fixture
def own_file(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(OWN)
    return path


def test_a_strategy_of_ones_own_is_one_more_method(tmp_path, own_file):
    """It is naive's, and so are its numbers; units are of one version of the file."""
    report = run(tmp_path, methods=("naive",), strategy=(f"{own_file}:mine",), seeds=1)
    with np.load(report.parent / "results.npz") as results:
        mine, naive = (results[f"class-incremental/{name}/matrices"] for name in ("mine", "naive"))
    np.testing.assert_array_equal(mine, naive)
    version = load_strategy(f"{own_file}:mine").version
    assert f"class-incremental-mine@{version}-0.npz" in units_of(report)
    own_file.write_text(OWN + "\n# Another one.\n")
    assert load_strategy(f"{own_file}:mine").version != version


def test_a_strategy_of_ones_own_gets_what_it_names(own_file):
    own_file.write_text(OWN + "HYPERPARAMETERS = (1.0, 10.0)\n")
    method = load_strategy(f"{own_file}:held")
    assert method.hyperparameters == (1.0, 10.0)
    with pytest.raises(RuntimeError, match=r"^200, 10\.0, 3$"):
        method.make(None, Needs(tasks=2, classes=10, exemplars_per_class=20, hyperparameter=10.0))
    assert load_strategy(f"{own_file}:mine").hyperparameters == ()
    # Its default stays where nothing was given.
    for size, said in ((None, 5), (64, 64)):
        with pytest.raises(RuntimeError, match=f"^{said}$"):
            load_strategy(f"{own_file}:replaying").make(
                None, Needs(tasks=2, classes=10, exemplars_per_class=20, replay_batch_size=size)
            )


@pytest.mark.parametrize(("size", "expected"), [(None, 200), (60, 60)])
def test_a_buffer_size_of_ones_own_strategy_is_the_whole_memory_s(own_file, size, expected):
    own_file.write_text(
        OWN + "def sized(setup, buffer_size=7):\n    raise RuntimeError(buffer_size)\n"
    )
    method = load_strategy(f"{own_file}:sized")
    with pytest.raises(RuntimeError, match=f"^{expected}$"):
        method.make(None, Needs(tasks=2, classes=10, exemplars_per_class=20, buffer_size=size))


def test_a_buffer_size_is_every_memory_s():
    """In all, for exemplars and reservoirs; without it runs are what they were before."""
    needs = Needs(tasks=5, classes=10, exemplars_per_class=20, buffer_size=60)
    for name in ("iCaRL", "iCaRL-CNN", "LUCIR", "BiC", "ER-balanced", "A-GEM"):
        assert METHODS[name].given(needs)["buffer_size"] == 60
        assert "buffer_size" not in METHODS[name].given(needs._replace(buffer_size=None))
    for name in ("ER", "DER++", "ER-ACE", "GDumb"):
        assert METHODS[name].given(needs)["buffer_size"] == 60
        assert METHODS[name].given(needs._replace(buffer_size=None))["buffer_size"] == 200
    assert METHODS["GEM"].given(needs)["per_task"] == 12
    asked = table.digits(ContinualRun(benchmark="digits", buffer_size=60))
    assert asked.facts("class-incremental", METHODS["ER"])["buffer_size"] == 60
    assert asked.training.endswith("60 stored samples in total")
    assert "buffer_size" not in table.digits(ContinualRun()).facts(
        "class-incremental", METHODS["ER"]
    )


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("own.py", r"give --strategy my_file.py:my_strategy, a function from a Setup"),
        ("none.py:mine", r"none.py does not exist"),
        ("own.py:mime", r"has no function 'mime'\. Did you mean 'mine'"),
        ("own.py:number", r"has no function 'number'"),
        ("own.py:nothing", r"gave NoneType; it must give a Strategy"),
        (
            "own.py:pulled",
            r"wants 'hyperparameter', which .*a default, or the file a tuple HYPERPARAMETERS",
        ),
        ("own.py:wanting", r"wants 'courage', which nothing fills; give it a default$"),
        ("own.py:naive", r"the table has a method 'naive'; rename yours"),
        ("broken.py:mine", r"broken.py cannot be run \(SyntaxError"),
        ("own.txt:mine", r"own.txt is no Python file"),
    ],
)
def test_a_strategy_that_cannot_be_used_is_refused(tmp_path, own_file, monkeypatch, asked, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.py").write_text("def mine(:")
    (tmp_path / "own.txt").write_text(OWN)
    with pytest.raises(DataError, match=message):
        run(tmp_path / "runs", strategy=(asked,), methods=("naive",))


def test_runs_that_diverge_are_nan_and_said(tmp_path):
    report = run(tmp_path, methods=("naive",), learning_rate=100.0, seeds=1, epochs=3)
    with np.load(report.parent / "results.npz") as results:
        assert np.all(np.isnan(results["class-incremental/naive/matrices"]))
        assert results["class-incremental/naive/diverged_at"][0, 0] == 0
    text = report.read_text(encoding="utf-8")
    assert "Diverged runs, shown as nan: naive, class-incremental: 1 of 1 runs." in text
    assert re.search(r"<td>naive</td>\s*<td>nan</td>", text)


def test_a_folder_of_ones_own_images_with_strange_names(tmp_path, rng):
    """Four classes that a mean tells apart; names are text in the page and in its pictures."""
    names = ["<script>alert(1)</script>", "a & b $x$", "c\nd", "\udcffé 猫"]
    for place, name in enumerate(name.replace("/", "∕") for name in names):
        (tmp_path / "images" / name).mkdir(parents=True)
        for number in range(6):
            pixels = rng.integers(60 * place, 60 * place + 20, (8, 8, 3), dtype=np.uint8)
            Image.fromarray(pixels).save(tmp_path / "images" / name / f"{number}.png")
    asked = {"benchmark": "images", "images": tmp_path / "images", "side": 8, "seeds": 1}
    report = run(tmp_path, methods=("nearest mean",), **asked)
    with np.load(report.parent / "results.npz") as results:
        np.testing.assert_array_equal(
            results["class-incremental/nearest mean/matrices"][0, 1], [1, 1]
        )
    text = report.read_text(encoding="utf-8")
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert(1)" in text
    for shown in ("a &amp; b $x$", "c\\nd", "\\udcffé 猫"):
        assert shown in text
    assert "images: 24 images of 4 classes, of which 4 test" in text
    # Others at the same place are no part of that run.
    Image.new("RGB", (8, 8)).save(tmp_path / "images" / "c\nd" / "0.png")
    with pytest.raises(DataError, match=r"of another configuration \(data: "):
        run(tmp_path, methods=("nearest mean",), **asked)
    with pytest.raises(DataError, match=r"--tasks 5 of 4 classes; give 4 or fewer"):
        run(tmp_path, **asked | {"tasks": 5})


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"benchmark": "digit"}, r"no benchmark 'digit'; did you mean 'digits'\? There are 'digi"),
        ({"benchmark": ""}, r"no benchmark ''\. There are 'digits', 'procedural'"),
        ({"methods": ("ewc",)}, r"no method 'ewc'; did you mean 'EWC'\? There are"),
        (
            {"methods": ("HAT",)},
            r"HAT needs the task identity at test.*; give --setting task-incremental",
        ),
        ({"benchmark": "images"}, r"needs --images: a folder with one sub-folder per class"),
        ({"images": "x"}, r"--images is for the benchmark 'images', not 'digits'"),
        ({"tasks": 11}, r"--tasks 11 of 10 classes; give 10 or fewer"),
        ({"buffer_size": 9}, r"--buffer-size 9 for 10 classes; give 10 or more"),
        ({"seeds": 0}, r"--seeds 0; give 1 or more"),
        ({"seeds": 1001}, r"--seeds 1001; give 1,000 or less"),
        ({"learning_rate": float("nan")}, r"--learning-rate nan; give"),
        ({"setting": ()}, r"--setting without a name; there are task-incremental"),
        ({"side": 5}, r"--side 5; give 8 or more"),
        ({"side": 16}, r"--side is not for digits"),
        ({"benchmark": "icifar"}, r"--epochs is not for icifar, which has a plan: --plan.NAME"),
        ({"methods": ("LUCIR-CNN",)}, r"no method 'LUCIR-CNN'; did you mean 'LUCIR'"),
        (
            {"methods": ("BiC-whole-pwJS",)},
            r"BiC-whole-pwJS needs several labels per sample",
        ),
        (
            {"hyperparameters": ("EWC=1",)},
            r"no method with hyperparameters .*: 'EWC'\. There are 'LwF'\.",
        ),
        (
            {"hyperparameters": ("LWF=1",)},
            r"no method with hyperparameters .*: 'LWF'; did you mean 'LwF'",
        ),
        (
            {"hyperparameters": ("LwF",)},
            r"--hyperparameters 'LwF'; give NAME=NUMBER,\.\.\., as in EWC=1e2",
        ),
        (
            {"hyperparameters": ("LwF=1,x",)},
            r"--hyperparameters 'LwF=1,x'; could not convert.* 'x'",
        ),
        (
            {"hyperparameters": ("LwF=-1",)},
            r"--hyperparameters 'LwF=-1'; give finite numbers of 0 or more",
        ),
        ({"plan": {"epoch": "3"}}, r"no setting --plan\.epoch, at 'epoch'; did you mean 'epochs'"),
        ({"plan": {"epochs": "many"}}, r"--plan\.epochs many; give something like 1"),
        ({"plan": {"blocks": "1"}}, r"--plan\.blocks is for networks that learn from pixels"),
        ({"test_every": 1}, r"--test-every 1; give 2 or more"),
        ({"replay_batch_size": 0}, r"--replay-batch-size 0; give 1 or more"),
        (
            {"benchmark": "iirc", "replay_batch_size": 8}
            | dict.fromkeys(("epochs", "batch_size", "tasks")),
            r"--replay-batch-size is not for iirc, which has a plan: --plan\.NAME",
        ),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_is_written(tmp_path, asked, message):
    with pytest.raises(DataError, match=message):
        run(tmp_path / "runs", **{"methods": ("LwF",), **asked})
    assert not (tmp_path / "runs").exists()


def test_hyperparameters_asked_for_stand_in_the_place_of_the_tables():
    digits = table.digits(ContinualRun(benchmark="digits"))
    asked = ContinualRun(
        methods=("EWC", "MAS", "LwF"), hyperparameters=("LwF=2", "EWC=1e6,1e2,1e2")
    )
    rows = {row.name: row.hyperparameters for row in rows_of(digits, asked)}
    assert rows["EWC"] == (100, 1e6)
    assert rows["LwF"] == (2,)
    assert rows["MAS"] == METHODS["MAS"].hyperparameters
    # The published one stays a row where there is a choice.
    assert "MAS, published" in rows
    assert "LwF, published" not in rows


def plan_of(settings):
    facts = table.digits(settings).facts("class-incremental", METHODS["naive"])
    return {name: facts[name] for name in Plan._fields if name in facts}


def test_the_settings_on_the_command_line_are_the_plans(tmp_path):
    settings = ContinualRun(
        benchmark="digits", epochs=3, batch_size=7, learning_rate=0.5, exemplars_per_class=4
    )
    assert plan_of(settings) == {
        "tasks": 5,
        "epochs": 3,
        "batch_size": 7,
        "online_batch": 7,
        "learning_rate": 0.5,
        "exemplars_per_class": 4,
        "dtype": "float32",
        "blocks": 0,
    }
    assert plan_of(dataclasses.replace(settings, batch_size=None))["online_batch"] == 10


DRAWING = ("ER", "DER++", "ER-ACE", "A-GEM")


@pytest.mark.parametrize(("size", "drawn"), [(None, 16), (64, 64)])
def test_the_replay_batch_size_is_that_of_the_methods_that_draw_and_of_no_other(size, drawn):
    settings = ContinualRun(benchmark="digits", replay_batch_size=size)
    digits = table.digits(settings)
    assert plan_of(settings).get("replay_batch_size") == size
    assert ("replayed in batches of 64" in digits.training) == (size == 64)
    sequence = digits.sequence("class-incremental", METHODS["naive"], Draw("reported", 0, 0))
    data = RunData(
        digits.shared("class-incremental", METHODS["naive"]),
        digits.own("class-incremental", sequence),
    )
    task = jax.tree.map(lambda leaf: leaf[0], sequence.tasks)
    key, index = jax.random.key(0), jnp.arange(16)
    batch = Batch(index, index[:, None], jnp.ones(16), jnp.zeros(16, bool))
    for name in DRAWING:
        setup, needs = digits.begin("class-incremental", METHODS[name], data)
        strategy = METHODS[name].make(setup, needs)

        def draw(strategy=strategy, setup=setup):
            memory = strategy.init(key, init_learner(setup, 10, key))
            return strategy.draw(memory, batch, task, key)

        found = jax.tree.leaves(jax.eval_shape(draw), is_leaf=lambda leaf: isinstance(leaf, Batch))
        sizes = {leaf.index.shape[0] for leaf in found if isinstance(leaf, Batch)}
        assert sizes == {drawn}
    others = set(METHODS) - set(DRAWING)
    assert not any("replay_batch_size" in METHODS[name].given(needs) for name in others)


def test_the_replay_batch_size_of_a_paper_stands_in_its_plan():
    for plans in (iirc.PLANS, core50.PLANS, icifar.PLANS):
        assert plans["demo"].replay_batch_size is None
        assert changed_plan(plans["demo"], {"replay_batch_size": "64"}).replay_batch_size == 64
    changes = {"benchmarks.mid-scale.replay_batch_size": "64"}
    changed = changed_plan(facts.PLANS["demo"], changes)
    assert changed.benchmarks["mid-scale"].replay_batch_size == 64
    plan = changed_plan(iirc.PLANS["demo"], {"replay_batch_size": "64"})
    stored = table.digits(ContinualRun()).shared("class-incremental", METHODS["naive"])
    own = Own(jnp.zeros(4, int), jnp.float32(1))
    _, needs = iirc.iirc_begin(plan, 4, 2)(iirc.SCENARIO, METHODS["A-GEM"], RunData(stored, own))
    assert METHODS["A-GEM"].given(needs)["replay_batch_size"] == 64


@pytest.mark.parametrize("use", ["reported", "tuning"])
def test_orders_are_of_one_shape_and_no_test_sample_chooses(use):
    digits = table.digits(ContinualRun())
    labels = load_digits().train_labels
    train = len(labels)
    shapes = set()
    for order in (0, 1, 5):
        sequence = digits.sequence("class-incremental", METHODS["naive"], Draw(use, 0, order))
        shapes.add(str(jax.tree.map(np.shape, sequence)))
        tests = np.unique(sequence.test.index[sequence.test.mask])
        trained = np.unique(sequence.tasks.train.index[sequence.tasks.train.mask])
        assert np.all(tests < train) if use == "tuning" else np.all(tests >= train)
        assert not set(tests) & set(trained)
        # A tenth of every class validates, and is trained on by no order.
        assert len(trained) == train - sum(np.bincount(labels) // 10)
        assert not np.any(sequence.tasks.valid.mask)
    assert len(shapes) == 1


def some_pictures(classes, per_class, side, rng):
    labels = np.tile(np.arange(classes), per_class)
    images = rng.integers(0, 256, (2 * len(labels), side, side, 3), dtype=np.uint8)
    names = tuple(f"class {label}" for label in range(classes))
    return ImageSet("pictures", images, labels, labels, names)


def test_a_data_set_is_taken_in_its_scales_size(monkeypatch, rng):
    """CIFAR-100 at demo: the first 20 classes at 16x16, or as asked."""
    every = some_pictures(100, 4, 32, rng)
    monkeypatch.setattr(table, "load_cifar100", lambda: every)
    small = table.cifar100(ContinualRun(tasks=3))
    images = small.shared("class-incremental", METHODS["naive"]).images
    assert images.shape == (160, 16, 16, 3)
    sequence = small.sequence("class-incremental", METHODS["naive"], Draw("reported", 0, 0))
    np.testing.assert_array_equal(np.bincount(sequence.class_task), [7, 7, 6])
    # Each is the mean of four pixels.
    block = every.images[0, 2:4, 4:6].astype(float).mean(axis=(0, 1))
    np.testing.assert_allclose(images[0, 1, 2], block, atol=0.51)
    whole = table.cifar100(ContinualRun(preset="paper"))
    assert whole.shared("class-incremental", METHODS["naive"]).images.shape == (800, 32, 32, 3)
    with pytest.raises(DataError, match="side=12; images of 32x32 shrink by integer factors"):
        table.cifar100(ContinualRun(side=12))


@pytest.mark.parametrize("name", ["HAT", "PackNet", "LUCIR"])
def test_methods_that_look_into_the_net_fit_that_of_pictures(rng, name):
    """Traced alone: a layer that they do not find is refused there."""
    small = table.of_pictures("x", some_pictures(4, 5, 8, rng), ContinualRun(tasks=2))
    runner, draw = Runner(None, small, 0), Draw("reported", 0, 0)
    build, data = (
        runner.build("task-incremental", METHODS[name]),
        runner.data("task-incremental", METHODS[name], draw),
    )
    sequence = small.sequence("task-incremental", METHODS[name], draw)
    result = jax.eval_shape(
        lambda key: run_sequence(Run(build, Protocol(1, select="last"), data, sequence, key)),
        jax.random.key(0),
    )
    assert result.evaluation.task_masked.shape == (2, 2)


def test_pictures_are_learnt_by_a_reduced_resnet_where_the_plan_has_blocks(rng):
    """Six layers a block and two: by the shapes of its kernels, batch norms and head."""
    asked = ContinualRun(tasks=2, plan={"blocks": 1})
    deep = table.of_pictures("x", some_pictures(4, 5, 8, rng), asked)
    params = Runner(None, deep, 0).net("class-incremental", METHODS["LUCIR"]).learner.params
    kernels = [leaf.shape for leaf in jax.tree.leaves(params) if len(leaf.shape) == 4]
    three = [shape for shape in kernels if shape[:2] == (3, 3)]
    assert sorted(shape[3] for shape in three) == [16] * 3 + [32] * 2 + [64] * 2
    assert deep.training.startswith("reduced ResNet of 8 layers")
    # So that HAT and PackNet are left out.
    assert "hidden layers" not in deep.offers("task-incremental")


def test_what_other_processes_are_at_comes_last():
    """They are at ER and EWC; EWC is free again once naive is learnt."""
    rows = [METHODS[name] for name in ("naive", "EWC", "ER", "joint")]
    taken, order = {"EWC", "ER"}, []

    class Shared:
        benchmark = SimpleNamespace(
            scenarios=("task-incremental",), offers=lambda scenario: get_args(Demand)
        )

        def tell_size(self, rows, seeds):
            pass

        def is_elsewhere(self, scenario, method, seeds):
            return method.name in taken

        def outcome(self, scenario, method, seeds):
            order.append(method.name)
            taken.discard("EWC")
            return SimpleNamespace(final=np.zeros(seeds))

    outcomes = train_rows(Shared(), rows, 2)
    assert order == ["naive", "EWC", "joint", "ER"]
    assert list(outcomes["task-incremental"]) == ["naive", "EWC", "ER", "joint"]


def test_features_before_a_cosine_head_keep_their_sign():
    """LUCIR's published nets end without a ReLU; runs of one that had it are not taken over."""
    images = jax.random.normal(jax.random.key(0), (8, 8, 8, 1))
    make, digits = head_or(MLP(10, (5,)), 10), table.digits(ContinualRun(tasks=2))
    for name, signed in (("naive", False), ("LUCIR", True)):
        method = METHODS[name]
        outputs, _ = make(method.trains, method.head).init_with_output(
            jax.random.key(1), images, False
        )
        assert (float(outputs.features.min()) < 0) == signed
        assert ("last_relu" in digits.facts("class-incremental", method)) == signed


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("capacity", "buffer_size"),
        ("exemplars", "exemplars_per_class"),
        ("strength", "hyperparameter"),
    ],
)
def test_an_old_parameter_of_ones_own_strategy_is_refused_with_the_new_name(own_file, old, new):
    own_file.write_text(f"def mine(setup, {old}=7):\n    return None\n")
    with pytest.raises(DataError, match=f"the parameter '{old}' is now '{new}'"):
        load_strategy(f"{own_file}:mine")
    own_file.write_text("STRENGTHS = (1, 2)\ndef mine(setup):\n    return None\n")
    with pytest.raises(DataError, match="the tuple STRENGTHS is now HYPERPARAMETERS"):
        load_strategy(f"{own_file}:mine")
