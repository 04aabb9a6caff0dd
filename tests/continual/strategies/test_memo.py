"""MEMO's loss, head and copies of the last stage, written again in float64."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax.traverse_util import flatten_dict, unflatten_dict
from scipy.special import log_softmax

from everlight.base import Outputs
from everlight.continual.engine import flax_setup
from everlight.continual.engine.sources import StoredImages
from everlight.continual.engine.updates import train_step
from everlight.continual.objectives.softmax import softmax_objective
from everlight.continual.strategies.memo import memo
from everlight.continual.strategies.parts.expansion import (
    blocks_above,
    expanded_setup,
    joined_head,
)
from everlight.models import MLP, ReducedResNet, ResNet18
from everlight.models.layers.normalization import EPSILON, BatchNorm
from tests.continual import small_net as net
from tests.continual.small_net import CLASSES, DATA, LABELS, RATE, SHIFT
from tests.continual.strategies.references.aligned_head import assert_aligned

AUXILIARY, WIDTH = 0.7, 4
KEY = jax.random.key(3)
INDEX = [[0, 1, 6, 7, 12, 13], [2, 3, 8, 9, 14, 15], [4, 5, 10, 11, 16, 17]]
TASKS = [
    (net.task_of(t, [2 * t, 2 * t + 1], rows), [net.batch_of(rows[:4]), net.batch_of(rows[2:])])
    for t, rows in enumerate(INDEX)
]
TEST = np.arange(20, 40)
STORED = StoredImages.of(np.float32(DATA), jnp.float32(0), jnp.float32(1))


class Net(nn.Module):
    """Two stages, each of a dense layer with batch norm, and a head."""

    @property
    def stages(self):
        return "norm1", "norm2"

    @nn.compact
    def __call__(self, inputs, train):
        for number, width in (("1", 5), ("2", WIDTH)):
            dense = nn.Dense(width, name=f"dense{number}")(inputs)
            inputs = jnp.tanh(BatchNorm(name=f"norm{number}")(dense, train))
        return Outputs(nn.Dense(CLASSES, name="head")(inputs), inputs)


SETUP = flax_setup(
    Net(), STORED, softmax_objective(), optax.sgd(RATE), lambda image, key: image + SHIFT
)
MEMO = net.compiled(memo(SETUP, 3, 2, auxiliary_weight=AUXILIARY))


@pytest.fixture(scope="module")
def after_each():
    return net.run_tasks(SETUP, MEMO, TASKS)


def flat(tree):
    return {"/".join(path): leaf for path, leaf in flatten_dict(tree).items()}


def in_float64(tree):
    return jax.tree.map(np.float64, tree)


def stage(values, number, inputs, stats=None):
    """Return the outputs of a stage by given statistics, or by those of the batch."""
    dense = inputs @ values[f"dense{number}"]["kernel"] + values[f"dense{number}"]["bias"]
    norm = values[f"norm{number}"]
    mean, variance = (
        (dense.mean(axis=0), dense.var(axis=0))
        if stats is None
        else (stats[f"norm{number}"]["mean"], stats[f"norm{number}"]["var"])
    )
    return np.tanh((dense - mean) / np.sqrt(variance + EPSILON) * norm["scale"] + norm["bias"])


def copies_of(memory, count):
    """Return the parameters and the statistics of finished copies."""
    stacked = in_float64((memory.extractors, memory.batch_stats))
    return [jax.tree.map(lambda leaf, place=place: leaf[place], stacked) for place in range(count)]


def features_of(memory, learner, count, index):
    """Return the features of all places in evaluation mode, the current copy's last."""
    params, stats = in_float64((learner.params, learner.batch_stats))
    shared = stage(params, 1, DATA[index], stats)
    finished = [stage(copy, 2, shared, moments) for copy, moments in copies_of(memory, count)]
    empty = [np.zeros((len(index), WIDTH))] * (2 - count)
    return np.concatenate([*finished, *empty, stage(params, 2, shared, stats)], axis=1)


def test_copies_stay_and_the_head_reads_all_of_them_on_the_shared_stage(after_each):
    for task, (memory, learner) in enumerate(after_each):
        assert memory.count == task
        for place, (_, before) in enumerate(after_each[:task]):
            for name, leaf in flat(memory.extractors).items():
                if leaf is not None:
                    np.testing.assert_array_equal(leaf[place], flat(before.params)[name])
            for name, leaf in flat(memory.batch_stats).items():
                np.testing.assert_array_equal(leaf[place], flat(before.batch_stats)[name])
        head = in_float64(joined_head(memory, learner.params))
        expected = features_of(memory, learner, task, TEST) @ head["kernel"] + head["bias"]
        scores = MEMO.predict(memory, learner, jnp.float32(DATA[TEST]))
        np.testing.assert_allclose(scores, expected, rtol=1e-4, atol=1e-5)


