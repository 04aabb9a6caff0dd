"""The ten methods of the paper, forms of two of them, and how each is trained."""

import dataclasses
from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import flax.linen as nn
import jax.numpy as jnp
import optax
from jaxtyping import PyTree

from everlight.continual.base import Setup, Strategy
from everlight.continual.engine.flax_setup import StoredImages, StreamedImages, flax_setup
from everlight.continual.engine.state import Build
from everlight.continual.engine.steps import Protocol
from everlight.continual.objectives.many_labels import binary_objective
from everlight.continual.strategies.agem import agem
from everlight.continual.strategies.bic import bic
from everlight.continual.strategies.cumulative import unlimited_replay
from everlight.continual.strategies.icarl import icarl
from everlight.continual.strategies.lucir import lucir
from everlight.continual.strategies.naive import naive
from everlight.continual.strategies.replay import experience_replay
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


PAPER_METHODS: dict[str, Method] = {
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
# And LUCIR that holds features less, and BiC's other stages 1 and 2.
METHODS = PAPER_METHODS | {
    "LUCIR-0.5": Method(
        lambda setup, each: lucir(setup, each, LABELS, 0.5), head="cosine", select="last"
    ),
    "BiC-whole": Method(
        lambda setup, each: bic(setup, each, LABELS, weigh_labels=False), select="last"
    ),
    "BiC-even": Method(
        lambda setup, each: bic(setup, each, LABELS, fit="even entropy"), select="last"
    ),
    "BiC-pwJS": Method(lambda setup, each: bic(setup, each, LABELS, fit="goodness"), select="last"),
    "BiC-whole-pwJS": Method(
        lambda setup, each: bic(setup, each, LABELS, weigh_labels=False, fit="goodness"),
        select="last",
    ),
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
