"""Rows of the registry for methods that merge the networks of tasks."""

from everlight.continual import strategies as of
from everlight.continual.method import OTHER_WEIGHTS, Demand, Method, Source
from everlight.continual.strategies.parts import arguments

_PRETRAINED: tuple[Demand, ...] = ("pretrained layers",)
_IMM = Source("Lee et al. 2017, NeurIPS", ("old net", "statistics"))
MERGING: dict[str, Method] = {
    "IMM mean": Method(
        of.imm,
        arguments.merged("mean"),
        _IMM,
        (1e-3, 1e-2, 1e-1, 1),
        demands=("last weights",),
        summary="incremental moment matching (IMM): the mean of the networks",
        authors={"penalty's step": "explicit"},
    ),
    "IMM mode": Method(
        of.imm,
        arguments.merged("mode"),
        _IMM,
        (1e-3, 1e-2, 1e-1, 1),
        demands=("last weights",),
        summary="IMM: the mode, networks weighted by their Fisher information",
        authors={"penalty's step": "explicit"},
    ),
    "task arithmetic": Method(
        of.task_arithmetic,
        lambda needs: {"scale": needs.hyperparameter},
        Source("Ilharco et al. 2023, ICLR", ("old net",)),
        (0.1, 0.2, 0.4, 1),
        published=0.4,
        demands=("last weights",),
        advised=_PRETRAINED,
        authors={"scale": "0 to 1 in steps of 0.05", "network": "pretrained"},
    ),
    "TIES": Method(
        of.ties,
        lambda needs: {"scale": needs.hyperparameter},
        Source("Yadav et al. 2023, NeurIPS", ("old net",)),
        (0.5, 1, 1.5, 2),
        published=1,
        demands=("last weights",),
        advised=_PRETRAINED,
        authors={"scale": 1, "kept": 0.2, "network": "pretrained"},
    ),
    "CoFiMA": Method(
        of.cofima,
        lambda needs: {
            "weight": needs.hyperparameter,
            "fisher_samples": needs.importance_samples,
        },
        Source("Marouf et al. 2024, ECCV", ("old net", "statistics")),
        (0.2, 0.4, 0.6, 0.8),
        demands=(*OTHER_WEIGHTS, "own classes", "named head"),
        authors={
            "weight": 0.4,
            "slow": 0.01,
            "epochs": 5,
            "samples": 256,
            "temperature": 0.1,
            "fisher_samples": "all",
            "batch size": 128,
            "epochs per task": 20,
            "network": "pretrained",
        },
    ),
}
"""Methods that merge networks, by name."""
