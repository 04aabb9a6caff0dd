"""Protocols of the literature as presets of `everlight run`, against numbers of official code."""

from dataclasses import asdict

import pytest

from everlight.continual.methods.registry import METHODS
from everlight_data.errors import DataError
from everlight_data.runs.configs import write_config
from everlight_data.runs.descriptions import as_json
from everlight_experiments import cli
from everlight_experiments.cli import options_of
from everlight_experiments.commands.load_and_train import configure_options
from everlight_experiments.commands.protocol_presets import PROTOCOL_CONFIGS, PROTOCOL_OPTIONS
from everlight_experiments.continual.benchmarks.statements import statement_paragraph
from everlight_experiments.images.config import config_of
from everlight_experiments.images.methods.published_settings import PUBLISHED
from tests.refusals import refused


def options(name, preset, *words):
    return options_of("run", [name, "--preset", preset, *words])


@pytest.mark.parametrize(
    ("name", "tasks", "epochs", "batch", "milestones", "net"),
    [
        ("mnist", 5, 1, 10, (), "mlp:100,100"),
        ("cifar10", 5, 50, 32, (), "resnet18"),
        ("cifar100", 10, 50, 32, (35, 45), "resnet18"),
        ("tiny-imagenet-64", 10, 100, 32, (), "resnet18"),
    ],
)
def test_der_has_the_lengths_of_mammoth(name, tasks, epochs, batch, milestones, net):
    """The numbers are those of `datasets/seq_*.py`, and of `utils/best_args.py` for the lengths."""
    config = options(name, "der").config
    protocol = config.protocol
    assert (config.tasks, protocol.epochs, protocol.batch_size) == ((tasks,), epochs, batch)
    assert (protocol.milestones, config.net) == (milestones, net)
    assert (config.optimizer, config.weight_decay, config.order) == ("sgd", 0.0, "natural")
    assert config.augmentation == ("none" if name == "mnist" else "crop-and-flip")
    assert config.pixels == ("unit" if name == "mnist" else "channels")
    assert (config.validation_fraction, config.buffer_size) == (0.0, 500)


@pytest.mark.parametrize(
    ("name", "buffer", "method"),
    [
        *(("mnist", 500, "naive"), ("mnist", 500, "joint"), ("mnist", 200, "ER")),
        *(("mnist", 500, "ER"), ("cifar10", 500, "joint"), ("cifar10", 500, "DER++")),
    ],
)
def test_der_has_the_settings_that_mammoth_has_for_the_buffer(name, buffer, method):
    """The numbers are tested in `images/methods/test_published_settings.py`.

    Joint training has the learning rate of SGD.
    """
    source = "naive" if method == "joint" else method
    expected = PUBLISHED[name, "classes"].with_buffer(buffer)[source]
    chosen = options(name, "der", "--buffer-size", str(buffer))
    method = METHODS[method]
    config = config_of(configure_options(chosen, [method]).config, method)
    for name in ("learning_rate", "replay_batch_size", "arguments"):
        assert getattr(config, name) == getattr(expected, name)


def test_a_value_of_one_method_leaves_the_settings_of_the_others(capsys):
    """A short run states for which length the settings were selected."""
    words = ["--buffer-size", "200", "--hyperparameters", "EWC=20", "--epochs", "2"]
    methods = [METHODS["EWC"], METHODS["DER++"]]
    chosen = configure_options(options("cifar10", "der", *words), methods)
    assert chosen.hyperparameters == ("published", "EWC=20")
    derpp = config_of(chosen.config, METHODS["DER++"])
    expected = PUBLISHED["cifar10", "classes"].with_buffer(200)["DER++"]
    assert (derpp.learning_rate, derpp.arguments) == (expected.learning_rate, expected.arguments)
    assert "selected these settings with --epochs 50." in capsys.readouterr().err


