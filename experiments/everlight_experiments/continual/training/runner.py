"""Training of one method on one benchmark: selection of its hyper-parameter, then every seed.

Finished seeds are read from the run folder.
"""

import dataclasses
import math
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from everlight.continual import (
    Choice,
    Run,
    RunCost,
    SequenceResult,
    SequenceState,
    TaskSequence,
    choose_hyperparameter,
    fixed_hyperparameter,
    initial_runs_state,
    replayed_per_step,
)
from everlight.continual.methods.method import Method
from everlight.continual.methods.registry import METHODS
from everlight_data.errors import DataError
from everlight_data.images.inputs.as_inputs import naming_files
from everlight_data.runs.checkpoints import Checkpoints
from everlight_experiments.continual.benchmarks.benchmark import Benchmark
from everlight_experiments.continual.benchmarks.run_data import RunData, SequenceId, TrainedRun, Use
from everlight_experiments.continual.training.continuation import CONTINUES, Continuation
from everlight_experiments.continual.training.hyperparameters import value_name
from everlight_experiments.continual.training.outcome import Outcome, compute_metrics
from everlight_experiments.continual.training.programs import MethodPrograms, saved_result
from everlight_experiments.continual.training.runs import (
    DIVERGED_AT,
    RunScore,
    SharedTraining,
    TrainingRun,
    has_diverged,
    train_runs,
)
from everlight_experiments.continual.training.trials import Trial, try_runs
from everlight_experiments.report.over_time import nan_before_only_task
from everlight_experiments.run_folder.folder import NETS, RunFolder
from everlight_experiments.run_folder.memory import refuse_large

CHECKPOINT_OVERHEAD_BYTES = 85_000
"""Bytes of a checkpoint in addition to its arrays, as measured."""


def nets_folder(run: Path, prefix: str, setting: str, method: Method, seed: int) -> Path:
    """Return the folder of a run's networks, each a checkpoint with its task's number, from 0."""
    return run / NETS / prefix / setting / method.label / str(seed)


class TrainingRunId(NamedTuple):
    """One of a method's runs."""

    name: str
    """Name of its part of the run folder."""
    hyperparameter: float
    sequence_id: SequenceId


class Stage(NamedTuple):
    """Runs of a method that are not finished: of its selection or of its evaluation."""

    use: Use
    run_ids: Sequence[TrainingRunId]


