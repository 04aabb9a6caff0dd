"""Registry of methods: a row per method with its factory, hyper-parameters and requirements.

A new strategy is one file and one row of `_ROWS`; benchmarks, help, documentation and contract
tests read the rows.
"""

import inspect
import re
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PyTree

from everlight.continual.base import Setup, Strategy
from everlight.continual.strategies import (
    agem,
    balanced_replay,
    bic,
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
from everlight.models.heads import HeadKind
from everlight.scenarios.iirc import Setting

Trains = Literal["net", "head"]
Demand = Literal[
    "task-incremental",
    "class scores",
    "one label",
    "several labels",
    "own classes",
    "chosen classes",
    "named head",
    "hidden layers",
]
WHY_NOT: dict[Demand, str] = {
    "task-incremental": "needs the task identity at test, which is not given here",
    "class scores": "needs class scores, but outputs are embeddings here",
    "one label": "needs one label per sample, but there are several here",
    "several labels": "needs several labels per sample, but there is one here",
    "own classes": "needs new classes in every task, but known ones recur here",
    "chosen classes": "limits the loss to some classes, but it covers all here, which makes it "
    "plain replay",
    "named head": "needs a named head of a known kind, which this network lacks",
    "hidden layers": "needs named hidden layers, which this network lacks",
}


def flattened(inputs: Float[Array, "b *shape"]) -> Float[Array, "b f"]:
    """Return flattened inputs, for ExpertGate's gate."""
    return inputs.reshape(inputs.shape[0], -1)


class Needs(NamedTuple):
    """Values of a benchmark from which strategies are made, beside the setup."""

    tasks: int
    """Number of tasks of the sequence."""
    classes: int
    exemplars_per_class: int
    """Stored samples per class; a shared memory holds this many times the number of classes."""
    hyperparameter: Float[Array, ""] | float = 0.0
    """Selected value of the method's hyper-parameter, where it has one."""
    reach: float | None = None
    """Learning rate of gradient descent divided by 1 − momentum, for implicit steps on penalties;
    None adds their gradients."""
    layers: tuple[str, ...] = ()
    """Names of the network's hidden layers, in order."""
    class_group: Int[Array, "c"] | None = None
    """Head of each class, at most one per task; None is one head."""
    labels: int = 1
    """Largest number of labels per sample."""
    importance_samples: int = 1024
    """Samples of a task from which importances are estimated."""
    gain: float = 1.0
    """CWR's factor on the weights consolidated at the first task."""
    gate: Callable[[Float[Array, "b *shape"]], Float[Array, "b f"]] = flattened
    """Features of inputs for ExpertGate's gate."""
    gate_hidden: int = 16
    replay_batch_size: int | None = None
    """Samples that a method draws from memory per step; None is the batch size."""
    buffer_size: int | None = None
    """Total number of stored samples, instead of `exemplars_per_class`."""

    @property
    def total_buffer_size(self) -> int:
        """Return the number of samples of a memory that is not divided by classes."""
        return self.buffer_size or self.exemplars_per_class * self.classes


Given = Callable[[Needs], dict[str, Any]]
"""Function from `Needs` to the factory's arguments by name, beside the setup."""


class Method(NamedTuple):
    """A row of the registry."""

    factory: Callable[..., Strategy]
    """Function from a setup and arguments to the strategy."""
    given: Given
    hyperparameters: tuple[float, ...] = ()
    """Values from which one is selected; none without a hyper-parameter, one if it is fixed."""
    published: float | None = None
    """Value that its paper recommends, where it recommends one."""
    trains: Trains = "net"
    """The whole network, or a head over features of a frozen one (or over the inputs)."""
    head: HeadKind = "linear"
    demands: tuple[Demand, ...] = ()
    """Requirements of a benchmark."""
    select: Literal["best", "last"] = "best"
    """Kept epoch of a task where a benchmark validates within tasks."""
    anew: bool = False
    """True if it learns all samples so far from a new network, which takes longer."""
    setting: Setting = "incomplete"
    """Labels that it learns from where samples get further labels later (IIRC)."""
    name: str = ""
    version: str = ""
    """Checksum of a user's file, so that results of an earlier version are not reused."""

    @property
    def label(self) -> str:
        """Name of the method in names of units."""
        return f"{self.name}@{self.version}" if self.version else self.name

    @property
    def made(self) -> tuple[Callable[..., Strategy], Given, Setting]:
        """Value that is equal for rows of one strategy with other names or hyper-parameters."""
        return self.factory, self.given, self.setting

    @property
    def meanings(self) -> dict[str, str]:
        """Return the meaning of each argument, as the docstring of the function states it."""
        _, _, listed = (inspect.getdoc(self.factory) or "").partition("Args:\n")
        listed, *_ = listed.split("\n\n")
        pairs = re.findall(r"^  (\w+): (.+(?:\n {4}.*)*)", listed, re.MULTILINE)
        return {name: " ".join(text.replace("`", "").split()) for name, text in pairs}

    def make(self, setup: Setup, needs: Needs) -> Strategy:
        """Return the strategy."""
        return self.factory(setup, **self.given(needs))

    def settings(self, needs: Needs) -> dict[str, Any]:
        """Return the arguments of the strategy, defaults of the factory included, for reports.

        Arrays, functions and None are left out.
        """
        _, *parameters = inspect.signature(self.factory).parameters.values()
        every = {each.name: each.default for each in parameters} | self.given(needs)
        return {name: value for name, value in every.items() if _is_plain(value)}


def _is_plain(value: Any) -> bool:
    if isinstance(value, tuple):
        return all(map(_is_plain, value))
    return isinstance(value, bool | int | float | str)


def why_not(method: Method, offers: frozenset[Demand]) -> str | None:
    """Return why a method does not apply to these capabilities; None where it does."""
    missing = [demand for demand in method.demands if demand not in offers]
    return WHY_NOT[missing[0]] if missing else None


def with_published(methods: Sequence[Method]) -> list[Method]:
    """Return each method with a second row for its published hyper-parameter, if it has one."""
    rows = []
    for method in methods:
        rows.append(method)
        if method.published is not None and len(method.hyperparameters) > 1:
            rows.append(
                method._replace(
                    name=f"{method.name}, published",
                    hyperparameters=(method.published,),
                    published=None,
                )
            )
    return rows


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


def _fisher(needs: Needs) -> dict[str, Any]:
    return {
        "regularization": needs.hyperparameter,
        "fisher_samples": needs.importance_samples,
        "implicit_rate": needs.reach,
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
        "implicit_rate": needs.reach,
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
        naive, _no_more, demands=("several labels",), setting="incremental joint"
    ),
    "EWC": Method(ewc, _fisher, (100, 1e3, 1e4, 1e5, 1e6)),
    "online EWC": Method(
        ewc, lambda needs: {**_fisher(needs), "online": True}, (100, 1e3, 1e4, 1e5, 1e6)
    ),
    "SI": Method(
        si,
        lambda needs: {"regularization": needs.hyperparameter, "implicit_rate": needs.reach},
        (0.01, 0.1, 1, 10, 100),
        published=0.1,
    ),
    "MAS": Method(
        mas,
        lambda needs: {
            "regularization": needs.hyperparameter,
            "importance_samples": needs.importance_samples,
            "implicit_rate": needs.reach,
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
    "IMM mean": Method(imm, _merged("mean"), (1e-3, 1e-2, 1e-1, 1)),
    "IMM mode": Method(imm, _merged("mode"), (1e-3, 1e-2, 1e-1, 1)),
    "ER-balanced": Method(balanced_replay, _exemplars),
    "ER": Method(experience_replay, _drawn_reservoir),
    "ER-infinite": Method(unlimited_replay, _no_more),
    "DER++": Method(der_plus_plus, _drawn_reservoir, demands=("class scores",)),
    "ER-ACE": Method(er_ace, _drawn_reservoir, demands=("class scores", "chosen classes")),
    "ER-tricks": Method(
        er_tricks,
        lambda needs: {
            "buffer_size": needs.total_buffer_size,
            "replay_batch_size": needs.replay_batch_size,
        },
        demands=_COUNTING,
    ),
    "GDumb": Method(gdumb, lambda needs: {**_reservoir(needs), "epochs": 64}),
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
    "HAL": Method(
        hal,
        lambda needs: {
            "tasks": needs.tasks,
            "buffer_size": max(needs.total_buffer_size, needs.tasks),
            "replay_batch_size": needs.replay_batch_size,
            "labels": needs.labels,
        },
        demands=_COUNTING,
    ),
    "iCaRL": Method(
        icarl,
        lambda needs: {**_exemplars(needs), "classifier": "nearest mean"},
        demands=("class scores", "one label", "own classes"),
        select="last",
    ),
    "iCaRL-CNN": Method(icarl, _exemplars, demands=("several labels",), select="last"),
    "iCaRL-norm": Method(
        icarl,
        lambda needs: {**_exemplars(needs), "restart": _restart_scale},
        head="cosine",
        demands=("several labels",),
        select="last",
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
    ),
    "ExpertGate": Method(expert_gate, _gate),
    # With the paper's relatedness threshold.
    "ExpertGate-LwF": Method(
        expert_gate,
        lambda needs: {**_gate(needs), "relatedness_threshold": 0.85, **_heads(needs)},
        demands=_COUNTING,
    ),
    "PackNet": Method(packnet, _no_more, demands=_TOLD),
    "HAT": Method(hat, lambda needs: {"tasks": needs.tasks, "layers": needs.layers}, demands=_TOLD),
    "CWR": Method(
        cwr, lambda needs: {"first_task_gain": needs.gain}, trains="head", demands=_COUNTING
    ),
    "CWR as coded": Method(
        cwr,
        lambda needs: {"first_task_gain": needs.gain, "form": "code"},
        trains="head",
        demands=_COUNTING,
    ),
    "CWR+": Method(cwr, lambda needs: {"form": "plus"}, trains="head", demands=_COUNTING),
    "CWR*": Method(cwr, lambda needs: {"form": "star"}, trains="head", demands=_COUNTING),
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
