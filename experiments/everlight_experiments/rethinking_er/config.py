"""Split Fashion-MNIST of Buzzega et al. 2020: five tasks of two classes, each learned in one epoch.

Presets:
  demo: digits at 8 pixels with the paper's methods, two seeds; no data needed.
  small: Fashion-MNIST with SGD, joint training and ER at three buffers, ten seeds.
  paper: all methods at three buffers, ten seeds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from everlight.continual import Protocol
from everlight.continual.method import Method, Needs
from everlight.continual.registry import METHODS
from everlight_experiments.continual.config import UNNAMED, Config, MethodSettings
from everlight_experiments.run_folder.settings import Count, Preset

NO_MEMORY = ("SGD", "joint", "online EWC", "SI")
"""Methods without stored samples, which are trained once."""


def _with(name: str, **own: Any) -> Method:
    """Return a method with arguments that replace the registry's."""
    row = METHODS[name]
    return row._replace(given=lambda needs: row.given(needs) | own)


def _hal(needs: Needs) -> dict[str, Any]:
    large = needs.total_buffer_size >= 1000
    return METHODS["HAL"].given(needs) | {"regularization": 0.3 if large else 0.1}


# The authors' decay and batch size; then with one trick each.
_ALL = {"bias_batch_size": 10, "decay": 0.99995}
_NONE = _ALL | {"replacement": "uniform", "bias_epochs": 0, "decay": 1.0}
_ROWS: dict[str, Method] = {
    "SGD": METHODS["naive"],
    "joint": METHODS["joint"],
    "online EWC": METHODS["online EWC"]._replace(hyperparameters=(180.0,)),
    "SI": _with("SI", damping=0.9)._replace(hyperparameters=(1.0,)),
    "ER": METHODS["ER"],
    "ER-tricks": _with("ER-tricks", **_ALL),
    "ER with bias control": _with("ER-tricks", **_NONE | {"bias_epochs": 50}),
    "ER with rate decay": _with("ER-tricks", **_NONE | {"decay": 0.99995}),
    "ER with balanced reservoir": _with("ER-tricks", **_NONE | {"replacement": "balanced"}),
    "ER with loss-aware reservoir": _with("ER-tricks", **_NONE | {"replacement": "loss-aware"}),
    "GEM": _with("GEM", margin=1.0),
    "A-GEM": METHODS["A-GEM"],
    "HAL": METHODS["HAL"]._replace(given=_hal),
    "iCaRL": METHODS["iCaRL"],
}
PAPER_METHODS: dict[str, Method] = {
    name: row._replace(name=name, published=None) for name, row in _ROWS.items()
}
_FROM_TRICKS = [name for name in PAPER_METHODS if name.startswith("ER with")]


def authors_settings(buffer_size: int) -> Mapping[str, MethodSettings]:
    """Return the settings of the authors' code (`best_args.py`) for a buffer size.

    The code has none for online EWC and SI. These have Mammoth's for split MNIST.
    """
    large = buffer_size >= 1000
    tricks = MethodSettings(0.1 if large else 0.03, 32)
    return {
        "SGD": MethodSettings(0.2),
        "joint": MethodSettings(0.2),
        "online EWC": MethodSettings(0.03),
        "SI": MethodSettings(0.1),
        "ER": MethodSettings(0.03 if buffer_size <= 200 else 0.1, 128),
        "ER-tricks": tricks,
        **dict.fromkeys(_FROM_TRICKS, tricks),
        "GEM": MethodSettings(0.03),
        "A-GEM": MethodSettings(0.03, 128),
        "HAL": MethodSettings(0.03, 32 if buffer_size <= 200 else 128),
        # Their loss has 0.0005 times the squared norm, whose gradient is twice that.
        "iCaRL": MethodSettings(0.03 if buffer_size == 500 else 0.1, weight_decay=0.001),
    }


@dataclass(frozen=True)
class PaperConfig:
    """Configuration of the paper's command."""

    benchmark: Annotated[Config, UNNAMED]
    methods: tuple[str, ...] = tuple(PAPER_METHODS)
    """Methods to train: SGD, joint, online EWC, SI, ER, ER-tricks, ER with one trick each (bias
    control, rate decay, balanced reservoir, loss-aware reservoir), GEM, A-GEM, HAL, iCaRL."""
    buffer_sizes: tuple[Count, ...] = (200, 500, 1000)
    """Total numbers of stored samples; methods with a memory are trained with each."""
    seeds: Count = 10
    """Number of evaluation seeds, each with its own initial network and order of samples."""

    def benchmark_of(self, buffer_size: int) -> Config:
        """Return the benchmark with a buffer and the authors' settings for its size."""
        settings = authors_settings(buffer_size)
        return replace(self.benchmark, buffer_size=buffer_size, method_settings=settings)


FASHION = Config(
    data="fashion-mnist",
    pixels="unit",
    order="natural",
    net="mlp:256,256",
    initialization="xavier",
    loss_classes="all",
    optimizer="sgd",
    learning_rate=0.1,
    protocol=Protocol(epochs=1, batch_size=10, select="last"),
    validation_fraction=0.0,
    chosen="All is as in the authors' code, whose hidden layers have 256 units; the text says 100. "
    "Each method has the learning rate, the replay batch and the coefficients of that code.",
)
DIGITS = replace(FASHION, data="digits", net="mlp:100,100")
PAPER_PRESETS: Mapping[Preset, PaperConfig] = {
    "demo": PaperConfig(DIGITS, ("SGD", "joint", "ER", "ER-tricks", "iCaRL"), (200,), 2),
    "small": PaperConfig(FASHION, ("SGD", "joint", "ER")),
    "paper": PaperConfig(FASHION),
}
