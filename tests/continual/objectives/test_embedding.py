"""The objective of facts against float64 NumPy, and what strategies make of it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from everlight.base import Outputs, Predictions, Setup
from everlight.continual.engine import Protocol, Run, run_sequence
from everlight.continual.engine.tasks import init_learner
from everlight.continual.objectives.embedding import embedding_objective, with_nearest_facts
from everlight.continual.strategies import ewc, expert_gate, joint, mas, naive, si
from everlight.continual.strategies.imm import imm
from everlight.continual.strategies.parts.importance import fisher_diagonal, memory_aware_importance
from everlight.metrics.ranking import Facts, top_k
from everlight.scenarios.facts import Examples, fact_sequence
from tests.continual.objectives.outputs import outputs_of
from tests.single_run import drive_run

SIZE, WORDS, STORED = 4, 7, 60
rng = np.random.default_rng(5)
VECTORS = rng.normal(size=(WORDS, SIZE)).astype(np.float32)
PIECES = np.array([[0, -1, -1], [1, 2, -1], [6, 2, 4], [1, 3, 5], [3, -1, -1], [6, 3, 0]])
TASK = np.array([0, 0, 0, 1, 1, 1])
FACTS = Facts(jnp.asarray(PIECES), jnp.asarray(VECTORS))
# An image of a fact is its embedding, noise where undefined, seen through a random matrix.
SHOWN = np.arange(STORED) % len(PIECES)
CLEAN = np.where(PIECES[..., None] >= 0, VECTORS[PIECES], 0).reshape(len(PIECES), -1)
MIX = rng.normal(size=(3 * SIZE, 3 * SIZE)) / 3
IMAGES = ((CLEAN[SHOWN] + 0.1 * rng.normal(size=(STORED, 3 * SIZE))) @ MIX).astype(np.float32)
TRAIN, VALID, TEST = (Examples(i, SHOWN[i]) for i in np.split(np.arange(STORED), [36, 42]))
SEQUENCE = fact_sequence(TASK, TRAIN, VALID, TEST)
SEEN = jnp.ones(len(PIECES), bool)
PROTOCOL = Protocol(epochs=30, batch_size=6, evaluation_batch=16)
OBJECTIVE = embedding_objective(FACTS)
KEY = jax.random.key(8)


def distances_by_hand(embeddings, facts):
    return [
        sum(
            np.sum((row[c * SIZE : (c + 1) * SIZE] - np.float64(VECTORS[word])) ** 2)
            for c, word in enumerate(PIECES[fact])
            if word >= 0
        )
        for row, fact in zip(np.float64(embeddings), facts, strict=True)
    ]


def test_the_loss_is_the_squared_distance_over_the_pieces_that_the_fact_defines():
    facts = np.array([0, 1, 2, 5])
    expected = distances_by_hand(IMAGES[:4], facts)
    result = OBJECTIVE.loss(outputs_of(IMAGES[:4]), jnp.asarray(facts)[:, None], SEEN)
    np.testing.assert_allclose(result, expected, rtol=1e-5)
    good = OBJECTIVE.metric(jnp.asarray(IMAGES[:4]), jnp.asarray(facts)[:, None], SEEN)
    np.testing.assert_array_equal(good, -result)


def test_an_evaluation_keeps_the_nearest_facts_of_the_shown_samples_too():
    shown = jnp.asarray([3, 0])
    stored = with_nearest_facts(OBJECTIVE, FACTS, shown, 2)
    assert stored.loss is OBJECTIVE.loss
    scores, labels = jnp.asarray(IMAGES[:4]), jnp.asarray(SHOWN[:4])[:, None]
    predictions = Predictions(scores, scores, labels, jnp.zeros(4, int), jnp.asarray(TASK), None)
    result = stored.evaluate(SEQUENCE, stored.per_sample_metrics(predictions, SEEN), SEEN)
    ranks = OBJECTIVE.per_sample_metrics(predictions, SEEN)
    np.testing.assert_array_equal(result.ranks.generalised, ranks.generalised)
    pieces = np.sum(PIECES >= 0, axis=1)
    for row, sample in zip(result.nearest, (3, 0), strict=True):
        distances = distances_by_hand(IMAGES[[sample] * 6], range(6)) / pieces
        np.testing.assert_array_equal(row, np.argsort(distances)[:2])


def test_undefined_pieces_get_no_gradient():
    slope = jax.grad(lambda x: OBJECTIVE.loss(outputs_of(x), jnp.array([[1]]), SEEN)[0])
    result = slope(jnp.asarray(IMAGES[:1]))[0]
    expected = 2 * (np.float64(IMAGES[0, : 2 * SIZE]) - VECTORS[[1, 2]].ravel())
    np.testing.assert_allclose(result[: 2 * SIZE], expected, rtol=1e-5)
    np.testing.assert_array_equal(result[2 * SIZE :], 0)


def test_an_evaluation_keeps_the_ranks_of_the_test_union():
    scores = rng.normal(size=(len(TEST.fact), 3 * SIZE)).astype(np.float32)
    defined = (PIECES >= 0).sum(axis=1)
    offset = (
        np.stack([distances_by_hand(scores, [f] * len(scores)) for f in range(6)])
        / defined[:, None]
    )
    closer = offset < offset[TEST.fact, np.arange(len(scores))]
    scored = jnp.asarray(scores)
    predictions = Predictions(
        scored, scored, SEQUENCE.test.labels, jnp.asarray(TASK[TEST.fact]), SEQUENCE.class_task
    )
    ranks = OBJECTIVE.evaluate(SEQUENCE, OBJECTIVE.per_sample_metrics(predictions, SEEN), SEEN)
    np.testing.assert_array_equal(ranks.generalised, 1 + closer.sum(axis=0))
    closer &= TASK[:, None] == TASK[TEST.fact]
    np.testing.assert_array_equal(ranks.standard, 1 + closer.sum(axis=0))
    assert {leaf.dtype for leaf in ranks} == {jnp.dtype("int32")}


def build(strategy, data):
    def init(key):
        return {"weight": 0.1 * jax.random.normal(key, (3 * SIZE, 3 * SIZE))}, {}

    def apply(params, batch_stats, inputs, train, key):
        return Outputs(inputs @ params["weight"], inputs), batch_stats

    images, facts = data
    setup = Setup(
        init=init,
        apply=apply,
        objective=embedding_objective(facts),
        optimizer=optax.sgd(0.02),
        gather=lambda index, key: images[index],
    )
    return setup, STRATEGIES[strategy](setup)


STRATEGIES = {
    "naive": naive,
    "ewc": lambda setup: ewc(setup, regularization=0.1),
    "si": lambda setup: si(setup, regularization=0.1),
    "mas": lambda setup: mas(setup, regularization=0.1),
    "imm": lambda setup: imm(setup, "mode"),
    "expert gate": lambda setup: expert_gate(
        setup, 2, lambda inputs: inputs, hidden=3, epochs=100, autoencoder_learning_rate=0.1
    ),
    "joint": lambda setup: joint(setup, tasks=2),
}
DATA = (jnp.asarray(IMAGES), FACTS)


def run_of(strategy):
    named = functools.partial(build, strategy)
    return Run(named, PROTOCOL, DATA, SEQUENCE, jax.random.key(0))


@functools.cache
def ran(strategy):
    return jax.jit(run_sequence)(run_of(strategy))


@pytest.mark.parametrize(
    "strategy",
    # The others run in `make test-slow`.
    [pytest.param(name, marks=[pytest.mark.slow] if name != "mas" else []) for name in STRATEGIES],
)
def test_every_strategy_learns_facts(strategy):
    result = ran(strategy)
    actual = top_k(result.evaluation, SEQUENCE.test_member, 1)
    assert np.all(np.isfinite(result.losses))
    assert result.evaluation.generalised.shape == (2, len(TEST.fact))
    # The task just learned is scored among its three facts.
    assert actual.standard.by_task[1, 1] > 0.6
    assert np.all(np.asarray(actual.drop.by_task) >= 0)


def test_driven_epoch_by_epoch_it_is_the_compiled_sequence():
    """The cases include embeddings that are wider than the label space."""
    *_, last = drive_run(run_of("mas"))
    np.testing.assert_allclose(last.result.losses, ran("mas").losses, rtol=1e-4)
    np.testing.assert_array_equal(
        last.result.evaluation.generalised, ran("mas").evaluation.generalised
    )


def test_mas_keeps_the_whole_embedding():
    """The importance of W in F(x) = x W is the mean of |2 x F(x)|."""
    setup, _ = build("mas", DATA)
    learner = init_learner(setup, len(PIECES), jax.random.key(1))
    train = jax.tree.map(lambda leaf: leaf[0], SEQUENCE.tasks.train)
    result = memory_aware_importance(setup, learner, train, 100)["weight"]
    inputs = np.float64(IMAGES)[np.asarray(train.index)[np.asarray(train.mask)]]
    outputs = inputs @ np.float64(learner.params["weight"])
    expected = np.mean(np.abs(2 * inputs[:, :, None] * outputs[:, None, :]), axis=0)
    np.testing.assert_allclose(result, expected, rtol=1e-4)


def first_task():
    return jax.tree.map(lambda leaf: leaf[0], SEQUENCE.tasks)


def shown_in(samples):
    """Return inputs of the samples in float64, and the outputs that each one's fact defines."""
    index = np.asarray(samples.index)[np.asarray(samples.mask)]
    return np.float64(IMAGES)[index], np.repeat(PIECES[SHOWN[index]] >= 0, SIZE, axis=1)


