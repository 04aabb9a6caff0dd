"""The one runner: any methods on a benchmark, all seeds through `train_units`."""

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from everlight.continual import (
    Batch,
    Build,
    Learner,
    Protocol,
    SequenceResult,
    Setup,
    StoredImages,
    Strategy,
    TaskSequence,
)
from everlight.continual.base import Memory
from everlight.continual.engine.run import Run
from everlight.continual.engine.sequence import initial_state, operations_per_step
from everlight_data.writing import amount
from everlight_experiments.common.checkpoint import Checkpoints
from everlight_experiments.common.compilation import release_programs
from everlight_experiments.common.many_runs import (
    DIVERGED_AT,
    AfterTask,
    Unit,
    has_diverged,
    refuse_diverged,
    train_units,
)
from everlight_experiments.common.run_folder import RunFolder
from everlight_experiments.common.streaming import naming_files
from everlight_experiments.continual.benchmark import (
    Arrays,
    Begin,
    Benchmark,
    Draw,
    RunData,
    Scores,
    Use,
)
from everlight_experiments.continual.methods import METHODS, Method, why_not
from everlight_experiments.continual.selection import (
    Choice,
    choose_hyperparameter,
    fixed_hyperparameter,
)

NETS = "models"
"""Folder of the nets that a run keeps."""
BESIDE = 85_000
"""Bytes that a checkpoint takes beside its arrays, as measured."""


class Cost(NamedTuple):
    """What does not depend on the run."""

    parameters: int
    parameter_copies: int
    """Held from the second task on, by the counting of the metrics' paper."""
    memory_bytes: int
    """Occupied by the strategy's memory."""
    sample_bytes: int
    """Of a sample as it is stored; 0 where images are streamed."""
    batch_size: int
    """Samples a step."""
    operations: float
    """Of one step, from its program's cost analysis."""


class Outcome(NamedTuple):
    """A method in a scenario; the first axis is over seeds."""

    over_time: Float[np.ndarray, "seeds t"]
    """The benchmark's measure on all learnt so far, after every task; NaN where the run diverged,
    or learns nothing before the last."""
    matrices: Float[np.ndarray, "seeds t t"]
    """The same by task, R[i, j] after task i on task j."""
    diverged_at: Int[np.ndarray, "seeds 2"]
    """Task and epoch; -1 and -1 where it did not."""
    steps: Int[np.ndarray, "seeds t"]
    """From the beginning to each task's end."""
    stored_samples: Int[np.ndarray, "seeds t"]
    """Of earlier tasks, held while each is learnt."""
    samples: Int[np.ndarray, "seeds t"]
    """That each task trains on."""
    seconds: Float[np.ndarray, "seeds"]
    """Of training and evaluation, the first with compilation; NaN where that is not known."""
    by_type: Mapping[str, Float[np.ndarray, "seeds"]]
    """The measure in the end by type of classes, where the benchmark has types."""
    cost: Cost
    choice: Choice
    settings: Mapping[str, Any] = {}
    """That the strategy is made with, the chosen hyperparameter among them."""
    drawn: int = 0
    """Samples from memory that every step learns beside its own."""

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """All that was measured, under plain names."""
        *own, by_type, cost, choice, _, _ = self
        by_type = {f"in the end, {kind}": values for kind, values in by_type.items()}
        return dict(zip(self._fields, own, strict=False)) | {
            **by_type,
            **cost._asdict(),
            **choice._asdict(),
        }

    @property
    def final(self) -> Float[np.ndarray, "seeds"]:
        """After the last task, on all."""
        return self.over_time[:, -1]

    @property
    def diverged(self) -> int:
        """How many runs did."""
        return int(np.sum(self.diverged_at[:, 0] >= 0))


Outcomes = Mapping[str, Mapping[str, Outcome]]
"""By scenario and method."""


def build_with(begin: Begin, scenario: str, method: Method) -> Build:
    """How the engine builds a method from what a benchmark gives it."""

    def build(data: RunData) -> tuple[Setup, Strategy]:
        setup, needs = begin(scenario, method, data)
        return setup, method.make(setup, needs._replace(hyperparameter=data.own.hyperparameter))

    return build