@pytest.mark.parametrize("words", ["mnist:der --learning-rate 0.5", "--config {file}:MINE"])
def test_a_repeated_run_has_the_learning_rate_that_its_user_set(words, tmp_path):
    """Mammoth's replay batch for ER is 10; its learning rate, 0.1, gives way to the user's."""
    file, stored = tmp_path / "mine.py", tmp_path / "config.json"
    file.write_text(
        "from dataclasses import replace\n"
        "from everlight_experiments.images.config import CONFIGS\n"
        "DEMO = replace(CONFIGS['mnist']['demo'], pixels='unit', optimizer='sgd')\n"
        "MINE = replace(DEMO, buffer_size=500, learning_rate=0.5)\n"
    )
    words = [*words.format(file=file).split(), "--hyperparameters", "published"]
    first = options_of("run", words)
    write_config(stored, as_json(asdict(first)), {})
    for chosen in (first, options_of("run", ["--config", str(stored)])):
        config = configure_options(chosen, [METHODS["ER"]]).config
        er = config_of(config, METHODS["ER"])
        assert (er.learning_rate, er.replay_batch_size) == (0.5, 10)


@pytest.mark.parametrize(("name", "tasks", "memory"), [("cifar10", 5, 200), ("cifar100", 10, 1000)])
def test_ocl_is_one_pass_with_the_values_of_pcr(name, tasks, memory):
    """Defaults of `general_main.py`, the README's memory; five tasks are the literature's."""
    chosen = options(name, "ocl")
    config = chosen.config
    assert chosen.setting == ("online",)
    assert (config.online_batch, config.replay_batch_size) == (10, 10)
    assert (config.optimizer, config.learning_rate, config.weight_decay) == ("sgd", 0.1, 0.0)
    assert (config.tasks, config.buffer_size, config.net) == ((tasks,), memory, "slim-resnet18")
    assert (config.pixels, config.loss_classes, config.order) == ("unit", "all", "seeded")
    assert options(name, "ocl", "--setting", "class-incremental").setting == ("class-incremental",)


def test_three_scenarios_have_the_values_of_the_authors_code():
    """The numbers are those of `params/param_values.py` for splitMNIST."""
    config = options("mnist", "three-scenarios").config
    protocol = config.protocol
    assert (config.tasks, protocol.epochs * protocol.epoch_steps) == ((5,), 2000)
    assert (protocol.batch_size, protocol.new_optimizer) == (128, False)
    assert (config.optimizer, config.learning_rate) == ("adam", 0.001)
    assert (config.net, config.exemplars_per_class, config.pixels) == ("mlp:400,400", 100, "unit")


def test_no_default_method_needs_validation_images():
    for chosen in PROTOCOL_OPTIONS.values():
        assert all(METHODS[name].hyperparameters == () for name in chosen["methods"])


def test_every_preset_names_its_source():
    presets = [preset for configs in PROTOCOL_CONFIGS.values() for preset in configs]
    assert set(presets) == set(PROTOCOL_OPTIONS)
    for configs in PROTOCOL_CONFIGS.values():
        for config in configs.values():
            assert "published in" in statement_paragraph(config.chosen)


@pytest.mark.parametrize(
    ("command", "words", "message"),
    [
        ("run", ["digits", "--preset", "ocl"], "ocl is for cifar10, cifar100; digits has demo"),
        ("run", ["mnist:ocl"], "mnist has demo, small, paper, der, three-scenarios"),
        ("tune", ["mnist:der"], "der is for everlight run mnist; everlight tune takes demo, small"),
    ],
)
def test_a_preset_of_another_benchmark_or_command_is_refused(command, words, message):
    refused(message, lambda: options_of(command, words), DataError)


def test_help_has_the_values_of_the_preset_and_the_page(capsys):
    with pytest.raises(SystemExit):
        cli.main(["run", "cifar100", "--preset", "der", "--help"])
    words = " ".join(capsys.readouterr().out.split())
    for expected in (
        "[published]",
        "--milestones 35 45",
        "--epochs 50 --first-epochs None --batch-size 32",
        "defaults unlike Mammoth's and Avalanche's: docs/pages/guide/runner.md.",
    ):
        assert expected in words
