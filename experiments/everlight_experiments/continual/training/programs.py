"""Programs of methods on a benchmark, which are built and costed without a run's folder."""

import dataclasses
from typing import Any

import jax

from everlight.continual import (
    Build,
    Protocol,
    Run,
    RunCost,
    SequenceResult,
    Setup,
    Strategy,
    TaskSequence,
    count_cost,
    initial_state,
    operations_per_step,
    run_sequence,
)
from everlight.continual.engine.updates import StrategyError
from everlight.continual.methods.method import Method, incompatibility
from everlight.continual.methods.registry import METHODS
from everlight_data.errors import DataError
from everlight_data.texts import one_line
from everlight_experiments.continual.benchmarks.benchmark import Benchmark, Training
from everlight_experiments.continual.benchmarks.run_data import RunData, SequenceId
from everlight_experiments.run_folder.compilation import release_programs

Builds = dict[tuple[str, str, Method], Build]
"""Build functions by prefix and program of benchmarks, and method."""


def saved_result(protocol: Protocol, result: SequenceResult) -> SequenceResult:
    """Return a run's result after a task without an optimizer's state that no later task reads."""
    if protocol.new_optimizer and protocol.boundaries:
        return result._replace(learner=result.learner._replace(opt_state=()))
    return result


def build_with(training: Training, method: Method) -> Build:
    """Return how the engine builds a method with a benchmark's training."""

    def build(data: RunData) -> tuple[Setup, Strategy]:
        setup, arguments = training.setup(method, data)
        return setup, method.make(
            setup, arguments._replace(hyperparameter=data.per_run.hyperparameter)
        )

    return build


def method_on(benchmark: Benchmark, method: Method) -> Method:
    """Return a method as commands and papers train it on a benchmark, with its grid there.

    Without task boundaries, a method that acts at the start or end of a task requires them.
    """
    grid = benchmark.selection.grids.get(method.name, method.hyperparameters)
    method = method._replace(hyperparameters=grid)
    # Methods that do not apply cannot be built.
    applies = incompatibility(method, benchmark.setting.capabilities) is None
    if not applies or benchmark.training.protocol(method).boundaries:
        return method
    if not MethodPrograms(benchmark).strategy(method).needs_boundaries:
        return method
    return method._replace(requirements=(*method.requirements, "task boundaries"))


@dataclasses.dataclass(frozen=True, eq=False)
class MethodPrograms:
    """Methods on a benchmark as the engine runs them, from the shapes of its first sequence."""

    benchmark: Benchmark
    builds: Builds = dataclasses.field(default_factory=dict)
    """Build functions, which identify compiled programs; all benchmarks of a command share them."""
    budget_steps: dict[Method, int] = dataclasses.field(default_factory=dict)
    """Steps per task of each method that a compute budget allows, counted once."""
    costs: dict[Method, RunCost] = dataclasses.field(default_factory=dict)
    """Costs of each method, counted once."""

    @property
    def tasks(self) -> int:
        """Number of tasks of the benchmark."""
        return len(self._sequence(METHODS["naive"]).tasks.id)

    def build(self, method: Method) -> Build:
        """Return the method's build function; a large process drops the programs of others."""
        others = any(other.strategy_key != method.strategy_key for *_, other in self.builds)
        if others and release_programs():
            self.builds.clear()
        # A row with the published hyper-parameter has the programs of its method.
        row = method._replace(name="", hyperparameters=(), published=None)
        key = self.benchmark.prefix, self.benchmark.training.program, row
        return self.builds.setdefault(key, build_with(self.benchmark.training, method))

    def strategy(self, method: Method) -> Strategy:
        """Return the strategy as runs have it, to see whether it can be built and what it needs."""
        return self.build(method)(self._data(method))[1]

    def arguments(self, method: Method, hyperparameter: float) -> dict[str, Any]:
        """Return the arguments of the method's function, for reports."""
        _, arguments = self.benchmark.training.setup(method, self._data(method))
        return method.arguments(arguments._replace(hyperparameter=hyperparameter))

    def cost(self, method: Method) -> RunCost:
        """Return costs, counted from shapes and from the step's program."""
        if method not in self.costs:
            self.costs[method] = count_cost(self.run(method))
        return self.costs[method]

    def saved_shapes(self, method: Method) -> SequenceResult:
        """Return the shapes and dtypes of the arrays that a run keeps after a task."""
        run = self.run(method)
        return saved_result(run.protocol, initial_state(run).result)

    def trace(self, method: Method) -> None:
        """Trace a whole run of a user's own strategy, so that its errors are known beforehand.

        Raises:
          DataError: a function of the strategy fails, or returns what the engine cannot use.
        """
        build = build_with(self.benchmark.training, method)
        try:
            jax.eval_shape(run_sequence, self._run(build, method, self.protocol(method)))
        except StrategyError as error:
            raise DataError(f"--strategy {method.name}: {one_line(error)}") from error

    def protocol(self, method: Method) -> Protocol:
        """Return the benchmark's protocol; online, only methods that act at boundaries get them."""
        protocol = self.benchmark.training.protocol(method)
        by_step = any("evaluation" in metric.axes for metric in self.benchmark.setting.metrics.all)
        if protocol.evaluate_steps and not by_step:
            raise DataError(
                f"--evaluate-steps: {self.benchmark.name} is evaluated only after tasks; leave it "
                "out"
            )
        if self.benchmark.training.compute_budget is not None:
            return self._budget_protocol(method, protocol)
        if self.benchmark.setting.name != "online" or self.strategy(method).needs_boundaries:
            return protocol
        return dataclasses.replace(protocol, boundaries=False)

    def _budget_protocol(self, method: Method, protocol: Protocol) -> Protocol:
        """Return one epoch of as many steps as the operations of a task's budget allow."""
        if method not in self.budget_steps:
            self.budget_steps[method] = self._steps_of_budget(method)
        steps = self.budget_steps[method]
        return dataclasses.replace(protocol, epochs=1, first_epochs=None, epoch_steps=steps)

    def _steps_of_budget(self, method: Method) -> int:
        """Return the steps per task that take the operations of the budget."""
        training = self.benchmark.training
        # Builds of their own: those of `build` lead to compiled programs.
        naive, run = (
            self._run(build_with(training, row), row, training.protocol(row))
            for row in (METHODS["naive"], method)
        )
        if run.setup_and_strategy()[1].memory_training is not None:
            raise DataError(
                f"--compute-budget counts training steps, and {method.name} trains before "
                "evaluations; leave one of them out"
            )
        # Joint training spends the budgets of all tasks at the last one.
        tasks = len(run.sequence.tasks.id) if method.label_setting == "joint" else 1
        relative = operations_per_step(naive) / operations_per_step(run)
        return max(1, int(self.benchmark.training.compute_budget * tasks * relative))

    def run(self, method: Method) -> Run:
        """Return the engine's argument for a run without a hyper-parameter."""
        return self._run(self.build(method), method, self.protocol(method))

    def _run(self, build: Build, method: Method, protocol: Protocol) -> Run:
        return Run(build, protocol, self._data(method), self._sequence(method), jax.random.key(0))

    def _sequence(self, method: Method) -> TaskSequence:
        return self.benchmark.data.sequence(method, SequenceId("evaluation", 0, 0))

    def _data(self, method: Method) -> RunData:
        return self.benchmark.run_data(method, self._sequence(method))
