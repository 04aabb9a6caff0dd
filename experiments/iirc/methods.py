"""The ten methods of the paper and how each is trained."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import flax.linen as nn
import jax.numpy as jnp
import optax
from jaxtyping import PyTree

from everlight.continual.agem import agem
from everlight.continual.base import Setup, Strategy
from everlight.continual.bic import bic
from everlight.continual.cumulative import unlimited_replay
from everlight.continual.flax_setup import StoredImages, StreamedImages, flax_setup
from everlight.continual.icarl import icarl
from everlight.continual.lucir import lucir
from everlight.continual.multilabel_objective import binary_objective
from everlight.continual.naive import naive
from everlight.continual.replay import experience_replay
from everlight.continual.sequence import Build
from everlight.continual.steps import Protocol
from everlight.models.augmentation import crop_and_flip
from everlight.models.heads import HeadKind
from everlight.scenarios.iirc import Setting

LABELS = 2
"""Of a sample, at most."""
MOMENTUM, WEIGHT_DECAY = 0.9, 1e-5


class Method(NamedTuple):
    """A strategy's factory from setup and exemplars a class, its data and its head."""

    make: Callable[[Setup, int], Strategy]
    setting: Setting = "incomplete"
    head: HeadKind = "linear"
    select: Literal["best", "last"] = "best"


def _restart_scale(params: PyTree) -> PyTree:
    return {**params, "head": {**params["head"], "scale": jnp.ones(())}}


METHODS: dict[str, Method] = {
    "joint": Method(lambda setup, each: naive(setup), "joint"),
    "incremental joint": Method(lambda setup, each: naive(setup), "incremental joint"),
    "ER-infinite": Method(lambda setup, each: unlimited_replay(setup)),
    "ER": Method(lambda setup, each: experience_replay(setup, each, LABELS)),
    "iCaRL-CNN": Method(lambda setup, each: icarl(setup, each, LABELS), select="last"),
    "iCaRL-norm": Method(
        lambda setup, each: icarl(setup, each, LABELS, _restart_scale),
        head="cosine",
        select="last",
    ),
    "LUCIR": Method(lambda setup, each: lucir(setup, each, LABELS), head="cosine", select="last"),
    "BiC": Method(lambda setup, each: bic(setup, each, LABELS), select="last"),
    "A-GEM": Method(
        lambda setup, each: agem(setup, each, labels=LABELS, apart=True), select="last"
    ),
    "finetune": Method(lambda setup, each: naive(setup)),
}


def build_method(
    name: str,
    net: nn.Module,
    rate: float,
    exemplars: int,
    streamed: Callable[[Any], StreamedImages] | None = None,
) -> Build:
    """How the engine builds a method: SGD with momentum, crops and mirrors, BCE over seen classes.

    Args:
      name: of `METHODS`.
      net: with the method's head.
      rate: the optimizer's.
      exemplars: of every class, where the method keeps any.
      streamed: from the data on the device to images that crop and mirror themselves; None where
        the data are the images.
    """

    def build(data: Any) -> tuple[Setup, Strategy]:
        images: StoredImages | StreamedImages = data if streamed is None else streamed(data)
        augment = crop_and_flip if streamed is None else None
        optimizer = optax.chain(
            optax.add_decayed_weights(WEIGHT_DECAY), optax.sgd(rate, momentum=MOMENTUM)
        )
        setup = flax_setup(net, images, binary_objective(), optimizer, augment)
        return setup, METHODS[name].make(setup, exemplars)

    return build


def protocol_of(name: str, protocol: Protocol, joint_epochs: int | None = None) -> Protocol:
    """The protocol with the method's choice of epoch; joint's only task may have its own length."""
    if name == "joint" and joint_epochs is not None:
        protocol = dataclasses.replace(protocol, first_epochs=joint_epochs)
    return dataclasses.replace(protocol, select=METHODS[name].select)
