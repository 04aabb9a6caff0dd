"""Strategies that the contract tests run: every row of the registry, on a small net and its data.

A new strategy is among them without a change here. `ARGUMENTS` has values for ten tasks of two
classes where the row's are for larger ones, and `FORMS` has further forms of rows.
"""

import collections
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from everlight.base import Outputs, Setup, SplitNetwork, Strategy
from everlight.continual.ema import with_ema
from everlight.continual.engine import flax_setup
from everlight.continual.engine.protocol import Protocol
from everlight.continual.engine.sources import StoredImages
from everlight.continual.methods.method import Method, StrategyArguments
from everlight.continual.methods.registry import METHODS
from everlight.continual.objectives.multilabel import binary_objective
from everlight.continual.objectives.softmax import (
    accuracy_per_sample,
    accuracy_row,
    softmax_objective,
)
from everlight.continual.strategies.parts.replay_tricks import (
    predict_by_nearest_mean,
    review_memory,
)
from everlight.models import MLP, VisionTransformer, with_lora, with_merged_lora
from everlight.models.heads import cosines, local_similarities
from everlight.scenarios.class_incremental import class_incremental, equal_tasks

TASKS, CLASSES, FEATURES = 10, 20, 6
STRATEGY_ARGUMENTS = StrategyArguments(
    TASKS, CLASSES, exemplars_per_class=3, layers=("hidden",), importance_samples=64
)
# The layer that low-rank additions adapt.
KERNEL = 0.5 * jax.random.normal(jax.random.key(2), (FEATURES, 16))
# Prompts need a transformer of one token.
VIT = VisionTransformer(CLASSES, 1, 16, 1, 2, 32)


@cache
def frozen_parameters():
    """Return the transformer's parameters but the head's, as arrays also while a run is traced."""
    with jax.ensure_compile_time_eval():
        params = VIT.init(jax.random.key(2), jnp.zeros((1, 1, 1, FEATURES)), False)["params"]
    return {name: layer for name, layer in params.items() if name != "head"}


_FINETUNED = {"finetuning_epochs": 2, "finetuning_batch_size": 8}
_GAUSSIANS = {"backbone_learning_rate_factor": 0.5, "epochs": 2, "samples_per_class": 8}
_GATE = {
    "features": lambda inputs: inputs / 2,
    "hidden": 2,
    "epochs": 100,
    "autoencoder_learning_rate": 0.1,
}
_MKD = {"regularization": 0.5, "averaging_weights": (0.3, 0.1), "temperature": 2.0}
_VIEWS = {
    "replay_batch_size": 24,
    "width": 8,
    "augment": lambda inputs, key: inputs + 0.1 * jax.random.normal(key, inputs.shape),
}
ARGUMENTS: dict[str, dict[str, Any]] = {
    "EWC": {"regularization": 1.0},
    "online EWC": {"regularization": 1.0},
    "SI": {"regularization": 0.01},
    "MAS": {"regularization": 0.002},
    # The steps of the first tasks are large: a greater penalty makes them diverge.
    "AR1": {"regularization": 10.0},
    "AR1*": {"regularization": 10.0},
    "IMM mean": {"regularization": 0.01},
    "IMM mode": {"regularization": 0.5, "importance_samples": 64},
    "CoFiMA": _GAUSSIANS,
    "GPM": {"threshold": 0.9, "max_samples": 16},
    "TRGP": {"threshold": 0.9, "max_samples": 16},
    "FDR": {"loss_over": "seen"},
    # A few points in a net of 416 parameters have kernels that are nearly singular.
    "FROMP": {"regularization": 1.0, "jitter": 1e-3},
    "ER-AML": {"replay_batch_size": 24},
    "SCR": {"width": 8},
    **dict.fromkeys(("OCM", "OnPro"), _VIEWS),
    "CLS-ER": {"stable_decay": 0.9, "plastic_decay": 0.9},
    **dict.fromkeys(("ER-MKD", "ER-ACE-MKD", "DER++-MKD"), _MKD),
    "GDumb": {"epochs": 16, "batch_size": 8},
    "HAL": {"anchor_steps": 3},
    "PODNet": _FINETUNED,
    "BiC-whole-pwJS": {"loss": "binary"},
    "SLCA": _GAUSSIANS,
    "ExpertGate": _GATE,
    # Four of the nine later tasks are related to an earlier one by more.
    "ExpertGate-LwF": {**_GATE, "relatedness_threshold": 0.25},
    "PASS": {
        "prototype_weight": 1.0,
        "distillation_weight": 0.1,
        "temperature": 0.5,
        "forms": lambda inputs: jnp.stack([inputs, inputs[::-1]]),
    },
    "expandable DER": {"finetuning_epochs": 6, "finetuning_batch_size": 8, "temperature": 2.0},
    "PackNet": {"prune": 0.75, "retrain_epochs": 2, "batch_size": 8},
    "XdG": {"gated_share": 0.25},
    "DGR": {"hidden": (16,), "latent": 3, "generator_learning_rate": 0.01},
    "BI-R": {"hidden": (16,), "latent": 3, "generator_learning_rate": 0.01},
    "CBP": {"replacement_rate": 0.01, "maturity": 20},
    "ReDo": {"threshold": 0.3, "period": 30},
    "shrink and perturb": {"shrinkage": 0.8},
    "generative classifier": {
        "hidden": (8,),
        "latent": 2,
        "importance_draws": 4,
        "vae_learning_rate": 0.01,
    },
    "PNN": {"layers": ("hidden1", "hidden2")},
    "RanDumb": {"width": 40},
    "ACIL": {"width": 40, "ridge": 0.1},
    "DS-AL": {"width": 40},
    "RanPAC": {"width": 40, "ridge": 1.0},
    "InfLoRA": {"max_samples": 16},
}
"""Arguments that replace the row's, by the row's name."""

