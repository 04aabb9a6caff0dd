"""Rows of the registry for methods of a head over features of a frozen network, or over inputs."""

from functools import partial

from everlight.continual import strategies as of
from everlight.continual.method import OTHER_WEIGHTS, Method, Source
from everlight.continual.strategies.parts import arguments

_head = partial(Method, trains="head", demands=OTHER_WEIGHTS)
_CORE50 = ("core50-ni", "core50-nc", "core50-nic")
_CWR = Source("Lomonaco and Maltoni 2017, CoRL", ("old net",))
# The papers' widths of RanDumb, RanPAC, ACIL and DS-AL are 8 to 25 times as large, with 67 to 625
# times the memory. A published value would be theirs at another width, so there is none.
HEADS: dict[str, Method] = {
    "CWR": _head(
        of.cwr,
        lambda needs: {"first_task_gain": needs.gain},
        _CWR,
        summary="CopyWeights with Re-init: one consolidated head over a frozen network",
        authors={"first_task_gain": 3, "features": "a pretrained network's"},
    ),
    "CWR as coded": _head(
        of.cwr,
        lambda needs: {"first_task_gain": needs.gain, "form": "code"},
        _CWR,
        summary="CWR as the code of its authors differs from their text",
        benchmarks=_CORE50,
        authors={"first_task_gain": 3, "features": "a pretrained network's"},
    ),
    "CWR+": _head(
        of.cwr,
        lambda needs: {"form": "plus"},
        Source("Maltoni and Lomonaco 2019, Neural Networks", ("old net",)),
        summary="CWR with a zero start and a mean shift (Maltoni and Lomonaco 2019)",
        authors={"features": "a pretrained network's"},
    ),
    "CWR*": _head(
        of.cwr,
        lambda needs: {"form": "star"},
        Source("Lomonaco et al. 2020, CVPRW", ("old net",)),
        summary="CWR+ weighted by numbers of samples (Lomonaco et al. 2020)",
        authors={"features": "a pretrained network's"},
    ),
    "streaming LDA": _head(
        of.streaming_lda,
        lambda needs: {"shrinkage": needs.hyperparameter},
        Source("Hayes and Kanan 2020, CVPRW", ("statistics",)),
        (1e-4, 1e-3, 1e-2, 1e-1, 0.5),
        published=1e-4,
        authors={"shrinkage": 1e-4, "features": "a pretrained network's"},
    ),
    "nearest mean": _head(
        of.nearest_mean,
        arguments.no_arguments,
        Source("Mensink et al. 2013, PAMI", ("statistics",)),
        authors={"directions": True, "features": "those that iCaRL trains"},
    ),
    "SimpleCIL": _head(
        of.simple_cil,
        arguments.no_arguments,
        Source("Zhou et al. 2024, IJCV", ("statistics",)),
        authors={"features": "a pretrained network's"},
    ),
    "FeCAM": _head(
        of.fecam,
        arguments.shrinkages,
        Source("Goswami et al. 2023, NeurIPS", ("statistics",)),
        (0.1, 1, 10),
        published=1,
        authors={
            "variance_shrinkage": 1,
            "covariance_shrinkage": 1,
            "tukey": 0.5,
            "features": "those of the first task's network",
        },
    ),
    "RanDumb": _head(
        of.randumb,
        lambda needs: {"width": 1000, "shrinkage": needs.hyperparameter},
        Source("Prabhu et al. 2024, NeurIPS", ("statistics",)),
        (1e-5, 1e-4, 1e-3, 1e-2),
        authors={"width": 25_000, "shrinkage": 1e-4},
    ),
    "RanPAC": _head(
        of.ranpac,
        lambda needs: {"width": 1000, "ridge": needs.hyperparameter},
        Source("McDonnell et al. 2023, NeurIPS", ("statistics",)),
        (1e2, 1e3, 1e4, 1e5, 1e6),
        authors={
            "width": 10_000,
            "ridge": "validated",
            "features": "a pretrained network's",
        },
    ),
    "ACIL": _head(
        of.acil,
        lambda needs: {"width": 1000, "ridge": needs.hyperparameter},
        Source("Zhuang et al. 2022, NeurIPS", ("statistics",)),
        (0.1, 1, 10, 100, 1e3),
        authors={
            "width": 8192,
            "ridge": 0.1,
            "features": "those of the first task's network",
        },
    ),
    "DS-AL": _head(
        of.ds_al,
        lambda needs: {"width": 1000, "compensation": needs.hyperparameter},
        Source("Zhuang et al. 2024, AAAI", ("statistics",)),
        (0.3, 0.6, 1, 1.5),
        authors={
            "width": 8192,
            "compensation": 0.6,
            "ridge": 0.1,
            "compensation_ridge": 0.1,
            "features": "those of the first task's network",
        },
    ),
}
"""Methods of a head, by name."""
