"""Registry of methods: a row per method with its factory, hyper-parameters and requirements.

A new strategy is one file and one row of `_ROWS`; benchmarks, help, documentation and contract
tests read the rows. `registry_adapters` has those of a pretrained transformer.
"""

from everlight.continual import registry_arguments as arguments
from everlight.continual import strategies as of
from everlight.continual.method import Demand, Method
from everlight.continual.registry_adapters import ADAPTERS

_COUNTING: tuple[Demand, ...] = ("class scores", "one label")
_OTHER_WEIGHTS: tuple[Demand, ...] = (*_COUNTING, "last weights")
_CHAIN: tuple[Demand, ...] = ("named head", "hidden layers")
_TOLD: tuple[Demand, ...] = ("task-incremental", "class scores", *_CHAIN, "last weights")
# Penalties are followed by implicit steps where the optimizer allows, which diverge at no value of
# a grid.
_ROWS: dict[str, Method] = {
    "naive": Method(of.naive, arguments.no_arguments),
    "cumulative": Method(of.cumulative, arguments.no_arguments, anew=True),
    "joint": Method(
        of.joint, lambda needs: {"tasks": needs.tasks}, anew=True, label_setting="joint"
    ),
    "incremental joint": Method(
        of.naive,
        arguments.no_arguments,
        demands=("several labels",),
        label_setting="incremental joint",
        summary="naive finetuning on all samples so far, with all their labels (IIRC)",
    ),
    "EWC": Method(of.ewc, arguments.fisher, (100, 1e3, 1e4, 1e5, 1e6)),
    "online EWC": Method(
        of.ewc,
        lambda needs: {**arguments.fisher(needs), "online": True},
        (100, 1e3, 1e4, 1e5, 1e6),
        summary="EWC with one decaying Fisher information instead of one per task",
    ),
    "SI": Method(
        of.si,
        lambda needs: {
            "regularization": needs.hyperparameter,
            "implicit_rate": needs.implicit_rate,
        },
        (0.01, 0.1, 1, 10, 100),
        published=0.1,
    ),
    "MAS": Method(
        of.mas,
        lambda needs: {
            "regularization": needs.hyperparameter,
            "importance_samples": needs.importance_samples,
            "implicit_rate": needs.implicit_rate,
        },
        (0.01, 0.1, 1, 10, 100),
        published=1,
    ),
    "LwF": Method(
        of.lwf,
        lambda needs: {
            "regularization": needs.hyperparameter,
            **arguments.heads(needs),
        },
        (0.3, 1, 3, 10),
        published=1,
        demands=_COUNTING,
    ),
    "IMM mean": Method(
        of.imm,
        arguments.merged("mean"),
        (1e-3, 1e-2, 1e-1, 1),
        demands=("last weights",),
        summary="incremental moment matching (IMM): the mean of the networks",
    ),
    "IMM mode": Method(
        of.imm,
        arguments.merged("mode"),
        (1e-3, 1e-2, 1e-1, 1),
        demands=("last weights",),
        summary="IMM: the mode, networks weighted by their Fisher information",
    ),
    "task arithmetic": Method(
        of.task_arithmetic,
        lambda needs: {"scale": needs.hyperparameter},
        (0.1, 0.2, 0.4, 1),
        published=0.4,
        demands=("last weights",),
    ),
    "TIES": Method(
        of.ties,
        lambda needs: {"scale": needs.hyperparameter},
        (0.5, 1, 1.5, 2),
        published=1,
        demands=("last weights",),
    ),
    "CoFiMA": Method(
        of.cofima,
        lambda needs: {
            "weight": needs.hyperparameter,
            "fisher_samples": needs.importance_samples,
        },
        (0.2, 0.4, 0.6, 0.8),
        demands=("last weights",),
    ),
    "GPM": Method(
        of.gpm,
        lambda needs: {"threshold": needs.hyperparameter},
        (0.9, 0.95, 0.97, 0.99),
        published=0.97,
        demands=_CHAIN,
    ),
    "TRGP": Method(
        of.trgp,
        lambda needs: {"tasks": needs.tasks, "threshold": needs.hyperparameter},
        (0.9, 0.95, 0.97, 0.99),
        published=0.97,
        demands=_TOLD,
    ),
    "ER-balanced": Method(
        of.balanced_replay,
        arguments.exemplars,
        summary="experience replay: equally many exemplars per class, mixed into every epoch",
    ),
    "ER": Method(
        of.experience_replay,
        arguments.drawn_reservoir,
        summary="experience replay: a replay batch from a reservoir at every step",
    ),
    "ER-infinite": Method(of.unlimited_replay, arguments.no_arguments),
    "DER": Method(of.der, arguments.drawn_reservoir, demands=("class scores",)),
    "DER++": Method(of.der_plus_plus, arguments.drawn_reservoir, demands=("class scores",)),
    "MIR": Method(of.mir, arguments.retrieved_reservoir),
    "ER-ACE": Method(
        of.er_ace, arguments.drawn_reservoir, demands=("class scores", "chosen classes")
    ),
    "ER-AML": Method(of.er_aml, arguments.single_label_reservoir, demands=_COUNTING),
    "SCR": Method(
        of.scr,
        arguments.single_label_reservoir,
        demands=_COUNTING,
        nearest_mean=True,
    ),
    "OnPro": Method(of.onpro, arguments.single_label_reservoir, demands=_COUNTING),
    "ER-tricks": Method(of.er_tricks, arguments.single_label_reservoir, demands=_OTHER_WEIGHTS),
    "X-DER-RPC": Method(
        of.xder_rpc,
        arguments.drawn_reservoir,
        demands=(*_COUNTING, "own classes", "chosen classes"),
    ),
    "CLS-ER": Method(of.cls_er, arguments.two_averages, (0.1, 0.5, 2), demands=_OTHER_WEIGHTS),
    "ER-MKD": Method(
        of.mkd,
        arguments.drawn_reservoir,
        demands=_OTHER_WEIGHTS,
        summary="ER taught by a moving average (momentum knowledge distillation, MKD)",
    ),
    "ER-ACE-MKD": Method(
        of.mkd,
        lambda needs: {**arguments.drawn_reservoir(needs), "method": "ER-ACE"},
        demands=(*_OTHER_WEIGHTS, "chosen classes"),
        summary="ER-ACE taught by a moving average of the network (MKD)",
    ),
    "DER++-MKD": Method(
        of.mkd,
        lambda needs: {**arguments.drawn_reservoir(needs), "method": "DER++"},
        demands=_OTHER_WEIGHTS,
        summary="DER++ taught by a moving average of the network (MKD)",
    ),
    "GDumb": Method(
        of.gdumb,
        lambda needs: {**arguments.reservoir(needs), "epochs": 64},
        demands=("last weights",),
        summary="a new network, trained on a class-balanced memory before every evaluation",
    ),
    # With several labels in IIRC's form.
    "A-GEM": Method(
        of.agem,
        lambda needs: {**arguments.drawn_exemplars(needs), "apart": needs.labels > 1},
        select="last",
    ),
    "GEM": Method(
        of.gem,
        lambda needs: {
            "tasks": needs.tasks,
            "per_task": max(1, needs.total_buffer_size // needs.tasks),
            "labels": needs.labels,
        },
    ),
    "HAL": Method(of.hal, arguments.anchors, demands=_COUNTING),
    "iCaRL": Method(
        of.icarl,
        lambda needs: {**arguments.exemplars(needs), "classifier": "nearest mean"},
        demands=("class scores", "one label", "own classes"),
        select="last",
        nearest_mean=True,
    ),
    "iCaRL-CNN": Method(
        of.icarl,
        arguments.exemplars,
        demands=("several labels",),
        select="last",
        summary="iCaRL predicting by its output layer, for several labels (IIRC)",
    ),
    "iCaRL-norm": Method(
        of.icarl,
        lambda needs: {**arguments.exemplars(needs), "restart": arguments.restart_scale},
        head="cosine",
        demands=("several labels",),
        select="last",
        summary="iCaRL with a cosine head, for several labels (IIRC)",
    ),
    "LUCIR": Method(
        of.lucir,
        lambda needs: {**arguments.exemplars(needs), "distillation": needs.hyperparameter},
        (0.5, 1, 2, 5),
        published=5,
        head="cosine",
        demands=("class scores", "own classes", "named head"),
        select="last",
    ),
    "PODNet": Method(
        of.podnet,
        lambda needs: {**arguments.exemplars(needs), "flat": needs.hyperparameter},
        (0.3, 1, 3, 10),
        published=1,
        head="local similarity",
        demands=(*_COUNTING, "own classes", "named head"),
        select="last",
    ),
    "BiC": Method(
        of.bic,
        arguments.exemplars,
        demands=("class scores", "own classes", "last weights"),
        select="last",
    ),
    "APER": Method(of.aper, arguments.no_arguments, demands=_OTHER_WEIGHTS),
    "SLCA": Method(
        of.slca,
        lambda needs: {"slow": needs.hyperparameter},
        (1e-3, 1e-2, 1e-1, 1),
        published=1e-2,
        demands=(*_OTHER_WEIGHTS, "own classes", "named head"),
    ),
    "WA": Method(
        of.wa,
        arguments.exemplars,
        demands=(*_COUNTING, "own classes", "named head"),
        select="last",
    ),
    "SS-IL": Method(
        of.ss_il,
        arguments.drawn_exemplars,
        demands=(*_COUNTING, "own classes"),
        select="last",
    ),
    # Other stages 1 and 2, which are not the paper's.
    "BiC-whole-pwJS": Method(
        of.bic,
        lambda needs: {**arguments.exemplars(needs), "weigh_labels": False, "fit": "metric"},
        demands=("several labels", "last weights"),
        select="last",
        summary="BiC for several labels, fitted to pw-JS (IIRC)",
    ),
    "ExpertGate": Method(
        of.expert_gate,
        arguments.gate,
        demands=("last weights",),
        summary="one network per task, chosen by autoencoders",
    ),
    # With the paper's relatedness threshold.
    "ExpertGate-LwF": Method(
        of.expert_gate,
        lambda needs: {
            **arguments.gate(needs),
            "relatedness_threshold": 0.85,
            **arguments.heads(needs),
        },
        demands=_OTHER_WEIGHTS,
        summary="ExpertGate; networks of related tasks are trained with LwF",
    ),
    "PackNet": Method(
        of.packnet,
        arguments.no_arguments,
        demands=_TOLD,
        summary="weights pruned and frozen, task by task",
    ),
    "HAT": Method(
        of.hat, lambda needs: {"tasks": needs.tasks, "layers": needs.layers}, demands=_TOLD
    ),
    "CBP": Method(
        of.continual_backprop,
        lambda needs: {"layers": needs.layers, "replacement_rate": needs.hyperparameter},
        (1e-5, 1e-4, 1e-3),
        demands=_CHAIN,
    ),
    "ReDo": Method(
        of.redo,
        lambda needs: {"layers": needs.layers, "threshold": needs.hyperparameter},
        (0.0, 0.025, 0.1),
        demands=_CHAIN,
    ),
    "shrink and perturb": Method(
        of.shrink_and_perturb,
        lambda needs: {"shrinkage": needs.hyperparameter},
        (0.2, 0.4, 0.6, 0.8),
    ),
    "L2 Init": Method(
        of.l2_init,
        lambda needs: {
            "regularization": needs.hyperparameter,
            "implicit_rate": needs.implicit_rate,
        },
        (1e-5, 1e-4, 1e-3, 1e-2),
    ),
    "CWR": Method(
        of.cwr,
        lambda needs: {"first_task_gain": needs.gain},
        trains="head",
        demands=_OTHER_WEIGHTS,
        summary="CopyWeights with Re-init: one consolidated head over a frozen network",
    ),
    "CWR as coded": Method(
        of.cwr,
        lambda needs: {"first_task_gain": needs.gain, "form": "code"},
        trains="head",
        demands=_OTHER_WEIGHTS,
        summary="CWR as the code of its authors differs from their text",
    ),
    "CWR+": Method(
        of.cwr,
        lambda needs: {"form": "plus"},
        trains="head",
        demands=_OTHER_WEIGHTS,
        summary="CWR with a zero start and a mean shift (Maltoni and Lomonaco 2019)",
    ),
    "CWR*": Method(
        of.cwr,
        lambda needs: {"form": "star"},
        trains="head",
        demands=_OTHER_WEIGHTS,
        summary="CWR+ weighted by numbers of samples (Lomonaco et al. 2020)",
    ),
    "streaming LDA": Method(
        of.streaming_lda,
        lambda needs: {"shrinkage": needs.hyperparameter},
        (1e-4, 1e-3, 1e-2, 1e-1, 0.5),
        published=1e-4,
        trains="head",
        demands=_OTHER_WEIGHTS,
    ),
    "nearest mean": Method(
        of.nearest_mean, arguments.no_arguments, trains="head", demands=_OTHER_WEIGHTS
    ),
    "SimpleCIL": Method(
        of.simple_cil, arguments.no_arguments, trains="head", demands=_OTHER_WEIGHTS
    ),
    "FeCAM": Method(
        of.fecam,
        arguments.shrinkages,
        (0.1, 1, 10),
        published=1,
        trains="head",
        demands=_OTHER_WEIGHTS,
    ),
    "RanDumb": Method(
        of.randumb,
        lambda needs: {"width": 1000, "shrinkage": needs.hyperparameter},
        (1e-5, 1e-4, 1e-3, 1e-2),
        published=1e-4,
        trains="head",
        demands=_OTHER_WEIGHTS,
    ),
    "RanPAC": Method(
        of.ranpac,
        lambda needs: {"width": 1000, "ridge": needs.hyperparameter},
        (1e2, 1e3, 1e4, 1e5, 1e6),
        trains="head",
        demands=_OTHER_WEIGHTS,
    ),
    "ACIL": Method(
        of.acil,
        lambda needs: {"width": 1000, "ridge": needs.hyperparameter},
        (0.1, 1, 10, 100, 1e3),
        published=0.1,
        trains="head",
        demands=_OTHER_WEIGHTS,
    ),
    "DS-AL": Method(
        of.ds_al,
        lambda needs: {"width": 1000, "compensation": needs.hyperparameter},
        (0.3, 0.6, 1, 1.5),
        published=0.6,
        trains="head",
        demands=_OTHER_WEIGHTS,
    ),
}
METHODS: dict[str, Method] = {
    name: row._replace(name=name) for name, row in {**_ROWS, **ADAPTERS}.items()
}