Network = Literal["plain", "two layers", "low rank", "merged", "transformer"]
Change = Callable[[Setup, Strategy], Strategy]


class Case(NamedTuple):
    """A strategy of the contract tests."""

    row: Method
    arguments: Mapping[str, Any] = {}
    change: Change = lambda setup, strategy: strategy
    network: Network = "plain"
    many_labels: bool = False
    """True for an objective of many labels per sample, here on one."""

    def make(self, setup: Setup) -> Strategy:
        """Return the strategy."""
        values = self.row.hyperparameters
        value = self.row.published or (values[len(values) // 2] if values else 0.0)
        arguments = STRATEGY_ARGUMENTS._replace(
            hyperparameter=float(value), arguments=self.arguments
        )
        return self.change(setup, self.row.make(setup, arguments))


NETWORKS: dict[str, Network] = {
    "LoRA": "low rank",
    "InfLoRA": "merged",
    "MEMO": "two layers",
    "PNN": "two layers",
}


def _case(name: str, **fields: Any) -> Case:
    row = METHODS[name]
    network = NETWORKS.get(name, "plain" if row.adapt is None else "transformer")
    case = Case(
        row,
        ARGUMENTS.get(name, {}),
        network=network,
        many_labels="multi-label" in row.requirements,
    )
    fields["arguments"] = {**case.arguments, **fields.get("arguments", {})}
    return case._replace(**fields)


def _average(setup: Setup, strategy: Strategy) -> Strategy:
    return with_ema(strategy, 0.9)


def _tricks(setup: Setup, strategy: Strategy) -> Strategy:
    return predict_by_nearest_mean(setup, review_memory(setup, strategy))


FORMS: dict[str, Case] = {
    "EWC, implicit": _case("EWC", arguments={"regularization": 100.0, "implicit_rate": 0.5}),
    "IMM mode, drop transfer": _case("IMM mode", arguments={"alpha": 0.3, "dropout": 0.2}),
    "streaming LDA, base task": _case("streaming LDA", arguments={"base_task": True}),
    "RanPAC, validated": _case("RanPAC", arguments={"ridge": "validated"}),
    "A-GEM, separate classes": _case(
        "A-GEM", arguments={"separate_classes": True, "replay_batch_size": None}, many_labels=True
    ),
    "iCaRL, softmax": _case("iCaRL", arguments={"loss": "softmax", "buffer_size": 60}),
    "LUCIR, finetuned": _case("LUCIR", arguments={"classifier": "nearest mean", **_FINETUNED}),
    "BiC, many labels": _case("BiC", arguments={"loss": "binary"}, many_labels=True),
    "LUCIR, many labels": _case("LUCIR", many_labels=True),
    "expandable DER, aligned": _case("expandable DER", arguments={"classifier": "aligned"}),
    "ER, tricks": _case("ER", change=_tricks),
    "ER, average": _case("ER", change=_average),
    "LUCIR, average": _case("LUCIR", change=_average),
    "EWC, low rank": _case("EWC", network="low rank"),
    "ER, low rank": _case("ER", network="low rank"),
    "APER, low rank": _case("APER", network="low rank"),
    "EWC, prompts": _case("EWC", network="transformer"),
}
"""Forms of rows that the registry has not, or that another network or objective changes."""


def _rows() -> dict[str, Case]:
    """Return a case for every row but those that differ from another one in their data alone."""
    parts = {}
    for name, row in METHODS.items():
        parts.setdefault(row._replace(label_setting="incomplete").strategy_key, name)
    return {name: _case(name) for name in parts.values()}


STRATEGIES: dict[str, Case] = _rows() | FORMS
# They begin from new parameters at every task or evaluation.
FROM_SCRATCH = {"cumulative", "GDumb"}
# Their steps take no gradient, so that every loss is 0 and what is learned is the memory.
COUNTING = {
    name
    for name, case in STRATEGIES.items()
    if case.row.trains == "head" and not name.startswith("CWR") and name != "generative classifier"
}
# Their steps train networks in memory, or none.
WITHOUT_GRADIENT = {"GDumb", "generative classifier"} | COUNTING
# Their steps train the network at the first task alone.
FIRST_TASK_ALONE = {"APER", "APER, low rank"}
# One process tests each strategy, so that its program is compiled once.
each_strategy = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in STRATEGIES]
)
# A test that traces or compiles a separate program runs in `make test` for one of each kind.
OF_EACH_KIND = ("SI", "DER++", "PackNet", "iCaRL-CNN")
# One strategy per part that drivers separate: past samples, draws, memories of steps, heads chosen
# by the task identity, work before an evaluation, training at a task's end.
DRIVEN = (
    *OF_EACH_KIND,
    *("joint", "GDumb", "GEM", "CWR", "IMM mode", "ExpertGate", "streaming LDA", "HAT"),
    *("LUCIR, many labels", "BiC, many labels"),
)


