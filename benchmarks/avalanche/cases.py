"""Methods that are compared, with settings of the same meaning on both sides."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import PRNGKeyArray, PyTree

from benchmarks.avalanche.equations import (
    their_agem,
    their_der,
    their_ewc,
    their_gem,
    their_mas,
    their_replay,
    their_si,
)
from benchmarks.avalanche.inputs import BATCH, CLASSES, HELD, PER_CLASS, TASKS, FixedSamples
from everlight.base import Batch, Learner, Samples, Task
from everlight.continual import (
    Setup,
    Strategy,
    agem,
    der_plus_plus,
    er_ace,
    ewc,
    experience_replay,
    gdumb,
    gem,
    icarl,
    lwf,
    mas,
    naive,
    si,
    streaming_lda,
)
from everlight.continual.strategies.der_plus_plus import TwoDraws

EXEMPLARS = HELD * TASKS // CLASSES
"""Exemplars per class."""
CAPACITY = EXEMPLARS * CLASSES
FIRST_CLASSES = CLASSES // TASKS
EPOCH_STEPS = PER_CLASS * FIRST_CLASSES // BATCH
TEMPERATURE = 2.0
GDUMB_EPOCHS = 16
EWC_COEFFICIENT = 100.0
SI_COEFFICIENT = 1.0
MAS_COEFFICIENT = 0.1
LWF_COEFFICIENT = 1.0
DAMPING = 1e-3
MARGIN = 0.5
DECAY = 0.9
ALPHA = 0.5
SHRINKAGE = 1e-2

Make = Callable[[Setup], Strategy]
Feed = Callable[[Strategy, FixedSamples], Strategy]


class Case(NamedTuple):
    """A method on both sides."""

    name: str
    method: str
    """Name on Avalanche's side."""
    local: Make
    settings: Mapping[str, object] = MappingProxyType({})
    """Avalanche's settings of the same meaning."""
    differs: str = ""
    """Equation in which Avalanche differs."""
    equation: Make | None = None
    """Everlight's strategy with that equation; None if `adapt` or nothing expresses it."""
    adapt: Callable[[Setup], Setup] | None = None
    """Change of the setup that expresses a part of the equation."""
    policy: Make | None = None
    """Strategy with Avalanche's memory policy too, for the means; None is `equation`."""
    feed: Feed | None = None
    """Strategy that replays the samples that both sides receive, for the steps."""
    masked: bool = True
    """True if Avalanche's head leaves out classes not seen so far, as everlight's loss does."""
    own_loader: bool = False
    """True if Avalanche draws its own batches in the means."""
    epochs: int | None = None
    """Avalanche's epochs, if they differ from everlight's."""
    only: Literal["steps", "means"] | None = None
    """The only comparison of the case; None is both."""

    def strategy(self, avalanche: bool, stepwise: bool) -> Make:
        """Return everlight's strategy as shipped, or with Avalanche's equations and policy."""
        policy = None if stepwise else self.policy
        return (policy or self.equation or self.local) if avalanche else self.local

    def has_equation(self, stepwise: bool) -> bool:
        """Return True if Avalanche's equations make a difference."""
        return self.strategy(True, stepwise) is not self.local or self.adapt is not None


def drawn(fixed: FixedSamples, batch: Batch, task: Task) -> Batch:
    """Return the samples that a step replays; none in the first task."""
    index = fixed.replay[task.id, batch.index[0]]
    mask = jnp.broadcast_to(task.id > 0, index.shape)
    return Batch(index, fixed.labels[index, None], mask.astype(jnp.float32), mask)


def feed_replay(strategy: Strategy, fixed: FixedSamples) -> Strategy:
    """Return the strategy with replay of given samples."""
    return strategy._replace(draw=lambda memory, batch, task, key: drawn(fixed, batch, task))


def feed_logits(strategy: Strategy, fixed: FixedSamples) -> Strategy:
    """Return DER++ with given samples, the same for both terms as in Avalanche."""

    def draw(memory: PyTree, batch: Batch, task: Task, key: PRNGKeyArray) -> TwoDraws:
        one = drawn(fixed, batch, task)
        return TwoDraws(one, fixed.logits[one.index], one)

    return strategy._replace(draw=draw)


def feed_memory(strategy: Strategy, fixed: FixedSamples) -> Strategy:
    """Return GEM with a given memory."""

    def end_task(
        memory: Samples, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Samples, Learner]:
        index = fixed.held[task.id]
        new = Samples(index, fixed.labels[index, None], jnp.ones(index.shape, bool))
        return jax.tree.map(lambda tasks, one: tasks.at[task.id].set(one), memory, new), learner

    return strategy._replace(end_task=end_task)


def half_rate_after_first(setup: Setup) -> Setup:
    """Return the setup with half the rate from the second task on, which halves the loss."""
    return setup._replace(task_rate=lambda number: jnp.where(number == 0, 1.0, 0.5))


def rate_of_seen(setup: Setup) -> Setup:
    """Return the setup with the rate times the share of seen classes: a mean over all outputs."""
    return setup._replace(task_rate=lambda number: (number + 1.0) / TASKS)


