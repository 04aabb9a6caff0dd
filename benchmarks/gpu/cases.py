"""Cases in order of value, with their expected times; nothing here loads JAX or PyTorch."""

from pathlib import Path
from typing import NamedTuple

SEEDS, MLP_SEEDS = (1, 8, 32), (1, 10, 64)
METHOD = "ER"


class Case(NamedTuple):
    """A measurement in a process of its own."""

    name: str
    target: str
    """MODULE:FUNCTION, from a `Setting` and the arguments to results, of which the
    last one is complete."""
    arguments: tuple = ()
    expected: int = 60
    """Seconds on an H200, compilation included; the case is skipped where fewer are left."""
    limit: int = 150
    """Seconds after which the case is stopped."""


class Setting(NamedTuple):
    """Sizes and place of a measurement."""

    small: bool
    """True for the least sizes, which try the code on a CPU."""
    folder: Path
    """Folder for the files of a run, which another call continues."""


class Unavailable(Exception):
    """The machine lacks what a case needs; the message says what."""


def _ladder(dtype: str) -> tuple[Case, ...]:
    target = "benchmarks.gpu.resnet:everlight"
    return tuple(
        Case(f"ResNet-32, {dtype}, seeds: {seeds}", target, (dtype, seeds), 75, 180)
        for seeds in SEEDS
    )


CASES = (
    Case("device", "benchmarks.gpu.device:peaks", expected=20, limit=90),
    *_ladder("bfloat16"),
    Case("ResNet-32, PyTorch, CUDA graphs", "benchmarks.gpu.resnet:torch_loop", ("graphs",), 60),
    Case("ResNet-32, PyTorch, plain loop", "benchmarks.gpu.resnet:torch_loop", ("plain",), 30, 90),
    *_ladder("float32"),
    *(
        Case(
            f"MLP, {METHOD}, seeds: {seeds}",
            "benchmarks.gpu.mlp:everlight",
            (METHOD, seeds),
            30,
            120,
        )
        for seeds in MLP_SEEDS
    ),
    Case(f"MLP, {METHOD}, PyTorch, plain loop", "benchmarks.gpu.mlp:torch_loop", (METHOD,), 35, 90),
    Case("tests", "benchmarks.gpu.suite:selection", expected=300, limit=720),
    Case("paper", "benchmarks.gpu.paper:iirc", expected=420, limit=900),
)
