"""Arguments of strategies' factories, as functions of a benchmark's values (`Needs`).

Rows of the registry share them. An argument that one row alone takes stands in that row.
"""

from typing import Any

import jax.numpy as jnp
from jaxtyping import PyTree

from everlight.continual.method import Given, Needs


def restart_scale(params: PyTree) -> PyTree:
    """Return the parameters with the cosine head's scale at 1 again."""
    return {**params, "head": {**params["head"], "scale": jnp.ones(())}}


def no_arguments(needs: Needs) -> dict[str, Any]:
    """Return nothing: the factory takes the setup alone."""
    return {}


def exemplars(needs: Needs) -> dict[str, Any]:
    """Return the memory of methods that store exemplars per class, or a fixed number."""
    given = {"exemplars_per_class": needs.exemplars_per_class, "labels": needs.labels}
    return given if needs.buffer_size is None else given | {"buffer_size": needs.buffer_size}


def drawn_exemplars(needs: Needs) -> dict[str, Any]:
    """Return the size of a memory of exemplars and of the batch drawn from it."""
    return {**exemplars(needs), "replay_batch_size": needs.replay_batch_size}


def reservoir(needs: Needs) -> dict[str, Any]:
    """Return the size of a reservoir."""
    return {"buffer_size": needs.total_buffer_size, "labels": needs.labels}


def drawn_reservoir(needs: Needs) -> dict[str, Any]:
    """Return the size of a reservoir and of the batch drawn from it."""
    return {**reservoir(needs), "replay_batch_size": needs.replay_batch_size}


def reference(needs: Needs) -> dict[str, Any]:
    """Return A-GEM's memory and reference batch: the authors' 256 samples, or IIRC's form.

    With several labels, as in IIRC, the batch is as large as the task's and losses are apart.
    """
    apart = needs.labels > 1
    size = needs.replay_batch_size or (None if apart else 256)
    return {**exemplars(needs), "replay_batch_size": size, "apart": apart}


def single_label_reservoir(needs: Needs) -> dict[str, Any]:
    """Return the memory and draw of methods for one label per sample."""
    given = drawn_reservoir(needs)
    return {name: given[name] for name in ("buffer_size", "replay_batch_size")}


def two_averages(needs: Needs) -> dict[str, Any]:
    """Return CLS-ER's arguments, with the authors' decays and probabilities on split MNIST."""
    return {
        **drawn_reservoir(needs),
        "regularization": needs.hyperparameter,
        **dict.fromkeys(("plastic_decay", "stable_decay"), 0.99),
        "plastic_rate": 1.0,
        "stable_rate": 0.9,
    }


def shrinkages(needs: Needs) -> dict[str, Any]:
    """Return FeCAM's two shrinkages, which are equal."""
    return dict.fromkeys(("variance_shrinkage", "covariance_shrinkage"), needs.hyperparameter)


def anchors(needs: Needs) -> dict[str, Any]:
    """Return HAL's memory, at least one sample per task."""
    buffer_size = max(needs.total_buffer_size, needs.tasks)
    return {**drawn_reservoir(needs), "tasks": needs.tasks, "buffer_size": buffer_size}


def fisher(needs: Needs) -> dict[str, Any]:
    """Return the arguments of a penalty weighted by the Fisher information."""
    return {
        "regularization": needs.hyperparameter,
        "fisher_samples": needs.importance_samples,
        "implicit_rate": needs.implicit_rate,
    }


def heads(needs: Needs) -> dict[str, Any]:
    """Return the head of each class and the number of heads."""
    return {
        "class_group": needs.class_group,
        "groups": 1 if needs.class_group is None else needs.tasks,
    }


def gate(needs: Needs) -> dict[str, Any]:
    """Return ExpertGate's arguments."""
    return {"tasks": needs.tasks, "features": needs.gate, "hidden": needs.gate_hidden}


def merged(mode: str) -> Given:
    """Return the function that gives the arguments of IMM with a way to merge."""
    return lambda needs: {
        "merge": mode,
        "regularization": needs.hyperparameter,
        "implicit_rate": needs.implicit_rate,
    }
