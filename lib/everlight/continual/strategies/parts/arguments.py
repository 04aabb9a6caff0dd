"""Arguments of strategies' factories, as functions of a benchmark's values (`Needs`).

Rows of several files share them. Arguments that only one file has are in that file.
"""

from typing import Any

from everlight.continual.method import Needs


def no_arguments(needs: Needs) -> dict[str, Any]:
    """Return nothing: the factory takes the setup alone."""
    return {}


def exemplars(needs: Needs) -> dict[str, Any]:
    """Return the memory of methods that store exemplars per class, or a fixed number."""
    memory = {"exemplars_per_class": needs.exemplars_per_class, "labels": needs.labels}
    return memory if needs.buffer_size is None else memory | {"buffer_size": needs.buffer_size}


def reservoir(needs: Needs) -> dict[str, Any]:
    """Return the size of a reservoir."""
    return {"buffer_size": needs.total_buffer_size, "labels": needs.labels}


def drawn_reservoir(needs: Needs) -> dict[str, Any]:
    """Return the size of a reservoir and of the batch drawn from it."""
    return {**reservoir(needs), "replay_batch_size": needs.replay_batch_size}


def single_label_reservoir(needs: Needs) -> dict[str, Any]:
    """Return the memory and draw of methods for one label per sample."""
    memory = drawn_reservoir(needs)
    return {name: memory[name] for name in ("buffer_size", "replay_batch_size")}


def penalty(needs: Needs) -> dict[str, Any]:
    """Return the coefficient and the step of methods with a quadratic penalty."""
    return {"regularization": needs.hyperparameter, "implicit_rate": needs.implicit_rate}


def heads(needs: Needs) -> dict[str, Any]:
    """Return the head of each class and the number of heads."""
    return {
        "class_group": needs.class_group,
        "groups": 1 if needs.class_group is None else needs.tasks,
    }
