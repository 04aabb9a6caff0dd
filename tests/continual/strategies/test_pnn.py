"""Progressive neural networks against the paper's equations in float64 NumPy."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from everlight.base import Outputs
from everlight.continual.engine.updates import train_step
from everlight.continual.strategies.pnn import new_adapters, pnn, shifted_outputs
from tests.continual import small_net as net
from tests.continual.small_net import CLASSES, DATA, GAIN, LABELS, RATE, SHIFT

LAYERS = ("first", "second")
WIDTHS = (3, 4, 5, CLASSES)
TASKS = [[0, 1], [2, 3], [4, 5]]
TRAIN = [np.array([0, 1, 6, 7, 12, 13]) + 2 * t for t in range(3)]
SEQUENCE = [
    (net.task_of(t, part, TRAIN[t]), [TRAIN[t][:4], TRAIN[t][2:]]) for t, part in enumerate(TASKS)
]


def chain_setup():
    """Return a setup of two ReLU layers and a head, whose first weights depend on the key.

    In training the hidden layers are scaled, so that the wrong mode gives other numbers.
    """

    def apply(params, batch_stats, inputs, train, key):
        values, hidden = inputs, {}
        for name in LAYERS:
            values = jax.nn.relu(values @ params[name]["kernel"] + params[name]["bias"])
            values = values * (GAIN if train else 1.0)
            hidden[name] = values
        return Outputs(
            values @ params["head"]["kernel"] + params["head"]["bias"], values, hidden
        ), {}

    def init(key):
        keys = jax.random.split(key, 3)
        return {
            name: {
                "kernel": jax.random.normal(part, sizes) * 0.8,
                "bias": jax.random.normal(part, sizes[1:]) * 0.3,
            }
            for name, part, sizes in zip(
                (*LAYERS, "head"), keys, itertools.pairwise(WIDTHS), strict=True
            )
        }, {}

    return net.small_setup()._replace(init=init, apply=apply)


SETUP = chain_setup()
STRATEGY = pnn(SETUP, 3, LAYERS)


@functools.cache
def after_tasks():
    return net.run_tasks(SETUP, STRATEGY, SEQUENCE)


def columns_of(memory, learner):
    """Return parameters and adapters of every column in float64."""
    current = learner.params, memory.adapters.params
    columns = [
        jax.tree.map(lambda leaf, number=number: leaf[number], memory.finished)
        for number in range(int(memory.count))
    ]
    return jax.tree.map(np.float64, [*columns, current])


def logits_by_hand(columns, inputs, train=False):
    """Return the logits of the last column, which reads all earlier ones in evaluation mode."""
    activations = []
    for number, (params, adapters) in enumerate(columns):
        gain = GAIN if train and number == len(columns) - 1 else 1.0
        values, layers = inputs, []
        for depth, name in enumerate((*LAYERS, "head")):
            values = values @ params[name]["kernel"] + params[name]["bias"]
            if number and depth:
                adapter = adapters[name]
                reduced = adapter["bias"] + sum(
                    (adapter["scale"][s] * activations[s][depth - 1]) @ adapter["reduction"][s]
                    for s in range(number)
                )
                values = values + np.maximum(reduced, 0) @ adapter["expansion"]
            if name != "head":
                values = gain * np.maximum(values, 0)
                layers.append(values)
        activations.append(layers)
    return values


def test_each_task_is_predicted_by_its_column_on_all_earlier_ones():
    memory, learner = after_tasks()[-1]
    columns = columns_of(memory, learner)
    expected = [logits_by_hand(columns[: task + 1], DATA) for task in range(3)]
    for task in range(3):
        scores = STRATEGY.predict_task(memory, learner, jnp.float32(DATA), jnp.int32(task))
        np.testing.assert_allclose(scores, expected[task], rtol=1e-4, atol=1e-5)
    scores = STRATEGY.predict(memory, learner, jnp.float32(DATA))
    joined = np.concatenate([expected[task][:, TASKS[task]] for task in range(3)], axis=1)
    np.testing.assert_allclose(scores, joined, rtol=1e-4, atol=1e-5)


def test_later_tasks_change_no_bit_of_a_column_or_of_its_scores():
    predict = jax.jit(STRATEGY.predict_task)
    (one, learner_one), (two, learner_two), (last, learner_last) = after_tasks()
    stored = jax.tree.map(lambda leaf: leaf[0], last.finished)
    jax.tree.map(np.testing.assert_array_equal, stored, (learner_one.params, one.adapters.params))
    stored = jax.tree.map(lambda leaf: leaf[1], last.finished)
    jax.tree.map(np.testing.assert_array_equal, stored, (learner_two.params, two.adapters.params))
    inputs = jnp.float32(DATA)
    for task, (memory, learner) in enumerate(after_tasks()[:2]):
        np.testing.assert_allclose(
            predict(last, learner_last, inputs, jnp.int32(task)),
            predict(memory, learner, inputs, jnp.int32(task)),
            rtol=1e-6,
            atol=1e-6,
        )


def test_a_step_of_the_third_column_is_the_gradient_over_its_classes():
    task, (index, _) = SEQUENCE[2]
    memory, learner = net.begin(SETUP, STRATEGY, *after_tasks()[1], task)
    # Scales of the order of 1 make the lateral connections count.
    scaled = {
        name: {**adapter, "scale": 10 * adapter["scale"]}
        for name, adapter in memory.adapters.params.items()
    }
    memory = memory._replace(adapters=memory.adapters._replace(params=scaled))
    columns = columns_of(memory, learner)
    leaves, tree = jax.tree.flatten(columns[-1])

    def loss(leaves):
        logits = logits_by_hand([*columns[:-1], jax.tree.unflatten(tree, leaves)], inputs, True)
        probability = net.softmax(logits, np.isin(np.arange(CLASSES), TASKS[2]))
        return -np.mean(np.log(probability[np.arange(3), LABELS[index[:3]]]))

    # The last sample of the batch is padding.
    batch = net.batch_of(index, [1, 1, 1, 0])
    inputs = DATA[index[:3]] + SHIFT
    expected = []
    for number, leaf in enumerate(leaves):
        gradient = np.zeros_like(leaf)
        for place in np.ndindex(leaf.shape):
            ends = []
            for step in (1e-6, -1e-6):
                moved = leaf.copy()
                moved[place] += step
                ends.append(loss([*leaves[:number], moved, *leaves[number + 1 :]]))
            gradient[place] = (ends[0] - ends[1]) / 2e-6
        expected.append(leaf - RATE * gradient)
    after, trained, _ = train_step(SETUP, STRATEGY, memory, learner, batch, task, jax.random.key(0))
    jax.tree.map(
        functools.partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-5),
        (trained.params, after.adapters.params),
        jax.tree.unflatten(tree, expected),
    )
    # An adapter that no gradient reached would pass as well.
    assert np.any(np.abs(expected[0] - leaves[0]) > 1e-3)


def test_a_task_begins_with_another_column_and_its_classes_alone():
    memory, learner = after_tasks()[0]
    trained = jax.tree.map(lambda leaf: leaf + 1, memory.adapters.params)
    memory = memory._replace(adapters=memory.adapters._replace(params=trained))
    begun, new = net.begin(SETUP, STRATEGY, memory, learner, SEQUENCE[1][0])
    assert np.all(new.params["first"]["kernel"] != learner.params["first"]["kernel"])
    other = STRATEGY.begin_task(memory, learner, SEQUENCE[1][0], jax.random.key(5))
    drawn = new.params["head"]["kernel"], begun.adapters.params["head"]["reduction"]
    others = other[1].params["head"]["kernel"], other[0].adapters.params["head"]["reduction"]
    assert all(np.all(one != two) for one, two in zip(drawn, others, strict=True))
    assert all(np.all(jnp.abs(leaf) < 1) for leaf in jax.tree.leaves(begun.adapters.params))
    scores = np.asarray(STRATEGY.predict(begun, new, jnp.float32(DATA)))
    expected = logits_by_hand(columns_of(begun, new), DATA)
    np.testing.assert_allclose(scores[:, 2:4], expected[:, 2:4], rtol=1e-4, atol=1e-5)
    assert np.all(scores[:, [0, 1, 4, 5]] == -np.inf)


def test_the_optimizer_starts_from_zeros_and_frozen_parameters_stay():
    setup = SETUP._replace(
        optimizer=optax.adam(0.1),
        trainable=lambda params: {
            name: jax.tree.map(lambda _, name=name: name == "head", layer)
            for name, layer in params.items()
        },
    )
    strategy = pnn(setup, 3, LAYERS)
    memory, learner = net.untrained(setup, strategy)
    states = jax.tree.map(lambda leaf: leaf + 1, (learner.opt_state, memory.adapters.opt_state))
    memory = memory._replace(adapters=memory.adapters._replace(opt_state=states[1]))
    renewed, begun = strategy.begin_task(
        memory, learner._replace(opt_state=states[0]), SEQUENCE[1][0], jax.random.key(1)
    )
    states = begun.opt_state, renewed.adapters.opt_state
    assert all(np.all(leaf == 0) for leaf in jax.tree.leaves(states))
    for name, layer in begun.params.items():
        assert np.all(layer["kernel"] == learner.params[name]["kernel"]) == (name != "head")


@pytest.mark.parametrize("count", [1, 3])
def test_adapters_are_drawn_within_the_bounds_of_linear_layers_in_the_network_s_type(count):
    """The bounds are 1 / √n; of so many uniform values the least and the largest are near them."""
    with jax.enable_x64(True):
        layer = {"kernel": jnp.zeros((200, 9), jnp.float64), "bias": jnp.zeros(9)}
        upper, columns = {"second": "first", "head": "second"}, jnp.int32(count)
        params = dict.fromkeys(upper, layer)
        both = new_adapters(jax.random.key(4), params, upper, 3, columns)
        adapter, firsts = both["second"], {round(float(both["head"]["scale"][0, 0]) / 0.1, 9)}
        wide = (200 * count) ** -0.5
        ends = {"scale": (0, 0.1), "reduction": (-wide, wide), "bias": (-wide, wide)}
        ends["expansion"] = -(200**-0.5), 200**-0.5
        for name, (least, largest) in ends.items():
            leaf, margin = np.asarray(adapter[name]), (largest - least) / 20
            assert leaf.dtype == np.float64
            assert least <= leaf.min() < least + margin
            assert largest - margin < leaf.max() <= largest
            firsts.add(round((leaf.flat[0] - least) / (largest - least), 9))
        # Equal keys of two layers or parts would give equal first numbers.
        assert len(firsts) == 5


def test_two_finished_columns_and_three_sets_of_adapters_have_the_size_of_nine_networks():
    """A column has 77 parameters, its adapters 159, with V and the scales for two columns."""
    assert STRATEGY.parameter_copies == np.ceil((2 * 77 + 3 * 159) / 77)


def test_samples_of_a_batch_have_their_own_random_keys():
    """Samples with one key would have one mask of dropout."""

    def apply(params, batch_stats, inputs, train, key):
        drawn = jax.random.normal(key, (1, CLASSES))
        return Outputs(drawn, drawn), {}

    setup = SETUP._replace(apply=apply)
    inputs = jnp.zeros((3, 3))
    outputs = shifted_outputs(setup, {}, {}, {}, inputs, True, jax.random.key(0))
    assert len(np.unique(outputs.logits)) == 3 * CLASSES


def test_layers_outside_the_chain_batch_statistics_and_convolutions_are_refused():
    strategy = pnn(SETUP, 3, ("first",))
    with pytest.raises(ValueError, match="all layers in order"):
        net.untrained(SETUP, strategy)
    normalized = SETUP._replace(init=lambda key: (SETUP.init(key)[0], {"mean": jnp.zeros(4)}))
    with pytest.raises(ValueError, match="no batch statistics"):
        net.untrained(normalized, STRATEGY)

    def init(key):
        params, stats = SETUP.init(key)
        return {**params, "first": {"kernel": jnp.ones((3, 3, 1, 4)), "bias": jnp.ones(4)}}, stats

    setup = SETUP._replace(init=init)
    with pytest.raises(ValueError, match="first is not a dense layer"):
        net.untrained(setup, pnn(setup, 3, LAYERS))
