"""Networks for the contract tests: the registry's rows in small sizes, and others by hand."""

from typing import NamedTuple

import flax.linen as nn

import everlight.models as models


class Case(NamedTuple):
    """A network, the shape of one input, and its heads, which are float32."""

    net: nn.Module
    shape: tuple[int, ...] = (32, 32, 3)
    heads: int = 1


NAMED = {
    name: Case(models.named_network(row.form, models.NetworkRequest(6, 32)).shape)
    for name, row in models.networks().items()
}
"""All networks that `--net` names."""
OTHERS = {
    "ReducedResNet, cosine": Case(models.ReducedResNet(6, 1, "cosine"), (16, 16, 3)),
    "ResNet50, remat": Case(models.ResNet50(6, remat=True)),
    "MidCaffeNet": Case(models.MidCaffeNet(6, (16, 16), 0.0), (48, 48, 3)),
    "MidVGG": Case(models.MidVGG(6, (16, 16), 0.0), (48, 48, 3)),
    "EfficientNetLite0": Case(models.EfficientNetLite0(6)),
    "JointEmbedding": Case(models.JointEmbedding(5, (4,), 4, 8), (8, 8, 3), 3),
}
"""Networks that benchmarks make by themselves, and further forms of named ones."""
