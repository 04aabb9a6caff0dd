"""The methods that are compared, and how the same is said to both sides."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray, PyTree

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
from everlight.continual.base import Batch, Learner, Outputs, Samples, Task
from everlight.continual.strategies.der_plus_plus import TwoDraws
from everlight_experiments.bench.agreement_material import (
    BATCH,
    CLASSES,
    HELD,
    PER_CLASS,
    TASKS,
    Fed,
)
from everlight_experiments.bench.avalanche_equations import (
    their_agem,
    their_der,
    their_ewc,
    their_gem,
    their_mas,
    their_replay,
    their_si,
)

EXEMPLARS = HELD * TASKS // CLASSES
"""Of every class; a memory that classes share holds a hundred."""
CAPACITY = EXEMPLARS * CLASSES
EPOCH_STEPS = PER_CLASS * CLASSES // TASKS // BATCH
TEMPERATURE = 2.0
GDUMB_EPOCHS = 16
EWC_STRENGTH = 100.0
SI_STRENGTH = 1.0
MAS_STRENGTH = 0.1
LWF_STRENGTH = 1.0
DAMPING = 1e-3
MARGIN = 0.5
DECAY = 0.9
ALPHA = 0.5
SHRINKAGE = 1e-2


class Case(NamedTuple):
    """A method on both sides."""

    name: str
    ours: Callable[[Setup, Fed], Strategy]
    method: str
    """Avalanche's."""
    settings: Mapping[str, object] = MappingProxyType({})
    """Avalanche's, that mean the same."""
    differs: str = ""
    """What is different in Avalanche where nothing is put in, as an equation."""
    equated: Callable[[Setup, Fed], Strategy] | None = None
    """Ours with that put in; None where it is settings of the run that express it, or nothing."""
    adapt: Callable[[Setup], Setup] | None = None
    """What settings of the run express of it."""
    masked: bool = True
    """Whether Avalanche's head leaves out classes not seen so far, as everlight's loss does."""
    fed: bool = True
    """Whether Avalanche takes the batches of everlight's run, or draws its own."""
    epochs: int | None = None
    """Avalanche's, where they are not everlight's."""
    own_batches: bool = False
    """Whether these hang on what the method holds."""


def drawn(fed: Fed, batch: Batch, task: Task) -> Batch:
    """What the step replays; nothing in the first task."""
    index = fed.replay[task.id, batch.index[0]]
    there = jnp.broadcast_to(task.id > 0, index.shape)
    return Batch(index, fed.labels[index, None], there.astype(jnp.float32), there)


def fed_draw(strategy: Strategy, fed: Fed) -> Strategy:
    """The strategy that replays what it is given."""
    return strategy._replace(draw=lambda memory, batch, task, key: drawn(fed, batch, task))


def fed_draws(strategy: Strategy, fed: Fed) -> Strategy:
    """DER++ that replays the same samples for both terms, as Avalanche does."""

    def draw(memory: PyTree, batch: Batch, task: Task, key: PRNGKeyArray) -> TwoDraws:
        one = drawn(fed, batch, task)
        return TwoDraws(one, fed.logits[one.index], one)

    return strategy._replace(draw=draw)


def fed_memory(strategy: Strategy, fed: Fed) -> Strategy:
    """GEM that holds what it is given."""

    def end_task(
        memory: Samples, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Samples, Learner]:
        index = fed.held[task.id]
        new = Samples(index, fed.labels[index, None], jnp.ones(index.shape, bool))
        return jax.tree.map(lambda every, one: every.at[task.id].set(one), memory, new), learner

    return strategy._replace(end_task=end_task)


def over_all_outputs(setup: Setup) -> Setup:
    """The loss over all outputs, of classes not seen too."""
    loss = setup.objective.loss

    def of_all(outputs: Outputs, labels: Int[Array, "b k"], seen: Array) -> Float[Array, "b"]:
        return loss(outputs, labels, jnp.ones_like(seen))

    return setup._replace(objective=setup.objective._replace(loss=of_all))