@dataclasses.dataclass(frozen=True, eq=False)
class Runner:
    """Trains methods on a benchmark's sequences; finished runs are read back."""

    folder: RunFolder
    programs: MethodPrograms
    seed: int
    validation_seeds: int
    keep_nets: bool = False
    continuation: Continuation | None = None
    titles_have_prefix: bool = True

    @property
    def benchmark(self) -> Benchmark:
        """The benchmark."""
        return self.programs.benchmark

    @property
    def _setting(self) -> str:
        return self.benchmark.setting.name

    def _name(self, label: str) -> str:
        """Return the name of a run of this benchmark."""
        return f"{self.benchmark.prefix}-{label}" if self.benchmark.prefix else label

    def outcome(self, method: Method, seeds: int) -> Outcome:
        """Train a method on evaluation seeds; validation seeds select its hyper-parameter."""
        choice = self.choose(method)
        runs = self._trained_runs(method, "evaluation", [choice.hyperparameter], seeds)
        metrics = compute_metrics(self.benchmark.setting.metrics.all, runs)
        self.benchmark.setting.metrics.refuse_other_than_shares(metrics)
        score = metrics[self.benchmark.score]
        arguments = self.programs.arguments(method, choice.hyperparameter)
        if arguments:
            label = self._name(f"{self._setting}-{method.label}")
            self.folder.record_method_arguments(label, arguments)
        tasks = score.shape[1]
        steps, stored = (
            np.stack([_pad_tasks(run.arrays.get(name, np.zeros(0, int)), tasks) for run in runs])
            for name in ("steps", "stored_samples")
        )
        run_ids = self._run_ids(method, "evaluation", [choice.hyperparameter], seeds)
        for run_id, over_time in zip(run_ids, nan_before_only_task(score, steps), strict=True):
            self.folder.log_part(run_id.name, over_time=over_time)
        samples = np.stack([_pad_tasks(_task_sizes(run.sequence), tasks) for run in runs])
        if method.label_setting == "incremental joint":
            # Its sequence has the samples of earlier tasks among each task's own.
            new = np.stack([_task_sizes(self._sequence(METHODS["naive"], n)) for n in range(seeds)])
            samples, stored = new, samples - new
        return Outcome(
            score=self.benchmark.score,
            metrics=metrics,
            diverged_at=np.stack([run.arrays[DIVERGED_AT] for run in runs]),
            steps=steps,
            stored_samples=stored,
            samples=samples,
            seconds=np.array([run.arrays["seconds"] for run in runs]),
            cost=self.cost(method),
            choice=choice,
            arguments=arguments,
            replayed=replayed_per_step(self.programs.run(method)),
            learning_rate=self.benchmark.training.learning_rate(method),
            boundaries=self.programs.protocol(method).boundaries,
        )

    def check(self, method: Method) -> None:
        """Check what can be known of a method before anything is trained.

        Raises:
          DataError: there are no samples on which a hyper-parameter is selected.
        """
        if method.selection_grid:
            self.check_validation(method)

    def check_validation(self, method: Method) -> None:
        """Check that a method can be scored on the validation seeds.

        Raises:
          DataError: there are no validation samples, or not so many tasks; or the method or the
            benchmark has no score after the first tasks.
        """
        self.benchmark.data.sequence(method, SequenceId("validation", self.seed, 0))
        name, selection, tasks = self.benchmark.name, self.benchmark.selection, self.programs.tasks
        count, interval = selection.validation_tasks, self.programs.protocol(method).evaluate_every
        if count is None:
            return
        option = f"--validation-tasks {count}"
        if count > tasks:
            raise DataError(f"{option}; {name} has {tasks} tasks, give {tasks} or less")
        if selection.criterion is not None and not selection.criterion.works_on_first_tasks:
            raise DataError(
                f"{option}: {name} selects by the {selection.criterion.name} after the last task; "
                "leave it out"
            )
        if count < tasks and count % interval:
            raise DataError(
                f"{option} ends without an evaluation; give a multiple of --evaluate-every "
                f"{interval}"
            )
        if count < tasks and method.label_setting == "joint":
            raise DataError(
                f"{option}: {method.name} learns all tasks at the last one; leave one of them out"
            )

    def is_elsewhere(self, method: Method, seeds: int) -> bool:
        """Return True if other processes train all runs that a method needs next."""
        for run_ids in (
            self._run_ids(method, "validation", method.selection_grid, self.validation_seeds),
            self._run_ids(method, "evaluation", (0.0,), seeds),
        ):
            held = self.folder.all_claimed_by_others([run_id.name for run_id in run_ids])
            if held is not None:
                return held
        return False

    def choose(self, method: Method) -> Choice:
        """Return the method's hyper-parameter; validation runs are trained if it has a grid."""
        criteria = self.validation_criteria(method) if method.selection_grid else None
        return choice_of(method, criteria)

    def validation_criteria(self, method: Method) -> Float[np.ndarray, "s draws"]:
        """Return the criterion of each hyper-parameter and validation seed; NaN if it diverges."""
        hyperparameters = method.hyperparameters or (0.0,)
        runs = self._trained_runs(method, "validation", hyperparameters, self.validation_seeds)
        criteria = [
            np.nan if has_diverged(run.arrays) else self.benchmark.select_by(run) for run in runs
        ]
        return np.reshape(criteria, (len(hyperparameters), -1))

    def cost(self, method: Method) -> RunCost:
        """Return the costs of a run, and save them."""
        name = self._name(f"cost-{self._setting}-{method.label}")
        fingerprint = {"setting": self._setting, **self.benchmark.fingerprint(method)}

        def cost_arrays() -> dict[str, np.ndarray]:
            cost = self.programs.cost(method)
            return {field: np.array(value) for field, value in cost._asdict().items()}

        costs = self.folder.computed(name, fingerprint, cost_arrays)
        return RunCost(**{key: np.asarray(x).item() for key, x in costs.items()})

    def _sequence(self, method: Method, number: int) -> TaskSequence:
        return self.benchmark.data.sequence(method, SequenceId("evaluation", self.seed, number))

    def _run_ids(
        self, method: Method, use: Use, hyperparameters: Sequence[float], count: int
    ) -> list[TrainingRunId]:
        """Return the runs of every hyper-parameter on so many sequences."""
        run_ids = []
        for hyperparameter in hyperparameters:
            for number in range(count):
                seq_id = SequenceId(use, self.seed, number)
                label = f"{self._setting}-{method.label}-{seq_id.seed}"
                if use == "validation":
                    label = f"hyperparameter-{label}-{value_name(hyperparameter)}"
                run_ids.append(TrainingRunId(self._name(label), hyperparameter, seq_id))
        return run_ids

    def _run(self, method: Method, run_id: TrainingRunId) -> TrainingRun:
        """Return a run with its fingerprint, sequence, key and data."""
        benchmark, seq_id = self.benchmark, run_id.sequence_id
        selects = seq_id.use == "validation"
        purpose = f"selecting {run_id.hyperparameter:g}" if selects else f"seed {seq_id.seed}"
        sequence = benchmark.data.sequence(method, seq_id)
        fingerprint = benchmark.run_fingerprint(method, seq_id, run_id.hyperparameter)
        if self.continuation is not None:
            fingerprint[CONTINUES] = self.continuation.fingerprint(method, seq_id.seed)
        return TrainingRun(
            name=run_id.name,
            fingerprint=fingerprint,
            sequence=sequence,
            key=seq_id.key,
            run_data=benchmark.per_run_data(sequence, run_id.hyperparameter, seq_id.seed),
            title=f"{self._setting}, {method.name}, {purpose}",
            method=self.title(method),
            sequence_id=seq_id,
        )

    def _trained_runs(
        self, method: Method, use: Use, hyperparameters: Sequence[float], count: int
    ) -> list[TrainedRun]:
        """Return all runs, trained now or read back."""
        benchmark = self.benchmark
        runs = [
            self._run(method, run_id)
            for run_id in self._run_ids(method, use, hyperparameters, count)
        ]

        def keep_net(run: TrainingRun, task: int, result: SequenceResult) -> None:
            seed = run.sequence_id.seed
            path = nets_folder(self.folder.path, benchmark.prefix, self._setting, method, seed)
            nets = Checkpoints(path, keep=self.programs.tasks)
            saved = saved_result(self.programs.protocol(method), result)
            nets.renew(task, saved, run.fingerprint)

        with self._naming_files():
            results = train_runs(
                self.folder,
                runs,
                self._training(method),
                after_task=keep_net if self.keep_nets and use == "evaluation" else None,
                tasks=None if use == "evaluation" else benchmark.selection.validation_tasks,
            )
        took = self.folder.seconds_of_parts()
        return [
            TrainedRun(
                {**arrays, "seconds": np.array(took.get(run.name) or np.nan)},
                run.sequence,
                run.sequence_id,
                self._task_count(run.sequence),
            )
            for arrays, run in zip(results, runs, strict=True)
        ]

    def _training(self, method: Method) -> SharedTraining:
        """Return programs and data of a method's runs."""
        benchmark = self.benchmark

        def keep(result: SequenceResult) -> dict[str, Any]:
            arrays = benchmark.training.keep(method, result)
            return {**arrays, "losses": result.losses, **result.usage._asdict()}

        def score(run: TrainingRun, arrays: dict[str, Any]) -> Float[np.ndarray, "t"]:
            tasks = self._task_count(run.sequence)
            trained = TrainedRun(arrays, run.sequence, run.sequence_id, tasks)
            return np.asarray(benchmark.setting.metrics.score.compute(trained))

        def start(run: TrainingRun) -> SequenceState:
            seed = run.sequence_id.seed
            result = self.continuation.result(method, seed)
            hyperparameter = run.run_data.hyperparameter
            data = benchmark.run_data(method, run.sequence, hyperparameter, seed)
            longer = Run(training.build, training.protocol, data, run.sequence, run.key)
            return self.continuation.state(longer, result)

        training = SharedTraining(
            build=self.programs.build(method),
            protocol=self.programs.protocol(method),
            shared=benchmark.data.shared(method),
            keep=keep,
            join=RunData,
            score=RunScore(benchmark.score, score),
            announce=None if benchmark.data.store is None else benchmark.data.store.announce,
            one_by_one=benchmark.training.one_by_one,
        )
        return training if self.continuation is None else training._replace(start=start)

    def _naming_files(self) -> AbstractContextManager:
        store = self.benchmark.data.store
        return nullcontext() if store is None else naming_files(store)

    def missing_stages(self, method: Method, seeds: int) -> list[Stage]:
        """Return the selection and the evaluation of a method, as far as they are not finished."""
        selection = self._missing_runs(
            method, "validation", method.selection_grid, self.validation_seeds
        )
        values = method.hyperparameters[:1] or (0.0,)
        return [*selection, *self._missing_runs(method, "evaluation", values, seeds)]

    def missing_criteria(self, method: Method) -> list[Stage]:
        """Return the runs of `validation_criteria`, as far as they are not finished."""
        values = method.hyperparameters or (0.0,)
        return self._missing_runs(method, "validation", values, self.validation_seeds)

    def _missing_runs(
        self, method: Method, use: Use, values: Sequence[float], count: int
    ) -> list[Stage]:
        """Return the runs that are not finished as a stage; an empty list if all are."""
        run_ids = self._run_ids(method, use, values, count)
        missing = [run_id for run_id in run_ids if not self.folder.has_part(run_id.name)]
        return [Stage(use, missing)] if missing else []

    def title(self, method: Method) -> str:
        """Return the name of a method's runs in lines on progress and estimates."""
        prefix = self.benchmark.prefix if self.titles_have_prefix else ""
        return ", ".join(filter(None, (prefix, self._setting, method.name)))

    def try_stage(self, method: Method, stage: Stage) -> Trial:
        """Compile the programs of a stage, and time them on some samples and epochs."""
        began = time.monotonic()
        training = self._training(method)
        size = training.group_size(len(stage.run_ids))
        group = [self._run(method, run_id) for run_id in stage.run_ids[:size]]
        mesh = training.group_mesh(len(group))
        limit = self.benchmark.selection.validation_tasks if stage.use == "validation" else None
        with self._naming_files():
            runs = training.runs_of(group)
            refuse_large(initial_runs_state(runs), "--net", "--buffer-size")
            prepared = time.monotonic() - began
            trial = try_runs(runs, mesh, limit, training.announce)
        seconds = prepared + trial.seconds * math.ceil(len(stage.run_ids) / size)
        return trial._replace(seconds=seconds)

    def _task_count(self, sequence: TaskSequence) -> int:
        """Return the number of tasks that a sequence's scores cover.

        CORe50's validation sequences have fewer batches than its evaluation. The only task of
        joint training in IIRC stands for all.
        """
        count = len(sequence.tasks.id)
        return self.programs.tasks if count == 1 else count


def choice_of(method: Method, criteria: Float[np.ndarray, "s draws"] | None) -> Choice:
    """Return a method's hyper-parameter by the one selection rule.

    Args:
      method: method with its grid.
      criteria: criterion of each hyper-parameter and validation seed; unused without a grid.
    """
    if not method.selection_grid:
        return fixed_hyperparameter(*method.hyperparameters)
    return choose_hyperparameter(method.selection_grid, criteria)


def _task_sizes(sequence: TaskSequence) -> Int[np.ndarray, "t"]:
    """Return the number of training samples of each task."""
    return np.sum(np.asarray(sequence.tasks.train.mask), axis=1)


def _pad_tasks(values: Int[np.ndarray, "some"], tasks: int) -> Int[np.ndarray, "t"]:
    """Pad the values of joint training, whose only task stands for the last one."""
    return np.pad(values, (tasks - len(values), 0))
