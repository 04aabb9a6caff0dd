"""Settings of methods that authors selected on a data set and published with their code.

Fashion-MNIST: Buzzega et al. 2020 (ICPR), hastings24/rethinking_er, `utils/best_args.py`. The
others: Mammoth (aimagelab/mammoth, commit e75a491), `utils/best_args.py`, with those of X-DER-RPC
in `models/config/xder_rpc.yaml`. Left out are methods whose settings name another optimizer.

Coefficients are in this project's conventions: EWC's λ counts twice, LwF's is divided by the square
of its temperature, and where a source adds c‖θ‖² to the loss, the weight decay is 2c.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

from everlight_data.errors import DataError

BUZZEGA = "Buzzega et al. 2020 (hastings24/rethinking_er)"
MAMMOTH = "Mammoth (aimagelab/mammoth)"


class PublishedSettings(NamedTuple):
    """Settings of one method; None is the benchmark's value."""

    learning_rate: float
    replay_batch_size: int | None = None
    weight_decay: float | None = None
    hyperparameter: float | None = None
    """Value of the method's hyper-parameter."""
    arguments: Mapping[str, float] = {}
    """Arguments of the strategy by name."""


class PublishedProtocol(NamedTuple):
    """Settings of all methods on one data set, and the protocol that they were selected for."""

    source: str
    pixels: Literal["unit", "channels"]
    """Range of the pixels, as `--pixels` names it."""
    batch_size: int
    epochs: int
    methods: Mapping[str, Mapping[int | None, PublishedSettings]]
    """Settings by method and total number of stored samples, None for methods without a memory."""
    milestones: tuple[int, ...] = ()
    """Epochs of a task after which the learning rate falls to a tenth.

    Mammoth's later configurations for CIFAR-100 (`xder.yaml`) have a fifth.
    """

    @property
    def buffer_sizes(self) -> list[int]:
        """Total numbers of stored samples that settings were selected for, ascending."""
        sizes = {size for by_size in self.methods.values() for size in by_size}
        return sorted(size for size in sizes if size is not None)

    def with_buffer(self, buffer_size: int | None) -> dict[str, PublishedSettings]:
        """Return the settings by method for a buffer size.

        Raises:
          DataError: no settings were selected for this buffer size.
        """
        if buffer_size not in self.buffer_sizes:
            known = " or ".join(map(str, self.buffer_sizes))
            raise DataError(
                f"--hyperparameters published: {self.source} has settings for buffers of {known} "
                "samples; give --buffer-size"
            )
        settings = {
            name: by_size.get(None, by_size.get(buffer_size))
            for name, by_size in self.methods.items()
        }
        return {name: values for name, values in settings.items() if values is not None}


_S = PublishedSettings


def _dark(
    rate: float, replayed: int | None, alpha: float, beta: float | None = None
) -> PublishedSettings:
    arguments = {"alpha": alpha} if beta is None else {"alpha": alpha, "beta": beta}
    return _S(rate, replayed, arguments=arguments)


def _gem(rate: float, margin: float) -> PublishedSettings:
    return _S(rate, arguments={"margin": margin})


def _hal(
    rate: float, replayed: int, regularization: float, mean_decay: float, batch: int = 128
) -> PublishedSettings:
    arguments = {
        "regularization": regularization,
        "mean_decay": mean_decay,
        "feature_weight": 0.1,
        "anchor_learning_rate": rate,
        "finetuning_batch_size": batch,
    }
    return _S(rate, replayed, arguments=arguments)


def _fisher(rate: float, e_lambda: float) -> dict[None, PublishedSettings]:
    return {None: _S(rate, hyperparameter=2 * e_lambda)}


def _si(rate: float, c: float, damping: float) -> dict[None, PublishedSettings]:
    return {None: _S(rate, hyperparameter=c, arguments={"damping": damping})}


