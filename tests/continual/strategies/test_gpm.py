"""GPM against gradient descent in subspaces in float64 NumPy."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from everlight.base import Outputs
from everlight.continual.engine import StoredImages, flax_setup
from everlight.continual.objectives.softmax import softmax_objective
from everlight.continual.strategies.gpm import ProjectionMemory, gpm, project_gradient
from everlight.continual.strategies.parts.layer_inputs import with_inputs_of
from everlight.models.plain_cnn import PlainCNN
from tests.continual import small_net as net
from tests.continual.small_net import FEATURES, HIDDEN, RATE, START
from tests.continual.strategies.references.recurring_tasks import BATCHES, NEW, SEQUENCE, TRAIN

THRESHOLD, GROWTH = 0.6, 0.1


def setup_with_layer_inputs():
    setup = net.layered_setup()

    def layer_inputs(params, batch_stats, inputs):
        features = setup.apply(params, batch_stats, inputs, False, None)[0].features
        rows = {"hidden": inputs, "head": features}
        return {(name, "kernel"): leaf[:, None] for name, leaf in rows.items()}

    return setup._replace(layer_inputs=layer_inputs)


def with_directions(basis, columns, share):
    """Return bases as in the paper's equations 5, 8 and 9, one direction at a time."""
    total = np.sum(columns**2)
    left, lengths, _ = np.linalg.svd(columns - basis @ (basis.T @ columns), full_matrices=False)
    covered = np.sum((basis.T @ columns) ** 2)
    for direction, length in zip(left.T, lengths, strict=True):
        if covered >= share * total:
            break
        basis = np.column_stack([basis, direction])
        covered += length**2
    return basis


def train_by_hand():
    """Return parameters and bases after each task."""
    params = START
    bases = {"hidden": np.zeros((FEATURES, 0)), "head": np.zeros((HIDDEN, 0))}
    after, known = [], []
    for task, batches in enumerate(BATCHES):
        seen = sorted({*known, *NEW[task]})
        new = [c for c in range(6) if c not in known]
        for batch in batches:
            gradient = net.batch_gradient(params, batch.index, np.asarray(net.classes_mask(seen)))
            step = {name: -RATE * leaf for name, leaf in gradient.items()}
            for name, basis in bases.items():
                free = step[name] - basis @ (basis.T @ step[name])
                if name == "head":
                    free[:, new] = step[name][:, new]
                step[name] = free
            if task:
                step["hidden_bias"] = np.zeros(HIDDEN)
                step["head_bias"][known] = 0
            params = {name: params[name] + step[name] for name in params}
        inputs, bent, _ = net.forward(params, TRAIN[task])
        share = THRESHOLD + GROWTH * task
        bases = {
            name: with_directions(bases[name], rows.T, share)
            for name, rows in (("hidden", inputs), ("head", bent))
        }
        after.append((params, bases))
        known = seen
    return after


@functools.cache
def after_tasks():
    setup = setup_with_layer_inputs()
    return net.run_tasks(setup, gpm(setup, THRESHOLD, GROWTH, max_samples=16), SEQUENCE)


def test_three_tasks_done_again_in_float64():
    """The task's nine samples are followed by padding, which adds no direction."""
    ranks = []
    for (memory, learner), (params, bases) in zip(after_tasks(), train_by_hand(), strict=True):
        net.assert_trees_close(net.flat(learner.params), params, rtol=1e-3, atol=1e-4)
        for name, basis in bases.items():
            result = memory.projections[name, "kernel"]
            np.testing.assert_allclose(result, basis @ basis.T, atol=1e-3)
        ranks.append([basis.shape[1] for basis in bases.values()])
    # The bases grow, and are not the whole space before the last task.
    assert ranks[0] < ranks[1] < ranks[2]
    assert all(0 < rank < full for rank, full in zip(ranks[1], (FEATURES, HIDDEN), strict=True))