def some_now(names, quick=OF_EACH_KIND, otherwise=pytest.mark.slow):
    return pytest.mark.parametrize(
        "name",
        [
            pytest.param(
                name,
                marks=[pytest.mark.xdist_group(name), *([] if name in quick else [otherwise])],
            )
            for name in names
        ],
    )


each_driven = some_now(STRATEGIES, DRIVEN)


# Metrics of an objective of several labels; checks of the table read accuracy matrices.
MATRIX_METRICS = {
    "per_sample_metrics": accuracy_per_sample,
    "evaluate": accuracy_row,
    "evaluates_unseen_classes": True,
}
PROTOCOL = Protocol(epochs=4, batch_size=8, evaluation_batch=32)


TRACES = collections.Counter()


def only_the_head(params):
    return {
        name: jax.tree.map(lambda _, current=name: current == "head", params[name])
        for name in params
    }


def of_images(setup, data):
    """Return a frozen transformer's setup, whose only patch is the vector."""

    def init(key):
        return VIT.init(key, jnp.zeros((1, 1, 1, FEATURES)), False)["params"], {}

    return setup._replace(
        init=init, gather=lambda index, key: data[index][:, None, None], layer_inputs=None
    )


def of_two_layers(setup):
    """Return the setup of a network of two stages."""
    stored = StoredImages.of(np.zeros((1, FEATURES), np.float32), jnp.float32(0), jnp.float32(1))
    layered = flax_setup(MLP(CLASSES, (16, 16)), stored, setup.objective, setup.optimizer)
    return layered._replace(gather=setup.gather)


