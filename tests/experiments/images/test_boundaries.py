"""The option --no-boundaries: which methods it leaves out, what they see, and what reports say."""

import pytest

from everlight.continual.methods.method import INCOMPATIBILITIES, incompatibility
from everlight.continual.methods.registry import METHODS
from everlight_data.errors import DataError
from everlight_experiments.cli import options_of
from everlight_experiments.commands.load_and_train import load_suite
from everlight_experiments.continual.training.programs import MethodPrograms, method_on
from tests.experiments.command_runs import run

ONLINE = ("digits", "--setting", "online", "--tasks", "2", "--validation-seeds", "1")
ACTING = ("EWC", "SI", "LwF", "iCaRL", "joint")
NOT_ACTING = ("naive", "ER", "DER++", "MIR", "nearest mean", "streaming LDA")


def loaded(*words):
    return load_suite(options_of("run", [*ONLINE, "--methods", "all", *words]))


def test_without_boundaries_methods_that_act_at_them_are_left_out():
    benchmarks, methods, *_ = loaded("--no-boundaries")
    (benchmark,) = benchmarks.values()
    capabilities = benchmark.setting.capabilities
    by_name = {method.name: incompatibility(method, capabilities) for method in methods}
    assert {by_name[name] for name in ACTING} == {INCOMPATIBILITIES["task boundaries"]}
    assert {by_name[name] for name in NOT_ACTING} == {None}
    runner = MethodPrograms(benchmark)
    assert not any(runner.protocol(METHODS[name]).boundaries for name in NOT_ACTING)


def test_by_default_online_boundaries_are_for_methods_that_act_at_them():
    (benchmark,) = loaded().benchmarks.values()
    runner = MethodPrograms(benchmark)
    assert runner.protocol(METHODS["EWC"]).boundaries
    assert not runner.protocol(METHODS["ER"]).boundaries
    assert method_on(benchmark, METHODS["EWC"]).requirements == METHODS["EWC"].requirements


def test_no_setting_has_boundaries_without_them():
    settings = ("class-incremental", "task-incremental")
    words = ["digits", "--setting", *settings, "--no-boundaries", "--methods", "naive"]
    benchmarks = load_suite(options_of("run", words)).benchmarks
    assert benchmarks.keys() == {*settings}
    for benchmark in benchmarks.values():
        assert "task boundaries" not in benchmark.setting.capabilities


def test_a_report_lists_methods_that_see_a_class_from_its_first_sample(tmp_path):
    words = ["--methods", "EWC", "--hyperparameters", "EWC=1", "--seeds", "1"]
    page = run(tmp_path, *ONLINE, *words).read_text()
    assert "online task boundaries given to methods that act at them" in page
    table = page.split("Learning rates and arguments")[1]
    rows = {name: table.split(f"<td>{name}</td>")[1].split("</tr>")[0] for name in ("naive", "EWC")}
    assert "no task boundaries" in rows["naive"]
    assert "no task boundaries" not in rows["EWC"]


SOURCE_CODE = """
from everlight.continual import naive

def my_strategy(setup):
    return naive(setup)._replace(end_task=lambda memory, learner, task, key: (memory, learner))
"""


def test_user_strategies_with_boundary_hooks_are_refused(tmp_path):
    file = tmp_path / "mine.py"
    file.write_text(SOURCE_CODE)
    words = ["--no-boundaries", "--methods", "naive", "--strategy", f"{file}:my_strategy"]
    with pytest.raises(DataError, match=r"^my_strategy acts at the start or end of a task"):
        run(tmp_path / "runs", *ONLINE, *words)
