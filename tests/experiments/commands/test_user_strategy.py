"""A user's own strategy: what it gets, how it is trained, what is refused."""

import numpy as np
import pytest

from everlight.continual import Setup
from everlight.continual.methods.method import StrategyArguments
from everlight_data.errors import DataError
from everlight_experiments.commands.user_strategy import load_strategy
from tests.experiments import command_runs
from tests.refusals import refused

SMALLEST = "--epochs 1 --batch-size 64 --validation-seeds 1 --tasks 2 --seeds 1"
SETUP = Setup(None, None, None, None, None)
"""Nothing of it is used by a function that is refused or raises."""
ARGUMENTS = StrategyArguments(tasks=2, classes=10, exemplars_per_class=20)
SOURCE_CODE = """
from everlight.continual import naive

def mine(setup):
    return naive(setup)

def held(setup, buffer_size, hyperparameter, other=3):
    raise RuntimeError(f"{buffer_size}, {hyperparameter}, {other}")

def sized(setup, buffer_size=7):
    raise RuntimeError(buffer_size)

def replaying(setup, replay_batch_size=5):
    raise RuntimeError(f"{replay_batch_size}")

def planned(setup, tasks):
    return naive(setup)

def pulled(setup, hyperparameter):
    return naive(setup)

def wanting(setup, courage):
    return naive(setup)

def nothing(setup):
    return None

number = 3
"""


def run(runs, *words):
    return command_runs.run(runs, "digits", *SMALLEST.split(), "--methods", "naive", *words)