def half_rate_after_first(setup: Setup) -> Setup:
    """Half of the rate from the second task on, as half of the loss takes."""
    return setup._replace(task_rate=lambda number: jnp.where(number == 0, 1.0, 0.5))


def rate_of_seen(setup: Setup) -> Setup:
    """The rate times the share of seen classes, as a mean over all outputs takes."""
    return setup._replace(task_rate=lambda number: (number + 1.0) / TASKS)


NAIVE = Case("naive", lambda setup, fed: naive(setup), "naive")
REGULARISED = (
    Case(
        "EWC",
        lambda setup, fed: ewc(setup, EWC_STRENGTH),
        "EWC",
        {"ewc_lambda": EWC_STRENGTH / 2},
        "F = mean over batches of (mean gradient)², not the mean of squared gradients; λ, not λ/2",
        lambda setup, fed: their_ewc(setup, EWC_STRENGTH, BATCH),
    ),
    Case(
        "online EWC",
        lambda setup, fed: ewc(setup, EWC_STRENGTH, online=True, decay=DECAY),
        "EWC",
        {"ewc_lambda": EWC_STRENGTH / 2, "mode": "online", "decay_factor": DECAY},
        "as EWC",
        lambda setup, fed: their_ewc(setup, EWC_STRENGTH, BATCH, online=True, decay=DECAY),
    ),
    Case(
        "SI",
        lambda setup, fed: si(setup, SI_STRENGTH, DAMPING),
        "SI",
        {"si_lambda": 2 * SI_STRENGTH, "eps": DAMPING},
        "on CPU old, new and anchored weights are views of the weights themselves: ω = 0 and "
        "θ − θ* = 0, which is plain finetuning",
        lambda setup, fed: naive(setup),
    ),
    Case(
        "SI, weights copied",
        lambda setup, fed: si(setup, SI_STRENGTH, DAMPING),
        "SI",
        {"si_lambda": 2 * SI_STRENGTH, "eps": DAMPING, "copied": True},
        "Ω = min(Σ ω / (Δ² + ξ), .001), of either sign, not Σ max(ω, 0) / (Δ² + ξ); ω with the "
        "penalty's gradient in it; λ/2, not c",
        lambda setup, fed: their_si(setup, SI_STRENGTH, DAMPING),
    ),
    Case(
        "MAS",
        lambda setup, fed: mas(setup, MAS_STRENGTH),
        "MAS",
        {"lambda_reg": MAS_STRENGTH, "alpha": ALPHA},
        "Ω of a task = mean over batches of abs(∂ mean of ‖F‖²), not the mean of abs(∂‖F‖²); "
        "Ω ← α Ω + (1 − α) Ω of the task, not their sum",
        lambda setup, fed: their_mas(setup, MAS_STRENGTH, BATCH, ALPHA),
    ),
    Case(
        "LwF",
        lambda setup, fed: lwf(setup, LWF_STRENGTH, TEMPERATURE),
        "LwF",
        {"alpha": LWF_STRENGTH * TEMPERATURE**2, "temperature": TEMPERATURE},
        "none but the scale: α KL, not λ T² KL",
    ),
)
ICARL = Case(
    "iCaRL",
    lambda setup, fed: icarl(setup, EXEMPLARS, classifier="nearest mean"),
    "iCaRL",
    {"memory_size": EXEMPLARS},
    "the loss is the mean over all ten outputs, not over the seen classes",
    adapt=rate_of_seen,
)
LDA = Case(
    "streaming LDA",
    lambda setup, fed: streaming_lda(setup, SHRINKAGE),
    "streaming LDA",
    {"shrinkage_param": SHRINKAGE},
)
STEP_CASES = (
    NAIVE,
    *REGULARISED,
    Case(
        "A-GEM, the same reference",
        lambda setup, fed: fed_draw(agem(setup, EXEMPLARS), fed),
        "A-GEM",
        {"patterns_per_experience": HELD, "sample_size": BATCH},
    ),
    Case(
        "GEM, the same memory",
        lambda setup, fed: fed_memory(gem(setup, TASKS, HELD, MARGIN), fed),
        "GEM",
        {"patterns_per_experience": HELD, "memory_strength": MARGIN},
        "GGᵀ + .001 I in the program, not GGᵀ",
        lambda setup, fed: fed_memory(their_gem(setup, TASKS, HELD, MARGIN), fed),
    ),
    Case(
        "ER, the same replay",
        lambda setup, fed: fed_draw(experience_replay(setup, CAPACITY), fed),
        "replay",
        {"joined": True},
    ),
    Case(
        "ER-ACE, the same replay",
        lambda setup, fed: fed_draw(er_ace(setup, CAPACITY), fed),
        "ER-ACE",
        {"mem_size": CAPACITY, "batch_size_mem": BATCH},
        "half the loss from the second task on",
        adapt=half_rate_after_first,
    ),
    Case(
        "DER++, the same replay",
        lambda setup, fed: fed_draws(der_plus_plus(setup, CAPACITY), fed),
        "DER",
        {"mem_size": CAPACITY, "batch_size_mem": BATCH, "alpha": 0.1, "beta": 0.5},
        "the softmax over all ten outputs, not over the seen classes; one replayed batch, not two",
        adapt=over_all_outputs,
        masked=False,
    ),
    ICARL._replace(own_batches=True),
    LDA,
)
MEAN_CASES = (
    NAIVE,
    # Online EWC differs as EWC does, and SI with copied weights is not what a CPU runs.
    *(case for case in REGULARISED if case.name not in ("online EWC", "SI, weights copied")),
    Case(
        "A-GEM",
        lambda setup, fed: agem(setup, EXEMPLARS),
        "A-GEM",
        {"patterns_per_experience": HELD, "sample_size": BATCH},
        "as many reference samples of every earlier task, in turn in a fixed order, not drawn",
        lambda setup, fed: their_agem(setup, TASKS, HELD),
    ),
    Case(
        "GEM",
        lambda setup, fed: gem(setup, TASKS, HELD, MARGIN),
        "GEM",
        {"patterns_per_experience": HELD, "memory_strength": MARGIN},
        "GGᵀ + .001 I in the program, not GGᵀ",
        lambda setup, fed: their_gem(setup, TASKS, HELD, MARGIN),
    ),
    Case(
        "ER-balanced",
        lambda setup, fed: experience_replay(setup, CAPACITY),
        "replay",
        {"mem_size": CAPACITY},
        "the memory is renewed at a task's end, as many samples of every task; what is replayed "
        "goes through it in random order, the last of a pass of 100 being 4, not 16",
        lambda setup, fed: their_replay(
            setup, CAPACITY, CLASSES // TASKS, EPOCH_STEPS, at_beginning=False
        ),
        fed=False,
    ),
    Case(
        "ER-ACE",
        lambda setup, fed: er_ace(setup, CAPACITY),
        "ER-ACE",
        {"mem_size": CAPACITY, "batch_size_mem": BATCH},
        "half the loss from the second task on; the memory is renewed at a task's beginning with "
        "its own samples, as many of every class; what is replayed goes through it in random order",
        lambda setup, fed: their_replay(
            setup, CAPACITY, CLASSES // TASKS, EPOCH_STEPS, at_beginning=True
        ),
        adapt=half_rate_after_first,
    ),
    Case(
        "DER++",
        lambda setup, fed: der_plus_plus(setup, CAPACITY),
        "DER",
        {"mem_size": CAPACITY, "batch_size_mem": BATCH, "alpha": 0.1, "beta": 0.5},
        "the softmax over all ten outputs; one replayed batch, not two; the memory is renewed at a "
        "task's end, with the logits of then, as many samples of every class",
        lambda setup, fed: their_der(setup, CAPACITY, CLASSES // TASKS, 0.1, 0.5),
        adapt=over_all_outputs,
        masked=False,
    ),
    Case(
        "GDumb",
        lambda setup, fed: gdumb(setup, CAPACITY, GDUMB_EPOCHS, BATCH),
        "GDumb",
        {"mem_size": CAPACITY},
        "one rate for all epochs, not cosine cycles; the same initial weights every time",
        fed=False,
        epochs=GDUMB_EPOCHS,
    ),
    ICARL._replace(fed=False),
    LDA,
)
