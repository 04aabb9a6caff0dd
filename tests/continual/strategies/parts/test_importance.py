"""Importances against per-sample gradients written by hand in float64."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.base import Outputs
from everlight.continual.engine.tasks import init_learner
from everlight.continual.objectives import binary_objective, fixed_test_objective, softmax_objective
from everlight.continual.strategies.parts.importance import fisher_diagonal, memory_aware_importance
from tests.continual import small_net as net
from tests.continual.small_net import CLASSES, DATA, FEATURES, START, STORED

SEEN = [0, 1, 3, 4]
# Classes seen have 14 samples; slots of padding between them hold samples of other classes.
INDEX = np.array([0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 8, 12, 13, 15, 16, 18, 19, 11])
MASK = np.isin(INDEX % 6, SEEN)
VALID = INDEX[MASK]


def fisher_by_hand(index, active=None):
    active = net.classes_mask(SEEN) if active is None else active
    contribution = net.cross_entropy_gradients(START, index, active)
    return {name: np.mean(leaf**2, axis=0) for name, leaf in contribution.items()}


def memory_aware_by_hand(index):
    logits = np.where(net.classes_mask(SEEN), net.forward(START, index)[2], 0.0)
    contribution = net.backward(START, index, 2 * logits)
    return {name: np.mean(np.abs(leaf), axis=0) for name, leaf in contribution.items()}


@functools.cache
def program(importance, limit, chunk):
    setup = net.small_setup()
    return jax.jit(lambda learner, samples: importance(setup, learner, samples, limit, chunk=chunk))


def compute(importance, samples, limit=1024, chunk=4):
    return program(importance, limit, chunk)(net.small_learner(net.small_setup(), SEEN), samples)


# The empirical Fisher, softmax's default, draws nothing.
fisher = functools.partial(fisher_diagonal, key=jax.random.key(0))
BOTH = pytest.mark.parametrize(
    ("importance", "by_hand"),
    [(fisher, fisher_by_hand), (memory_aware_importance, memory_aware_by_hand)],
    ids=["fisher", "mas"],
)


def spaced(limit):
    count = min(limit, len(VALID))
    return [VALID[position * len(VALID) // count] for position in range(count)]


@BOTH
@pytest.mark.parametrize(("limit", "chunk"), [(1024, 4), (13, 64), (8, 1), (1024, None)])
def test_mean_over_valid_samples_evenly_spaced(importance, by_hand, limit, chunk):
    """14 samples are taken in fours, which leave a rest; 13 in a larger chunk; 8 one by one.

    The last case takes as many at once as the default.
    """
    assert len(VALID) == 14
    result = compute(importance, net.samples_of(INDEX, MASK), limit, chunk)
    net.assert_trees_close(result, by_hand(spaced(limit)), atol=1e-7)


@BOTH
def test_padding_may_hold_anything(importance, by_hand):
    """Padding includes an index outside the data and a label outside the classes."""
    samples = net.samples_of(INDEX, MASK)
    ruined = samples._replace(
        index=jnp.where(samples.mask, samples.index, STORED + 9),
        labels=jnp.where(samples.mask[:, None], samples.labels, -1),
    )
    for limit, chunk in ((1024, 4), (13, 64)):
        result = compute(importance, ruined, limit, chunk)
        net.assert_trees_close(result, by_hand(spaced(limit)), atol=1e-7)


@BOTH
def test_samples_of_weight_0_have_no_importance(importance, by_hand):
    result = compute(importance, net.samples_of(INDEX, np.zeros(len(INDEX))))
    assert all(np.all(leaf == 0) for leaf in result.values())


def test_with_a_head_per_task_fisher_runs_over_the_sample_s_own():
    group = np.array([0, 0, 0, 1, 1, 1])
    setup = net.small_setup(jnp.asarray(group))
    result = fisher(setup, net.small_learner(setup, SEEN), net.samples_of(VALID), 1024)
    active = group == group[VALID % 6][:, None]
    net.assert_trees_close(result, fisher_by_hand(VALID, active), atol=1e-7)


def network_of(weights, objective=None):
    """Return a linear network whose parameters are its weights and bias, on stored inputs."""
    setup = net.small_setup()

    def apply(params, batch_stats, inputs, train, key):
        logits = inputs @ params["weight"] + params["bias"]
        return Outputs(logits, inputs), batch_stats

    return setup._replace(
        init=lambda key: (net.as_float32(weights), {}),
        apply=apply,
        objective=softmax_objective() if objective is None else objective,
    )


_rng = np.random.default_rng(3)
LINEAR = {"weight": _rng.normal(size=(FEATURES, CLASSES)), "bias": _rng.normal(size=CLASSES)}
GROUP = np.array([0, 0, 0, 1, 1, 1])


def linear_logits(index):
    return DATA[index] @ LINEAR["weight"] + LINEAR["bias"]


def linear_information(index, variance):
    """Return the mean of x² times the variance of each output's label."""
    squares = DATA[index] ** 2
    return {
        "weight": np.mean(squares[:, :, None] * variance[:, None, :], axis=0),
        "bias": np.mean(variance, axis=0),
    }


