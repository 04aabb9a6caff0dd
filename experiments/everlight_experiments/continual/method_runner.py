"""Training of one method on one benchmark: selection of its hyper-parameter, then every seed.

Finished seeds are read from the run folder.
"""

import dataclasses
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from jaxtyping import Float, Int

from everlight.base import Memory
from everlight.continual import (
    Build,
    Choice,
    Learner,
    Protocol,
    Run,
    RunCost,
    SequenceResult,
    Setup,
    Strategy,
    TaskSequence,
    choose_hyperparameter,
    count_cost,
    fixed_hyperparameter,
    initial_state,
    operations_per_step,
    replayed_per_step,
    run_sequence,
)
from everlight.continual.engine.updates import StrategyError
from everlight.continual.methods.method import Method, why_not
from everlight.continual.methods.registry import METHODS
from everlight_data.errors import DataError
from everlight_data.formats.files import one_line
from everlight_data.images.inputs.as_inputs import naming_files
from everlight_data.runs.checkpoints import Checkpoints
from everlight_experiments.continual.benchmark import Benchmark, RunData, SequenceId, Trained, Use
from everlight_experiments.continual.outcome import Outcome, measured
from everlight_experiments.continual.train_runs import (
    DIVERGED_AT,
    Unit,
    has_diverged,
    train_units,
)
from everlight_experiments.continual.validation_tasks import refuse_unscored
from everlight_experiments.run_folder.compilation import release_programs
from everlight_experiments.run_folder.folder import RunFolder

NETS = "models"
"""Folder of the networks that a run keeps."""
CHECKPOINT_OVERHEAD_BYTES = 85_000
"""Bytes of a checkpoint in addition to its arrays, as measured."""


class Net(NamedTuple):
    """The kept parts of a run after a task: learner without optimizer state, and memory."""

    learner: Learner
    memory: Memory


def net_of(result: SequenceResult) -> Net:
    """Return the network as it is evaluated."""
    return Net(result.learner._replace(opt_state=()), result.memory)


def nets_folder(run: Path, part: str, setting: str, method: Method, order: int) -> Path:
    """Return the folder of a run's networks, each a checkpoint with its task's number, from 0."""
    return run / NETS / part / setting / method.label / str(order)


def build_with(benchmark: Benchmark, method: Method) -> Build:
    """Return how the engine builds a method on a benchmark."""

    def build(data: RunData) -> tuple[Setup, Strategy]:
        setup, needs = benchmark.begin(method, data)
        return setup, method.make(setup, needs._replace(hyperparameter=data.per_run.hyperparameter))

    return build


def row_on(benchmark: Benchmark, method: Method) -> Method:
    """Return a method's row on a benchmark, with its grid there.

    Without task boundaries, a method that acts at the start or end of a task demands them.
    """
    row = benchmark.row(method)
    # Methods that do not apply cannot be built; a benchmark with pretraining cannot yet.
    unknown = benchmark.prepare is not None or why_not(row, benchmark.capabilities) is not None
    if unknown or benchmark.protocol(row).boundaries:
        return row
    if not Runner(None, benchmark, 0).strategy(row).needs_boundaries:
        return row
    return row._replace(demands=(*row.demands, "task boundaries"))


