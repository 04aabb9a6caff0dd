"""Networks by name: `mlp:256,256`, `cnn`, `small-cnn:16,32,64`, `resnet:5`, `FILE.py:NAME`."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import flax.linen as nn

from everlight.continual.registry import Method
from everlight.models import MLP, PlainCNN, ReducedResNet, ResNet50
from everlight.models.small_cnn import SmallCNN
from everlight_data.errors import DataError
from everlight_data.files import one_line
from everlight_experiments.common.python_files import load_object
from everlight_experiments.common.settings import check_name


class Wanted(NamedTuple):
    """Sizes and dtype that a network is made for."""

    classes: int
    side: int
    """Side of the images in pixels."""
    dtype: str = "float32"
    dropout: tuple[float, ...] = ()
    remat: bool = False
    """True if activations are recomputed in the backward pass."""


class Network(NamedTuple):
    """A network of images with classes, whose head depends on the method."""

    shape: nn.Module
    """Module with the fields `classes` and, where `named`, `head`."""
    note: str
    """Description for the report."""
    layers: tuple[str, ...] = ()
    """Names of the hidden layers below the head, in order, for methods that mask them."""
    named: bool = True
    """True if its head has the name and the kinds that methods require."""
    classes: int = 0

    def make(self, method: Method) -> nn.Module:
        """Return the network with a method's head; a head over the inputs if it trains no network.

        Features keep their sign before a cosine head, as in LUCIR.
        """
        if method.trains == "head":
            return MLP(self.classes, (), method.head)
        if not self.named:
            return self.shape
        signed = (
            {"last_relu": False}
            if method.head == "cosine" and hasattr(self.shape, "last_relu")
            else {}
        )
        return self.shape.clone(head=method.head, **signed)


def mlp(numbers: tuple[int, ...], wanted: Wanted) -> Network:
    """Return a multilayer perceptron with hidden layers of these sizes."""
    shape = MLP(wanted.classes, numbers, dtype=wanted.dtype)
    layers = tuple(f"hidden{number + 1}" for number in range(len(numbers)))
    units = ", ".join(map(str, numbers))
    return Network(shape, f"MLP with hidden layers of {units} units", layers)


def linear(numbers: tuple[int, ...], wanted: Wanted) -> Network:
    """Return a linear head over the inputs."""
    return Network(MLP(wanted.classes, (), dtype=wanted.dtype), "a linear head")


def plain_cnn(numbers: tuple[int, ...], wanted: Wanted) -> Network:
    """Return a plain convolutional network; without numbers, one that fits the images' side."""
    if numbers:
        shape = PlainCNN(wanted.classes, numbers[:-1], numbers[-1])
    else:
        small = wanted.side < 32
        shape = PlainCNN(wanted.classes, (16, 32), 64) if small else PlainCNN(wanted.classes)
    widths = ", ".join(map(str, shape.channels))
    note = f"convolutions of {widths} channels and {shape.hidden} hidden units"
    return Network(shape.clone(dtype=wanted.dtype), note, shape.layers)


def small_cnn(numbers: tuple[int, ...], wanted: Wanted) -> Network:
    """Return the four-convolution network of Zenke et al. 2017."""
    first, second, hidden = numbers or (32, 64, 512)
    dropout = wanted.dropout or (0.25, 0.25, 0.5)
    if len(dropout) != 3:
        given = " ".join(map(str, dropout))
        raise DataError(f"--dropout {given}; give 3 values, after both blocks and the dense layer")
    shape = SmallCNN(wanted.classes, (first, second), hidden, dropout, dtype=wanted.dtype)
    note = f"small CNN, channels {(first, second)}, {hidden} hidden units, dropout {dropout}"
    return Network(shape, note, named=False)


def reduced_resnet(numbers: tuple[int, ...], wanted: Wanted) -> Network:
    """Return a reduced ResNet with this number of blocks per stage; 5 is ResNet-32."""
    (blocks,) = numbers or (5,)
    shape = ReducedResNet(wanted.classes, blocks, dtype=wanted.dtype)
    return Network(shape, f"reduced ResNet of {6 * blocks + 2} layers")


def resnet50(numbers: tuple[int, ...], wanted: Wanted) -> Network:
    """Return ResNet-50."""
    return Network(ResNet50(wanted.classes, dtype=wanted.dtype, remat=wanted.remat), "ResNet-50")


Make = Callable[[tuple[int, ...], Wanted], Network]
NETWORKS: dict[str, tuple[Make, tuple[int, ...]]] = {
    "mlp": (mlp, (1, 2, 3, 4, 5, 6)),
    "linear": (linear, (0,)),
    "cnn": (plain_cnn, (0, 2, 3, 4, 5, 6)),
    "small-cnn": (small_cnn, (0, 3)),
    "resnet": (reduced_resnet, (0, 1)),
    "resnet50": (resnet50, (0,)),
}
"""Networks, and how many numbers may follow the name."""


def network(text: str, wanted: Wanted) -> Network:
    """Return the network that `--net` names.

    Args:
      text: a name of `NETWORKS` with numbers after a colon, or `FILE.py:NAME`, a function from the
        number of classes to a Flax module.
      wanted: what it is made for.

    Raises:
      DataError: there is no such network, or it takes other numbers.
    """
    name, _, after = text.partition(":")
    if name.endswith(".py"):
        found = _from_file(text, wanted)
    else:
        check_name("network --net", name, list(NETWORKS))
        make, counts = NETWORKS[name]
        try:
            numbers = tuple(int(each) for each in after.split(",")) if after else ()
        except ValueError:
            numbers = (0,)
        if len(numbers) not in counts or not all(number > 0 for number in numbers):
            allowed = " or ".join(map(str, counts))
            raise DataError(
                f"--net {text}; {name} takes {allowed} positive whole numbers, as in mlp:256,256"
            )
        found = make(numbers, wanted)
    if wanted.dropout and name != "small-cnn":
        raise DataError(f"--dropout is for --net small-cnn, not {name}")
    if wanted.remat and name != "resnet50":
        raise DataError(f"--remat is for --net resnet50, not {name}")
    dtype = "" if wanted.dtype == "float32" else f", computed in {wanted.dtype} below its head"
    return found._replace(note=found.note + dtype, classes=wanted.classes)


def _from_file(text: str, wanted: Wanted) -> Network:
    form = "give --net FILE.py:NAME, a function from the number of classes to a Flax module"
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
    return Network(shape, f"{name} of {Path(path).name}", named=named)


def feature_head(note: str, classes: int) -> Network:
    """Return a linear head over features of a frozen network."""
    return Network(MLP(classes, ()), f"a linear head on {note}", classes=classes)
