"""Rows of the registry for methods that add prompts or low-rank matrices to a pretrained ViT.

`Method.adapt` makes the setup of each from the network's. Sizes are those of the papers on ten
tasks of CIFAR-100, and smaller ones where the network is narrow.
"""

from collections.abc import Mapping
from typing import Any

from jaxtyping import PyTree

from everlight.base import Setup
from everlight.continual import strategies as of
from everlight.continual.method import COUNTING, Demand, Method, Needs, Source
from everlight.continual.strategies.parts import arguments
from everlight.models.lora import with_lora, with_merged_lora
from everlight.models.prompts import prompt_components, prompt_pool, with_prompts
from everlight.models.vit import VisionTransformer

_ADDITIONS: tuple[Demand, ...] = ("pretrained transformer", *COUNTING)
_OWN_CLASSES: tuple[Demand, ...] = (*_ADDITIONS, "own classes")
Layers = Mapping[str, PyTree]


def pool(setup: Setup, net: VisionTransformer, layers: Layers, needs: Needs) -> Setup:
    """Return the setup of L2P with its code's values: four of ten prompts of ten tokens, λ = 1."""
    return with_prompts(setup, net, layers, prompt_pool(net.width))


def components(setup: Setup, net: VisionTransformer, layers: Layers, needs: Needs) -> Setup:
    """Return the setup of CODA-Prompt: at most 100 components of eight tokens in five blocks."""
    count = min(100, net.width)
    return with_prompts(
        setup, net, layers, prompt_components(net.width, count, 8, min(5, net.depth))
    )


def low_rank(setup: Setup, net: VisionTransformer, layers: Layers, needs: Needs) -> Setup:
    """Return the setup of LoRA: rank 4 for queries and values of all blocks."""
    return with_lora(setup, layers, ("query", "value"), rank=4)


def merged(setup: Setup, net: VisionTransformer, layers: Layers, needs: Needs) -> Setup:
    """Return the setup of InfLoRA: rank 10 for keys and values of all blocks."""
    return with_merged_lora(setup, layers, ("key", "value"), rank=10)


def of_tasks(needs: Needs) -> dict[str, Any]:
    """Return the number of tasks."""
    return {"tasks": needs.tasks}


ADAPTERS: dict[str, Method] = {
    "L2P": Method(
        of.l2p,
        arguments.no_arguments,
        Source("Wang et al. 2022, CVPR"),
        adapt=pool,
        demands=_OWN_CLASSES,
        authors={
            "batch size": 128,
            "epochs per task": 5,
            "optimizer": "adam",
            # 0.03 times the batch size over 256.
            "learning rate": 0.015,
        },
    ),
    "CODA-Prompt": Method(
        of.coda_prompt,
        of_tasks,
        Source("Smith et al. 2023, CVPR"),
        adapt=components,
        demands=_OWN_CLASSES,
        authors={
            "batch size": 128,
            "epochs per task": 20,
            "optimizer": "adam",
            "learning rate": 0.001,
        },
    ),
    "LoRA": Method(
        of.naive,
        arguments.no_arguments,
        Source("Hu et al. 2022, ICLR"),
        adapt=low_rank,
        demands=_ADDITIONS,
        summary="naive finetuning of low-rank additions to queries and values (LoRA)",
    ),
    "InfLoRA": Method(
        of.inflora,
        of_tasks,
        Source("Liang and Li 2024, CVPR", ("statistics",)),
        adapt=merged,
        demands=_OWN_CLASSES,
        authors={
            "threshold": 0.95,
            "samples": "all",
            "batch size": 128,
            "epochs per task": 20,
            "optimizer": "adam",
            "learning rate": 0.0005,
        },
    ),
}
"""Methods for a pretrained vision transformer, by name."""
