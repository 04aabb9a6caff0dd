"""Registry of methods: a row per method with factory, paper, hyper-parameters and requirements.

A new strategy is one file and one row of `_ROWS`; benchmarks, help, documentation and contract
tests read the rows. Modules beside this one have those of replay methods (`registry_replay`), of
methods that merge networks (`registry_merging`), of heads over frozen features (`registry_heads`)
and of pretrained transformers (`registry_adapters`).
"""

from flax.core import FrozenDict

from everlight.continual import strategies as of
from everlight.continual.method import COUNTING, OTHER_WEIGHTS, Demand, Method, Source
from everlight.continual.registry_adapters import ADAPTERS
from everlight.continual.registry_heads import HEADS
from everlight.continual.registry_merging import MERGING
from everlight.continual.registry_replay import REPLAY
from everlight.continual.strategies.parts import arguments

_CHAIN: tuple[Demand, ...] = ("named head", "hidden layers")
_READ: tuple[Demand, ...] = (*_CHAIN, "layer inputs")
_TOLD: tuple[Demand, ...] = ("task-incremental", "class scores", *_CHAIN, "last weights")
_IIRC = Source("Abdelsalam et al. 2021, CVPR", ("samples", "old net"))
_BIC = Source("Wu et al. 2019, CVPR", ("samples", "old net"))
_GATE = Source("Aljundi et al. 2017, CVPR", ("old net",))
# Penalties are followed by implicit steps where the optimizer allows, which diverge at no value of
# a grid.
_ROWS: dict[str, Method] = {
    "naive": Method(of.naive, arguments.no_arguments, Source("")),
    "cumulative": Method(
        of.cumulative, arguments.no_arguments, Source("", ("all samples",)), anew=True
    ),
    "joint": Method(
        of.joint,
        lambda needs: {"tasks": needs.tasks},
        Source("", ("all samples",)),
        anew=True,
        label_setting="joint",
    ),
    "incremental joint": Method(
        of.naive,
        arguments.no_arguments,
        Source("Abdelsalam et al. 2021, CVPR", ("all samples",)),
        demands=("several labels",),
        label_setting="incremental joint",
        summary="naive finetuning on all samples so far, with all their labels (IIRC)",
    ),
    "EWC": Method(
        of.ewc,
        arguments.fisher,
        Source("Kirkpatrick et al. 2017, PNAS", ("old net", "statistics")),
        (100, 1e3, 1e4, 1e5, 1e6),
        authors={"penalty's step": "explicit"},
    ),
    "online EWC": Method(
        of.ewc,
        lambda needs: {**arguments.fisher(needs), "online": True},
        Source("Schwarz et al. 2018, ICML", ("old net", "statistics")),
        (100, 1e3, 1e4, 1e5, 1e6),
        summary="EWC with one decaying Fisher information instead of one per task",
        authors={"penalty's step": "explicit"},
    ),
    "SI": Method(
        of.si,
        lambda needs: {
            "regularization": needs.hyperparameter,
            "implicit_rate": needs.implicit_rate,
        },
        Source("Zenke et al. 2017, ICML", ("old net", "statistics")),
        (0.01, 0.1, 1, 10, 100),
        published=0.1,
        authors={"regularization": 0.1, "damping": 0.001, "penalty's step": "explicit"},
    ),
    "MAS": Method(
        of.mas,
        lambda needs: {
            "regularization": needs.hyperparameter,
            "importance_samples": needs.importance_samples,
            "implicit_rate": needs.implicit_rate,
        },
        Source("Aljundi et al. 2018, ECCV", ("old net", "statistics")),
        (0.01, 0.1, 1, 10, 100),
        published=1,
        authors={"regularization": 1, "importance_samples": "all", "penalty's step": "explicit"},
    ),
    "LwF": Method(
        of.lwf,
        lambda needs: {
            "regularization": needs.hyperparameter,
            **arguments.heads(needs),
        },
        Source("Li and Hoiem 2016, ECCV", ("old net",)),
        (0.25, 1, 3, 10),
        # The paper's 1 without the factor T² = 4 of the module's equation.
        published=0.25,
        demands=COUNTING,
        authors={"temperature": 2, "regularization": 0.25},
    ),
    **MERGING,
    "GPM": Method(
        of.gpm,
        lambda needs: {"threshold": needs.hyperparameter},
        Source("Saha et al. 2021, ICLR", ("statistics",)),
        (0.9, 0.95, 0.97, 0.99),
        published=0.97,
        demands=_READ,
        authors={"threshold": 0.97, "growth": 0.003, "samples": 125},
    ),
    "TRGP": Method(
        of.trgp,
        lambda needs: {"tasks": needs.tasks, "threshold": needs.hyperparameter},
        Source("Lin et al. 2022, ICLR", ("statistics",)),
        (0.9, 0.95, 0.97, 0.99),
        published=0.97,
        demands=(*_TOLD, "layer inputs"),
        authors={"threshold": 0.97, "growth": 0.003, "samples": 125, "trust": 0.5},
    ),
    **REPLAY,
    "iCaRL": Method(
        of.icarl,
        lambda needs: {**arguments.exemplars(needs), "classifier": "nearest mean"},
        Source("Rebuffi et al. 2017, CVPR", ("samples", "old net")),
        demands=("class scores", "one label", "own classes"),
        select="last",
        nearest_mean=True,
        authors={"batch size": 128, "epochs per task": 70},
    ),
    "iCaRL-CNN": Method(
        of.icarl,
        arguments.exemplars,
        _IIRC,
        demands=("several labels",),
        select="last",
        summary="iCaRL predicting by its output layer, for several labels (IIRC)",
        benchmarks=("iirc",),
    ),
    "iCaRL-norm": Method(
        of.icarl,
        lambda needs: {**arguments.exemplars(needs), "restart": arguments.restart_scale},
        _IIRC,
        head="cosine",
        demands=("several labels", "head kinds"),
        select="last",
        summary="iCaRL with a cosine head, for several labels (IIRC)",
        benchmarks=("iirc",),
    ),
    "LUCIR": Method(
        of.lucir,
        lambda needs: {**arguments.exemplars(needs), "distillation": needs.hyperparameter},
        Source("Hou et al. 2019, CVPR", ("samples", "old net")),
        (0.5, 1, 2, 5),
        published=5,
        head="cosine",
        demands=("class scores", "own classes", "named head", "head kinds"),
        select="last",
        authors={
            "distillation": 5,
            "margin": 0.5,
            "rivals": 2,
            "exemplars_per_class": 20,
            "batch size": 128,
            "epochs per task": 160,
        },
    ),
    "PODNet": Method(
        of.podnet,
        lambda needs: {**arguments.exemplars(needs), "flat": needs.hyperparameter},
        Source("Douillard et al. 2020, ECCV", ("samples", "old net")),
        (0.3, 1, 3, 10),
        published=1,
        head="local similarity",
        demands=(*COUNTING, "own classes", "named head", "head kinds"),
        select="last",
        authors={
            "spatial": 3,
            "flat": 1,
            "margin": 0.6,
            "form": "code",
            "finetune_epochs": 20,
            "finetune_rate": 0.5,
            "exemplars_per_class": 20,
            "batch size": 128,
            "epochs per task": 160,
        },
    ),
    "BiC": Method(
        of.bic,
        arguments.exemplars,
        _BIC,
        demands=("class scores", "own classes", "last weights"),
        select="last",
        # Of ImageNet, which alone is in their code.
        authors={"temperature": 2, "batch size": 256, "epochs per task": 100},
    ),
    "APER": Method(
        of.aper,
        arguments.no_arguments,
        Source("Zhou et al. 2024, IJCV", ("old net", "statistics")),
        demands=OTHER_WEIGHTS,
        advised=("pretrained layers",),
        authors={"network": "pretrained"},
    ),
    "SLCA": Method(
        of.slca,
        lambda needs: {"slow": needs.hyperparameter},
        Source("Zhang et al. 2023, ICCV", ("statistics",)),
        (1e-3, 1e-2, 1e-1, 1),
        published=1e-2,
        demands=(*OTHER_WEIGHTS, "own classes", "named head"),
        authors={
            "slow": 0.01,
            "epochs": 5,
            "samples": 256,
            "temperature": 0.1,
            "batch size": 128,
            "epochs per task": 20,
            "network": "pretrained",
        },
    ),
    "WA": Method(
        of.wa,
        arguments.exemplars,
        Source("Zhao et al. 2020, CVPR", ("samples", "old net")),
        demands=(*COUNTING, "own classes", "named head"),
        select="last",
        authors={"temperature": 2},
    ),
    "SS-IL": Method(
        of.ss_il,
        arguments.drawn_exemplars,
        Source("Ahn et al. 2021, ICCV", ("samples", "old net")),
        demands=(*COUNTING, "own classes"),
        select="last",
        authors={
            "temperature": 2,
            "batch size": 128,
            "epochs per task": "100, then 25",
            "optimizer at a new task": "goes on",
        },
    ),
    # Other stages 1 and 2, which are not the paper's.
    "BiC-whole-pwJS": Method(
        of.bic,
        lambda needs: {**arguments.exemplars(needs), "weigh_labels": False, "fit": "metric"},
        _BIC,
        demands=("several labels", "last weights"),
        select="last",
        summary="BiC for several labels, fitted to pw-JS (IIRC)",
        benchmarks=("iirc",),
    ),
    "ExpertGate": Method(
        of.expert_gate,
        arguments.gate,
        _GATE,
        demands=("last weights",),
        summary="one network per task, chosen by autoencoders",
        authors={"hidden": 500, "epochs": 100},
    ),
    # With the paper's relatedness threshold.
    "ExpertGate-LwF": Method(
        of.expert_gate,
        lambda needs: {
            **arguments.gate(needs),
            "relatedness_threshold": 0.85,
            **arguments.heads(needs),
        },
        _GATE,
        demands=OTHER_WEIGHTS,
        summary="ExpertGate; networks of related tasks are trained with LwF",
        authors={"hidden": 500, "epochs": 100, "relatedness_threshold": 0.85},
    ),
    "PackNet": Method(
        of.packnet,
        arguments.no_arguments,
        Source("Mallya and Lazebnik 2018, CVPR", ("statistics",)),
        demands=_TOLD,
        summary="weights pruned and frozen, task by task",
        authors={
            "prune": "0.5, then 0.75",
            "retrain_epochs": 10,
            "batch_size": 32,
            "batch size": 32,
            "epochs per task": 20,
            "network": "pretrained",
        },
    ),
    "HAT": Method(
        of.hat,
        lambda needs: {"tasks": needs.tasks, "layers": needs.layers},
        Source("Serrà et al. 2018, ICML", ("statistics",)),
        demands=_TOLD,
        authors={
            "sparsity": 0.75,
            "steepest": 400,
            "rate": 0.05,
            "batch size": 64,
            "epochs per task": 200,
            "optimizer": "sgd",
            "learning rate": 0.05,
        },
    ),
    "CBP": Method(
        of.continual_backprop,
        lambda needs: {"layers": needs.layers, "replacement_rate": needs.hyperparameter},
        Source("Dohare et al. 2024, Nature", ("statistics",)),
        (1e-5, 1e-4, 1e-3),
        demands=_CHAIN,
        authors={
            "replacement_rate": 0.0003,
            "decay": 0.99,
            "maturity": 100,
            "utility": "adaptable contribution",
        },
    ),
    "ReDo": Method(
        of.redo,
        lambda needs: {"layers": needs.layers, "threshold": needs.hyperparameter},
        Source("Sokar et al. 2023, ICML", ("statistics",)),
        (0.0, 0.025, 0.1),
        demands=_CHAIN,
        authors={"threshold": 0, "period": 200000},
    ),
    "shrink and perturb": Method(
        of.shrink_and_perturb,
        lambda needs: {"shrinkage": needs.hyperparameter},
        Source("Ash and Adams 2020, NeurIPS"),
        (0.2, 0.4, 0.6, 0.8),
        authors={"shrinkage": 0.4, "noise": 0.1},
    ),
    "L2 Init": Method(
        of.l2_init,
        lambda needs: {
            "regularization": needs.hyperparameter,
            "implicit_rate": needs.implicit_rate,
        },
        Source("Kumar et al. 2023, arXiv 2308.11958", ("old net",)),
        (1e-5, 1e-4, 1e-3, 1e-2),
        authors={"regularization": (5e-06, 5e-05, 0.0005, 0.005), "penalty's step": "explicit"},
    ),
    **HEADS,
    **ADAPTERS,
}
# Rows are hashed as parts of keys.
METHODS: dict[str, Method] = {
    name: row._replace(name=name, authors=FrozenDict(row.authors)) for name, row in _ROWS.items()
}
