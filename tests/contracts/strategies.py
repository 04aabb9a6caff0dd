"""The strategies that the contract tests run, one row each, and the net and data they run on."""

import collections

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from everlight.base import Outputs, Setup
from everlight.continual.ema import with_ema
from everlight.continual.engine.protocol import Protocol
from everlight.continual.objectives.many_labels import binary_objective
from everlight.continual.objectives.softmax import (
    accuracy_per_sample,
    accuracy_row,
    softmax_objective,
)
from everlight.continual.strategies.acil import acil
from everlight.continual.strategies.agem import agem
from everlight.continual.strategies.aper import aper
from everlight.continual.strategies.balanced_replay import balanced_replay
from everlight.continual.strategies.bic import bic
from everlight.continual.strategies.cls_er import cls_er
from everlight.continual.strategies.coda_prompt import coda_prompt
from everlight.continual.strategies.cofima import cofima
from everlight.continual.strategies.continual_backprop import continual_backprop
from everlight.continual.strategies.cumulative import cumulative, joint, unlimited_replay
from everlight.continual.strategies.cwr import cwr
from everlight.continual.strategies.der import der
from everlight.continual.strategies.der_plus_plus import der_plus_plus
from everlight.continual.strategies.ds_al import ds_al
from everlight.continual.strategies.er_ace import er_ace
from everlight.continual.strategies.er_aml import er_aml
from everlight.continual.strategies.er_tricks import er_tricks
from everlight.continual.strategies.ewc import ewc
from everlight.continual.strategies.experience_replay import experience_replay
from everlight.continual.strategies.expert_gate import expert_gate
from everlight.continual.strategies.fecam import fecam
from everlight.continual.strategies.gdumb import gdumb
from everlight.continual.strategies.gem import gem
from everlight.continual.strategies.gpm import gpm
from everlight.continual.strategies.hal import hal
from everlight.continual.strategies.hat import hat
from everlight.continual.strategies.icarl import icarl
from everlight.continual.strategies.imm import imm
from everlight.continual.strategies.inflora import inflora
from everlight.continual.strategies.l2_init import l2_init
from everlight.continual.strategies.l2p import l2p
from everlight.continual.strategies.lucir import lucir
from everlight.continual.strategies.lwf import lwf
from everlight.continual.strategies.mas import mas
from everlight.continual.strategies.mir import mir
from everlight.continual.strategies.mkd import mkd
from everlight.continual.strategies.naive import naive
from everlight.continual.strategies.nearest_mean import nearest_mean
from everlight.continual.strategies.onpro import onpro
from everlight.continual.strategies.packnet import packnet
from everlight.continual.strategies.parts.replay_tricks import (
    predict_by_nearest_mean,
    review_memory,
)
from everlight.continual.strategies.podnet import podnet
from everlight.continual.strategies.randumb import randumb
from everlight.continual.strategies.ranpac import ranpac
from everlight.continual.strategies.redo import redo
from everlight.continual.strategies.scr import scr
from everlight.continual.strategies.shrink_and_perturb import shrink_and_perturb
from everlight.continual.strategies.si import si
from everlight.continual.strategies.simple_cil import simple_cil
from everlight.continual.strategies.slca import slca
from everlight.continual.strategies.ss_il import ss_il
from everlight.continual.strategies.streaming_lda import streaming_lda
from everlight.continual.strategies.task_arithmetic import task_arithmetic
from everlight.continual.strategies.ties import ties
from everlight.continual.strategies.trgp import trgp
from everlight.continual.strategies.wa import wa
from everlight.continual.strategies.xder_rpc import xder_rpc
from everlight.models import (
    VisionTransformer,
    prompt_components,
    prompt_pool,
    with_lora,
    with_merged_lora,
    with_prompts,
)
from everlight.models.heads import cosines, local_similarities
from everlight.scenarios.class_incremental import class_incremental, equal_tasks