def build_with(counter, name=None, optimizer=None, trainable=None):
    """Return a two-layer net on vectors; `TRACES` counts how often a program is traced."""
    case = STRATEGIES[name or counter]
    if case.row.name.startswith("CWR"):  # Which is for a frozen network.
        trainable = only_the_head
    proxies = 3 if case.row.head == "local similarity" else None
    cosine = case.row.head != "linear"
    objective = (
        binary_objective()._replace(**MATRIX_METRICS) if case.many_labels else softmax_objective()
    )
    # A mean over all classes has gradients that are smaller by as much; at the others' rate the
    # cosine head's scale turns negative, since most labels of a sample are absent.
    rate = 0.02 if cosine else 0.5 if case.many_labels else 0.05
    if case.network == "two layers":  # The shared layer has the gradients of all copies.
        rate = 0.02
    if case.row.name == "iCaRL-norm":  # Its scale is 1 again at every task.
        rate = 0.5
    default = optax.sgd(rate, momentum=0.9)
    # The authors' code has Adam: variances of latent variables are exponentials, with large slopes.
    if case.row.name == "BI-R":
        default = optax.adam(0.03)

    def build(data):
        TRACES[counter] += 1

        def init(key):
            first, second = jax.random.split(key)
            shape = (16, proxies, CLASSES) if proxies else (16, CLASSES)
            params = {
                "hidden": 0.5 * jax.random.normal(first, (FEATURES, 16)),
                "head": {"kernel": 0.3 * jax.random.normal(second, shape)},
            }
            if cosine:
                params["head"]["scale"] = jnp.float32(4.0)
            return params, {}

        def apply(params, batch_stats, inputs, train, key):
            hidden = jax.nn.relu(inputs @ params["hidden"])
            head = params["head"]
            if cosine:
                scores = (local_similarities if proxies else cosines)(hidden, head["kernel"])
                return Outputs(head["scale"] * scores, hidden), batch_stats
            logits = hidden @ head["kernel"]
            return Outputs(logits, hidden, {"hidden": hidden}), batch_stats

        def layer_inputs(params, batch_stats, inputs):
            hidden = jax.nn.relu(inputs @ params["hidden"])
            return {("hidden",): inputs[:, None], ("head", "kernel"): hidden[:, None]}

        def split_at(layer):
            def lower(params, batch_stats, inputs, train, key):
                return jax.nn.relu(inputs @ params["hidden"]), batch_stats

            def upper(params, batch_stats, hidden, train, key):
                return Outputs(hidden @ params["head"]["kernel"], hidden), batch_stats

            return SplitNetwork(lower, upper, {"hidden": True, "head": {"kernel": False}})

        setup = Setup(
            init=init,
            apply=apply,
            objective=objective,
            optimizer=optimizer or default,
            gather=lambda index, key: data[index],
            layer_inputs=layer_inputs,
            split_at=split_at,
        )
        if case.network == "two layers":
            setup = of_two_layers(setup)
        if case.network == "low rank":
            setup = with_lora(setup, {"hidden": KERNEL}, ("hidden",), rank=3, scale=0.3)
        if case.network == "merged":
            setup = with_merged_lora(setup, {"hidden": KERNEL}, ("hidden",), rank=2)
        if case.network == "transformer":
            adapt = case.row.adapt or METHODS["L2P"].adapt
            setup = adapt(of_images(setup, data), VIT, frozen_parameters(), STRATEGY_ARGUMENTS)
            # The authors' code has Adam too: layer normalization of small prompts has large slopes.
            setup = setup._replace(optimizer=optimizer or optax.adam(0.03))
        setup = setup._replace(trainable=trainable or setup.trainable)
        return setup, case.make(setup)

    return build


def bound(tree):
    """Commit the tree to the device as a restored checkpoint is; else all compiles once more."""
    return jax.device_put(tree, jax.devices()[0])


def make_data(seed=0, per_class=12):
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(CLASSES, FEATURES)) * 2
    # Classes of unequal size, so that tasks are padded.
    train = np.repeat(np.arange(CLASSES), per_class - np.arange(CLASSES) % 4)
    test = np.repeat(np.arange(CLASSES), 5)
    labels = np.concatenate([train, test])
    data = centers[labels] + rng.normal(size=(len(labels), FEATURES)) * 0.4
    # All seeds have the same tasks, so that their arrays have the same shapes.
    tasks = equal_tasks(np.random.default_rng(0).permutation(CLASSES).tolist(), TASKS)
    data = jnp.asarray(data, jnp.float32)
    return bound((data, class_incremental(train, test, tasks, CLASSES, valid_fraction=0.15)))


DATA, SEQUENCE = make_data()
KEY = bound(jax.random.key(3))
