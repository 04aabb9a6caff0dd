"""Networks by name and sizes: `mlp:256,256`, `mlp-crelu:256`, `resnet:5`, `vit:4,64,2,4`."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple, get_args

import flax.linen as nn

from everlight.calls import parse_call
from everlight.checks import checked
from everlight.errors import ArgumentError
from everlight.models.heads import HeadKind
from everlight.models.mlp import MLP
from everlight.models.plain_cnn import PlainCNN
from everlight.models.resnet import ReducedResNet, ResNet50
from everlight.models.small_cnn import SmallCNN
from everlight.models.vit import VisionTransformer

Numbers = tuple[int, ...]


class NetworkRequest(NamedTuple):
    """Sizes and dtype that a network is made for."""

    classes: int
    side: int
    """Side of the images in pixels."""
    dtype: str = "float32"
    dropout: tuple[float, ...] = ()
    """Dropout of small-cnn after both blocks and the dense layer; empty is (0.25, 0.25, 0.5)."""
    remat: bool = False
    """True if resnet50 recomputes activations in the backward pass."""


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

    def facts(self) -> dict[str, str]:
        """Return what identifies the network's results beside its name, which may be nothing."""
        return {"net_version": self.version} if self.version else {}

    @property
    def has_head_kinds(self) -> bool:
        """Return True if the module has a field `head`, a `HeadKind`, which methods may set."""
        return getattr(self.shape, "head", None) in get_args(HeadKind)

    def make(
        self, head: HeadKind, trains: Literal["net", "head"] = "net"
    ) -> nn.Module | Callable[..., Any]:
        """Return the network with a head of the kind that a method requires.

        Args:
          head: kind of the head. Features keep their sign before a head of cosines, as in LUCIR.
          trains: the whole network, or a head over the inputs alone.
        """
        if trains == "head":
            return MLP(self.classes, (), head)
        if not self.has_head_kinds:
            return self.shape
        signed = head != "linear" and hasattr(self.shape, "last_relu")
        return self.shape.clone(head=head, **({"last_relu": False} if signed else {}))


def _mlp(numbers: Numbers, request: NetworkRequest, **options: bool) -> Network:
    layers = tuple(f"hidden{number + 1}" for number in range(len(numbers)))
    units = ", ".join(map(str, numbers))
    shape = MLP(request.classes, numbers, dtype=request.dtype, **options)
    return Network(shape, f"MLP with hidden layers of {units} units", layers)


def _mlp_layer_norm(numbers: Numbers, request: NetworkRequest) -> Network:
    # Normalisation mixes the units of a layer, so none can be masked or replaced on its own.
    plain = _mlp(numbers, request, layer_norm=True)
    return plain._replace(note=f"{plain.note} and layer normalisation", layers=())


def _mlp_crelu(numbers: Numbers, request: NetworkRequest) -> Network:
    plain = _mlp(numbers, request, crelu=True)
    return plain._replace(note=f"{plain.note} and concatenated ReLUs")


def _linear(numbers: Numbers, request: NetworkRequest) -> Network:
    return Network(MLP(request.classes, (), dtype=request.dtype), "a linear head")


def _plain_cnn(numbers: Numbers, request: NetworkRequest) -> Network:
    # Without numbers, one that fits the images' side.
    small = (16, 32, 64) if request.side < 32 else (16, 32, 64, 128)
    *channels, hidden = numbers or small
    shape = PlainCNN(request.classes, tuple(channels), hidden, dtype=request.dtype)
    widths = ", ".join(map(str, channels))
    note = f"convolutions of {widths} channels and {hidden} hidden units"
    return Network(shape, note, shape.layers)


def _small_cnn(numbers: Numbers, request: NetworkRequest) -> Network:
    first, second, hidden = numbers or (32, 64, 512)
    dropout = request.dropout or (0.25, 0.25, 0.5)
    if len(dropout) != 3:
        given = " ".join(map(str, dropout))
        raise ArgumentError(
            f"dropout {given}; give 3 values, after both blocks and the dense layer"
        )
    shape = SmallCNN(request.classes, (first, second), hidden, dropout, dtype=request.dtype)
    note = f"small CNN, channels {(first, second)}, {hidden} hidden units, dropout {dropout}"
    return Network(shape, note, named=False)


