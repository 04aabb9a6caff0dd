"""The one table of strategies: how each is made, its strengths, and what it needs."""

from collections.abc import Callable
from typing import Literal, NamedTuple

from jaxtyping import Array, Float, Int

from everlight.continual import (
    Setup,
    Strategy,
    agem,
    bic,
    cumulative,
    cwr,
    der_plus_plus,
    er_ace,
    ewc,
    experience_replay,
    expert_gate,
    gdumb,
    gem,
    hat,
    icarl,
    imm,
    joint,
    lucir,
    lwf,
    mas,
    naive,
    nearest_mean,
    packnet,
    ranpac,
    reservoir_replay,
    si,
    streaming_lda,
)
from everlight.models.heads import HeadKind

Scenario = Literal["told", "not told", "online"]
SCENARIOS: tuple[Scenario, ...] = ("told", "not told", "online")
"""The test tells the task; it does not; it does not, and every sample comes once."""
Trains = Literal["net", "head"]


class Needs(NamedTuple):
    """What a strategy is made from beside the setup."""

    strength: Float[Array, ""]
    """Of its penalty, where it has one."""
    reach: float
    """The optimizer's rate, divided by 1 − m with momentum m: for implicit steps on penalties."""
    tasks: int
    """Of the sequence."""
    classes: int
    exemplars: int
    """Of every class, where it keeps any; a reservoir has as many in all."""
    layers: tuple[str, ...]
    """Of the net below its head, in order."""
    class_group: Int[Array, "c"] | None
    """The head of each class, where every task has one; None is one head."""

    @property
    def capacity(self) -> int:
        """Of a memory that is not divided by classes."""
        return self.exemplars * self.classes


class Method(NamedTuple):
    """A row of the table."""

    make: Callable[[Setup, Needs], Strategy]
    strengths: tuple[float, ...] = ()
    """From which one is chosen; none where there is nothing to choose."""
    trains: Trains = "net"
    """The whole net, or a head over what a frozen trunk gives (or over the inputs)."""
    head: HeadKind = "linear"
    scenarios: tuple[Scenario, ...] = SCENARIOS
    """In which it makes sense."""
    hidden: bool = False
    """Whether the net must have layers below its head."""


# Penalties are followed by implicit steps, which no strength of a grid makes diverge.
METHODS: dict[str, Method] = {
    "naive": Method(lambda setup, needs: naive(setup)),
    "cumulative": Method(lambda setup, needs: cumulative(setup)),
    "joint": Method(lambda setup, needs: joint(setup, needs.tasks)),
    "EWC": Method(
        lambda setup, needs: ewc(setup, needs.strength, implicit_rate=needs.reach),
        (100, 1e3, 1e4, 1e5, 1e6),
    ),
    "online EWC": Method(
        lambda setup, needs: ewc(setup, needs.strength, online=True, implicit_rate=needs.reach),
        (100, 1e3, 1e4, 1e5, 1e6),
    ),
    "SI": Method(
        lambda setup, needs: si(setup, needs.strength, implicit_rate=needs.reach),
        (0.01, 0.1, 1, 10, 100),
    ),
    "MAS": Method(
        lambda setup, needs: mas(setup, needs.strength, implicit_rate=needs.reach),
        (0.01, 0.1, 1, 10, 100),
    ),
    "LwF": Method(
        lambda setup, needs: lwf(
            setup,
            needs.strength,
            class_group=needs.class_group,
            groups=1 if needs.class_group is None else needs.tasks,
        ),
        (0.3, 1, 3, 10),
    ),
    "IMM mean": Method(
        lambda setup, needs: imm(setup, "mean", needs.strength, implicit_rate=needs.reach),
        (1e-3, 1e-2, 1e-1, 1),
    ),
    "IMM mode": Method(
        lambda setup, needs: imm(setup, "mode", needs.strength, implicit_rate=needs.reach),
        (1e-3, 1e-2, 1e-1, 1),
    ),
    "ER": Method(lambda setup, needs: experience_replay(setup, needs.exemplars)),
    "ER, reservoir": Method(lambda setup, needs: reservoir_replay(setup, needs.capacity)),
    "DER++": Method(lambda setup, needs: der_plus_plus(setup, needs.capacity)),
    "ER-ACE": Method(lambda setup, needs: er_ace(setup, needs.capacity)),
    "GDumb": Method(lambda setup, needs: gdumb(setup, needs.capacity, epochs=64)),
    "A-GEM": Method(lambda setup, needs: agem(setup, needs.exemplars)),
    "GEM": Method(lambda setup, needs: gem(setup, needs.tasks, needs.capacity // needs.tasks)),
    "iCaRL": Method(lambda setup, needs: icarl(setup, needs.exemplars, classifier="nearest mean")),
    "LUCIR": Method(
        lambda setup, needs: lucir(setup, needs.exemplars, strength=needs.strength),
        (0.5, 1, 2, 5),
        head="cosine",
    ),
    "BiC": Method(lambda setup, needs: bic(setup, needs.exemplars, loss="softmax")),
    "ExpertGate": Method(
        lambda setup, needs: expert_gate(
            setup, needs.tasks, lambda inputs: inputs.reshape(inputs.shape[0], -1), hidden=16
        )
    ),
    "PackNet": Method(lambda setup, needs: packnet(setup), scenarios=("told",), hidden=True),
    "HAT": Method(
        lambda setup, needs: hat(setup, needs.tasks, needs.layers),
        scenarios=("told",),
        hidden=True,
    ),
    "CWR": Method(lambda setup, needs: cwr(setup, 1.0), trains="head"),
    "streaming LDA": Method(
        lambda setup, needs: streaming_lda(setup, needs.strength),
        (1e-4, 1e-3, 1e-2, 1e-1),
        trains="head",
    ),
    "nearest mean": Method(lambda setup, needs: nearest_mean(setup), trains="head"),
    "RanPAC": Method(
        lambda setup, needs: ranpac(setup, 1000, needs.strength),
        (1e2, 1e3, 1e4, 1e5),
        trains="head",
    ),
}
