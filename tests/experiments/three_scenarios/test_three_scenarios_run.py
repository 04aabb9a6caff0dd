"""The command of the three scenarios on digits: columns, settings by scenario, joint training."""

from dataclasses import replace
from itertools import pairwise

import pytest

from everlight_data.errors import DataError
from everlight_experiments.cli import options_of
from everlight_experiments.continual.benchmarks.benchmark import Request
from everlight_experiments.images.config import config_of
from everlight_experiments.images.data import load_inputs
from everlight_experiments.three_scenarios import config as settings
from everlight_experiments.three_scenarios import paper
from tests.experiments.command_runs import arrays_of
from tests.refusals import refused

FULL = settings.PAPER_PRESETS["paper"]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    words = ["--runs", str(tmp_path_factory.mktemp("runs"))]
    demo = settings.PAPER_PRESETS["demo"]
    benchmark = replace(demo.benchmark, protocol=replace(demo.benchmark.protocol, epochs=3))
    tiny = replace(demo, benchmark=benchmark, methods=("none",), seeds=1)
    report = paper.PAPER.run(replace(options_of("paper three-scenarios", words), config=tiny))
    return report, arrays_of(report)


def test_every_scenario_is_a_column_that_is_harder_than_the_one_before(results):
    report, arrays = results
    accuracies = [arrays[f"{name}/none/accuracy"][0, -1] for name in settings.SCENARIOS]
    assert accuracies[0] > accuracies[1] > accuracies[2]
    # Digits are not the paper's data.
    assert "Published and own numbers" not in report.read_text()


@pytest.mark.parametrize(
    ("scenario", "ewc", "si", "fromp"),
    [
        ("task-incremental", 1e5, 10, 0.01),
        ("domain-incremental", 1e10, 50_000, 10),
        ("class-incremental", 1e9, 5000, 1000),
    ],
)
def test_every_scenario_has_the_coefficients_of_the_authors(scenario, ewc, si, fromp):
    """The numbers are those of `param_values.py`."""
    config, methods, _ = FULL.column_of(scenario)
    assert [config.grids[name] for name in ("EWC", "SI", "FROMP")] == [(ewc,), (si,), (fromp,)]
    assert [method.name for method in methods] == list(settings.PAPER_METHODS)


@pytest.mark.parametrize(
    ("scenario", "gates"),
    [
        ("task-incremental", {"gated_share": 0.0}),
        ("domain-incremental", {"gating": "task"}),
        ("class-incremental", {}),
    ],
)
def test_every_scenario_has_the_gates_of_the_authors_code(scenario, gates):
    """A tenth of the decoder's units is closed by default, for every class."""
    _, methods, _ = FULL.column_of(scenario)
    (row,) = (method for method in methods if method.name == "BI-R")
    assert dict(row.fixed) == {"likelihood": "bernoulli", **gates}


@pytest.mark.parametrize("scenario", settings.SCENARIOS)
def test_steps_and_memory_are_those_of_the_authors(scenario):
    config, methods, _ = FULL.column_of(scenario)
    for method in methods:
        protocol = config_of(config, method).protocol
        steps = protocol.epochs * protocol.epoch_steps
        # Joint training takes all steps at its only task.
        assert steps == (10_000 if method.name == "joint" else 2000)
    labels = 2 if scenario == "domain-incremental" else 10
    assert config.exemplars_per_class * labels == 1000


def test_joint_training_has_the_steps_of_all_tasks_whose_sizes_are_given():
    sized = replace(FULL, benchmark=replace(FULL.benchmark, tasks=(4, 3, 3)))
    config, *_ = sized.column_of("class-incremental")
    assert config_of(config, settings.PAPER_METHODS["joint"]).protocol.epochs == 3 * 20


@pytest.mark.parametrize(("preset", "inputs"), [("demo", 8 * 8), ("paper", 28 * 28)])
def test_five_separate_networks_have_about_as_many_parameters_as_one(preset, inputs):
    config, *_ = settings.PAPER_PRESETS[preset].column_of("task-incremental")

    def parameters(name):
        net = config_of(config, settings.PAPER_METHODS[name]).net
        units = [inputs, *map(int, net.removeprefix("mlp:").split(",")), 10]
        return sum((below + 1) * above for below, above in pairwise(units))

    assert 5 * parameters("separate networks") == pytest.approx(parameters("none"), rel=0.1)


def test_a_method_s_network_is_the_one_of_its_settings():
    config, methods, setting = settings.PAPER_PRESETS["demo"].column_of("task-incremental")
    inputs = load_inputs(Request("digits", config, (setting,)))
    hidden = {method.name: inputs.network_of(method).shape.hidden for method in methods}
    assert set(hidden.values()) == {(100, 100)}
    separate = inputs.network_of(settings.PAPER_METHODS["separate networks"])
    assert separate.shape.hidden == (32, 32)
    assert separate.shape.classes == 10


def test_numbers_of_the_authors_code_are_of_methods_of_the_command():
    for reference in paper.REFERENCES:
        assert reference.method in FULL.methods
        assert reference.column in FULL.scenarios
        assert 0 < reference.code.mean < 1


def test_numbers_of_another_network_are_not_compared():
    assert paper.TABLE.is_comparable(FULL)
    assert not paper.TABLE.is_comparable(replace(FULL, separate_net="mlp:8"))


@pytest.mark.parametrize("words", ["--stream permuted", "--stream-draws seeded"])
def test_options_of_streams_are_refused_since_the_scenarios_set_them(words, tmp_path):
    options = options_of("paper three-scenarios", [*words.split(), "--runs", str(tmp_path)])
    option = words.split()[0]
    message = f"^{option} is not read here, where the scenarios set it; leave it out$"
    refused(message, lambda: paper.PAPER.run(options), DataError)
    assert not [*tmp_path.iterdir()]