@pytest.fixture
def own_file(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(SOURCE_CODE)
    return path


def test_a_user_strategy_is_one_more_method(tmp_path, own_file, capsys):
    """The file's strategy is naive, with the same numbers; stored runs name the file's version."""
    report = run(tmp_path / "runs", "--strategy", f"{own_file}:mine")
    assert capsys.readouterr().out.count("declares no stored_samples") == 1
    results, of = command_runs.arrays_of(report), "class-incremental/{}/accuracy by task"
    np.testing.assert_array_equal(results[of.format("mine")], results[of.format("naive")])
    version = load_strategy(f"{own_file}:mine").version
    assert (report.parent / "units" / f"class-incremental-mine@{version}-0.npz").exists()
    own_file.write_text(SOURCE_CODE + "\n# Another one.\n")
    assert load_strategy(f"{own_file}:mine").version != version


def test_a_user_strategy_receives_the_arguments_that_it_names(own_file):
    own_file.write_text(SOURCE_CODE + "HYPERPARAMETERS = (1.0, 10.0)\n")
    method = load_strategy(f"{own_file}:held")
    assert method.hyperparameters == (1.0, 10.0)
    with pytest.raises(DataError, match=r"RuntimeError: 200, 10\.0, 3 \("):
        method.make(SETUP, ARGUMENTS._replace(hyperparameter=10.0))
    assert load_strategy(f"{own_file}:mine").hyperparameters == ()
    # Its default stays where nothing was given.
    for size, message in ((None, 5), (64, 64)):
        with pytest.raises(DataError, match=rf"RuntimeError: {message} \("):
            load_strategy(f"{own_file}:replaying").make(
                SETUP, ARGUMENTS._replace(replay_batch_size=size)
            )


def test_a_user_strategy_that_takes_the_number_of_tasks_depends_on_it(own_file):
    names = "planned", "sized"
    assert [load_strategy(f"{own_file}:{name}").planned_total for name in names] == ["tasks", None]


@pytest.mark.parametrize(("size", "expected"), [(None, 200), (60, 60)])
def test_a_user_strategy_s_buffer_size_is_the_whole_memory_s(own_file, size, expected):
    with pytest.raises(DataError, match=rf"RuntimeError: {expected} \("):
        load_strategy(f"{own_file}:sized").make(SETUP, ARGUMENTS._replace(buffer_size=size))


@pytest.mark.parametrize(
    ("requested", "message"),
    [
        ("own.py", r"give my_file.py:my_strategy, a function from a Setup"),
        ("none.py:mine", r"none.py does not exist"),
        ("own.py:mime", r"has no 'mime'; did you mean 'mine'"),
        ("own.py:number", r"own\.py:number is int; give my_file"),
        ("own.py:nothing", r"returned NoneType; it must return a Strategy"),
        (
            "own.py:pulled",
            r"parameter 'hyperparameter', which .*a default, or the file a tuple HYPERPARAMETERS",
        ),
        (
            "own.py:wanting",
            r"has the parameter 'courage', which no value fills; give it a default$",
        ),
        ("own.py:naive", r"the table has a method 'naive'; rename yours"),
        ("broken.py:mine", r"broken.py cannot be run \(SyntaxError"),
        ("own.txt:mine", r"own.txt is not a Python file"),
    ],
)
def test_unusable_user_strategies_are_refused(tmp_path, own_file, monkeypatch, requested, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.py").write_text("def mine(:")
    (tmp_path / "own.txt").write_text(SOURCE_CODE)
    refused(message, lambda: run(tmp_path / "runs", "--strategy", requested), DataError)


def test_two_of_one_name_are_refused(tmp_path, own_file):
    with pytest.raises(DataError, match="two strategies have the same name; rename one"):
        run(tmp_path / "runs", "--strategy", f"{own_file}:mine", f"{own_file}:mine")


@pytest.mark.parametrize(
    ("more", "name", "message"),
    [
        ("HYPERPARAMETERS = 5", "pulled", r"HYPERPARAMETERS is 5; give a tuple of finite numbers"),
        ("HYPERPARAMETERS = 'abc'", "pulled", r"HYPERPARAMETERS is 'abc'; give a tuple"),
        ("HYPERPARAMETERS = ('a', 'b')", "pulled", r"give a tuple of finite numbers"),
        ("HYPERPARAMETERS = (float('nan'), 1.0)", "pulled", r"\(nan, 1\.0\); give a tuple"),
        ("HYPERPARAMETERS = (1, 1.0)", "pulled", r"is \(1, 1\.0\); give a tuple .*, each once"),
        ("HYPERPARAMETERS = (10**400,)", "pulled", r"give a tuple of finite numbers"),
        ("HYPERPARAMETERS = (1e39, 2.0)", "pulled", r"give a tuple of finite numbers"),
        ("HYPERPARAMETERS = (1.0, 1.00000001)", "pulled", r"give a tuple .*, each once"),
        ("HYPERPARAMETERS = (-1.0, 1.0)", "pulled", r"numbers of 0 or more"),
        ("def alone(): return 1", "alone", r"alone takes no setup; give my_file"),
        ("def named(*, setup): return 1", "named", r"named takes no setup; give my_file"),
        (
            "def __getattr__(name): raise RuntimeError('no')",
            "mime",
            r"own\.py cannot be run \(RuntimeError: no\)",
        ),
        (
            "class Odd:\n    def __repr__(self): raise RuntimeError('no')\nHYPERPARAMETERS = Odd()",
            "pulled",
            r"own\.py:pulled: RuntimeError: no \(own\.py, line \d+\)",
        ),
        ("import sys; sys.exit(0)", "mine", r"own\.py cannot be run \(SystemExit: 0\)"),
    ],
)
def test_files_that_would_be_misunderstood_are_refused(own_file, more, name, message):
    own_file.write_text(f"{SOURCE_CODE}\n{more}\n")
    refused(message, lambda: load_strategy(f"{own_file}:{name}"), DataError)


FAILING = """
import jax.numpy as jnp
from everlight.continual import experience_replay, naive

def building(setup):
    BUILDING
    return naive(setup)

def stepping(setup):
    base = naive(setup)
    def grads(memory, learner, batch, task, key):
        STEPPING
        return base.grads(memory, learner, batch, task, key)
    return base._replace(grads=grads)
"""


@pytest.mark.parametrize(
    ("place", "code", "message"),
    [
        ("building", "setup.nothing", r"AttributeError: .*'nothing' \(own\.py, line 6\)"),
        (
            "building",
            "experience_replay(setup, buffer_size=-1)",
            r"buffer_size=-1; give .* \(own\.py, line 6; raised in everlight\.",
        ),
        (
            "stepping",
            "batch.inputs @ jnp.zeros(3)",
            r"TypeError: dot_general requires .* \(own\.py, line 12\)",
        ),
        (
            "stepping",
            "return {}, base.grads(memory, learner, batch, task, key)[1]",
            r"--strategy stepping: grads must return a gradient with .*; it returned \{\}$",
        ),
        ("stepping", "raise SystemExit(3)", r"stepping ends the process \(3\)"),
    ],
)
def test_errors_of_a_user_strategy_are_one_line_before_a_folder_is_made(
    tmp_path, own_file, place, code, message
):
    text = FAILING.replace(place.upper(), code)
    own_file.write_text(text.replace("BUILDING", "pass").replace("STEPPING", "pass"))
    runs = tmp_path / "runs"
    refused(message, lambda: run(runs, "--strategy", f"{own_file}:{place}"), DataError)
    assert not runs.exists()


def test_errors_within_the_library_name_both_lines(own_file):
    own_file.write_text(
        "from everlight.trees import tree_bytes\ndef mine(setup): return tree_bytes(1)\n"
    )
    refused(
        r"no attribute 'size' \(own\.py, line 2; raised in everlight\.trees, line \d+\)$",
        lambda: load_strategy(f"{own_file}:mine").make(SETUP, ARGUMENTS),
        DataError,
    )
