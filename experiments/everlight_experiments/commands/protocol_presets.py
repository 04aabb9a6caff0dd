"""Protocols of the literature as presets of `everlight run`.

Presets:
  der: class-incremental tables of Buzzega et al. 2020 (NeurIPS) as in Mammoth, with its settings
    of each method for the buffer;
  ocl: online class-incremental learning as in the code of PCR (Lin et al. 2023), with one pass in
    batches of 10;
  three-scenarios: split MNIST of van de Ven et al. 2022, with 2,000 steps per task.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from everlight.continual import Protocol
from everlight_experiments.continual.benchmarks.statements import general_statement
from everlight_experiments.der.config import CONFIGS as DER
from everlight_experiments.images.config import Config
from everlight_experiments.images.methods.published_settings import PUBLISHED
from everlight_experiments.rethinking_er.config import FASHION
from everlight_experiments.run_folder.options import ProtocolPreset
from everlight_experiments.three_scenarios.config import MNIST as THREE_SCENARIOS

BUFFER = 500
"""Samples of the preset der: every data set has settings for this size."""
# Mammoth's sequential MNIST differs from the authors' Fashion-MNIST in the hidden layers.
_DER_MNIST = replace(FASHION, data="mnist", net="mlp:100,100")
_ONLINE = Config(
    data="cifar100",
    pixels="unit",
    tasks=(10,),
    net="slim-resnet18",
    loss_classes="all",
    optimizer="sgd",
    learning_rate=0.1,
    # Length and batch of the settings that are not online, such as joint training's.
    protocol=Protocol(epochs=1, batch_size=10, select="last"),
    online_batch=10,
    replay_batch_size=10,
    buffer_size=1000,
    validation_fraction=0.0,
    chosen=general_statement(
        "Network, optimizer, learning rate, batches and memory are published in the code of PCR "
        "(FelixHuiweiLin/PCR). Its methods' augmentation is left out."
    ),
)
# The memory of the code's command for CIFAR-10. Five tasks are the literature's; the code's default
# of 10 would have one class each.
_ONLINE_CIFAR10 = replace(_ONLINE, data="cifar10", tasks=(5,), buffer_size=200)


def _as_mammoth_reports(config: Config) -> Config:
    """Return a configuration with Class-IL and Task-IL, a buffer, and the learning rate of SGD.

    Joint training has that rate, and so have methods without settings in Mammoth.
    """
    settings = PUBLISHED[config.data, config.stream].with_buffer(BUFFER)
    return replace(
        config,
        learning_rate=settings["naive"].learning_rate,
        buffer_size=BUFFER,
        metrics=("task-masked accuracy",),
        chosen=general_statement(
            "Network, optimizer, length and batch are published in Mammoth (aimagelab/mammoth)."
        ),
    )


PROTOCOL_CONFIGS: Mapping[str, Mapping[ProtocolPreset, Config]] = {
    "mnist": {
        "der": _as_mammoth_reports(_DER_MNIST),
        "three-scenarios": replace(
            THREE_SCENARIOS,
            chosen=general_statement(
                "Network, optimizer, length, batch and memory are published in the authors' code "
                "(GMvandeVen/continual-learning)."
            ),
        ),
    },
    "cifar10": {"der": _as_mammoth_reports(DER["split-cifar10"]), "ocl": _ONLINE_CIFAR10},
    "cifar100": {
        "der": _as_mammoth_reports(DER["split-cifar100"]),
        "ocl": _ONLINE,
    },
    "tiny-imagenet-64": {"der": _as_mammoth_reports(DER["split-tiny-imagenet"])},
}
"""Configurations by benchmark and preset."""
PROTOCOL_OPTIONS: Mapping[ProtocolPreset, Mapping[str, Any]] = {
    "der": {"methods": ("joint", "ER", "DER", "DER++"), "hyperparameters": ("published",)},
    "ocl": {"methods": ("joint", "ER", "A-GEM", "PCR"), "setting": ("online",)},
    "three-scenarios": {"methods": ("joint", "ER", "A-GEM", "iCaRL")},
}
"""Defaults of other options of `everlight run`, by preset. No method needs validation images, which
the protocols do not have."""