TASKS, CLASSES, FEATURES = 10, 20, 6
# The layer that low-rank additions adapt.
GIVEN = 0.5 * jax.random.normal(jax.random.key(2), (FEATURES, 16))
# A transformer of one token, for prompts.
VIT = VisionTransformer(CLASSES, 1, 16, 1, 2, 32)
FROZEN = VIT.init(jax.random.key(2), jnp.zeros((1, 1, 1, FEATURES)), False)["params"]
del FROZEN["head"]
PROMPTING = {
    "pool": prompt_pool(16, size=4, length=2, chosen=2),
    "components": prompt_components(16, components=10, length=2, blocks=1),
}
STRATEGIES = {
    "naive": naive,
    "cumulative": cumulative,
    "joint": lambda setup: joint(setup, TASKS),
    "ewc": lambda setup: ewc(setup, regularization=1.0, fisher_samples=64),
    "online ewc": lambda setup: ewc(setup, regularization=1.0, online=True, fisher_samples=64),
    "implicit ewc": lambda setup: ewc(
        setup, regularization=100.0, fisher_samples=64, implicit_rate=0.5
    ),
    "si": lambda setup: si(setup, regularization=0.01),
    "mas": lambda setup: mas(setup, regularization=0.002, importance_samples=64),
    "lwf": lambda setup: lwf(setup),
    "experience replay": lambda setup: balanced_replay(setup, exemplars_per_class=3),
    "reservoir replay": lambda setup: experience_replay(setup, buffer_size=60),
    "der": lambda setup: der(setup, buffer_size=60),
    "der++": lambda setup: der_plus_plus(setup, buffer_size=60),
    "x-der": lambda setup: xder_rpc(setup, buffer_size=60),
    "er-ace": lambda setup: er_ace(setup, buffer_size=60),
    "er-aml": lambda setup: er_aml(setup, buffer_size=60, replay_batch_size=24),
    "mir": lambda setup: mir(setup, buffer_size=60, candidate_ratio=3),
    "cls-er": lambda setup: cls_er(setup, buffer_size=60, stable_decay=0.9, plastic_decay=0.9),
    "mkd": lambda setup: mkd(
        setup, buffer_size=60, regularization=0.5, rates=(0.3, 0.1), temperature=2.0
    ),
    "er tricks": lambda setup: er_tricks(setup, buffer_size=60, replay_batch_size=8),
    "hal": lambda setup: hal(setup, TASKS, buffer_size=60, anchor_steps=3),
    "scr": lambda setup: scr(setup, buffer_size=60, width=8),
    "onpro": lambda setup: onpro(
        setup,
        buffer_size=60,
        replay_batch_size=24,
        width=8,
        augment=lambda inputs, key: inputs + 0.1 * jax.random.normal(key, inputs.shape),
    ),
    "replay tricks": lambda setup: predict_by_nearest_mean(
        setup, review_memory(setup, experience_replay(setup, buffer_size=60))
    ),
    "gdumb": lambda setup: gdumb(setup, buffer_size=60, epochs=16, batch_size=8),
    "a-gem": lambda setup: agem(setup, exemplars_per_class=3),
    "gem": lambda setup: gem(setup, TASKS, per_task=6),
    "unlimited replay": unlimited_replay,
    "cwr": cwr,
    "cwr+": lambda setup: cwr(setup, form="plus"),
    "cwr*": lambda setup: cwr(setup, form="star"),
    "imm": lambda setup: imm(setup, "mode", regularization=0.5, fisher_samples=64),
    "imm, drop transfer": lambda setup: imm(
        setup, "mode", regularization=0.5, fisher_samples=64, alpha=0.3, drop=0.2
    ),
    "task arithmetic": task_arithmetic,
    "ties": ties,
    "cofima": lambda setup: cofima(setup, slow=0.5, epochs=2, samples=8, fisher_samples=64),
    "gpm": lambda setup: gpm(setup, threshold=0.9, samples=16),
    "trgp": lambda setup: trgp(setup, TASKS, threshold=0.9, samples=16),
    "expert gate": lambda setup: expert_gate(
        setup, TASKS, lambda inputs: inputs / 2, hidden=2, epochs=100, rate=0.1
    ),
    # Of the nine later tasks four are related to an earlier one by more.
    "expert gate, lwf": lambda setup: expert_gate(
        setup,
        TASKS,
        lambda inputs: inputs / 2,
        hidden=2,
        epochs=100,
        rate=0.1,
        relatedness_threshold=0.25,
    ),
    "streaming lda": streaming_lda,
    "nearest mean": nearest_mean,
    "simple cil": simple_cil,
    "aper": aper,
    "fecam": fecam,
    "randumb": lambda setup: randumb(setup, width=40),
    "acil": lambda setup: acil(setup, width=40, ridge=0.1),
    "ds-al": lambda setup: ds_al(setup, width=40),
    "ranpac": lambda setup: ranpac(setup, width=40, ridge=1.0),
    "streaming lda, base task": lambda setup: streaming_lda(setup, base_task=True),
    "ranpac, validated": lambda setup: ranpac(setup, width=40, ridge="validated"),
    "packnet": lambda setup: packnet(setup, prune=0.75, retrain_epochs=2, batch_size=8),
    "hat": lambda setup: hat(setup, TASKS, layers=("hidden",)),
    "cbp": lambda setup: continual_backprop(setup, ("hidden",), replacement_rate=0.01, maturity=20),
    "redo": lambda setup: redo(setup, ("hidden",), threshold=0.3, period=30),
    "shrink and perturb": lambda setup: shrink_and_perturb(setup, shrinkage=0.8),
    "l2 init": lambda setup: l2_init(setup, regularization=1e-3),
    "icarl, nearest mean": lambda setup: icarl(
        setup, loss="softmax", classifier="nearest mean", buffer_size=60
    ),
    "slca": lambda setup: slca(setup, slow=0.5, epochs=2, samples=8),
    "wa": lambda setup: wa(setup, buffer_size=60),
    "ss-il": lambda setup: ss_il(setup, buffer_size=60),
    "bic, softmax": lambda setup: bic(setup, buffer_size=60),
    "lucir, finetuned": lambda setup: lucir(
        setup, exemplars_per_class=3, classifier="nearest mean", finetune_epochs=2, finetune_batch=8
    ),
    "podnet": lambda setup: podnet(
        setup, exemplars_per_class=3, finetune_epochs=2, finetune_batch=8
    ),
    "er, ema": lambda setup: with_ema(experience_replay(setup, buffer_size=60), 0.9),
    "naive, lora": naive,
    "ewc, lora": lambda setup: ewc(setup, regularization=1.0, fisher_samples=64),
    "reservoir replay, lora": lambda setup: experience_replay(setup, buffer_size=60),
    "aper, lora": aper,
    "inflora, merged": lambda setup: inflora(setup, TASKS, samples=16),
    "l2p, pool": l2p,
    "coda-prompt, components": lambda setup: coda_prompt(setup, TASKS),
    "ewc, pool": lambda setup: ewc(setup, regularization=1.0, fisher_samples=64),
    "lucir, ema": lambda setup: with_ema(lucir(setup, exemplars_per_class=3), 0.9),
}
# Those of many labels a sample, here on one.
BINARY_STRATEGIES = {
    "a-gem, separate classes": lambda setup: agem(
        setup, exemplars_per_class=3, separate_classes=True
    ),
    "icarl": lambda setup: icarl(setup, exemplars_per_class=3),
    "lucir": lambda setup: lucir(setup, exemplars_per_class=3),
    "bic": lambda setup: bic(setup, exemplars_per_class=3, loss="binary"),
}
STRATEGIES |= BINARY_STRATEGIES
# They begin from new parameters at every task or evaluation.
FROM_SCRATCH = {"cumulative", "gdumb"}
# Their steps take no gradient, so that every loss is 0 and what is learnt is the memory.
COUNTING = {
    *("streaming lda", "streaming lda, base task"),
    *(
        "nearest mean",
        "simple cil",
        "fecam",
        "randumb",
        "ranpac",
        "ranpac, validated",
        "acil",
        "ds-al",
    ),
}
WITHOUT_GRADIENT = {"gdumb"} | COUNTING
# Their steps train the network at the first task alone.
FIRST_TASK_ALONE = {"aper", "aper, lora"}
# One process a strategy, so that its program is compiled once.
each_strategy = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in STRATEGIES]
)
# What compiles a program of its own runs for one of each kind, and for the rest in `make test-all`.
OF_EACH_KIND = ("si", "der++", "packnet", "icarl")
# One of each way to use what a driver takes apart: past samples, draws, what steps keep, heads that
# are told, what comes before an evaluation, what a task's end trains. The others' parts are these.
DRIVEN = (
    *OF_EACH_KIND,
    *("joint", "gdumb", "gem", "cwr", "imm", "expert gate", "streaming lda", "hat", "lucir", "bic"),
)


