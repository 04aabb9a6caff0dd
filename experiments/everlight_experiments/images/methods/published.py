"""`--hyperparameters published`: a configuration with the settings that authors published."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from everlight.continual.methods.method import Method
from everlight_data.errors import DataError
from everlight_experiments.continual.benchmarks.statements import general_statement
from everlight_experiments.images.config import Config, MethodSettings
from everlight_experiments.images.methods.published_settings import (
    PUBLISHED,
    PublishedSettings,
)

WORD = "published"
"""Word that stands for published settings in `--hyperparameters`."""
SETTING_OPTIONS = ("learning-rate", "replay-batch-size", "weight-decay")
"""Options that published settings have."""


def with_published_settings(
    config: Any, methods: Sequence[Method], options: Sequence[str] = ()
) -> Config:
    """Return a configuration in which methods have the published settings for its data and buffer.

    Methods without them keep their own; the configuration's `chosen` names both, and a length of
    training that is another than the source's.

    Args:
      config: configuration of a run.
      methods: methods of the run.
      options: those that the user set, whose values published ones do not replace.

    Raises:
      DataError: no settings are known for the data or the buffer, or they were selected for another
        optimizer or other scales of the images.
    """
    known = " and ".join(
        f"{data} ({stream})" if stream != "classes" else data for data, stream in PUBLISHED
    )
    paper = PUBLISHED.get((config.data, config.stream)) if isinstance(config, Config) else None
    if paper is None:
        raise DataError(f"--hyperparameters {WORD}: settings are known for {known}; leave it out")
    scales = {
        f"--pixels {paper.pixels}": config.pixels == paper.pixels,
        "--optimizer sgd": config.optimizer == "sgd",
    }
    if others := _unequal(scales):
        raise DataError(
            f"--hyperparameters {WORD}, which a preset may set: {paper.source} selected them with "
            f"other options; give {others}, or --hyperparameters without a value for the methods' "
            "grids"
        )
    settings = paper.with_buffer(config.buffer_size)
    names = list(dict.fromkeys(method.row_name for method in methods))
    having = [name for name in names if name in settings]
    others = [name for name in names if name not in settings]
    words = (
        f"Learning rates and coefficients of {', '.join(having)}: published by {paper.source}, who "
        "train on all images, in natural order (--order natural --validation-fraction 0)."
    )
    if others:
        words += f" None are published there for {', '.join(others)}: the benchmark's are kept."
    if other_length := selected_length(config):
        words += f" {other_length}"
    unset = {name.replace("-", "_"): None for name in options if name in SETTING_OPTIONS}
    published = {name: replace(row, **unset) for name, row in settings_of(settings).items()}
    return replace(
        config,
        method_settings={**config.method_settings, **published},
        grids={**config.grids, **grids_of({name: settings[name] for name in having})},
        chosen=general_statement(words),
    )


def selected_length(config: Config) -> str:
    """Return the source's length of training in a sentence where a run has another, else ""."""
    paper, protocol = PUBLISHED[config.data, config.stream], config.protocol
    pairs = {
        f"--batch-size {paper.batch_size}": protocol.batch_size == paper.batch_size,
        f"--epochs {paper.epochs}": protocol.epochs == paper.epochs,
        " ".join(["--milestones", *map(str, paper.milestones)]): protocol.milestones
        == paper.milestones,
    }
    options = _unequal(pairs)
    return f"{paper.source} selected these settings with {options}." if options else ""


def _unequal(pairs: Mapping[str, bool]) -> str:
    """Return the options, with the source's values, that are set to other values."""
    return " ".join(option for option, same in pairs.items() if not same)


def grids_of(published: Mapping[str, PublishedSettings]) -> dict[str, tuple[float, ...]]:
    """Return the grid of one value of every method with a published hyper-parameter."""
    return {
        name: (row.hyperparameter,)
        for name, row in published.items()
        if row.hyperparameter is not None
    }


def settings_of(published: Mapping[str, PublishedSettings]) -> dict[str, MethodSettings]:
    """Return published settings as a configuration has them, by method."""
    return {
        name: MethodSettings(
            row.learning_rate, row.replay_batch_size, row.weight_decay, row.arguments
        )
        for name, row in published.items()
    }
