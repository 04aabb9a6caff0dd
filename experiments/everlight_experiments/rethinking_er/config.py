"""Split Fashion-MNIST of Buzzega et al. 2020: five tasks of two classes, each learned in one epoch.

Presets:
  demo: digits at 8 pixels with the paper's methods, two seeds; no data needed.
  small: Fashion-MNIST with SGD, joint training and ER at three buffers, ten seeds.
  paper: all methods at three buffers, ten seeds.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from flax.core import FrozenDict

from everlight.continual import Protocol
from everlight.continual.methods.method import Method
from everlight.continual.methods.registry import METHODS
from everlight_data.errors import DataError
from everlight_experiments.continual.benchmarks.config import UNNAMED
from everlight_experiments.continual.benchmarks.run_data import Seeds
from everlight_experiments.continual.benchmarks.statements import general_statement
from everlight_experiments.images.config import Config, MethodSettings
from everlight_experiments.images.methods.published import SETTING_OPTIONS, settings_of
from everlight_experiments.images.methods.published_settings import PUBLISHED
from everlight_experiments.run_folder.options import Counts, Preset, check_methods


def _change_arguments(name: str, **arguments: Any) -> Method:
    """Return a method with arguments that replace the registry's."""
    row = METHODS[name]
    return row._replace(fixed=FrozenDict({**row.fixed, **arguments}))


_FASHION = PUBLISHED["fashion-mnist", "classes"]
# The authors' code has no settings for these two.
_MNIST = settings_of(PUBLISHED["mnist", "classes"].with_buffer(200))
_NONE = {"replacement": "uniform", "bias_epochs": 0, "decay": 1.0}
_ROWS: dict[str, Method] = {
    "SGD": METHODS["naive"],
    "joint": METHODS["joint"],
    "online EWC": METHODS["online EWC"]._replace(hyperparameters=(180.0,)),
    "SI": METHODS["SI"]._replace(hyperparameters=(1.0,)),
    "ER": METHODS["ER"],
    "ER-tricks": METHODS["ER-tricks"],
    "ER with bias control": _change_arguments("ER-tricks", **_NONE | {"bias_epochs": 50}),
    "ER with rate decay": _change_arguments("ER-tricks", **_NONE | {"decay": 0.99995}),
    "ER with balanced reservoir": _change_arguments(
        "ER-tricks", **_NONE | {"replacement": "balanced"}
    ),
    "ER with loss-aware reservoir": _change_arguments(
        "ER-tricks", **_NONE | {"replacement": "loss-aware"}
    ),
    "GEM": METHODS["GEM"],
    "A-GEM": METHODS["A-GEM"],
    "HAL": METHODS["HAL"],
    "iCaRL": METHODS["iCaRL"],
}
PAPER_METHODS: dict[str, Method] = {
    name: row._replace(name=name, published=None) for name, row in _ROWS.items()
}
_SIZES = sorted(_FASHION.methods["ER"])
_FROM_TRICKS = [name for name in PAPER_METHODS if name.startswith("ER with")]


def authors_settings(buffer_size: int) -> Mapping[str, MethodSettings]:
    """Return each method's settings for a buffer size, from the authors' code.

    The code has none for online EWC and SI, which have Mammoth's for split MNIST.
    """
    nearest = max((size for size in _SIZES if size <= buffer_size), default=_SIZES[0])
    settings = settings_of(_FASHION.with_buffer(nearest))
    settings["SGD"] = settings.pop("naive")
    tricks = settings["ER-tricks"]
    return {
        **settings,
        **{name: _MNIST[name] for name in ("online EWC", "SI")},
        **dict.fromkeys(_FROM_TRICKS, replace(tricks, arguments=None)),
    }


@dataclass(frozen=True)
class PaperConfig:
    """Configuration of the paper's command."""

    benchmark: Annotated[Config, UNNAMED]
    methods: tuple[str, ...] = tuple(PAPER_METHODS)
    """Methods to train: SGD, joint, online EWC, SI, ER, ER-tricks, ER with one trick each (bias
    control, rate decay, balanced reservoir, loss-aware reservoir), GEM, A-GEM, HAL, iCaRL."""
    buffer_sizes: Counts = (200, 500, 1000)
    """Total numbers of stored samples; methods with a memory are trained with each."""
    seeds: Seeds = 10
    """Number of evaluation seeds, each with its own initial network and order of samples."""

    def check_changed(self, options: Sequence[str]) -> None:
        """Refuse options that the settings of methods to train replace, and unknown methods.

        Raises:
          DataError: the message has the first of them and the remedy.
        """
        check_methods(self.methods, PAPER_METHODS)
        rows = authors_settings(self.buffer_sizes[0])
        for option in options:
            if option == "buffer-size":
                raise DataError(f"--{option} is not read here; give --buffer-sizes")
            if option not in SETTING_OPTIONS:
                continue
            field = option.replace("-", "_")
            names = [name for name in self.methods if getattr(rows[name], field) is not None]
            if names:
                raise DataError(
                    f"--{option} is not read by {', '.join(names)}: the value is that of the "
                    "authors' code; leave it out"
                )

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
    chosen=general_statement(
        "All is as in the authors' code, whose hidden layers have 256 units; the text says "
        "100. Each method has the learning rate, the replay batch and the coefficients of that "
        "code."
    ),
)
DIGITS = replace(FASHION, data="digits", net="mlp:100,100")
PAPER_PRESETS: Mapping[Preset, PaperConfig] = {
    "demo": PaperConfig(DIGITS, ("SGD", "joint", "ER", "ER-tricks", "iCaRL"), (200,), 2),
    "small": PaperConfig(FASHION, ("SGD", "joint", "ER")),
    "paper": PaperConfig(FASHION),
}