_LARGE, _SMALL = (200, 500, 5120), (200, 500, 1000)
# The authors' decay and batch size of the bias correction.
_TRICKS = {"bias_batch_size": 10, "decay": 0.99995}
_FASHION = {
    "naive": {None: _S(0.2)},
    "joint": {None: _S(0.2)},
    "ER": {200: _S(0.03, 128), 500: _S(0.1, 128), 1000: _S(0.1, 128)},
    "ER-tricks": {
        size: _S(0.1 if size == 1000 else 0.03, 32, arguments=_TRICKS) for size in _SMALL
    },
    "GEM": dict.fromkeys(_SMALL, _gem(0.03, 1.0)),
    "A-GEM": dict.fromkeys(_SMALL, _S(0.03, 128)),
    "HAL": {
        200: _hal(0.03, 32, 0.1, 0.5, 10),
        500: _hal(0.03, 128, 0.1, 0.5, 10),
        1000: _hal(0.03, 128, 0.3, 0.5, 10),
    },
    "iCaRL": {size: _S(0.03 if size == 500 else 0.1, weight_decay=0.001) for size in _SMALL},
}
_MNIST = {
    "naive": {None: _S(0.03)},
    "online EWC": _fisher(0.03, 90),
    "SI": _si(0.1, 1.0, 0.9),
    "LwF": {None: _S(0.03, weight_decay=0.0005, hyperparameter=0.25)},
    "ER": {200: _S(0.01, 10), 500: _S(0.1, 10), 5120: _S(0.1, 10)},
    "GEM": {200: _gem(0.01, 1.0), 500: _gem(0.03, 0.5), 5120: _gem(0.1, 1.0)},
    "A-GEM": dict.fromkeys(_LARGE, _S(0.1, 128)),
    "iCaRL": dict.fromkeys(_LARGE, _S(0.1, weight_decay=0.0)),
    "DER": {200: _dark(0.03, 10, 0.2), 500: _dark(0.03, 128, 1.0), 5120: _dark(0.1, 128, 0.5)},
    "DER++": {
        200: _dark(0.03, 128, 0.2, 1.0),
        500: _dark(0.03, 10, 1.0, 0.5),
        5120: _dark(0.1, 64, 0.2, 0.5),
    },
}
_PERMUTED = {
    "naive": {None: _S(0.2)},
    "online EWC": _fisher(0.1, 0.7),
    "SI": _si(0.1, 0.5, 1.0),
    "ER": dict.fromkeys(_LARGE, _S(0.2, 128)),
    "GEM": dict.fromkeys(_LARGE, _gem(0.1, 0.5)),
    "A-GEM": dict.fromkeys(_LARGE, _S(0.1, 128)),
    "HAL": {
        200: _hal(0.1, 128, 0.1, 0.5),
        500: _hal(0.1, 128, 0.1, 0.3),
        5120: _hal(0.1, 128, 0.1, 0.5),
    },
    "DER": {200: _dark(0.2, 128, 1.0), 500: _dark(0.2, 128, 1.0), 5120: _dark(0.2, 128, 0.5)},
    "DER++": {
        200: _dark(0.1, 128, 1.0, 1.0),
        500: _dark(0.2, 128, 1.0, 0.5),
        5120: _dark(0.2, 128, 0.5, 1.0),
    },
}
_ROTATED = {
    "naive": {None: _S(0.2)},
    "online EWC": _fisher(0.1, 0.7),
    "SI": _si(0.1, 1.0, 1.0),
    "ER": dict.fromkeys(_LARGE, _S(0.2, 128)),
    "GEM": dict.fromkeys(_LARGE, _gem(0.01, 0.5)),
    "A-GEM": {200: _S(0.1, 128), 500: _S(0.3, 128), 5120: _S(0.3, 128)},
    "HAL": {
        200: _hal(0.1, 128, 0.2, 0.5),
        500: _hal(0.1, 128, 0.1, 0.5),
        5120: _hal(0.1, 128, 0.1, 0.3),
    },
    "DER": {200: _dark(0.2, 128, 1.0), 500: _dark(0.2, 128, 0.5), 5120: _dark(0.2, 128, 0.5)},
    "DER++": {
        200: _dark(0.1, 128, 1.0, 0.5),
        500: _dark(0.2, 128, 0.5, 1.0),
        5120: _dark(0.2, 128, 0.5, 0.5),
    },
}
_CIFAR10 = {
    "naive": {None: _S(0.1)},
    "online EWC": _fisher(0.03, 10),
    "SI": _si(0.03, 0.5, 1.0),
    "LwF": {None: _S(0.01, weight_decay=0.0005, hyperparameter=0.75)},
    "ER": dict.fromkeys(_LARGE, _S(0.1, 32)),
    "GEM": dict.fromkeys(_LARGE, _gem(0.03, 0.5)),
    "A-GEM": dict.fromkeys(_LARGE, _S(0.03, 32)),
    "HAL": {
        200: _hal(0.03, 32, 0.2, 0.5, 32),
        500: _hal(0.03, 32, 0.1, 0.3, 32),
        5120: _hal(0.03, 32, 0.1, 0.3, 32),
    },
    "iCaRL": {size: _S(0.03 if size == 5120 else 0.1, weight_decay=1e-5) for size in _LARGE},
    "DER": dict.fromkeys(_LARGE, _dark(0.03, 32, 0.3)),
    "DER++": {
        200: _dark(0.03, 32, 0.1, 0.5),
        500: _dark(0.03, 32, 0.2, 0.5),
        5120: _dark(0.03, 32, 0.1, 1.0),
    },
}
_TINY_IMAGENET = {
    "naive": {None: _S(0.03)},
    "online EWC": _fisher(0.03, 25),
    "SI": _si(0.03, 0.5, 1.0),
    "LwF": {None: _S(0.01, weight_decay=0.0005, hyperparameter=0.25)},
    "ER": {200: _S(0.1, 32), 500: _S(0.03, 32), 5120: _S(0.1, 32)},
    "A-GEM": dict.fromkeys(_LARGE, _S(0.01, 32)),
    "iCaRL": dict.fromkeys(_LARGE, _S(0.03, weight_decay=1e-5)),
    "DER": dict.fromkeys(_LARGE, _dark(0.03, 32, 0.1)),
    "DER++": {
        200: _dark(0.03, 32, 0.1, 1.0),
        500: _dark(0.03, 32, 0.2, 0.5),
        5120: _dark(0.03, 32, 0.1, 0.5),
    },
}
_CIFAR100_SIZES = (500, 2000)
_CIFAR100 = {
    "naive": {None: _S(0.03)},
    "LwF": {None: _S(0.03, weight_decay=0.0005)},
    "ER": dict.fromkeys(_CIFAR100_SIZES, _S(0.1, 32)),
    "ER-ACE": dict.fromkeys(_CIFAR100_SIZES, _S(0.03, 32)),
    "iCaRL": dict.fromkeys(_CIFAR100_SIZES, _S(0.3, weight_decay=1e-5)),
    "BiC": dict.fromkeys(_CIFAR100_SIZES, _S(0.03)),
    "DER": dict.fromkeys(_CIFAR100_SIZES, _dark(0.03, 32, 0.3)),
    "DER++": dict.fromkeys(_CIFAR100_SIZES, _dark(0.03, 32, 0.1, 0.5)),
    "X-DER-RPC": dict.fromkeys(
        _CIFAR100_SIZES,
        _S(0.03, 32, arguments={"alpha": 0.1, "beta": 0.5, "past_constraint": False}),
    ),
}
PUBLISHED: dict[tuple[str, str], PublishedProtocol] = {
    ("fashion-mnist", "classes"): PublishedProtocol(BUZZEGA, "unit", 10, 1, _FASHION),
    ("mnist", "classes"): PublishedProtocol(MAMMOTH, "unit", 10, 1, _MNIST),
    ("mnist", "permuted"): PublishedProtocol(MAMMOTH, "unit", 128, 1, _PERMUTED),
    ("mnist", "rotated"): PublishedProtocol(MAMMOTH, "unit", 128, 1, _ROTATED),
    ("cifar10", "classes"): PublishedProtocol(MAMMOTH, "channels", 32, 50, _CIFAR10),
    ("cifar100", "classes"): PublishedProtocol(
        MAMMOTH, "channels", 32, 50, _CIFAR100, milestones=(35, 45)
    ),
    ("tiny-imagenet", "classes"): PublishedProtocol(MAMMOTH, "channels", 32, 100, _TINY_IMAGENET),
    ("tiny-imagenet-64", "classes"): PublishedProtocol(
        MAMMOTH, "channels", 32, 100, _TINY_IMAGENET
    ),
}
"""Settings by data set and stream (`--stream`). All were selected with plain SGD."""
