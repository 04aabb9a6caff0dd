"""The objective of facts against float64 NumPy, and what strategies make of it."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from everlight.continual.base import Outputs, Setup
from everlight.continual.cumulative import joint
from everlight.continual.embedding_objective import embedding_objective
from everlight.continual.ewc import ewc
from everlight.continual.expert_gate import expert_gate
from everlight.continual.imm import imm
from everlight.continual.importance import memory_aware_importance
from everlight.continual.mas import mas
from everlight.continual.naive import naive
from everlight.continual.sequence import Protocol, drive_sequence, run_sequence
from everlight.continual.si import si
from everlight.continual.steps import init_learner
from everlight.metrics.ranking import Facts, top_k
from everlight.scenarios.facts import Examples, fact_sequence

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


def outputs_of(embeddings):
    return Outputs(jnp.asarray(embeddings, jnp.float32), jnp.zeros((len(embeddings), 1)))


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
    found = OBJECTIVE.loss(outputs_of(IMAGES[:4]), jnp.asarray(facts)[:, None], SEEN)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
    good = OBJECTIVE.goodness(jnp.asarray(IMAGES[:4]), jnp.asarray(facts)[:, None], SEEN)
    np.testing.assert_array_equal(good, -found)


def test_undefined_pieces_get_no_gradient():
    slope = jax.grad(lambda x: OBJECTIVE.loss(outputs_of(x), jnp.array([[1]]), SEEN)[0])
    found = slope(jnp.asarray(IMAGES[:1]))[0]
    expected = 2 * (np.float64(IMAGES[0, : 2 * SIZE]) - VECTORS[[1, 2]].ravel())
    np.testing.assert_allclose(found[: 2 * SIZE], expected, rtol=1e-5)
    np.testing.assert_array_equal(found[2 * SIZE :], 0)


def test_an_evaluation_keeps_the_ranks_of_the_test_union():
    scores = rng.normal(size=(len(TEST.fact), 3 * SIZE)).astype(np.float32)
    defined = (PIECES >= 0).sum(axis=1)
    away = (
        np.stack([distances_by_hand(scores, [f] * len(scores)) for f in range(6)])
        / defined[:, None]
    )
    closer = away < away[TEST.fact, np.arange(len(scores))]
    ranks = OBJECTIVE.evaluate(SEQUENCE, jnp.asarray(scores), SEEN)
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
    "ewc": lambda setup: ewc(setup, strength=0.1),
    "si": lambda setup: si(setup, strength=0.1),
    "mas": lambda setup: mas(setup, strength=0.1),
    "imm": lambda setup: imm(setup, "mode"),
    "expert gate": lambda setup: expert_gate(
        setup, 2, lambda inputs: inputs, hidden=3, epochs=100, rate=0.1
    ),
    "joint": lambda setup: joint(setup, tasks=2),
}
DATA = (jnp.asarray(IMAGES), FACTS)


@functools.cache
def ran(strategy):
    program = jax.jit(functools.partial(run_sequence, functools.partial(build, strategy), PROTOCOL))
    return program(DATA, SEQUENCE, jax.random.key(0))


@pytest.mark.parametrize(
    "strategy",
    # The others in `make test-all`.
    [pytest.param(name, marks=[pytest.mark.slow] if name != "mas" else []) for name in STRATEGIES],
)
def test_every_strategy_learns_facts(strategy):
    result = ran(strategy)
    found = top_k(result.evaluation, SEQUENCE.test_member, 1)
    assert np.all(np.isfinite(result.losses))
    assert result.evaluation.generalised.shape == (2, len(TEST.fact))
    # Of the task just learnt, among its three facts.
    assert found.standard.by_task[1, 1] > 0.6
    assert np.all(np.asarray(found.drop.by_task) >= 0)


def test_driven_step_by_step_it_is_the_compiled_sequence():
    """Also where embeddings are wider than the label space."""
    parts = functools.partial(build, "mas")
    *_, last = drive_sequence(parts, PROTOCOL, DATA, SEQUENCE, jax.random.key(0))
    np.testing.assert_allclose(last.result.losses, ran("mas").losses, rtol=1e-4)
    np.testing.assert_array_equal(
        last.result.evaluation.generalised, ran("mas").evaluation.generalised
    )


def test_mas_keeps_the_whole_embedding():
    """Of F(x) = x W it is the mean of |2 x F(x)|."""
    setup, _ = build("mas", DATA)
    learner = init_learner(setup, len(PIECES), jax.random.key(1))
    train = jax.tree.map(lambda leaf: leaf[0], SEQUENCE.tasks.train)
    found = memory_aware_importance(setup, learner, train, 100)["weight"]
    inputs = np.float64(IMAGES)[np.asarray(train.index)[np.asarray(train.mask)]]
    outputs = inputs @ np.float64(learner.params["weight"])
    expected = np.mean(np.abs(2 * inputs[:, :, None] * outputs[:, None, :]), axis=0)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
