"""Registry of methods: a row per method with its factory, hyper-parameters and requirements.

A new strategy is one file and one row of `_ROWS`; benchmarks, help, documentation and contract
tests read the rows.
"""

from typing import Any

import jax.numpy as jnp
from jaxtyping import PyTree

from everlight.continual.method import Demand, Given, Method, Needs
from everlight.continual.strategies import (
    agem,
    balanced_replay,
    bic,
    cls_er,
    cumulative,
    cwr,
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
    naive,
    nearest_mean,
    packnet,
    ranpac,
    si,
    streaming_lda,
    unlimited_replay,
)


def _restart_scale(params: PyTree) -> PyTree:
    return {**params, "head": {**params["head"], "scale": jnp.ones(())}}


def _no_more(needs: Needs) -> dict[str, Any]:
    return {}


def _exemplars(needs: Needs) -> dict[str, Any]:
    given = {"exemplars_per_class": needs.exemplars_per_class, "labels": needs.labels}
    return given if needs.buffer_size is None else given | {"buffer_size": needs.buffer_size}


def _reservoir(needs: Needs) -> dict[str, Any]:
    return {"buffer_size": needs.total_buffer_size, "labels": needs.labels}


def _drawn_reservoir(needs: Needs) -> dict[str, Any]:
    return {**_reservoir(needs), "replay_batch_size": needs.replay_batch_size}


def _tricks(needs: Needs) -> dict[str, Any]:
    given = _drawn_reservoir(needs)
    return {name: given[name] for name in ("buffer_size", "replay_batch_size")}


def _averages(needs: Needs) -> dict[str, Any]:
    """Return CLS-ER's arguments, with the authors' decays and probabilities on split MNIST."""
    return {
        **_drawn_reservoir(needs),
        "regularization": needs.hyperparameter,
        **dict.fromkeys(("plastic_decay", "stable_decay"), 0.99),
        "plastic_rate": 1.0,
        "stable_rate": 0.9,
    }


def _anchors(needs: Needs) -> dict[str, Any]:
    buffer_size = max(needs.total_buffer_size, needs.tasks)
    return {**_drawn_reservoir(needs), "tasks": needs.tasks, "buffer_size": buffer_size}


def _fisher(needs: Needs) -> dict[str, Any]:
    return {
        "regularization": needs.hyperparameter,
        "fisher_samples": needs.importance_samples,
        "implicit_rate": needs.implicit_rate,
    }


def _heads(needs: Needs) -> dict[str, Any]:
    return {
        "class_group": needs.class_group,
        "groups": 1 if needs.class_group is None else needs.tasks,
    }


def _gate(needs: Needs) -> dict[str, Any]:
    return {"tasks": needs.tasks, "features": needs.gate, "hidden": needs.gate_hidden}


def _merged(mode: str) -> Given:
    return lambda needs: {
        "merge": mode,
        "regularization": needs.hyperparameter,
        "implicit_rate": needs.implicit_rate,
    }


