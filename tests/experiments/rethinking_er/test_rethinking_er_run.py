"""The paper's command on digits: columns, settings by method, and --check."""

import re
from dataclasses import replace

import pytest

from everlight.continual import Protocol
from everlight.continual.methods.registry import METHODS
from everlight_data.errors import DataError
from everlight_experiments.cli import options_of
from everlight_experiments.continual.report.reproduction import PublishedComparison, ReferenceScore
from everlight_experiments.images.config import MethodSettings, config_of
from everlight_experiments.rethinking_er import config as settings
from everlight_experiments.rethinking_er import paper
from everlight_experiments.three_scenarios import paper as three_scenarios
from tests.experiments.command_runs import arrays_of
from tests.refusals import refused

TINY = settings.PaperConfig(
    replace(
        settings.DIGITS, net="mlp:16", protocol=Protocol(epochs=1, batch_size=64, select="last")
    ),
    methods=("SGD", "ER"),
    buffer_sizes=(50, 100),
    seeds=2,
)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    runs = tmp_path_factory.mktemp("runs")
    report = paper.PAPER.run(options_with(runs))
    return report, arrays_of(report)


def options_with(runs, *words):
    return replace(options_of("paper rethinking-er", ["--runs", str(runs), *words]), config=TINY)


def test_methods_with_a_memory_have_a_column_per_buffer(finished):
    report, results = finished
    assert results["no memory/SGD/accuracy"].shape == (2, 5)
    for size in (50, 100):
        column = f"buffer of {size}/ER"
        assert results[f"{column}/accuracy"].shape == (2, 5)
        assert results[f"{column}/stored_samples"].max() == size
    assert "no memory/ER/accuracy" not in results
    page = report.read_text()
    # Digits are not the paper's data.
    assert "Published and own numbers" not in page
    assert "Settings of each method" in page
    # The settings replay 128 samples, and a step draws no more than the memory has.
    rows = [re.findall("<td>(.*?)</td>", row) for row in page.split("<tr>")]
    assert ["ER", "buffer of 50", "0.03", "50", "0"] in rows
    assert ["ER", "buffer of 100", "0.03", "100", "0"] in rows


def test_every_method_has_the_authors_settings():
    """The numbers are those of `best_args.py` for Fashion-MNIST."""
    config = settings.PAPER_PRESETS["paper"]
    for size, er, icarl in ((200, (0.03, 128), 0.1), (500, (0.1, 128), 0.03)):
        benchmark = config.benchmark_of(size)
        assert benchmark.method_settings.keys() == settings.PAPER_METHODS.keys()
        method_config = config_of(benchmark, settings.PAPER_METHODS["ER"])
        assert (
            method_config.learning_rate,
            method_config.replay_batch_size,
            method_config.buffer_size,
        ) == (*er, size)
        # Weight decay is twice the coefficient of the squared norm.
        assert config_of(benchmark, settings.PAPER_METHODS["iCaRL"]).weight_decay == 2 * 0.0005
        assert config_of(benchmark, settings.PAPER_METHODS["iCaRL"]).learning_rate == icarl
        assert config_of(benchmark, settings.PAPER_METHODS["SGD"]).learning_rate == 0.2


def test_a_method_without_settings_has_the_benchmark_s():
    config = replace(settings.DIGITS, method_settings={"ER": MethodSettings(learning_rate=0.5)})
    assert config_of(config, METHODS["ER"]).learning_rate == 0.5
    assert config_of(config, METHODS["GEM"]).learning_rate == settings.DIGITS.learning_rate
    assert config_of(config, METHODS["ER"]).replay_batch_size == settings.DIGITS.replay_batch_size


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("--buffer-size 300", "--buffer-size is not read here; give --buffer-sizes"),
        ("--learning-rate 0.5", "--learning-rate is not read by SGD, joint, .*; leave it out"),
        ("--replay-batch-size 5", "--replay-batch-size is not read by ER, .*; leave it out"),
        ("--weight-decay 0.1", "--weight-decay is not read by iCaRL: .*; leave it out"),
        ("--methods ER Foo --learning-rate 0.3", r"no method 'Foo'\. There are 'SGD', 'joint',"),
    ],
)
def test_options_that_the_authors_settings_replace_are_refused(words, message, tmp_path):
    options = options_of("paper rethinking-er", [*words.split(), "--runs", str(tmp_path)])
    refused(message, lambda: paper.PAPER.run(options), DataError)
    assert not [*tmp_path.iterdir()]


def test_check_ends_with_the_differences_that_have_no_cause(finished):
    report, _ = finished
    known = PublishedComparison("buffer of 50", "ER", ReferenceScore(0.99))
    causes = {}
    table = paper.TABLE._replace(
        references=[known], causes=causes, is_comparable=lambda config: True
    )
    with_known = paper.PAPER._replace(
        sections=table.sections, unexplained_lines=table.unexplained_lines
    )
    options = options_with(report.parent.parent, "--check")
    with pytest.raises(SystemExit, match=r"ER, buffer of 50: .* standard errors from the publish"):
        with_known.run(options)
    with pytest.raises(
        DataError, match="no number was compared, since the run's data, settings or"
    ):
        paper.PAPER.run(options)
    causes["ER"] = "these are digits"
    assert with_known.run(options) == report
    assert "these are digits" in report.read_text()


@pytest.mark.parametrize("name", ["rethinking-er", "three-scenarios"])
@pytest.mark.parametrize(
    ("words", "comparable"),
    [
        ("--preset demo", False),
        ("--preset small", True),
        ("--preset paper", True),
        ("--preset small --seeds 1 --methods ER", True),
        ("--preset small --tasks 2", False),
        ("--preset small --per-class 100 50", False),
        ("--preset small --label-noise 0.5", False),
        ("--preset small --imbalance 10", False),
        ("--preset small --net mlp:8", False),
        ("--preset small --epochs 2", False),
        ("--preset small --batch-size 7", False),
    ],
)
def test_known_numbers_are_compared_with_runs_of_the_same_benchmark(name, words, comparable):
    table = {"rethinking-er": paper.TABLE, "three-scenarios": three_scenarios.TABLE}[name]
    assert table.is_comparable(options_of(f"paper {name}", words.split()).config) is comparable
