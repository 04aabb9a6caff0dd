"""Types of networks that `--net` names: the request, the network, and the row of its file."""

from collections.abc import Callable
from typing import Any, NamedTuple, get_args

import flax.linen as nn

from everlight.models.heads import HeadKind

Numbers = tuple[int, ...]


class NetworkRequest(NamedTuple):
    """Sizes and dtype that a network is made for."""

    classes: int
    side: int
    """Side of the images in pixels."""
    dtype: str = "float32"
    dropout: tuple[float, ...] = ()
    """Dropout rates after the network's parts; empty is the network's own."""
    remat: bool = False
    """True if the network recomputes activations in the backward pass."""


class Network(NamedTuple):
    """A network of images with classes, whose head depends on the continual-learning method."""

    shape: nn.Module | Callable[..., Any]
    """Linen module, or a function that makes an NNX or Equinox module
    (`continual.network_setup`)."""
    note: str
    """Description in words."""
    layers: tuple[str, ...] = ()
    """Names of all layers below the head, in order, for methods that read or mask their units."""
    named: bool = True
    """True if its last layer is linear and named head, as methods require that read it."""

    classes: int = 0
    version: str = ""
    """Checksum of a user's file, so that results of an earlier version are not reused."""

    def fingerprint(self) -> dict[str, str]:
        """Return values that identify the network's results with its name; may be empty."""
        return {"net_version": self.version} if self.version else {}

    @property
    def has_head_kinds(self) -> bool:
        """Return True if the module has a field `head`, a `HeadKind`, which methods may set."""
        return getattr(self.shape, "head", None) in get_args(HeadKind)

    def make(self, head: HeadKind) -> nn.Module | Callable[..., Any]:
        """Return the network with a head of the kind that a method requires.

        Features keep their sign before a head of cosines, as in LUCIR.
        """
        if not self.has_head_kinds:
            return self.shape
        signed = head != "linear" and hasattr(self.shape, "last_relu")
        return self.shape.clone(head=head, **({"last_relu": False} if signed else {}))


class NamedNetwork(NamedTuple):
    """A network that `--net` names: a row at the end of its file."""

    name: str
    make: Callable[[Numbers, NetworkRequest], Network]
    """Function of the numbers after the name's colon and the request."""
    meaning: str
    """Meaning of the numbers in order, or of the network that takes none."""
    example: Numbers = ()
    """Numbers of a small network, for help, messages and tests; empty if it takes none."""
    counts: tuple[int, ...] = (0,)
    """Number of numbers that may follow the name."""
    options: tuple[str, ...] = ()
    """Fields of `NetworkRequest` that it reads in addition to its sizes and dtype."""

    @property
    def form(self) -> str:
        """Name with the numbers of the example, as in mlp:256,256."""
        numbers = ",".join(map(str, self.example))
        return f"{self.name}:{numbers}" if numbers else self.name