@dataclasses.dataclass(frozen=True, eq=False)
class Runner:
    """Trains methods on a benchmark's sequences; finished runs are read back."""

    folder: RunFolder | None
    benchmark: Benchmark
    seed: int
    validation_seeds: int = 1
    keep_nets: bool = False
    builds: dict[tuple[str, str, Method], Build] = dataclasses.field(default_factory=dict)
    """Build functions of one method at a time, which identify its compiled programs."""
    budget_steps: dict[Method, int] = dataclasses.field(default_factory=dict)
    """Steps per task of each method that a compute budget allows, counted once."""

    def _name(self, label: str) -> str:
        """Return the name of a unit of this benchmark."""
        return f"{self.benchmark.part}-{label}" if self.benchmark.part else label

    def outcome(self, method: Method, seeds: int) -> Outcome:
        """Train a method on evaluation seeds; validation seeds select its hyper-parameter."""
        choice = self.choose(method)
        runs = self._train_draws(method, "evaluation", [choice.hyperparameter], seeds)
        metrics = measured(self.benchmark.metrics, runs)
        score = metrics[self.benchmark.score]
        names = self._named(method, "evaluation", [choice.hyperparameter], seeds)
        for (name, *_), over_time in zip(names, score, strict=True):
            self.folder.log(unit=name, over_time=over_time)
        _, needs = self.benchmark.begin(method, self._data(method))
        settings = method.arguments(needs._replace(hyperparameter=choice.hyperparameter))
        if settings:
            label = self._name(f"{self.benchmark.setting}-{method.label}")
            self.folder.record_method_arguments(label, settings)
        tasks = score.shape[1]
        steps, stored = (
            np.stack([_padded(run.arrays.get(name, np.zeros(0, int)), tasks) for run in runs])
            for name in ("steps", "stored_samples")
        )
        samples = np.stack([_padded(_sizes(run.sequence), tasks) for run in runs])
        if method.label_setting == "incremental joint":
            # Its sequence has the samples of earlier tasks among each task's own.
            new = np.stack([_sizes(self._sequence(METHODS["naive"], n)) for n in range(seeds)])
            samples, stored = new, samples - new
        return Outcome(
            self.benchmark.score,
            metrics,
            np.stack([run.arrays[DIVERGED_AT] for run in runs]),
            steps,
            stored,
            samples,
            np.array([run.arrays["seconds"] for run in runs]),
            self.cost(method),
            choice,
            settings,
            replayed_per_step(self.run(method)),
            self.benchmark.learning_rate(method),
            self.protocol(method).boundaries,
        )

    def check(self, method: Method) -> None:
        """Check what can be known of a method before anything is trained.

        Raises:
          DataError: there are no samples on which a hyper-parameter is selected.
        """
        if len(method.hyperparameters) > 1:
            self.check_validation(method)

    def check_validation(self, method: Method) -> None:
        """Check that a method can be scored on the validation seeds.

        Raises:
          DataError: there are no validation samples, or not so many tasks; or the method or the
            benchmark has no score after the first tasks.
        """
        self.benchmark.sequence(method, SequenceId("validation", self.seed, 0))
        refuse_unscored(self.benchmark, method, self.protocol(method).evaluate_every, self._tasks)

    def trace(self, method: Method) -> None:
        """Trace a whole run of a user's own strategy, so that its errors are known beforehand.

        Raises:
          DataError: a function of the strategy fails, or returns what the engine cannot use.
        """
        build, protocol = build_with(self.benchmark, method), self.benchmark.protocol(method)
        try:
            jax.eval_shape(run_sequence, self._run(build, method, protocol))
        except StrategyError as error:
            raise DataError(f"--strategy {method.name}: {one_line(error)}") from error

    def is_elsewhere(self, method: Method, seeds: int) -> bool:
        """Return whether other processes train all runs that a method needs next."""
        grid = method.hyperparameters if len(method.hyperparameters) > 1 else ()
        parts = ("validation", grid, self.validation_seeds), ("evaluation", (0.0,), seeds)
        states = (
            self.folder.all_claimed_by_others([name for name, _, _ in self._named(method, *part)])
            for part in parts
        )
        return next((held for held in states if held is not None), False)

    def choose(self, method: Method) -> Choice:
        """Return the method's hyper-parameter by the one selection rule."""
        hyperparameters = method.hyperparameters
        if len(hyperparameters) < 2:
            return fixed_hyperparameter(*hyperparameters)
        return choose_hyperparameter(hyperparameters, self.on_validation_seeds(method))

    def on_validation_seeds(self, method: Method) -> Float[np.ndarray, "s draws"]:
        """Return the criterion of each hyper-parameter and validation seed; NaN if it diverges."""
        hyperparameters = method.hyperparameters or (0.0,)
        runs = self._train_draws(method, "validation", hyperparameters, self.validation_seeds)
        criteria = [
            np.nan if has_diverged(run.arrays) else self.benchmark.select_by(run) for run in runs
        ]
        return np.reshape(criteria, (len(hyperparameters), -1))

    def build(self, method: Method) -> Build:
        """Return the method's build function; drop the programs of other methods to free memory."""
        if any(other.strategy_key != method.strategy_key for *_, other in self.builds):
            release_programs()
            self.builds.clear()
        # A row with the published hyper-parameter has the programs of its method.
        row = method._replace(name="", hyperparameters=(), published=None)
        key = self.benchmark.part, self.benchmark.program, row
        return self.builds.setdefault(key, build_with(self.benchmark, method))

    def strategy(self, method: Method) -> Strategy:
        """Return the strategy as runs have it, to see whether it can be built and what it needs."""
        return self.build(method)(self._data(method))[1]

    def cost(self, method: Method) -> RunCost:
        """Return costs, counted from shapes and from the step's program, and save them."""
        setting = self.benchmark.setting
        name = self._name(f"cost-{setting}-{method.label}")
        fingerprint = {"setting": setting, **self.benchmark.fingerprint(method)}

        def counted() -> dict[str, np.ndarray]:
            cost = count_cost(self.run(method))
            return {field: np.array(value) for field, value in cost._asdict().items()}

        costs = self.folder.computed(name, fingerprint, counted)
        return RunCost(**{key: np.asarray(x).item() for key, x in costs.items()})

    def net(self, method: Method) -> Net:
        """Return the shapes and dtypes of the arrays that a run keeps after a task."""
        return net_of(initial_state(self.run(method)).result)

    def protocol(self, method: Method) -> Protocol:
        """Return the benchmark's protocol; online, only methods that act at boundaries get them."""
        protocol = self.benchmark.protocol(method)
        by_step = any("evaluation" in metric.axes for metric in self.benchmark.metrics)
        if protocol.evaluate_steps and not by_step:
            raise DataError(
                f"--evaluate-steps: {self.benchmark.name} is evaluated only after tasks; leave it "
                "out"
            )
        if self.benchmark.compute_budget is not None:
            return self._within_budget(method, protocol)
        if self.benchmark.setting != "online" or self.strategy(method).needs_boundaries:
            return protocol
        return dataclasses.replace(protocol, boundaries=False)

    def _within_budget(self, method: Method, protocol: Protocol) -> Protocol:
        """Return one epoch of as many steps as the operations of a task's budget allow."""
        if method not in self.budget_steps:
            self.budget_steps[method] = self._steps_of_budget(method)
        steps = self.budget_steps[method]
        return dataclasses.replace(protocol, epochs=1, first_epochs=None, epoch_steps=steps)

    def _steps_of_budget(self, method: Method) -> int:
        """Return the steps per task that take the operations of the budget.

        Raises:
          DataError: the method trains before evaluations, not in steps.
        """
        # Builds of their own: those of `build` lead to compiled programs, one method's at a time.
        naive, run = (
            self._run(build_with(self.benchmark, row), row, self.benchmark.protocol(row))
            for row in (METHODS["naive"], method)
        )
        if run.build(run.data)[1].on_memory is not None:
            raise DataError(
                f"--compute-budget counts training steps, and {method.name} trains before "
                "evaluations; leave one of them out"
            )
        # Joint training spends the budgets of all tasks at the last one.
        tasks = len(run.sequence.tasks.id) if method.label_setting == "joint" else 1
        relative = operations_per_step(naive) / operations_per_step(run)
        return max(1, int(self.benchmark.compute_budget * tasks * relative))

    def run(self, method: Method) -> Run:
        """Return the engine's argument for a run without a hyper-parameter."""
        return self._run(self.build(method), method, self.protocol(method))

    def _run(self, build: Build, method: Method, protocol: Protocol) -> Run:
        return Run(
            build, protocol, self._data(method), self._sequence(method, 0), jax.random.key(0)
        )

    @property
    def _tasks(self) -> int:
        """Number of tasks of the benchmark."""
        return len(self._sequence(METHODS["naive"], 0).tasks.id)

    def _sequence(self, method: Method, number: int) -> TaskSequence:
        return self.benchmark.sequence(method, SequenceId("evaluation", self.seed, number))

    def _data(self, method: Method) -> RunData:
        per_run = self.benchmark.per_run_data(self._sequence(method, 0))
        return RunData(self.benchmark.shared(method), per_run)

    def _named(
        self, method: Method, use: Use, hyperparameters: Sequence[float], count: int
    ) -> Iterator[tuple[str, float, SequenceId]]:
        """Yield the name, hyper-parameter and sequence of every run."""
        for hyperparameter in hyperparameters:
            for number in range(count):
                seq_id = SequenceId(use, self.seed, number)
                label = f"{self.benchmark.setting}-{method.label}-{seq_id.order}"
                if use == "validation":
                    label = f"hyperparameter-{label}-{hyperparameter:g}"
                yield self._name(label), hyperparameter, seq_id

    def _train_draws(
        self, method: Method, use: Use, hyperparameters: Sequence[float], count: int
    ) -> list[Trained]:
        """Return all runs, trained now or read back."""
        benchmark, units, seq_ids = self.benchmark, [], []
        tasks, learned = self._tasks, None if use == "evaluation" else benchmark.validation_tasks
        for name, hyperparameter, seq_id in self._named(method, use, hyperparameters, count):
            ids = {"setting": benchmark.setting, "method": method.name, "order": seq_id.order}
            fingerprint = ids | {"hyperparameter": hyperparameter} | benchmark.fingerprint(method)
            if learned is not None:
                fingerprint["validation_tasks"] = learned
            sequence = benchmark.sequence(method, seq_id)
            purpose = (
                f"selecting {hyperparameter:g}" if use == "validation" else f"seed {seq_id.order}"
            )
            shown = f"{benchmark.setting}, {method.name}, {purpose}"
            data = benchmark.per_run_data(sequence, hyperparameter)
            units.append(Unit(name, fingerprint, sequence, seq_id.key, data, shown))
            seq_ids.append(seq_id)

        def keep(result: SequenceResult) -> dict[str, Any]:
            arrays = benchmark.keep(method, result)
            return {**arrays, "losses": result.losses, **result.usage._asdict()}

        def keep_net(unit: Unit, task: int, result: SequenceResult) -> None:
            place = benchmark.part, benchmark.setting, method, unit.fingerprint["order"]
            nets = Checkpoints(nets_folder(self.folder.path, *place), keep=tasks)
            nets.renew(task, net_of(result), unit.fingerprint)

        after_task = keep_net if self.keep_nets and use == "evaluation" else None
        shared = benchmark.shared(method)
        parts = (self.folder, units, self.build(method), self.protocol(method), shared, keep)
        if benchmark.store is None:
            options = {"one_by_one": benchmark.one_by_one}
            results = train_units(*parts, RunData, after_task, tasks=learned, **options)
        else:
            with naming_files(benchmark.store):
                announce = benchmark.store.announce
                results = train_units(*parts, RunData, after_task, announce, tasks=learned)
        logged = [event for event in self.folder.logged() if {"seconds", "unit"} <= event.keys()]
        took = {event["unit"]: event["seconds"] for event in logged}
        return [
            Trained(
                {**arrays, "seconds": np.array(took.get(unit.name) or np.nan)},
                unit.sequence,
                seq_id,
                tasks,
            )
            for arrays, unit, seq_id in zip(results, units, seq_ids, strict=True)
        ]


def _sizes(sequence: TaskSequence) -> Int[np.ndarray, "t"]:
    """Return the number of training samples of each task."""
    return np.sum(np.asarray(sequence.tasks.train.mask), axis=1)


def _padded(values: Int[np.ndarray, "some"], tasks: int) -> Int[np.ndarray, "t"]:
    """Pad the values of joint training, whose only task stands for the last one."""
    return np.pad(values, (tasks - len(values), 0))