def _reduced_resnet(numbers: Numbers, request: NetworkRequest) -> Network:
    (blocks,) = numbers or (5,)
    shape = ReducedResNet(request.classes, blocks, dtype=request.dtype)
    return Network(shape, f"reduced ResNet of {6 * blocks + 2} layers")


def _resnet50(numbers: Numbers, request: NetworkRequest) -> Network:
    shape = ResNet50(request.classes, dtype=request.dtype, remat=request.remat)
    return Network(shape, "ResNet-50")


def _vision_transformer(numbers: Numbers, request: NetworkRequest) -> Network:
    patch, width, depth, heads, *mlp = numbers or (16, 768, 12, 12)
    if request.side % patch:
        raise ArgumentError(f"patches of {patch} pixels do not divide images of {request.side}")
    if width % heads:
        raise ArgumentError(f"{heads} heads do not divide the width {width}")
    sizes = patch, width, depth, heads, *(mlp or [4 * width])
    shape = VisionTransformer(request.classes, *sizes, dtype=request.dtype)
    note = f"vision transformer, patches of {patch} pixels, width {width}, {depth} blocks"
    return Network(shape, f"{note} of {heads} heads")


Make = Callable[[Numbers, NetworkRequest], Network]
NETWORKS: dict[str, tuple[Make, tuple[int, ...]]] = {
    "mlp": (_mlp, (1, 2, 3, 4, 5, 6)),
    "mlp-layer-norm": (_mlp_layer_norm, (1, 2, 3, 4, 5, 6)),
    "mlp-crelu": (_mlp_crelu, (1, 2, 3, 4, 5, 6)),
    "linear": (_linear, (0,)),
    "cnn": (_plain_cnn, (0, 2, 3, 4, 5, 6)),
    "small-cnn": (_small_cnn, (0, 3)),
    "resnet": (_reduced_resnet, (0, 1)),
    "resnet50": (_resnet50, (0,)),
    "vit": (_vision_transformer, (0, 4, 5)),
}
"""Networks, and how many numbers may follow the name. A new network is a function and a row."""
MOST = 100_000
"""Largest number of units, channels or blocks; compilers do not take any."""


@checked
def named_network(text: str, request: NetworkRequest) -> Network:
    """Return a network by its name.

    Args:
      text: a name of `NETWORKS`, with numbers after a colon: mlp:256,256, mlp-layer-norm:256,256
        and mlp-crelu:256,256 (hidden units), cnn:16,32,64 and small-cnn:32,64,512 (channels, then
        hidden units), resnet:5 (blocks per stage), resnet50, vit:4,64,2,4 (side of a patch, width,
        blocks, heads, then hidden units of the MLP, 4 times the width if left out; without numbers
        ViT-B/16), or linear.
      request: sizes and dtype that it is made for.

    Raises:
      ValueError: there is no such network, it takes other numbers, or the request has an option of
        another network.
    """
    name, numbers, options = parse_call(text)
    if name not in NETWORKS:
        raise ArgumentError(f"no network {name!r}; there are {', '.join(NETWORKS)}")
    make, counts = NETWORKS[name]
    whole = all(type(number) is int and 0 < number <= MOST for number in numbers)
    if options or not whole or len(numbers) not in counts:
        allowed = " or ".join(map(str, counts))
        raise ArgumentError(
            f"{name} takes {allowed} whole numbers from 1 to {MOST:,}, as in mlp:256,256"
        )
    for option, owner in (("dropout", "small-cnn"), ("remat", "resnet50")):
        if getattr(request, option) and name != owner:
            raise ArgumentError(f"{option} is for {owner}, not {name}")
    found, dtype = make(numbers, request), request.dtype
    below = "" if dtype == "float32" else f", computed in {dtype} below its head"
    return found._replace(note=found.note + below, classes=request.classes)
