"""Registry of methods: a row per method with its factory, hyper-parameters and requirements.

A new strategy is one file and one row of `_ROWS`; benchmarks, help, documentation and contract
tests read the rows.
"""

from everlight.continual import registry_arguments as arguments
from everlight.continual.method import Demand, Method
from everlight.continual.strategies import (
    agem,
    balanced_replay,
    bic,
    cls_er,
    cumulative,
    cwr,
    der,
    der_plus_plus,
    er_ace,
    er_tricks,
    ewc,
    experience_replay,
    expert_gate,
    gdumb,
    gem,
    hal,
    hat,
    icarl,
    imm,
    joint,
    lucir,
    lwf,
    mas,
    mkd,
    naive,
    nearest_mean,
    packnet,
    ranpac,
    si,
    streaming_lda,
    unlimited_replay,
    xder_rpc,
)

_COUNTING: tuple[Demand, ...] = ("class scores", "one label")
_OTHER_WEIGHTS: tuple[Demand, ...] = (*_COUNTING, "last weights")
_TOLD: tuple[Demand, ...] = (
    *("task-incremental", "class scores"),
    *("named head", "hidden layers", "last weights"),
)
# Penalties are followed by implicit steps where the optimizer allows, which diverge at no value of
# a grid.
_ROWS: dict[str, Method] = {
    "naive": Method(naive, arguments.no_arguments),
    "cumulative": Method(cumulative, arguments.no_arguments, anew=True),
    "joint": Method(joint, lambda needs: {"tasks": needs.tasks}, anew=True, setting="joint"),
    "incremental joint": Method(
        naive,
        arguments.no_arguments,
        demands=("several labels",),
        setting="incremental joint",
        summary="naive finetuning on all samples so far, with all their labels (IIRC)",
    ),
    "EWC": Method(ewc, arguments.fisher, (100, 1e3, 1e4, 1e5, 1e6)),
    "online EWC": Method(
        ewc,
        lambda needs: {**arguments.fisher(needs), "online": True},
        (100, 1e3, 1e4, 1e5, 1e6),
        summary="EWC with one decaying Fisher information instead of one per task",
    ),
    "SI": Method(
        si,
        lambda needs: {
            "regularization": needs.hyperparameter,
            "implicit_rate": needs.implicit_rate,
        },
        (0.01, 0.1, 1, 10, 100),
        published=0.1,
    ),
    "MAS": Method(
        mas,
        lambda needs: {
            "regularization": needs.hyperparameter,
            "importance_samples": needs.importance_samples,
            "implicit_rate": needs.implicit_rate,
        },
        (0.01, 0.1, 1, 10, 100),
        published=1,
    ),
    "LwF": Method(
        lwf,
        lambda needs: {
            "regularization": needs.hyperparameter,
            **arguments.heads(needs),
        },
        (0.3, 1, 3, 10),
        published=1,
        demands=_COUNTING,
    ),
    "IMM mean": Method(
        imm,
        arguments.merged("mean"),
        (1e-3, 1e-2, 1e-1, 1),
        demands=("last weights",),
        summary="incremental moment matching (IMM): the mean of the networks",
    ),
    "IMM mode": Method(
        imm,
        arguments.merged("mode"),
        (1e-3, 1e-2, 1e-1, 1),
        demands=("last weights",),
        summary="IMM: the mode, networks weighted by their Fisher information",
    ),
    "ER-balanced": Method(
        balanced_replay,
        arguments.exemplars,
        summary="experience replay: equally many exemplars per class, mixed into every epoch",
    ),
    "ER": Method(
        experience_replay,
        arguments.drawn_reservoir,
        summary="experience replay: a replay batch from a reservoir at every step",
    ),
    "ER-infinite": Method(unlimited_replay, arguments.no_arguments),
    "DER": Method(der, arguments.drawn_reservoir, demands=("class scores",)),
    "DER++": Method(der_plus_plus, arguments.drawn_reservoir, demands=("class scores",)),
    "X-DER-RPC": Method(xder_rpc, arguments.drawn_reservoir, demands=(*_COUNTING, "own classes")),
    "CLS-ER": Method(cls_er, arguments.two_averages, (0.1, 0.5, 2), demands=_OTHER_WEIGHTS),
    "ER-ACE": Method(er_ace, arguments.drawn_reservoir, demands=("class scores", "chosen classes")),
    "ER-MKD": Method(
        mkd,
        arguments.drawn_reservoir,
        demands=_OTHER_WEIGHTS,
        summary="ER taught by a moving average of the network (momentum knowledge distillation)",
    ),
    "ER-ACE-MKD": Method(
        mkd,
        lambda needs: {**arguments.drawn_reservoir(needs), "method": "ER-ACE"},
        demands=(*_OTHER_WEIGHTS, "chosen classes"),
        summary="ER-ACE taught by a moving average of the network (MKD)",
    ),
    "DER++-MKD": Method(
        mkd,
        lambda needs: {**arguments.drawn_reservoir(needs), "method": "DER++"},
        demands=_OTHER_WEIGHTS,
        summary="DER++ taught by a moving average of the network (MKD)",
    ),
    "ER-tricks": Method(er_tricks, arguments.er_tricks_arguments, demands=_OTHER_WEIGHTS),
    "GDumb": Method(
        gdumb,
        lambda needs: {**arguments.reservoir(needs), "epochs": 64},
        demands=("last weights",),
        summary="a new network, trained on a class-balanced memory before every evaluation",
    ),
    # With several labels in IIRC's form.
    "A-GEM": Method(
        agem,
        lambda needs: {
            **arguments.exemplars(needs),
            "apart": needs.labels > 1,
            "replay_batch_size": needs.replay_batch_size,
        },
        select="last",
    ),
    "GEM": Method(
        gem,
        lambda needs: {
            "tasks": needs.tasks,
            "per_task": max(1, needs.total_buffer_size // needs.tasks),
            "labels": needs.labels,
        },
    ),
    "HAL": Method(hal, arguments.anchors, demands=_COUNTING),
    "iCaRL": Method(
        icarl,
        lambda needs: {**arguments.exemplars(needs), "classifier": "nearest mean"},
        demands=("class scores", "one label", "own classes"),
        select="last",
    ),
    "iCaRL-CNN": Method(
        icarl,
        arguments.exemplars,
        demands=("several labels",),
        select="last",
        summary="iCaRL predicting by its output layer, for several labels (IIRC)",
    ),
    "iCaRL-norm": Method(
        icarl,
        lambda needs: {**arguments.exemplars(needs), "restart": arguments.restart_scale},
        head="cosine",
        demands=("several labels",),
        select="last",
        summary="iCaRL with a cosine head, for several labels (IIRC)",
    ),
    "LUCIR": Method(
        lucir,
        lambda needs: {**arguments.exemplars(needs), "distillation": needs.hyperparameter},
        (0.5, 1, 2, 5),
        published=5,
        head="cosine",
        demands=("class scores", "own classes", "named head"),
        select="last",
    ),
    "BiC": Method(
        bic,
        arguments.exemplars,
        demands=("class scores", "own classes", "last weights"),
        select="last",
    ),
    # Other stages 1 and 2, which are not the paper's.
    "BiC-whole-pwJS": Method(
        bic,
        lambda needs: {**arguments.exemplars(needs), "weigh_labels": False, "fit": "metric"},
        demands=("several labels", "last weights"),
        select="last",
        summary="BiC for several labels, fitted to pw-JS (IIRC)",
    ),
    "ExpertGate": Method(
        expert_gate,
        arguments.gate,
        demands=("last weights",),
        summary="one network per task, chosen by autoencoders",
    ),
    # With the paper's relatedness threshold.
    "ExpertGate-LwF": Method(
        expert_gate,
        lambda needs: {
            **arguments.gate(needs),
            "relatedness_threshold": 0.85,
            **arguments.heads(needs),
        },
        demands=_OTHER_WEIGHTS,
        summary="ExpertGate; networks of related tasks are trained with LwF",
    ),
    "PackNet": Method(
        packnet,
        arguments.no_arguments,
        demands=_TOLD,
        summary="weights pruned and frozen, task by task",
    ),
    "HAT": Method(hat, lambda needs: {"tasks": needs.tasks, "layers": needs.layers}, demands=_TOLD),
    "CWR": Method(
        cwr,
        lambda needs: {"first_task_gain": needs.gain},
        trains="head",
        demands=_OTHER_WEIGHTS,
        summary="CopyWeights with Re-init: one consolidated head over a frozen network",
    ),
    "CWR as coded": Method(
        cwr,
        lambda needs: {"first_task_gain": needs.gain, "form": "code"},
        trains="head",
        demands=_OTHER_WEIGHTS,
        summary="CWR as the code of its authors differs from their text",
    ),
    "CWR+": Method(
        cwr,
        lambda needs: {"form": "plus"},
        trains="head",
        demands=_OTHER_WEIGHTS,
        summary="CWR with a zero start and a mean shift (Maltoni and Lomonaco 2019)",
    ),
    "CWR*": Method(
        cwr,
        lambda needs: {"form": "star"},
        trains="head",
        demands=_OTHER_WEIGHTS,
        summary="CWR+ weighted by numbers of samples (Lomonaco et al. 2020)",
    ),
    "streaming LDA": Method(
        streaming_lda,
        lambda needs: {"shrinkage": needs.hyperparameter},
        (1e-4, 1e-3, 1e-2, 1e-1, 0.5),
        published=1e-4,
        trains="head",
        demands=_OTHER_WEIGHTS,
    ),
    "nearest mean": Method(
        nearest_mean, arguments.no_arguments, trains="head", demands=_OTHER_WEIGHTS
    ),
    "RanPAC": Method(
        ranpac,
        lambda needs: {"width": 1000, "ridge": needs.hyperparameter},
        (1e2, 1e3, 1e4, 1e5, 1e6),
        trains="head",
        demands=_OTHER_WEIGHTS,
    ),
}
METHODS: dict[str, Method] = {name: row._replace(name=name) for name, row in _ROWS.items()}