def expected_softmax(index, active):
    """Return the information by enumeration: Σ_y p_y (p − e_y)², which is p (1 − p)."""
    probability = net.softmax(linear_logits(index), active)
    variance = sum(
        probability[:, [label]] * (probability - np.eye(CLASSES)[label]) ** 2
        for label in range(CLASSES)
    )
    np.testing.assert_allclose(variance, probability * (1 - probability), atol=1e-12)
    return linear_information(index, variance)


def expected_binary(index, active):
    probability = 1 / (1 + np.exp(-linear_logits(index)))
    return linear_information(index, probability * (1 - probability) * active)


SEEN_MASK = np.isin(np.arange(CLASSES), SEEN)
OBJECTIVES = {
    "softmax": (softmax_objective(), SEEN_MASK, expected_softmax),
    "heads": (
        softmax_objective(jnp.asarray(GROUP)),
        GROUP[VALID % 6][:, None] == GROUP,
        expected_softmax,
    ),
    "all outputs": (fixed_test_objective(CLASSES), np.ones(CLASSES, bool), expected_softmax),
    "binary": (binary_objective(), SEEN_MASK, expected_binary),
}


@pytest.mark.parametrize("name", OBJECTIVES)
def test_the_true_fisher_of_a_linear_model_is_its_closed_form_in_the_mean(name):
    objective, active, expected = OBJECTIVES[name]
    setup = network_of(LINEAR, objective=objective)
    learner = init_learner(setup, CLASSES, jax.random.key(0))
    learner = learner._replace(seen=net.classes_mask(SEEN))

    @jax.jit
    @jax.vmap
    def draw(key):
        return fisher_diagonal(setup, learner, net.samples_of(INDEX, MASK), 1024, key, 14, "true")

    result = draw(jax.random.split(jax.random.key(4), 4000))
    for leaf, target in expected(VALID, active).items():
        mean, error = (np.asarray(f(result[leaf], axis=0)) for f in (np.mean, np.std))
        # The bound is 4.5 standard errors; classes out of play have neither mean nor error.
        assert np.all(np.abs(mean - target) <= 4.5 * error / np.sqrt(4000) + 1e-6)
        assert np.any(target > 0.01)


@pytest.mark.parametrize("name", ["softmax", "heads", "all outputs"])
def test_the_expected_fisher_of_a_linear_model_is_its_closed_form(name):
    objective, active, expected = OBJECTIVES[name]
    setup = network_of(LINEAR, objective=objective)
    learner = init_learner(setup, CLASSES, jax.random.key(0))
    learner = learner._replace(seen=net.classes_mask(SEEN))
    samples, key = net.samples_of(INDEX, MASK), jax.random.key(4)
    result = fisher_diagonal(setup, learner, samples, 1024, key, 14, "expected")
    for leaf, target in expected(VALID, active).items():
        np.testing.assert_allclose(result[leaf], target, rtol=1e-5, atol=1e-8)