_TOLD: tuple[Demand, ...] = ("task-incremental", "class scores", "named head", "hidden layers")
_COUNTING: tuple[Demand, ...] = ("class scores", "one label")
# Penalties are followed by implicit steps where the optimizer allows, which diverge at no value of
# a grid.
_ROWS: dict[str, Method] = {
    "naive": Method(naive, _no_more),
    "cumulative": Method(cumulative, _no_more, anew=True),
    "joint": Method(joint, lambda needs: {"tasks": needs.tasks}, anew=True, setting="joint"),
    "incremental joint": Method(
        naive,
        _no_more,
        demands=("several labels",),
        setting="incremental joint",
        summary="naive finetuning on all samples so far, with all their labels (IIRC)",
    ),
    "EWC": Method(ewc, _fisher, (100, 1e3, 1e4, 1e5, 1e6)),
    "online EWC": Method(
        ewc,
        lambda needs: {**_fisher(needs), "online": True},
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
            **_heads(needs),
        },
        (0.3, 1, 3, 10),
        published=1,
        demands=_COUNTING,
    ),
    "IMM mean": Method(
        imm,
        _merged("mean"),
        (1e-3, 1e-2, 1e-1, 1),
        summary="incremental moment matching (IMM): the mean of the networks",
    ),
    "IMM mode": Method(
        imm,
        _merged("mode"),
        (1e-3, 1e-2, 1e-1, 1),
        summary="IMM: the mode, networks weighted by their Fisher information",
    ),
    "ER-balanced": Method(
        balanced_replay,
        _exemplars,
        summary="experience replay: equally many exemplars per class, mixed into every epoch",
    ),
    "ER": Method(
        experience_replay,
        _drawn_reservoir,
        summary="experience replay: a replay batch from a reservoir at every step",
    ),
    "ER-infinite": Method(unlimited_replay, _no_more),
    "DER++": Method(der_plus_plus, _drawn_reservoir, demands=("class scores",)),
    "CLS-ER": Method(cls_er, _averages, (0.1, 0.5, 2), demands=_COUNTING),
    "ER-ACE": Method(er_ace, _drawn_reservoir, demands=("class scores", "chosen classes")),
    "ER-tricks": Method(er_tricks, _tricks, demands=_COUNTING),
    "GDumb": Method(
        gdumb,
        lambda needs: {**_reservoir(needs), "epochs": 64},
        summary="a new network, trained on a class-balanced memory before every evaluation",
    ),
    # With several labels in IIRC's form.
    "A-GEM": Method(
        agem,
        lambda needs: {
            **_exemplars(needs),
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
    "HAL": Method(hal, _anchors, demands=_COUNTING),
    "iCaRL": Method(
        icarl,
        lambda needs: {**_exemplars(needs), "classifier": "nearest mean"},
        demands=("class scores", "one label", "own classes"),
        select="last",
    ),
    "iCaRL-CNN": Method(
        icarl,
        _exemplars,
        demands=("several labels",),
        select="last",
        summary="iCaRL predicting by its output layer, for several labels (IIRC)",
    ),
    "iCaRL-norm": Method(
        icarl,
        lambda needs: {**_exemplars(needs), "restart": _restart_scale},
        head="cosine",
        demands=("several labels",),
        select="last",
        summary="iCaRL with a cosine head, for several labels (IIRC)",
    ),
    "LUCIR": Method(
        lucir,
        lambda needs: {**_exemplars(needs), "distillation": needs.hyperparameter},
        (0.5, 1, 2, 5),
        published=5,
        head="cosine",
        demands=("class scores", "own classes", "named head"),
        select="last",
    ),
    "BiC": Method(
        bic,
        _exemplars,
        demands=("class scores", "own classes"),
        select="last",
    ),
    # Other stages 1 and 2, which are not the paper's.
    "BiC-whole-pwJS": Method(
        bic,
        lambda needs: {**_exemplars(needs), "weigh_labels": False, "fit": "metric"},
        demands=("several labels",),
        select="last",
        summary="BiC for several labels, fitted to pw-JS (IIRC)",
    ),
    "ExpertGate": Method(
        expert_gate,
        _gate,
        summary="one network per task, chosen by autoencoders",
    ),
    # With the paper's relatedness threshold.
    "ExpertGate-LwF": Method(
        expert_gate,
        lambda needs: {**_gate(needs), "relatedness_threshold": 0.85, **_heads(needs)},
        demands=_COUNTING,
        summary="ExpertGate; networks of related tasks are trained with LwF",
    ),
    "PackNet": Method(
        packnet,
        _no_more,
        demands=_TOLD,
        summary="weights pruned and frozen, task by task",
    ),
    "HAT": Method(hat, lambda needs: {"tasks": needs.tasks, "layers": needs.layers}, demands=_TOLD),
    "CWR": Method(
        cwr,
        lambda needs: {"first_task_gain": needs.gain},
        trains="head",
        demands=_COUNTING,
        summary="CopyWeights with Re-init: one consolidated head over a frozen network",
    ),
    "CWR as coded": Method(
        cwr,
        lambda needs: {"first_task_gain": needs.gain, "form": "code"},
        trains="head",
        demands=_COUNTING,
        summary="CWR as the code of its authors differs from their text",
    ),
    "CWR+": Method(
        cwr,
        lambda needs: {"form": "plus"},
        trains="head",
        demands=_COUNTING,
        summary="CWR with a zero start and a mean shift (Maltoni and Lomonaco 2019)",
    ),
    "CWR*": Method(
        cwr,
        lambda needs: {"form": "star"},
        trains="head",
        demands=_COUNTING,
        summary="CWR+ weighted by numbers of samples (Lomonaco et al. 2020)",
    ),
    "streaming LDA": Method(
        streaming_lda,
        lambda needs: {"shrinkage": needs.hyperparameter},
        (1e-4, 1e-3, 1e-2, 1e-1, 0.5),
        published=1e-4,
        trains="head",
        demands=_COUNTING,
    ),
    "nearest mean": Method(nearest_mean, _no_more, trains="head", demands=_COUNTING),
    "RanPAC": Method(
        ranpac,
        lambda needs: {"width": 1000, "ridge": needs.hyperparameter},
        (1e2, 1e3, 1e4, 1e5, 1e6),
        trains="head",
        demands=_COUNTING,
    ),
}
METHODS: dict[str, Method] = {name: row._replace(name=name) for name, row in _ROWS.items()}