def test_a_copy_has_the_last_stage_alone(after_each):
    memory, _ = after_each[2]
    held = {name for name, leaf in flat(memory.extractors).items() if leaf is not None}
    assert held == {"dense2/kernel", "dense2/bias", "norm2/scale", "norm2/bias"}
    # 32 of the network's 92 values, in two places.
    assert MEMO.parameter_copies == 1


def test_a_task_starts_from_the_last_copy_the_shared_stage_and_the_earlier_head(after_each):
    memory, learner = after_each[0]
    started, now = net.begin(SETUP, MEMO, memory, learner, TASKS[1][0])
    for name, leaf in flat(now.params).items():
        if name != "head/kernel":
            np.testing.assert_array_equal(leaf, flat(learner.params)[name])
    np.testing.assert_array_equal(
        started.heads.params["kernel"][0, :, :2], learner.params["head"]["kernel"][:, :2]
    )


def test_a_task_draws_its_rows_of_the_head_as_of_all_copies_and_an_auxiliary_head(after_each):
    """Variances are those of PyTorch's `kaiming_uniform_` of a linear layer, as in `SimpleLinear`.

    In the third task the head has the features of three copies, and the task's classes are 4 and 5.
    """
    memory, learner = after_each[1]
    begin = jax.vmap(lambda key: MEMO.begin_task(memory, learner, TASKS[2][0], key))
    started, now = begin(jax.random.split(KEY, 2000))
    rows, auxiliary = started.heads.params["kernel"], started.heads.params["auxiliary"]
    for kernel, copies in (
        (now.params["head"]["kernel"], 3),
        (rows[:, 0, :, 4:], 3),
        (rows[:, 1, :, 4:], 3),
        (auxiliary["kernel"], 1),
    ):
        np.testing.assert_allclose(kernel.mean(axis=0), 0, atol=0.06)
        np.testing.assert_allclose(kernel.var(axis=0) * WIDTH * copies, 1, atol=0.15)
    earlier = np.stack([memory.heads.params["kernel"][0], learner.params["head"]["kernel"]])
    np.testing.assert_array_equal(
        rows[..., :4], np.broadcast_to(earlier[..., :4], rows[..., :4].shape)
    )
    apart = np.corrcoef([rows[:, 0, 0, 4], rows[:, 1, 0, 4], now.params["head"]["kernel"][:, 0, 4]])
    np.testing.assert_allclose(apart, np.eye(3), atol=0.1)
    assert not np.any(auxiliary["bias"])


def official_loss(values, finished, task, inputs, labels, weight):
    """Return the sum of both cross-entropies; auxiliary classes are numbered within the task.

    The shared stage and the current copy normalize by the batch, finished copies by their own
    statistics; all read the same values.
    """
    params = unflatten_dict({tuple(name.split("/")): leaf for name, leaf in values.items()})
    shared = stage(params, 1, inputs)
    current = stage(params, 2, shared)
    logits = current @ params["head"]["kernel"] + params["head"]["bias"]
    for place, (copy, stats) in enumerate(finished):
        logits = logits + stage(copy, 2, shared, stats) @ values["rows"][place]
    seen, known = 2 * task + 2, 2 * task
    position = np.arange(len(labels))
    loss = -log_softmax(logits[:, :seen], axis=1)[position, labels]
    columns = [0, *range(known + 1, seen + 1)]
    auxiliary = (current @ values["auxiliary"] + values["auxiliary_bias"])[:, columns]
    targets = np.maximum(labels - known + 1, 0)
    loss = loss - AUXILIARY * (task > 0) * log_softmax(auxiliary, axis=1)[position, targets]
    return loss @ weight / weight.sum()


@pytest.mark.parametrize("task", [0, 2])
def test_a_step_is_the_gradient_of_the_official_loss(after_each, task):
    """The gradient passes through the finished copies to the shared stage."""
    before = after_each[task - 1] if task else net.untrained(SETUP, MEMO)
    memory, learner = net.begin(SETUP, MEMO, *before, TASKS[task][0])
    # The last sample is padding, which batch norm reads.
    index = np.array([4, 11, 10, 2, 0, 9]) if task else np.array([0, 1, 6, 9])
    weight = np.array([1.0] * (len(index) - 1) + [0.0])
    after, learned, _ = train_step(
        SETUP, MEMO, memory, learner, net.batch_of(index, weight), TASKS[task][0], KEY
    )

    def named(params, heads):
        auxiliary = heads["auxiliary"]
        return {
            **flat(params),
            "rows": heads["kernel"],
            "auxiliary": auxiliary["kernel"],
            "auxiliary_bias": auxiliary["bias"],
        }

    values, results = (
        in_float64(named(network.params, expansion.heads.params))
        for network, expansion in ((learner, memory), (learned, after))
    )
    labels = np.where(weight > 0, LABELS[index], 0)
    arguments = copies_of(memory, task), task, DATA[index] + SHIFT, labels, weight
    expected = net.finite_differences(lambda values: official_loss(values, *arguments), values)
    steps = {name: (values[name] - results[name]) / RATE for name in values}
    net.assert_trees_close(steps, expected, rtol=2e-4, atol=1e-5)

    params, stats = in_float64((learner.params, learner.batch_stats))
    shared = stage(params, 1, DATA[index] + SHIFT)
    for number, inputs in (("1", DATA[index] + SHIFT), ("2", shared)):
        dense = inputs @ params[f"dense{number}"]["kernel"] + params[f"dense{number}"]["bias"]
        moved = learned.batch_stats[f"norm{number}"]
        old = stats[f"norm{number}"]
        np.testing.assert_allclose(
            moved["mean"], 0.9 * old["mean"] + 0.1 * dense.mean(axis=0), rtol=1e-4, atol=1e-6
        )
        np.testing.assert_allclose(
            moved["var"], 0.9 * old["var"] + 0.1 * dense.var(axis=0, ddof=1), rtol=1e-4, atol=1e-6
        )