def information_of_a_linear_net(samples):
    """Return the mean of 2 JᵀJ of x W: twice the squared input where an output is defined."""
    inputs, defined = shown_in(samples)
    return np.mean(2 * inputs[:, :, None] ** 2 * defined[:, None, :], axis=0)


@pytest.mark.parametrize("offset", [0.0, 100.0])
def test_the_fisher_information_does_not_depend_on_the_fit(offset):
    """Other word vectors and residuals a hundred times as large do not change the Jacobian.

    Each weight of a linear net reaches one output, so that every draw of signs gives the mean.
    """
    setup, _ = build("naive", (DATA[0], FACTS._replace(vectors=FACTS.vectors + offset)))
    learner, train = init_learner(setup, len(PIECES), jax.random.key(1)), first_task().train
    result = fisher_diagonal(setup, learner, train, 100, jax.random.key(2))["weight"]
    np.testing.assert_allclose(result, information_of_a_linear_net(train), rtol=1e-5, atol=1e-7)


def test_the_fisher_information_is_the_gauss_newton_diagonal_in_the_mean():
    """A two-layer net's Jacobian is written out; the mean is over 2,000 draws of signs."""
    hidden = 5
    below, above = rng.normal(size=(3 * SIZE, hidden)) / 3, rng.normal(size=(hidden, 3 * SIZE))
    plain, _ = build("naive", DATA)

    def apply(params, batch_stats, inputs, train, key):
        return Outputs(jnp.tanh(inputs @ params["below"]) @ params["above"], inputs), batch_stats

    params = {"below": jnp.float32(below), "above": jnp.float32(above)}
    setup = plain._replace(apply=apply, init=lambda key: (params, {}))
    learner, train = init_learner(setup, len(PIECES), jax.random.key(1)), first_task().train

    @jax.jit
    @jax.vmap
    def draw(key):
        return fisher_diagonal(setup, learner, train, 100, key)

    result = jax.tree.map(lambda leaf: leaf.mean(axis=0), draw(jax.random.split(KEY, 2000)))
    inputs, defined = shown_in(train)
    bent = np.tanh(inputs @ below)
    # ∂x_o / ∂below_ih = input_i (1 − bent_h²) above_ho and ∂x_o / ∂above_ho = bent_h.
    jacobian = np.einsum("ni,nh,ho->niho", inputs, 1 - bent**2, above)
    expected = np.einsum("niho,no->nih", 2 * jacobian**2, defined).mean(axis=0)
    np.testing.assert_allclose(result["below"], expected, rtol=0.05)
    expected = np.mean(2 * bent[:, :, None] ** 2 * defined[:, None, :], axis=0)
    np.testing.assert_allclose(result["above"], expected, rtol=1e-4, atol=1e-7)