def some_now(names, now=OF_EACH_KIND):
    return pytest.mark.parametrize(
        "name",
        [
            pytest.param(
                name,
                marks=[
                    pytest.mark.xdist_group(name),
                    *([] if name in now else [pytest.mark.slow]),
                ],
            )
            for name in names
        ],
    )


each_driven = some_now(STRATEGIES, DRIVEN)


# How many labels are judged where the table's checks are of accuracy matrices.
JUDGED = {
    "per_sample_metrics": accuracy_per_sample,
    "evaluate": accuracy_row,
    "evaluates_unseen_classes": True,
}
PROTOCOL = Protocol(epochs=4, batch_size=8, evaluation_batch=32)


TRACES = collections.Counter()


def only_the_head(params):
    return {name: jax.tree.map(lambda _, own=name: own == "head", params[name]) for name in params}


def prompted(setup, data, prompting):
    """Prompts of a transformer that is drawn and frozen, whose only patch are the vectors."""

    def init(key):
        return VIT.init(key, jnp.zeros((1, 1, 1, FEATURES)), False)["params"], {}

    images = setup._replace(
        init=init, gather=lambda index, key: data[index][:, None, None], layer_inputs=None
    )
    return with_prompts(images, VIT, FROZEN, prompting)


def build_with(counter, name=None, optimizer=None, trainable=None):
    """A two-layer net on vectors; `TRACES` counts how often a program is traced."""

    if (name or counter).startswith("cwr"):  # Which is for a frozen network.
        trainable = only_the_head
    many_labels = (name or counter) in BINARY_STRATEGIES
    proxies = 3 if (name or counter).startswith("podnet") else None
    cosine = (name or counter).startswith("lucir") or proxies
    objective = binary_objective()._replace(**JUDGED) if many_labels else softmax_objective()
    # A mean over all classes has gradients that are smaller by as much; at the others' rate the
    # cosine head's scale turns negative, since most labels of a sample are absent.
    rate = 0.02 if cosine else 0.5 if many_labels else 0.05

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

        setup = Setup(
            init=init,
            apply=apply,
            objective=objective,
            optimizer=optimizer or optax.sgd(rate, momentum=0.9),
            gather=lambda index, key: data[index],
            layer_inputs=layer_inputs,
        )
        if (name or counter).split(", ")[1:2] == ["lora"]:
            setup = with_lora(setup, {"hidden": GIVEN}, ("hidden",), rank=3, scale=0.3)
        if (name or counter).split(", ")[1:2] == ["merged"]:
            setup = with_merged_lora(setup, {"hidden": GIVEN}, ("hidden",), rank=2)
        if kind := PROMPTING.get((name or counter).split(", ")[-1]):
            setup = prompted(setup, data, kind)
            # As in the authors' code: the layer normalisation of small prompts has large slopes.
            setup = setup._replace(optimizer=optimizer or optax.adam(0.03))
        setup = setup._replace(trainable=trainable or setup.trainable)
        return setup, STRATEGIES[name or counter](setup)

    return build


def bound(tree):
    """On the device for good, as what a checkpoint gives back is: else all compiles once more."""
    return jax.device_put(tree, jax.devices()[0])


def make_data(seed=0, per_class=12):
    rng = np.random.default_rng(seed)
    centers = rng.normal(size=(CLASSES, FEATURES)) * 2
    # Classes of unequal size, so that tasks are padded.
    train = np.repeat(np.arange(CLASSES), per_class - np.arange(CLASSES) % 4)
    test = np.repeat(np.arange(CLASSES), 5)
    labels = np.concatenate([train, test])
    data = centers[labels] + rng.normal(size=(len(labels), FEATURES)) * 0.4
    # The same tasks for every seed, so that arrays of all seeds have the same shapes.
    tasks = equal_tasks(np.random.default_rng(0).permutation(CLASSES).tolist(), TASKS)
    data = jnp.asarray(data, jnp.float32)
    return bound((data, class_incremental(train, test, tasks, CLASSES, valid_fraction=0.15)))


DATA, SEQUENCE = make_data()
KEY = bound(jax.random.key(3))
