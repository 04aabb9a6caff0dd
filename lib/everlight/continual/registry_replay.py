"""Rows of the registry for replay methods, whose steps draw from a memory of samples."""

from everlight.continual import registry_arguments as arguments
from everlight.continual import strategies as of
from everlight.continual.method import COUNTING, OTHER_WEIGHTS, Method, Source

_MKD = Source("Michel et al. 2024, ICML", ("samples", "old net"))
REPLAY: dict[str, Method] = {
    "ER-balanced": Method(
        of.balanced_replay,
        arguments.exemplars,
        Source("Abdelsalam et al. 2021, CVPR", ("samples",)),
        summary="experience replay: equally many exemplars per class, mixed into every epoch",
    ),
    "ER": Method(
        of.experience_replay,
        arguments.drawn_reservoir,
        Source("Chaudhry et al. 2019, arXiv 1902.10486", ("samples",)),
        summary="experience replay: a replay batch from a reservoir at every step",
    ),
    "ER-infinite": Method(
        of.unlimited_replay,
        arguments.no_arguments,
        Source("Abdelsalam et al. 2021, CVPR", ("all samples",)),
    ),
    "DER": Method(
        of.der,
        arguments.drawn_reservoir,
        Source("Buzzega et al. 2020, NeurIPS", ("samples",)),
        demands=("class scores",),
    ),
    "DER++": Method(
        of.der_plus_plus,
        arguments.drawn_reservoir,
        Source("Buzzega et al. 2020, NeurIPS", ("samples",)),
        demands=("class scores",),
    ),
    "MIR": Method(
        of.mir, arguments.drawn_reservoir, Source("Aljundi et al. 2019, NeurIPS", ("samples",))
    ),
    "ER-ACE": Method(
        of.er_ace,
        arguments.drawn_reservoir,
        Source("Caccia et al. 2022, ICLR", ("samples",)),
        demands=("class scores", "chosen classes"),
    ),
    "ER-AML": Method(
        of.er_aml,
        arguments.single_label_reservoir,
        Source("Caccia et al. 2022, ICLR", ("samples",)),
        demands=COUNTING,
    ),
    "SCR": Method(
        of.scr,
        arguments.single_label_reservoir,
        Source("Mai et al. 2021, CVPRW", ("samples",)),
        demands=COUNTING,
        nearest_mean=True,
    ),
    "OnPro": Method(
        of.onpro,
        arguments.single_label_reservoir,
        Source("Wei et al. 2023, ICCV", ("samples",)),
        demands=COUNTING,
    ),
    "ER-tricks": Method(
        of.er_tricks,
        arguments.single_label_reservoir,
        Source("Buzzega et al. 2020, ICPR", ("samples",)),
        demands=OTHER_WEIGHTS,
    ),
    "X-DER-RPC": Method(
        of.xder_rpc,
        arguments.drawn_reservoir,
        Source("Boschini et al. 2022, TPAMI", ("samples",)),
        demands=(*COUNTING, "own classes", "chosen classes"),
    ),
    "CLS-ER": Method(
        of.cls_er,
        arguments.two_averages,
        Source("Arani et al. 2022, ICLR", ("samples", "old net")),
        (0.1, 0.5, 2),
        demands=OTHER_WEIGHTS,
    ),
    "ER-MKD": Method(
        of.mkd,
        arguments.drawn_reservoir,
        _MKD,
        demands=OTHER_WEIGHTS,
        summary="ER taught by a moving average (momentum knowledge distillation, MKD)",
    ),
    "ER-ACE-MKD": Method(
        of.mkd,
        lambda needs: {**arguments.drawn_reservoir(needs), "method": "ER-ACE"},
        _MKD,
        demands=(*OTHER_WEIGHTS, "chosen classes"),
        summary="ER-ACE taught by a moving average of the network (MKD)",
    ),
    "DER++-MKD": Method(
        of.mkd,
        lambda needs: {
            **arguments.drawn_reservoir(needs),
            "method": "DER++",
            "loss_over": "all",
        },
        _MKD,
        demands=OTHER_WEIGHTS,
        summary="DER++ taught by a moving average of the network (MKD)",
    ),
    "GDumb": Method(
        of.gdumb,
        lambda needs: {**arguments.reservoir(needs), "epochs": 64},
        Source("Prabhu et al. 2020, ECCV", ("samples",)),
        demands=("last weights",),
        summary="a new network, trained on a class-balanced memory before every evaluation",
    ),
    "A-GEM": Method(
        of.agem,
        arguments.reference,
        Source("Chaudhry et al. 2019, ICLR", ("samples",)),
        select="last",
    ),
    "GEM": Method(
        of.gem,
        lambda needs: {
            "tasks": needs.tasks,
            "per_task": max(1, needs.total_buffer_size // needs.tasks),
            "labels": needs.labels,
        },
        Source("Lopez-Paz and Ranzato 2017, NeurIPS", ("samples",)),
    ),
    "HAL": Method(
        of.hal,
        arguments.anchors,
        Source("Chaudhry et al. 2021, AAAI", ("samples", "statistics")),
        demands=COUNTING,
    ),
}
"""Replay methods, by name."""