class Net(NamedTuple):
    """What is kept of a run after a task; of the learner all but the optimizer's state."""

    learner: Learner
    memory: Memory


def net_of(result: SequenceResult) -> Net:
    """The net as it is evaluated."""
    return Net(result.learner._replace(opt_state=()), result.memory)


def stored_images(shared: Any) -> StoredImages | None:
    """The images, or features, among what all runs of a method share; None where none are."""
    parts = jax.tree.leaves(shared, is_leaf=are_images)
    return next((part for part in parts if are_images(part)), None)


def are_images(part: Any) -> bool:
    """Whether a part of the data is `StoredImages`, which count as one leaf."""
    return isinstance(part, StoredImages)


def nets_folder(run: Path, part: str, scenario: str, method: Method, order: int) -> Path:
    """Where a run's nets are, each a checkpoint whose number is that of its task, from 0."""
    return run / NETS / part / scenario / method.label / str(order)


class Runner:
    """Trains methods on a benchmark's sequences; what was trained before is read back."""

    def __init__(
        self,
        folder: RunFolder,
        benchmark: Benchmark,
        seed: int,
        tuning_draws: int = 1,
        part: str = "",
        keep_nets: bool = False,
    ):
        """Of a run's seed; `part` begins the names of units and nets where a folder has several."""
        self.benchmark, self.seed = benchmark, seed
        self._folder, self._part, self._prefix = folder, part, f"{part}-" if part else ""
        self._tuning_draws, self._keep_nets = tuning_draws, keep_nets
        self._builds: dict[tuple[str, Method], Build] = {}
        self._costs: dict[tuple[Build, Protocol], Cost] = {}
        self._made: tuple | None = None

    def outcome(self, scenario: str, method: Method, seeds: int) -> Outcome:
        """The method's runs on the reported draws, its hyperparameter chosen on others."""
        if method.made != self._made:
            # Programs of other strategies are of no use to the next one; small ones of all are.
            release_programs()
            self._builds.clear()
            self._made = method.made
        choice = self.choose(scenario, method)
        units = self._units(scenario, method, "reported", [choice.hyperparameter], seeds)
        kept = self._train(scenario, method, units, "reported")
        found = [
            self._scores(scenario, arrays, unit) for arrays, unit in zip(kept, units, strict=True)
        ]
        for unit, scores in zip(units, found, strict=True):
            self._folder.log(unit=unit.name, over_time=scores.over_time)
        settings = self._settings(scenario, method, choice.hyperparameter)
        if settings:
            self._folder.tell_method(f"{self._prefix}{scenario}-{method.label}", settings)
        tasks = len(found[0].over_time)
        steps, stored = (
            np.stack([_padded(arrays.get(name, np.zeros(0, int)), tasks) for arrays in kept])
            for name in ("steps", "stored_samples")
        )
        samples = np.stack([_padded(_sizes(unit.sequence), tasks) for unit in units])
        if method.setting == "incremental joint":
            # Its sequence has the samples of earlier tasks among each task's own.
            own = np.stack([self._own_sizes(scenario, number) for number in range(seeds)])
            samples, stored = own, samples - own
        return Outcome(
            np.stack([each.over_time for each in found]),
            np.stack([each.matrix for each in found]),
            np.stack([arrays[DIVERGED_AT] for arrays in kept]),
            steps,
            stored,
            samples,
            np.array([arrays["seconds"] for arrays in kept]),
            self._by_type(kept, units),
            self.cost(scenario, method),
            choice,
            settings,
            self._drawn(scenario, method),
        )

    def _own_sizes(self, scenario: str, number: int) -> Int[np.ndarray, "t"]:
        draw = Draw("reported", self.seed, number)
        return _sizes(self.benchmark.sequence(scenario, METHODS["naive"], draw))

    def is_elsewhere(self, scenario: str, method: Method, seeds: int) -> bool:
        """Whether other processes are at all that is to be trained of a method next."""
        grid = method.hyperparameters if len(method.hyperparameters) > 1 else ()
        parts = ("tuning", grid, self._tuning_draws), ("reported", (0.0,), seeds)
        found = (
            self._folder.are_elsewhere(
                [name for name, _, _ in self._drawn_units(scenario, method, *part)]
            )
            for part in parts
        )
        return next((held for held in found if held is not None), False)

    def choose(self, scenario: str, method: Method) -> Choice:
        """The method's hyperparameter by the one rule."""
        hyperparameters = method.hyperparameters
        if len(hyperparameters) < 2:
            return fixed_hyperparameter(*hyperparameters)
        return choose_hyperparameter(hyperparameters, self.on_unreported(scenario, method))

    def on_unreported(self, scenario: str, method: Method) -> Float[np.ndarray, "s draws"]:
        """Metric of each hyperparameter on each validation seed; NaN where it diverges."""
        hyperparameters = method.hyperparameters or (0.0,)
        units = self._units(scenario, method, "tuning", hyperparameters, self._tuning_draws)
        kept = self._train(scenario, method, units, "tuning")
        found = [
            np.nan
            if has_diverged(arrays)
            else self.benchmark.judge(scenario, arrays, unit.sequence)
            for arrays, unit in zip(kept, units, strict=True)
        ]
        return np.reshape(found, (len(hyperparameters), -1))

    def train(
        self, scenario: str, method: Method, hyperparameter: float, seeds: int
    ) -> list[Arrays]:
        """What the method's runs on the reported draws keep.

        Raises:
          DivergedRunError: which did, and where.
        """
        units = self._units(scenario, method, "reported", [hyperparameter], seeds)
        kept = self._train(scenario, method, units, "reported")
        refuse_diverged(units, kept)
        return kept

    def build(self, scenario: str, method: Method) -> Build:
        """How the engine builds the method."""
        # A row of the published hyperparameter has the programs of its method.
        where = "" if self.benchmark.one_program else scenario
        asked = where, method._replace(name="", hyperparameters=(), published=None)
        if asked not in self._builds:
            self._builds[asked] = build_with(self.benchmark.begin, scenario, method)
        return self._builds[asked]

    def data(self, scenario: str, method: Method, draw: Draw) -> RunData:
        """Data of a run without a hyperparameter."""
        benchmark = self.benchmark
        own = benchmark.own(scenario, benchmark.sequence(scenario, method, draw))
        return RunData(benchmark.shared(scenario, method), own)

    def strategy(self, scenario: str, method: Method) -> Strategy:
        """As it is built for the runs, to see whether that can be done and what it needs."""
        data = self.data(scenario, method, Draw("reported", self.seed, 0))
        return self.build(scenario, method)(data)[1]

    def _settings(self, scenario: str, method: Method, hyperparameter: float) -> dict[str, Any]:
        draw = Draw("reported", self.seed, 0)
        _, needs = self.benchmark.begin(scenario, method, self.data(scenario, method, draw))
        return method.settings(needs._replace(hyperparameter=hyperparameter))

    def _drawn(self, scenario: str, method: Method) -> int:
        strategy = self.strategy(scenario, method)
        if strategy.draw is None:
            return 0
        run = self._run(scenario, method)
        task = jax.tree.map(lambda leaf: leaf[0], run.sequence.tasks)
        index = jnp.zeros(run.protocol.batch_size, int)
        labels = jnp.zeros((len(index), task.train.labels.shape[-1]), int)
        given = Batch(index, labels, jnp.ones(len(index)), jnp.zeros(len(index), bool))
        memory = initial_state(run).result.memory
        found = jax.eval_shape(strategy.draw, memory, given, task, run.key)
        drawn = jax.tree.leaves(found, is_leaf=lambda part: isinstance(part, Batch))
        return sum(each.index.size for each in drawn if isinstance(each, Batch))

    def cost(self, scenario: str, method: Method) -> Cost:
        """Counted from shapes and from the step's program."""
        build, protocol = self.build(scenario, method), self.protocol(scenario, method)
        if (build, protocol) not in self._costs:
            self._costs[build, protocol] = self._cost(scenario, method)
        return self._costs[build, protocol]

    def _cost(self, scenario: str, method: Method) -> Cost:
        """A unit of its own: the step is traced for it alone."""
        name = f"{self._prefix}cost-{scenario}-{method.label}"
        facts = {"scenario": scenario, **self.benchmark.facts(scenario, method)}
        kept = self._folder.read_unit(name, facts)
        if kept is None:
            run = self._run(scenario, method)
            result, images = initial_state(run).result, stored_images(run.data.shared)
            kept = Cost(
                sum(leaf.size for leaf in jax.tree.leaves(result.learner.params)),
                self.strategy(scenario, method).parameter_copies,
                sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(result.memory)),
                0 if images is None else images.pieces.nbytes // len(images.pieces),
                self.protocol(scenario, method).batch_size,
                operations_per_step(run),
            )._asdict()
            # Of several processes one is enough.
            if self._folder.claim_unit(name):
                self._folder.save_unit(name, facts, **{key: np.array(x) for key, x in kept.items()})
        return Cost(**{key: np.asarray(value).item() for key, value in kept.items()})

    def net(self, scenario: str, method: Method) -> Net:
        """Shapes and dtypes of what is kept of a run after a task."""
        return net_of(initial_state(self._run(scenario, method)).result)

    def tell_size(self, rows: Sequence[Method], seeds: int) -> None:
        """Says, before any is trained, what the nets take that are kept."""
        if not self._keep_nets:
            return
        needed = sum(
            seeds * self._nets_bytes(scenario, method)
            for scenario in self.benchmark.scenarios
            for method in rows
            if why_not(method, self.benchmark.offers(scenario)) is None
        )
        print(
            f"--keep-nets: about {amount(needed)} in all, in "
            f"{self._folder.path / NETS / self._part}",
            flush=True,
        )

    def _nets_bytes(self, scenario: str, method: Method) -> int:
        """Of all nets of a run, about."""
        draw = Draw("reported", self.seed, 0)
        tasks = self.benchmark.sequence(scenario, method, draw).tasks.id.shape[0]
        net = jax.tree.leaves(self.net(scenario, method))
        return tasks * (BESIDE + sum(leaf.size * leaf.dtype.itemsize for leaf in net))

    def protocol(self, scenario: str, method: Method) -> Protocol:
        """The benchmark's; online without boundaries for methods that can do without."""
        protocol = self.benchmark.protocol(scenario, method)
        if scenario != "online" or self.strategy(scenario, method).needs_boundaries:
            return protocol
        return dataclasses.replace(protocol, boundaries=False)

    def _run(self, scenario: str, method: Method) -> Run:
        """A run without a hyperparameter."""
        draw = Draw("reported", self.seed, 0)
        return Run(
            self.build(scenario, method),
            self.protocol(scenario, method),
            self.data(scenario, method, draw),
            self.benchmark.sequence(scenario, method, draw),
            jax.random.key(0),
        )

    def _units(
        self,
        scenario: str,
        method: Method,
        use: Use,
        hyperparameters: Sequence[float],
        count: int,
    ) -> list[Unit]:
        """Of every hyperparameter and draw."""
        benchmark, units = self.benchmark, []
        for name, hyperparameter, draw in self._drawn_units(
            scenario, method, use, hyperparameters, count
        ):
            facts = {
                "scenario": scenario,
                "method": method.name,
                "order": draw.order,
                "hyperparameter": hyperparameter,
            }
            sequence = benchmark.sequence(scenario, method, draw)
            of = f"selecting {hyperparameter:g}" if use == "tuning" else f"seed {draw.order}"
            units.append(
                Unit(
                    name,
                    facts | benchmark.facts(scenario, method),
                    sequence,
                    draw.key,
                    benchmark.own(scenario, sequence, hyperparameter),
                    f"{scenario}, {method.name}, {of}",
                )
            )
        return units

    def _drawn_units(
        self,
        scenario: str,
        method: Method,
        use: Use,
        hyperparameters: Sequence[float],
        count: int,
    ) -> Iterator[tuple[str, float, Draw]]:
        """Name, hyperparameter and draw of each."""
        for hyperparameter in hyperparameters:
            for number in range(count):
                draw = Draw(use, self.seed, number)
                label = f"{scenario}-{method.label}-{draw.order}"
                name = f"hyperparameter-{label}-{hyperparameter:g}" if use == "tuning" else label
                yield f"{self._prefix}{name}", hyperparameter, draw

    def _train(
        self, scenario: str, method: Method, units: Sequence[Unit], use: Use
    ) -> list[Arrays]:
        """What the runs keep, and the seconds that they took."""
        kept = self._train_units(scenario, method, units, use)
        took = {
            event["unit"]: event["seconds"]
            for event in self._folder.logged()
            if "seconds" in event and "unit" in event
        }
        return [
            {**arrays, "seconds": np.array(took.get(unit.name) or np.nan)}
            for arrays, unit in zip(kept, units, strict=True)
        ]

    def _train_units(
        self, scenario: str, method: Method, units: Sequence[Unit], use: Use
    ) -> list[Arrays]:
        benchmark = self.benchmark

        def keep(result: SequenceResult) -> dict[str, Any]:
            kept = benchmark.keep(scenario, method, result)
            return {**kept, "losses": result.losses, **result.usage._asdict()}

        parts = (
            self._folder,
            units,
            self.build(scenario, method),
            self.protocol(scenario, method),
            benchmark.shared(scenario, method),
            keep,
        )
        store, after_task = benchmark.store, self._keeper(scenario, method, use)
        if store is None:
            return train_units(*parts, RunData, after_task, one_by_one=benchmark.one_by_one)
        with naming_files(store):
            return train_units(*parts, RunData, after_task, store.announce)

    def _keeper(self, scenario: str, method: Method, use: Use) -> AfterTask | None:
        """Writes the nets of reported runs where they are to be kept, each once."""
        if not self._keep_nets or use == "tuning":
            return None

        def keep(unit: Unit, task: int, result: SequenceResult) -> None:
            tasks = unit.sequence.tasks.id.shape[0]
            order = unit.facts["order"]
            path = nets_folder(self._folder.path, self._part, scenario, method, order)
            Checkpoints(path, keep=tasks).renew(task, net_of(result), unit.facts)

        return keep

    def _by_type(
        self, kept: Sequence[Arrays], units: Sequence[Unit]
    ) -> dict[str, Float[np.ndarray, "seeds"]]:
        if self.benchmark.by_type is None:
            return {}
        found = [
            {}
            if has_diverged(arrays)
            else self.benchmark.by_type(Draw("reported", self.seed, number), arrays, unit.sequence)
            for number, (arrays, unit) in enumerate(zip(kept, units, strict=True))
        ]
        kinds = dict.fromkeys(kind for each in found for kind in each)
        return {kind: np.array([each.get(kind, np.nan) for each in found]) for kind in kinds}

    def _scores(self, scenario: str, arrays: Arrays, unit: Unit) -> Scores:
        sequence = unit.sequence
        if not has_diverged(arrays):
            return self.benchmark.scores(scenario, arrays, sequence)
        tasks = sequence.tasks.id.shape[0]
        return Scores(np.full(tasks, np.nan), np.full((tasks, tasks), np.nan))


def _sizes(sequence: TaskSequence) -> Int[np.ndarray, "t"]:
    """Samples that each task trains on."""
    return np.sum(np.asarray(sequence.tasks.train.mask), axis=1)


def _padded(values: Int[np.ndarray, "some"], tasks: int) -> Int[np.ndarray, "t"]:
    """What learns everything as one task took it all at the last."""
    return np.pad(values, (tasks - len(values), 0))