def test_the_aligned_head_is_the_official_one(after_each):
    assert_aligned(SETUP, MEMO, after_each[0], TASKS[1][0], WIDTH, KEY)


def test_the_first_task_s_head_stays(after_each):
    untrained = net.untrained(SETUP, MEMO)
    for (_, learner), (_, changed) in (
        (untrained, MEMO.begin_task(*untrained, TASKS[0][0], KEY)),
        (after_each[0], MEMO.end_task(*after_each[0], TASKS[0][0], KEY)),
    ):
        jax.tree.map(np.testing.assert_array_equal, changed.params, learner.params)


def test_exemplars_are_herded_by_the_features_of_all_copies_and_join_an_epoch(after_each):
    memory, learner = after_each[2]
    held = memory.buffer.samples
    index = np.asarray(held.index)[np.asarray(held.mask)]
    np.testing.assert_array_equal(np.sort(LABELS[index]), np.repeat(np.arange(6), 2))
    for label in (4, 5):
        candidates = np.array([row for row in INDEX[2] if LABELS[row] == label])
        rows = net.unit(features_of(memory, learner, 2, candidates))
        first = np.argmin(np.linalg.norm(rows - rows.mean(axis=0), axis=1))
        second = (rows + rows[first]) / 2 - rows.mean(axis=0)
        second[first] = np.inf
        chosen = candidates[[first, np.argmin(np.linalg.norm(second, axis=1))]]
        assert {*chosen} == {*index[LABELS[index] == label]}
    samples, from_memory = MEMO.epoch_data(memory, TASKS[0][0])
    for origin, expected in ((~from_memory, INDEX[0]), (from_memory, index)):
        np.testing.assert_array_equal(samples.index[samples.mask & origin], expected)


@pytest.mark.parametrize(
    ("module", "shared", "copied"),
    [
        (ReducedResNet(CLASSES, 1), ["BasicBlock_0", "BasicBlock_1"], ["BasicBlock_2"]),
        (
            ResNet18(CLASSES, 2),
            [f"BasicBlock_{number}" for number in range(6)],
            ["BasicBlock_6", "BasicBlock_7"],
        ),
    ],
)
def test_residual_networks_share_all_stages_but_the_last(module, shared, copied):
    stored = StoredImages.of(np.zeros((1, 8, 8, 3), np.uint8), jnp.float32(0), jnp.float32(1))
    setup = flax_setup(module, stored, softmax_objective(), optax.sgd(0.1))
    extractors = blocks_above(setup, setup.split_at(setup.stages[-2]), 2)
    params, _ = jax.eval_shape(setup.init, KEY)
    part = extractors.part(params)
    with_copies = {name for name, layer in part.items() if jax.tree.leaves(layer)}
    assert with_copies == {*copied}
    assert part.keys() - with_copies == {*shared, "NormalizedConvolution_0"}


def test_without_finished_copies_the_network_is_its_own(after_each):
    _, learner = after_each[0]
    memory, _ = net.untrained(SETUP, MEMO)
    split = SETUP.split_at("norm1")
    expanded = expanded_setup(SETUP, blocks_above(SETUP, split, 2), memory)
    inputs = jnp.float32(DATA[:6])
    for train in (False, True):
        arguments = learner.params, learner.batch_stats, inputs
        (outputs, stats), (expected, moved) = (
            jax.jit(setup.apply, static_argnums=3)(*arguments, train, KEY)
            for setup in (expanded, SETUP)
        )
        np.testing.assert_allclose(outputs.logits, expected.logits, rtol=1e-5, atol=1e-6)
        net.assert_trees_close(flat(stats), flat(moved), rtol=1e-5)


@pytest.mark.parametrize("hidden", [(), (5,)])
def test_a_network_without_two_stages_is_refused(hidden):
    setup = flax_setup(MLP(CLASSES, hidden), STORED, softmax_objective(), optax.sgd(RATE))
    for refused in (setup, SETUP._replace(split_at=None), net.layered_setup()):
        with pytest.raises(ValueError, match="MEMO shares all stages but the last one"):
            memo(refused, 3)
