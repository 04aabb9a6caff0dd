"""`--hyperparameters published`: a configuration with the settings that authors published."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from everlight.continual.method import Method
from everlight_data.errors import DataError
from everlight_data.images.published_settings import (
    PUBLISHED,
    PublishedProtocol,
    PublishedSettings,
)
from everlight_experiments.continual.config import Config, MethodSettings

WORD = "published"
"""Word that stands for published settings in `--hyperparameters`."""


def with_published_settings(config: Any, methods: Sequence[Method]) -> Config:
    """Return a configuration in which methods have the published settings for its data and buffer.

    Methods without them keep their own; the configuration's `chosen` names both.

    Raises:
      DataError: no settings are known for the data or the buffer, or the protocol is not the one
        that they were selected for.
    """
    known = " and ".join(
        f"{data} ({stream})" if stream != "classes" else data for data, stream in PUBLISHED
    )
    found = PUBLISHED.get((config.data, config.stream)) if isinstance(config, Config) else None
    if found is None:
        raise DataError(f"--hyperparameters {WORD}: settings are known for {known}; leave it out")
    others = _differing_options(config, found)
    if others:
        raise DataError(
            f"--hyperparameters {WORD}: {found.source} selected them with other values; give "
            f"{' '.join(others)}"
        )
    every = found.with_buffer(config.buffer_size)
    names = list(dict.fromkeys(method.row_name for method in methods))
    having = [name for name in names if name in every]
    others = [name for name in names if name not in every]
    words = (
        f"Learning rates and coefficients of {', '.join(having)}: published by {found.source}, who "
        "train on all images, in natural order (--order natural --validation-fraction 0)."
    )
    if others:
        words += f" None are published there for {', '.join(others)}: the benchmark's are kept."
    values = {name: every[name].hyperparameter for name in having}
    return replace(
        config,
        method_settings={**config.method_settings, **settings_of(every)},
        grids={**config.grids, **{name: (x,) for name, x in values.items() if x is not None}},
        chosen=words,
    )


def _differing_options(config: Config, found: PublishedProtocol) -> list[str]:
    """Return the options with the values that settings were selected for, where others are set."""
    protocol = config.protocol
    pairs = {
        f"--pixels {found.pixels}": config.pixels == found.pixels,
        "--optimizer sgd": config.optimizer == "sgd",
        f"--batch-size {found.batch_size}": protocol.batch_size == found.batch_size,
        f"--epochs {found.epochs}": protocol.epochs == found.epochs,
    }
    return [option for option, same in pairs.items() if not same]


def settings_of(published: Mapping[str, PublishedSettings]) -> dict[str, MethodSettings]:
    """Return published settings as a configuration has them, by method."""
    return {
        name: MethodSettings(
            each.learning_rate, each.replay_batch_size, each.weight_decay, each.arguments
        )
        for name, each in published.items()
    }
