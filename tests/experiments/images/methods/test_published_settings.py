"""Published settings: they fit the methods, and the command applies them or says why not."""

import inspect
from dataclasses import replace

import pytest

from everlight.continual import Protocol
from everlight.continual.methods.method import StrategyArguments
from everlight.continual.methods.registry import METHODS
from everlight.continual.methods.replay_variants import with_variants
from everlight_data.errors import DataError
from everlight_experiments.cli import options_of
from everlight_experiments.commands.load_and_train import load_suite
from everlight_experiments.continual.benchmarks.statements import statement_paragraph
from everlight_experiments.continual.training.hyperparameters import read_hyperparameters
from everlight_experiments.images.config import CONFIGS, config_of
from everlight_experiments.images.methods.published import with_published_settings
from everlight_experiments.images.methods.published_settings import PUBLISHED

FASHION = replace(CONFIGS["fashion-mnist"]["demo"], pixels="unit", buffer_size=500)
SGD = Protocol(epochs=1, batch_size=128, select="last")
PERMUTED = replace(FASHION, data="mnist", stream="permuted", protocol=SGD)


def settings(key, name, buffer_size):
    result = PUBLISHED[key].with_buffer(buffer_size)[name]
    return result.learning_rate, result.replay_batch_size, result.hyperparameter, result.arguments


@pytest.mark.parametrize("key", PUBLISHED, ids=" ".join)
def test_every_value_is_for_something_that_the_method_has(key):
    for name, by_size in PUBLISHED[key].methods.items():
        method = METHODS[name]
        assert (None in by_size) != method.stores_samples
        for item in by_size.values():
            assert item.arguments.keys() <= inspect.signature(method.factory).parameters.keys()
            assert (item.hyperparameter is None) or method.hyperparameters


@pytest.mark.parametrize(
    ("key", "name", "size", "expected"),
    [
        (("fashion-mnist", "classes"), "ER", 200, (0.03, 128, None, {})),
        (("fashion-mnist", "classes"), "GEM", 1000, (0.03, None, None, {"margin": 1.0})),
        (("mnist", "classes"), "naive", 500, (0.03, None, None, {})),
        (("mnist", "classes"), "ER", 200, (0.01, 10, None, {})),
        (("mnist", "classes"), "ER", 500, (0.1, 10, None, {})),
        (("mnist", "classes"), "DER++", 200, (0.03, 128, None, {"alpha": 0.2, "beta": 1.0})),
        (("mnist", "classes"), "online EWC", 500, (0.03, None, 180, {})),
        (("mnist", "classes"), "SI", 500, (0.1, None, 1.0, {"damping": 0.9})),
        (("mnist", "permuted"), "ER", 5120, (0.2, 128, None, {})),
        (("mnist", "permuted"), "DER", 5120, (0.2, 128, None, {"alpha": 0.5})),
        (("mnist", "permuted"), "DER++", 200, (0.1, 128, None, {"alpha": 1.0, "beta": 1.0})),
        (("mnist", "rotated"), "DER", 500, (0.2, 128, None, {"alpha": 0.5})),
        (("mnist", "rotated"), "A-GEM", 5120, (0.3, 128, None, {})),
        (("mnist", "rotated"), "A-GEM", 500, (0.3, 128, None, {})),
        (("cifar10", "classes"), "naive", 500, (0.1, None, None, {})),
        (("cifar10", "classes"), "ER", 500, (0.1, 32, None, {})),
        (("cifar10", "classes"), "ER", 5120, (0.1, 32, None, {})),
        (("cifar10", "classes"), "DER++", 500, (0.03, 32, None, {"alpha": 0.2, "beta": 0.5})),
        (("cifar100", "classes"), "DER++", 500, (0.03, 32, None, {"alpha": 0.1, "beta": 0.5})),
        (("cifar100", "classes"), "BiC", 2000, (0.03, None, None, {})),
        (("tiny-imagenet", "classes"), "DER", 200, (0.03, 32, None, {"alpha": 0.1})),
        (("tiny-imagenet", "classes"), "DER++", 500, (0.03, 32, None, {"alpha": 0.2, "beta": 0.5})),
        (("tiny-imagenet", "classes"), "online EWC", 200, (0.03, None, 50, {})),
    ],
    ids=str,
)
def test_values_are_those_of_the_sources(key, name, size, expected):
    """The sources were read once more for this test."""
    assert settings(key, name, size) == expected


def test_a_configuration_has_each_method_s_values_and_names_the_others():
    methods = [METHODS[name] for name in ("naive", "GEM", "ER", "SCR")]
    config = with_published_settings(FASHION, methods)
    er, gem, scr = (config_of(config, METHODS[name]) for name in ("ER", "GEM", "SCR"))
    assert (er.learning_rate, er.replay_batch_size) == (0.1, 128)
    assert (gem.learning_rate, gem.arguments) == (0.03, {"margin": 1.0})
    assert scr.learning_rate == FASHION.learning_rate
    assert "of naive, GEM, ER: published by Buzzega" in statement_paragraph(config.chosen)
    assert "None are published there for SCR: the benchmark's are kept." in statement_paragraph(
        config.chosen
    )
    arguments = StrategyArguments(5, 10, 50, buffer_size=500, arguments=gem.arguments)
    assert METHODS["GEM"].arguments(arguments)["margin"] == 1.0