@pytest.mark.parametrize("optimizer", [optax.sgd(0.1), optax.adamw(0.05, weight_decay=0.1)])
def test_a_linear_network_keeps_its_outputs_on_earlier_inputs(optimizer):
    """The optimizers include one whose steps leave the gradient's subspace."""
    rng = np.random.default_rng(0)
    inputs = np.concatenate(
        [rng.normal(size=(20, 3)) @ rng.normal(size=(3, 6)), rng.normal(size=(20, 6))]
    )
    data = jnp.float32(inputs)
    plain = net.small_setup()

    def apply(params, batch_stats, inputs, train, key):
        head = params["head"]
        return Outputs(inputs @ head["kernel"] + head["bias"], inputs), batch_stats

    setup = plain._replace(
        init=lambda key: ({"head": {"kernel": jnp.zeros((6, 6)), "bias": jnp.zeros(6)}}, {}),
        apply=apply,
        gather=lambda index, key: data[index],
        optimizer=optimizer,
        layer_inputs=lambda params, batch_stats, inputs: {("head", "kernel"): inputs[:, None]},
    )
    everything = [0, 1, 2, 3, 4, 5]
    first, second = np.arange(20), np.arange(20, 40)
    tasks = [
        (net.task_of(0, everything, first), BATCHES[0]),
        (net.task_of(1, [], second), [b._replace(index=b.index + 20) for b in BATCHES[0]]),
    ]
    outputs = []
    for _, learner in net.run_tasks(setup, gpm(setup, 1.0), tasks):
        outputs.append(np.asarray(setup.apply(learner.params, {}, data, False, None)[0].logits))
    np.testing.assert_allclose(outputs[1][first], outputs[0][first], atol=1e-5)
    assert np.abs(outputs[1][second] - outputs[0][second]).max() > 0.1


def test_a_projected_change_of_a_convolutional_network_keeps_its_outputs():
    """Grey images in three channels leave directions of the first kernel free."""
    rng = np.random.default_rng(1)
    gray = np.repeat(rng.normal(size=(3, 4, 4, 1)), 3, axis=-1)
    images = jnp.float32(gray)
    stored = StoredImages.of(images, jnp.zeros(3), jnp.ones(3))
    setup = flax_setup(PlainCNN(5, (4,), 7), stored, softmax_objective(), optax.sgd(0.1))

    @jax.jit
    def run(change_of):
        params, _ = setup.init(jax.random.key(0))
        change = jax.tree.map(lambda leaf: change_of[: leaf.size].reshape(leaf.shape), params)
        projections = {
            path: with_inputs_of(
                jnp.zeros([rows.shape[-1]] * 2), rows.reshape(-1, rows.shape[-1]), 1.0
            )
            for path, rows in setup.layer_inputs(params, {}, images).items()
        }
        stored = project_gradient(
            change, ProjectionMemory(projections, jnp.int32(1), jnp.ones(5, bool))
        )
        moved = [jax.tree.map(jnp.add, params, item) for item in (stored, change)]
        complete = [params, *moved]
        return stored, [setup.apply(part, {}, images, False, None)[0].logits for part in complete]

    remaining, (before, after, unprojected) = run(jnp.asarray(rng.normal(size=200), jnp.float32))
    assert all(np.abs(layer["kernel"]).max() > 0.1 for layer in remaining.values())
    np.testing.assert_allclose(after, before, atol=1e-4)
    assert np.abs(unprojected - before).max() > 1


@pytest.mark.parametrize(("share", "rank"), [(0.5, 1), (0.9, 1), (0.95, 2), (0.995, 3), (1.0, 3)])
def test_as_few_directions_as_reach_the_share(share, rank):
    """Squared lengths are 90, 9 and 1 along the axes; there are more rows than dimensions."""
    rows = np.diag([90.0, 9, 1, 0]) ** 0.5
    rows = jnp.asarray(np.concatenate([rows, np.zeros((3, 4))]), jnp.float32)
    projection = with_inputs_of(jnp.zeros((4, 4)), rows, share)
    np.testing.assert_allclose(projection, np.diag(np.arange(4) < rank), atol=1e-6)
    # The span of the basis counts already: nothing is added, at any order of the tasks.
    again = with_inputs_of(projection, rows, share)
    np.testing.assert_allclose(again, projection, atol=1e-6)


def test_projections_count_as_copies_of_the_parameters():
    """There are 3² + 5² entries beside 3 * 5 + 5 + 5 * 6 + 6 parameters."""
    assert gpm(setup_with_layer_inputs()).parameter_copies == 1


def test_networks_whose_layers_are_unknown_are_refused():
    setup = setup_with_layer_inputs()
    partly = setup._replace(
        layer_inputs=lambda *arguments: {
            ("head", "kernel"): setup.layer_inputs(*arguments)["head", "kernel"]
        }
    )
    with pytest.raises(ValueError, match=r"the inputs of hidden\.kernel are unknown"):
        jax.eval_shape(lambda: net.run_tasks(partly, gpm(partly), SEQUENCE[:1]))
