"""Networks and optimizers that options name; those of a user's own file among them."""

from pathlib import Path

import flax.linen as nn

from everlight.continual import Optimizer, named_optimizer
from everlight.models import MLP, Network, NetworkRequest, named_network
from everlight.models.named import NETWORKS
from everlight_data.errors import DataError
from everlight_data.files import one_line
from everlight_experiments.common.python_files import load_object
from everlight_experiments.common.settings import check_name


def network(text: str, wanted: NetworkRequest) -> Network:
    """Return the network that `--net` names.

    Args:
      text: as `named_network` takes it, or `FILE.py:NAME`, a function from the number of classes
        to a Flax module.
      wanted: what it is made for.

    Raises:
      DataError: there is no such network, or it takes other numbers.
    """
    name, *_ = text.split(":")
    if name.endswith(".py"):
        return _from_file(text, wanted)
    check_name("network --net", name, list(NETWORKS))
    try:
        return named_network(text, wanted)
    except ValueError as error:
        raise DataError(f"--net {text}: {error}") from error


def _from_file(text: str, wanted: NetworkRequest) -> Network:
    form = "give FILE.py:NAME, a function from the number of classes to a Flax module"
    if wanted.dropout or wanted.remat:
        raise DataError(f"--dropout and --remat are for networks with a name, not {text}")
    make = load_object(text, "--net", form).value
    try:
        shape = make(wanted.classes)
    # Anything may fail in a user's code.
    except Exception as error:
        message = f"{type(error).__name__}: {one_line(error)}"
        raise DataError(f"--net {text} cannot be built ({message}); {form}") from error
    if not isinstance(shape, nn.Module):
        raise DataError(f"--net {text} gave {type(shape).__name__}; {form}")
    named = "head" in getattr(shape, "__dataclass_fields__", {})
    path, _, name = text.rpartition(":")
    return Network(shape, f"{name} of {Path(path).name}", named=named, classes=wanted.classes)


def feature_head(note: str, classes: int) -> Network:
    """Return a linear head over features of a frozen network."""
    return Network(MLP(classes, ()), f"a linear head on {note}", classes=classes)


def optimizer(text: str, learning_rate: float) -> Optimizer:
    """Return the optimizer that `--optimizer` names.

    Raises:
      DataError: optax has no such factory, or it does not take the arguments.
    """
    try:
        return named_optimizer(text, learning_rate)
    except ValueError as error:
        form = "give a name of optax with arguments, as in sgd:momentum=0.9"
        raise DataError(f"--optimizer {text}: {error}; {form}") from error