def test_a_variant_has_the_settings_of_its_method():
    config = with_published_settings(FASHION, [METHODS["ER"]])
    _, review = with_variants([METHODS["ER"]], ("review",))
    assert review.name == "ER, review"
    assert config_of(config, review).learning_rate == 0.1


def test_coefficients_are_no_longer_searched():
    config = with_published_settings(PERMUTED, [METHODS["SI"], METHODS["online EWC"]])
    assert config.grids == {"SI": (0.5,), "online EWC": (1.4,)}


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (CONFIGS["digits"]["demo"], "settings are known for fashion-mnist and mnist"),
        (replace(FASHION, buffer_size=300), "buffers of 200 or 500 or 1000 samples; give --buffer"),
        (replace(FASHION, optimizer="adam"), "other options; give --optimizer sgd, or --hyp"),
        (CONFIGS["fashion-mnist"]["demo"], "other options; give --pixels unit, or --hyp"),
        (object(), "leave it out"),
    ],
)
def test_published_settings_are_refused_for_other_benchmarks(config, message):
    with pytest.raises(DataError, match=message):
        with_published_settings(config, [METHODS["ER"]])


def test_another_length_of_training_is_stated():
    config = with_published_settings(replace(FASHION, protocol=SGD), [METHODS["ER"]])
    expected = "selected these settings with --batch-size 10."
    assert expected in statement_paragraph(config.chosen)
    assert expected not in statement_paragraph(
        with_published_settings(FASHION, [METHODS["ER"]]).chosen
    )


def test_options_of_the_user_are_kept():
    config = with_published_settings(
        replace(FASHION, learning_rate=0.7), [METHODS["ER"]], ["learning-rate", "net"]
    )
    er = config_of(config, METHODS["ER"])
    assert (er.learning_rate, er.replay_batch_size) == (0.7, 128)


def test_the_command_takes_them_and_a_further_value(monkeypatch):
    """Digits have none, so they are given Fashion-MNIST's."""
    result = PUBLISHED["fashion-mnist", "classes"]
    monkeypatch.setitem(PUBLISHED, ("digits", "classes"), result)
    words = "--pixels unit --batch-size 10 --epochs 1 --optimizer sgd --net mlp:8"
    arguments = "--buffer-size 200 --seeds 1 --methods ER SI --hyperparameters published SI=0.1"
    loaded = load_suite(options_of("run", f"digits {words} {arguments}".split()))
    (benchmark,) = loaded.benchmarks.values()
    message = "Learning rates and coefficients of naive, ER: published by Buzzega"
    assert message in benchmark.selection.words
    for name in ("naive", "ER"):
        fingerprints, expected = benchmark.fingerprint(METHODS[name]), result.with_buffer(200)[name]
        assert fingerprints["learning_rate"] == expected.learning_rate
        assert fingerprints["replay_batch_size"] == expected.replay_batch_size
    values = {row.name: row.hyperparameters for row in loaded.methods}
    assert values["SI"] == (0.1,)


@pytest.mark.parametrize(
    ("requested", "message"),
    [
        (("EWC=1", "EWC=2,3"), "--hyperparameters has 'EWC' twice; give all its values in one"),
        (("EWC=1,1e39",), "--hyperparameters 'EWC=1,1e39'; give finite numbers of 0 or more"),
        (("EWC=nan",), "give finite numbers of 0 or more"),
        (("EWC=-1",), "'EWC=-1'; give finite numbers of 0 or more"),
        (("EWC=1,x",), "--hyperparameters 'EWC=1,x'; give numbers, as in EWC=1e2"),
        (("EWC",), r"--hyperparameters 'EWC'; give NAME=NUMBER,\.\.\., as in EWC"),
        (("EWc=1",), "no method with .*: 'EWc'; did you mean 'EWC'"),
    ],
)
def test_hyperparameters_that_would_be_others_are_refused(requested, message):
    with pytest.raises(DataError, match=message):
        read_hyperparameters(requested, [METHODS["EWC"]])


@pytest.mark.parametrize(
    "name",
    ["GPM", "TRGP", "CoFiMA", "shrink and perturb", "CBP", "ReDo", "streaming LDA", "RanDumb"],
)
def test_shares_above_1_are_no_hyperparameters(name):
    rows = [METHODS[name]]
    assert read_hyperparameters([f"{name}=0.5,1"], rows) == {name: (0.5, 1.0)}
    with pytest.raises(DataError, match=r"--hyperparameters '.*=1,2': .*=2.0; give .* 1"):
        read_hyperparameters([f"{name}=1,2"], rows)
