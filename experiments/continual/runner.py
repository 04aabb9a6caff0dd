"""The one runner: any methods on a benchmark, all seeds through `train_units`."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int, PRNGKeyArray

from everlight.continual import (
    Build,
    Protocol,
    SequenceResult,
    Setup,
    StoredImages,
    Strategy,
    flax_setup,
    online_protocol,
    softmax_objective,
)
from experiments.common.many_runs import DIVERGED_AT, Unit, has_diverged, train_units
from experiments.common.run_folder import RunFolder
from experiments.continual.benchmark import Benchmark, Use
from experiments.continual.methods import METHODS, Method, Needs, Scenario
from experiments.continual.own_strategy import OwnStrategy
from experiments.continual.plan import TUNING_SEED, StrategiesRun
from experiments.continual.selection import Choice, choose_strength


class Own(NamedTuple):
    """What differs between the runs of a method."""

    class_task: Int[Array, "c"]
    strength: Float[Array, ""]


class RunData(NamedTuple):
    """What a compiled sequence gets as its data; other values compile nothing."""

    images: StoredImages
    own: Own


class Outcome(NamedTuple):
    """A method in a scenario; the first axis is over seeds."""

    matrices: Float[np.ndarray, "seeds t t"]
    """Accuracies, R[i, j] after task i on task j; NaN where the run diverged."""
    diverged_at: Int[np.ndarray, "seeds 2"]
    """Task and epoch; -1 and -1 where it did not."""
    steps: Int[np.ndarray, "seeds t"]
    """From the beginning to each task's end."""
    stored_samples: Int[np.ndarray, "seeds t"]
    """Of earlier tasks, held while each is learnt."""
    seconds: Float[np.ndarray, "seeds"]
    """Of training and evaluation, the first with compilation; NaN where that is not known."""
    choice: Choice

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """All of it under plain names."""
        *own, choice = self._asdict().items()
        return {**dict(own), **choice[1]._asdict()}

    @property
    def final(self) -> Float[np.ndarray, "seeds"]:
        """Mean accuracy on all tasks after the last."""
        return self.matrices[:, -1].mean(axis=1)

    @property
    def diverged(self) -> int:
        """How many runs did."""
        return int(np.sum(self.diverged_at[:, 0] >= 0))


Outcomes = Mapping[Scenario, Mapping[str, Outcome]]


def rows_of(settings: StrategiesRun, own: Sequence[OwnStrategy]) -> dict[str, Method]:
    """The methods asked for, in the table's order, naive among them, and the user's own."""
    asked = {*(METHODS if settings.methods is None else settings.methods), "naive"}
    rows = {name: method for name, method in METHODS.items() if name in asked}
    return rows | {each.name: each.method for each in own}


class Runner:
    """Trains methods on a benchmark's orders; what was trained before is read back."""

    def __init__(
        self,
        folder: RunFolder,
        benchmark: Benchmark,
        settings: StrategiesRun,
        own: Sequence[OwnStrategy] = (),
    ):
        self._folder, self._benchmark, self._settings = folder, benchmark, settings
        self._facts = benchmark.facts
        self._versions = {each.name: f"{each.name}@{each.version}" for each in own}

    def outcome(self, scenario: Scenario, name: str, method: Method) -> Outcome:
        """The method's runs on the reported orders, its strength chosen on the others."""
        build = self.build(scenario, method)
        protocol = self._protocol(scenario, method)
        first = self._settings.seed

        def unit(use: Use, number: int, strength: float) -> Unit:
            order = number + first + (TUNING_SEED if use == "tuning" else 0)
            sequence = self._benchmark.sequence(order, use)
            label = f"{scenario}-{self._versions.get(name, name)}-{order}"
            facts = {"scenario": scenario, "method": name, "order": order, "strength": strength}
            return Unit(
                f"strength-{label}-{strength:g}" if use == "tuning" else label,
                facts | self._facts,
                sequence,
                _numbered_key(order - number, number),
                Own(sequence.class_task, jnp.float32(strength)),
            )

        def train(units: list[Unit]) -> list[dict[str, np.ndarray]]:
            shared = self._benchmark.stored
            return train_units(
                self._folder, units, build, protocol, shared, _keep(scenario), RunData
            )

        orders = range(self._settings.tuning_orders)
        tuning = train(
            [unit("tuning", number, value) for value in method.strengths for number in orders]
        )
        finals = np.array([_matrix(arrays)[-1].mean() for arrays in tuning])
        choice = choose_strength(
            method.strengths, finals.reshape(len(method.strengths), len(orders))
        )
        seeds = range(self._settings.seeds)
        units = [unit("reported", number, choice.strength) for number in seeds]
        kept = train(units)
        # Programs of other strategies are of no use to the next one.
        jax.clear_caches()
        took = {event["unit"]: event["seconds"] for event in self._folder.logged()}
        return Outcome(
            np.stack([_matrix(arrays) for arrays in kept]),
            *(
                np.stack([arrays[field] for arrays in kept])
                for field in (DIVERGED_AT, "steps", "stored_samples")
            ),
            np.array([took.get(unit.name, np.nan) for unit in units]),
            choice,
        )

    def build(self, scenario: Scenario, method: Method) -> Build:
        """How the engine builds the method for the benchmark's net."""
        benchmark, plan = self._benchmark, self._benchmark.plan
        net = benchmark.net(method.trains, method.head)

        def build(data: RunData) -> tuple[Setup, Strategy]:
            group = data.own.class_task if scenario == "told" else None
            setup = flax_setup(net, data.images, softmax_objective(group), benchmark.optimizer)
            needs = Needs(
                strength=data.own.strength,
                reach=benchmark.reach,
                tasks=plan.tasks,
                classes=benchmark.classes,
                exemplars=plan.exemplars,
                layers=benchmark.layers if method.trains == "net" else (),
                class_group=group,
            )
            return setup, method.make(setup, needs)

        return build

    def strategy(self, scenario: Scenario, method: Method) -> Strategy:
        """As it is built for the runs, to see whether that can be done and what it needs."""
        nothing = Own(jnp.zeros(self._benchmark.classes, int), jnp.float32(1))
        return self.build(scenario, method)(RunData(self._benchmark.stored, nothing))[1]

    def _protocol(self, scenario: Scenario, method: Method) -> Protocol:
        plan = self._benchmark.plan
        if scenario != "online":
            return Protocol(epochs=plan.epochs, batch_size=plan.batch_size, select="last")
        if self.strategy(scenario, method).needs_boundaries:
            return Protocol(epochs=1, batch_size=plan.online_batch, select="last")
        return online_protocol(plan.online_batch)


def _numbered_key(first: int, number: int) -> PRNGKeyArray:
    """The key of a numbered order, however many there are."""
    return jax.random.split(jax.random.key(first), number + 1)[number]


def _keep(scenario: Scenario) -> Callable[[SequenceResult], dict[str, Array]]:
    def keep(result: SequenceResult) -> dict[str, Array]:
        told, not_told = result.evaluation.task_aware, result.evaluation.class_incremental
        return {
            "matrix": told if scenario == "told" else not_told,
            "losses": result.losses,
            **result.usage._asdict(),
        }

    return keep


def _matrix(arrays: dict[str, np.ndarray]) -> Float[np.ndarray, "t t"]:
    matrix = arrays["matrix"]
    return np.full_like(matrix, np.nan) if has_diverged(arrays) else matrix
