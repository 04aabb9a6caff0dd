"""Naive finetuning of low-rank additions to a pretrained network (LoRA; Hu et al. 2022, ICLR).

The pretrained network is frozen. Its kernels W of queries and values become W + B A with trained
factors of a low rank (`models.lora`), which finetuning trains with the head, task after task.
"""

from collections.abc import Mapping

from jaxtyping import PyTree

from everlight.base import Setup
from everlight.continual.methods.method import (
    SINGLE_LABEL_SCORES,
    Method,
    Publication,
    StrategyArguments,
)
from everlight.continual.strategies.naive import naive
from everlight.models.lora import with_lora
from everlight.models.vit import VisionTransformer


def with_low_rank(
    setup: Setup, net: VisionTransformer, layers: Mapping[str, PyTree], arguments: StrategyArguments
) -> Setup:
    """Return the setup with additions of rank 4 for queries and values of all blocks."""
    return with_lora(setup, layers, ("query", "value"), rank=4)


METHODS = (
    Method(
        "LoRA",
        naive,
        Publication("Hu et al.", 2022, "ICLR"),
        "naive finetuning of low-rank additions to queries and values (LoRA)",
        adapt=with_low_rank,
        requirements=("pretrained transformer", *SINGLE_LABEL_SCORES),
    ),
)
