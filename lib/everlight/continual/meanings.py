"""Methods in a few words, for help texts and tables."""

import math
import re

from everlight.continual.registry import Method, Needs

MEANINGS = {
    "incremental joint": "naive finetuning on all samples so far, with all their labels (IIRC)",
    "online EWC": "EWC with one decaying Fisher information instead of one per task",
    "IMM mean": "incremental moment matching (IMM): the mean of the networks",
    "IMM mode": "IMM: the mode, networks weighted by their Fisher information",
    "ER-balanced": "experience replay: equally many exemplars per class, mixed into every epoch",
    "ER": "experience replay: a replay batch from a reservoir at every step",
    "GDumb": "a new network, trained on a class-balanced memory before every evaluation",
    "iCaRL-CNN": "iCaRL predicting by its output layer, for several labels (IIRC)",
    "iCaRL-norm": "iCaRL with a cosine head, for several labels (IIRC)",
    "BiC-whole-pwJS": "BiC for several labels, fitted to pw-JS (IIRC)",
    "ExpertGate": "one network per task, chosen by autoencoders",
    "ExpertGate-LwF": "ExpertGate; networks of related tasks are trained with LwF",
    "PackNet": "weights pruned and frozen, task by task",
    "CWR": "CopyWeights with Re-init: one consolidated head over a frozen network",
    "CWR as coded": "CWR as the code of its authors differs from their text",
    "CWR+": "CWR with a zero start and a mean shift (Maltoni and Lomonaco 2019)",
    "CWR*": "CWR+ weighted by numbers of samples (Lomonaco et al. 2020)",
}
"""Meanings that the first sentence of a strategy's docstring lacks, or that share a strategy."""


def meaning_of(method: Method) -> str:
    """Return a method in a few words; without an entry, the first sentence of its strategy."""
    first = (method.factory.__doc__ or "").strip().splitlines()[0].removeprefix("Return ")
    return MEANINGS.get(method.name) or re.split(r", whose|; its", first.rstrip("."))[0]


def hyperparameter_name(method: Method) -> str:
    """Return the factory's argument that a method's hyper-parameter fills."""
    mark = math.nan
    given = method.given(Needs(tasks=1, classes=1, exemplars_per_class=1, hyperparameter=mark))
    return next(name for name, value in given.items() if value is mark)