NAIVE = Case("naive", "naive", naive)
CASES = (
    NAIVE,
    Case(
        "EWC",
        "EWC",
        lambda setup: ewc(setup, EWC_COEFFICIENT),
        {"ewc_lambda": EWC_COEFFICIENT / 2},
        "F = mean over batches of (mean gradient)², not the mean of squared gradients; λ, not λ/2",
        lambda setup: their_ewc(setup, EWC_COEFFICIENT, BATCH),
    ),
    Case(
        "online EWC",
        "EWC",
        lambda setup: ewc(setup, EWC_COEFFICIENT, online=True, decay=DECAY),
        {"ewc_lambda": EWC_COEFFICIENT / 2, "mode": "online", "decay_factor": DECAY},
        "as EWC",
        lambda setup: their_ewc(setup, EWC_COEFFICIENT, BATCH, online=True, decay=DECAY),
        only="steps",
    ),
    Case(
        "SI",
        "SI",
        lambda setup: si(setup, SI_COEFFICIENT, DAMPING),
        {"si_lambda": 2 * SI_COEFFICIENT, "eps": DAMPING},
        "on CPU old, new and anchored weights are views of the weights themselves: ω = 0 and "
        "θ − θ* = 0, which is plain finetuning",
        naive,
    ),
    Case(
        "SI, weights copied",
        "SI",
        lambda setup: si(setup, SI_COEFFICIENT, DAMPING),
        {"si_lambda": 2 * SI_COEFFICIENT, "eps": DAMPING, "copied": True},
        "Ω = min(Σ ω / (Δ² + ξ), 0.001), of either sign, not Σ max(ω, 0) / (Δ² + ξ); ω includes "
        "the penalty's gradient; λ/2, not c",
        lambda setup: their_si(setup, SI_COEFFICIENT, DAMPING),
        only="steps",
    ),
    Case(
        "MAS",
        "MAS",
        lambda setup: mas(setup, MAS_COEFFICIENT),
        {"lambda_reg": MAS_COEFFICIENT, "alpha": ALPHA},
        "Ω of a task = mean over batches of abs(∂ mean of ‖F‖²), not the mean of abs(∂‖F‖²); "
        "Ω ← α Ω + (1 − α) Ω of the task, not their sum",
        lambda setup: their_mas(setup, MAS_COEFFICIENT, BATCH, ALPHA),
    ),
    Case(
        "LwF",
        "LwF",
        lambda setup: lwf(setup, LWF_COEFFICIENT, TEMPERATURE),
        {"alpha": LWF_COEFFICIENT * TEMPERATURE**2, "temperature": TEMPERATURE},
        "only the scale: α KL, not λ T² KL",
    ),
    Case(
        "A-GEM",
        "A-GEM",
        lambda setup: agem(setup, EXEMPLARS),
        {"patterns_per_experience": HELD, "sample_size": BATCH},
        "(policy) equally many reference samples of every earlier task, in turn, in a fixed order",
        policy=lambda setup: their_agem(setup, TASKS, HELD),
        feed=feed_replay,
    ),
    Case(
        "GEM",
        "GEM",
        lambda setup: gem(setup, TASKS, HELD, MARGIN),
        {"patterns_per_experience": HELD, "memory_strength": MARGIN},
        "GGᵀ + 0.001 I in the program, not GGᵀ",
        lambda setup: their_gem(setup, TASKS, HELD, MARGIN),
        feed=feed_memory,
    ),
    Case(
        "ER",
        "replay",
        lambda setup: experience_replay(setup, CAPACITY),
        {"mem_size": CAPACITY},
        "(policy) the memory is renewed at a task's end, equally many samples of every task; "
        "replay passes through it in random order, 16 samples per step and 4 at the end of a pass",
        policy=lambda setup: their_replay(setup, CAPACITY, FIRST_CLASSES, EPOCH_STEPS, False),
        feed=feed_replay,
        own_loader=True,
    ),
    Case(
        "ER-ACE",
        "ER-ACE",
        lambda setup: er_ace(setup, CAPACITY),
        {"mem_size": CAPACITY, "batch_size_mem": BATCH},
        "half the loss from the second task on; (policy) the memory is renewed at a task's "
        "beginning with its own samples, equally many of every class; replay passes through it",
        adapt=half_rate_after_first,
        policy=lambda setup: their_replay(setup, CAPACITY, FIRST_CLASSES, EPOCH_STEPS, True),
        feed=feed_replay,
    ),
    Case(
        "DER++",
        "DER",
        lambda setup: der_plus_plus(setup, CAPACITY),
        {"mem_size": CAPACITY, "batch_size_mem": BATCH, "alpha": 0.1, "beta": 0.5},
        "(policy) one replayed batch, not two; the memory is renewed at a task's end, with the "
        "logits of then",
        policy=lambda setup: their_der(setup, CAPACITY, FIRST_CLASSES, 0.1, 0.5),
        feed=feed_logits,
        masked=False,
    ),
    Case(
        "GDumb",
        "GDumb",
        lambda setup: gdumb(setup, CAPACITY, GDUMB_EPOCHS, BATCH),
        {"mem_size": CAPACITY},
        "one rate for all epochs, not cosine cycles; the same initial weights every time",
        own_loader=True,
        epochs=GDUMB_EPOCHS,
        only="means",
    ),
    Case(
        "iCaRL",
        "iCaRL",
        lambda setup: icarl(setup, EXEMPLARS, classifier="nearest mean"),
        {"memory_size": EXEMPLARS},
        "the loss is the mean over all ten outputs, not over the seen classes",
        adapt=rate_of_seen,
        own_loader=True,
    ),
    Case(
        "streaming LDA",
        "streaming LDA",
        lambda setup: streaming_lda(setup, SHRINKAGE),
        {"shrinkage_param": SHRINKAGE},
    ),
)


def cases_of(comparison: Literal["steps", "means"], names: tuple[str, ...] = ()) -> list[Case]:
    """Return the cases of a comparison, those of the names if there are any."""
    return [
        case
        for case in CASES
        if case.only in (None, comparison) and (not names or case.name in names)
    ]