def test_labels_that_cannot_be_enumerated_have_no_expected_fisher():
    setup = network_of(LINEAR, objective=binary_objective())
    message = "fisher='expected' needs an objective with label_losses; give one, or fisher='empir"
    with pytest.raises(ValueError, match=message):
        fisher_diagonal(setup, None, None, 1024, jax.random.key(0), fisher="expected")


def test_the_true_fisher_is_exact_given_the_labels_that_were_drawn():
    """The loss at a draw tells its label, which float64 NumPy then takes."""
    setup, key = network_of(LINEAR), jax.random.key(9)
    learner = init_learner(setup, CLASSES, jax.random.key(0))._replace(seen=net.classes_mask(SEEN))
    probability = net.softmax(linear_logits(VALID), SEEN_MASK)
    squares = []
    for position, index in enumerate(VALID):
        outputs = Outputs(jnp.float32(linear_logits([index])), jnp.zeros((1, 1)))
        draw = jax.random.fold_in(key, position)
        loss = setup.objective.fisher_loss(outputs, jnp.array([[index % 6]]), learner.seen, draw)
        candidates = np.where(SEEN_MASK, -np.log(np.maximum(probability[position], 1e-30)), np.inf)
        label = np.argmin(np.abs(candidates - float(loss[0])))
        np.testing.assert_allclose(loss[0], candidates[label], rtol=1e-5, atol=1e-5)
        slope = probability[position] - np.eye(CLASSES)[label]
        squares.append((DATA[index][:, None] * slope) ** 2)
    result = fisher_diagonal(setup, learner, net.samples_of(INDEX, MASK), 1024, key, 4, "true")
    np.testing.assert_allclose(result["weight"], np.mean(squares, axis=0), rtol=1e-4, atol=1e-7)


def test_the_true_fisher_does_not_take_the_data_s_labels():
    setup, key = network_of(LINEAR), jax.random.key(9)
    learner = init_learner(setup, CLASSES, jax.random.key(0))._replace(seen=net.classes_mask(SEEN))
    samples = net.samples_of(VALID)
    others = samples._replace(labels=jnp.full_like(samples.labels, 3))
    for kind, same in (("true", True), ("empirical", False), (None, False)):
        first, second = (
            fisher_diagonal(setup, learner, item, 1024, key, 4, kind)["bias"]
            for item in (samples, others)
        )
        assert np.allclose(first, second) == same


@pytest.mark.parametrize("impl", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_keys_of_every_implementation_draw_labels(impl):
    setup, key = network_of(LINEAR), jax.random.key(9, impl=impl)
    learner = init_learner(setup, CLASSES, jax.random.key(0))._replace(seen=net.classes_mask(SEEN))
    index = np.tile(VALID, 200)
    result = fisher_diagonal(setup, learner, net.samples_of(index), 2800, key, 100, "true")["bias"]
    expected = expected_softmax(VALID, SEEN_MASK)["bias"]
    np.testing.assert_allclose(result, expected, rtol=0.25, atol=1e-6)


@pytest.mark.parametrize("importance", [fisher, memory_aware_importance], ids=["fisher", "mas"])
def test_the_number_of_gradients_at_once_is_chosen_for_the_programs_device(importance):
    """The number is 32 on a GPU and one on CPU, whatever device lowers the program."""
    inputs = net.small_learner(net.small_setup(), SEEN), net.samples_of(INDEX, MASK)
    kernel = max((leaf.shape for leaf in jax.tree.leaves(inputs[0].params)), key=len)

    def at_once(platform):
        exported = jax.export.export(program(importance, 1024, None), platforms=[platform])
        text = exported(*inputs).mlir_module()
        shape = "x".join(map(str, kernel))
        return {number for number in (1, 32) if f"tensor<{number}x{shape}xf32>" in text}

    assert (at_once("cpu"), at_once("cuda")) == ({1}, {32})
