"""The one runner: a benchmark's methods on all seeds, trained once and read back afterwards."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from everlight.continual import (
    Batch,
    Build,
    Protocol,
    Run,
    SequenceResult,
    Setup,
    StoredImages,
    Strategy,
    TaskSequence,
    initial_state,
    operations_per_step,
)
from everlight.continual.registry import METHODS, Method
from everlight_data.images.as_inputs import naming_files
from everlight_experiments.common.compilation import release_programs
from everlight_experiments.common.many_runs import (
    DIVERGED_AT,
    Unit,
    has_diverged,
    train_units,
)
from everlight_experiments.common.run_folder import RunFolder
from everlight_experiments.continual.benchmark import (
    Arrays,
    Benchmark,
    Draw,
    RunData,
    Trained,
    Use,
)
from everlight_experiments.continual.kept_nets import Net, keeper, net_of
from everlight_experiments.continual.outcome import Cost, Outcome, measured
from everlight_experiments.continual.selection import (
    Choice,
    choose_hyperparameter,
    fixed_hyperparameter,
)


class Programs:
    """Build functions of one method at a time, by which compiled programs are found again."""

    def __init__(self):
        """Begin without any."""
        self._made: Any = None
        self._builds: dict[tuple[str, Method], Build] = {}

    def begin(self, method: Method) -> None:
        """Release the programs of another strategy; small ones of all would fill the memory."""
        if method.made != self._made:
            release_programs()
            self._builds.clear()
            self._made = method.made

    def build(self, benchmark: Benchmark, method: Method) -> Build:
        """Return how the engine builds the method."""
        # A row with the published hyper-parameter has the programs of its method.
        key = benchmark.program, method._replace(name="", hyperparameters=(), published=None)
        if key not in self._builds:
            self._builds[key] = build_with(benchmark, method)
        return self._builds[key]


def build_with(benchmark: Benchmark, method: Method) -> Build:
    """Return how the engine builds a method on a benchmark."""

    def build(data: RunData) -> tuple[Setup, Strategy]:
        setup, needs = benchmark.begin(method, data)
        return setup, method.make(setup, needs._replace(hyperparameter=data.own.hyperparameter))

    return build


def stored_images(shared: Any) -> StoredImages | None:
    """Return the images, or features, among the data of all runs; None where there are none."""
    parts = jax.tree.leaves(shared, is_leaf=are_images)
    return next((part for part in parts if are_images(part)), None)


def are_images(part: Any) -> bool:
    """Return whether a part of the data is `StoredImages`, which count as one leaf."""
    return isinstance(part, StoredImages)


class Runner:
    """Trains methods on a benchmark's sequences; finished runs are read back."""

    def __init__(
        self,
        folder: RunFolder | None,
        benchmark: Benchmark,
        seed: int,
        validation_seeds: int = 1,
        part: str = "",
        keep_nets: bool = False,
        programs: Programs | None = None,
    ):
        """Begin with a run's folder and seed.

        `part` begins the names of units and nets where a folder has several benchmarks; runners
        that are given the same `programs` share what is compiled.
        """
        self.benchmark, self.seed = benchmark, seed
        self._folder, self._part, self._prefix = folder, part, f"{part}-" if part else ""
        self._validation_seeds, self._keep_nets = validation_seeds, keep_nets
        self._programs = programs or Programs()
        self._costs: dict[tuple[Build, Protocol], Cost] = {}

    def outcome(self, method: Method, seeds: int) -> Outcome:
        """Train a method on evaluation seeds; validation seeds select its hyper-parameter."""
        self._programs.begin(method)
        choice = self.choose(method)
        runs = self.train(method, choice.hyperparameter, seeds)
        metrics = measured(self.benchmark.metrics, runs)
        score = metrics[self.benchmark.score]
        for (name, *_), over_time in zip(
            self._named(method, "evaluation", [choice.hyperparameter], seeds), score, strict=True
        ):
            self._folder.log(unit=name, over_time=over_time)
        settings = self._settings(method, choice.hyperparameter)
        if settings:
            self._folder.tell_method(
                f"{self._prefix}{self.benchmark.setting}-{method.label}", settings
            )
        tasks = score.shape[1]
        steps, stored = (
            np.stack([_padded(run.arrays.get(name, np.zeros(0, int)), tasks) for run in runs])
            for name in ("steps", "stored_samples")
        )
        samples = np.stack([_padded(_sizes(run.sequence), tasks) for run in runs])
        if method.setting == "incremental joint":
            # Its sequence has the samples of earlier tasks among each task's own.
            own = np.stack([_sizes(self._sequence(METHODS["naive"], n)) for n in range(seeds)])
            samples, stored = own, samples - own
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
            self._replayed(method),
        )

    def is_elsewhere(self, method: Method, seeds: int) -> bool:
        """Return whether other processes train all that is to be trained of a method next."""
        grid = method.hyperparameters if len(method.hyperparameters) > 1 else ()
        parts = ("validation", grid, self._validation_seeds), ("evaluation", (0.0,), seeds)
        found = (
            self._folder.are_elsewhere([name for name, _, _ in self._named(method, *part)])
            for part in parts
        )
        return next((held for held in found if held is not None), False)

    def choose(self, method: Method) -> Choice:
        """Return the method's hyper-parameter by the one selection rule."""
        hyperparameters = method.hyperparameters
        if len(hyperparameters) < 2:
            return fixed_hyperparameter(*hyperparameters)
        return choose_hyperparameter(hyperparameters, self.on_validation_seeds(method))

    def on_validation_seeds(self, method: Method) -> Float[np.ndarray, "s draws"]:
        """Return the criterion of each hyper-parameter and validation seed; NaN if it diverges."""
        hyperparameters = method.hyperparameters or (0.0,)
        runs = self._train(method, "validation", hyperparameters, self._validation_seeds)
        found = [
            np.nan if has_diverged(run.arrays) else self.benchmark.select_by(run) for run in runs
        ]
        return np.reshape(found, (len(hyperparameters), -1))

    def train(self, method: Method, hyperparameter: float, seeds: int) -> list[Trained]:
        """Return the method's runs on the evaluation sequences."""
        return self._train(method, "evaluation", [hyperparameter], seeds)

    def build(self, method: Method) -> Build:
        """Return how the engine builds the method."""
        return self._programs.build(self.benchmark, method)

    def strategy(self, method: Method) -> Strategy:
        """Return the strategy as runs have it, to see whether it can be built and what it needs."""
        return self.build(method)(self._data(method))[1]

    def cost(self, method: Method) -> Cost:
        """Return costs, counted from shapes and from the step's program."""
        key = self.build(method), self.protocol(method)
        if key not in self._costs:
            self._costs[key] = self._cost(method)
        return self._costs[key]

    def net(self, method: Method) -> Net:
        """Return shapes and dtypes of what is kept of a run after a task."""
        return net_of(initial_state(self.run(method)).result)

    def protocol(self, method: Method) -> Protocol:
        """Return the benchmark's protocol; online without boundaries if the method permits it."""
        protocol = self.benchmark.protocol(method)
        if self.benchmark.setting != "online" or self.strategy(method).needs_boundaries:
            return protocol
        return dataclasses.replace(protocol, boundaries=False)

    def run(self, method: Method) -> Run:
        """Return the engine's argument for a run without a hyper-parameter."""
        return Run(
            self.build(method),
            self.protocol(method),
            self._data(method),
            self._sequence(method, 0),
            jax.random.key(0),
        )

    def _sequence(self, method: Method, number: int) -> TaskSequence:
        return self.benchmark.sequence(method, Draw("evaluation", self.seed, number))

    def _data(self, method: Method) -> RunData:
        own = self.benchmark.own(self._sequence(method, 0))
        return RunData(self.benchmark.shared(method), own)

    def _settings(self, method: Method, hyperparameter: float) -> dict[str, Any]:
        _, needs = self.benchmark.begin(method, self._data(method))
        return method.settings(needs._replace(hyperparameter=hyperparameter))

    def _replayed(self, method: Method) -> int:
        strategy, run = self.strategy(method), self.run(method)
        if strategy.draw is None:
            return 0
        task = jax.tree.map(lambda leaf: leaf[0], run.sequence.tasks)
        index = jnp.zeros(run.protocol.batch_size, int)
        labels = jnp.zeros((len(index), task.train.labels.shape[-1]), int)
        given = Batch(index, labels, jnp.ones(len(index)), jnp.zeros(len(index), bool))
        memory = initial_state(run).result.memory
        found = jax.eval_shape(strategy.draw, memory, given, task, run.key)
        drawn = jax.tree.leaves(found, is_leaf=lambda part: isinstance(part, Batch))
        return sum(each.index.size for each in drawn if isinstance(each, Batch))

    def _cost(self, method: Method) -> Cost:
        """Return the cost unit, whose step is traced for it alone."""
        setting = self.benchmark.setting
        name = f"{self._prefix}cost-{setting}-{method.label}"
        facts = {"setting": setting, **self.benchmark.facts(method)}
        kept = self._folder.read_unit(name, facts)
        if kept is None:
            run = self.run(method)
            result, images = initial_state(run).result, stored_images(run.data.shared)
            kept = Cost(
                sum(leaf.size for leaf in jax.tree.leaves(result.learner.params)),
                self.strategy(method).parameter_copies,
                sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(result.memory)),
                0 if images is None else images.pieces.nbytes // len(images.pieces),
                run.protocol.batch_size,
                operations_per_step(run),
            )._asdict()
            # One of several processes is enough.
            if self._folder.claim_unit(name):
                self._folder.save_unit(name, facts, **{key: np.array(x) for key, x in kept.items()})
        return Cost(**{key: np.asarray(value).item() for key, value in kept.items()})

    def _named(
        self, method: Method, use: Use, hyperparameters: Sequence[float], count: int
    ) -> Iterator[tuple[str, float, Draw]]:
        """Yield the name, hyper-parameter and draw of every run."""
        for hyperparameter in hyperparameters:
            for number in range(count):
                draw = Draw(use, self.seed, number)
                label = f"{self.benchmark.setting}-{method.label}-{draw.order}"
                if use == "validation":
                    label = f"hyperparameter-{label}-{hyperparameter:g}"
                yield f"{self._prefix}{label}", hyperparameter, draw

    def _train(
        self, method: Method, use: Use, hyperparameters: Sequence[float], count: int
    ) -> list[Trained]:
        benchmark, units, draws = self.benchmark, [], []
        for name, hyperparameter, draw in self._named(method, use, hyperparameters, count):
            facts = {
                "setting": benchmark.setting,
                "method": method.name,
                "order": draw.order,
                "hyperparameter": hyperparameter,
            }
            sequence = benchmark.sequence(method, draw)
            own = benchmark.own(sequence, hyperparameter)
            of = f"selecting {hyperparameter:g}" if use == "validation" else f"seed {draw.order}"
            shown = f"{benchmark.setting}, {method.name}, {of}"
            facts |= benchmark.facts(method)
            units.append(Unit(name, facts, sequence, draw.key, own, shown))
            draws.append(draw)
        kept = self._train_units(method, units, use)
        took = {
            event["unit"]: event["seconds"]
            for event in self._folder.logged()
            if "seconds" in event and "unit" in event
        }
        tasks = len(self._sequence(METHODS["naive"], 0).tasks.id)
        return [
            Trained(
                {**arrays, "seconds": np.array(took.get(unit.name) or np.nan)},
                unit.sequence,
                draw,
                method,
                tasks,
            )
            for arrays, unit, draw in zip(kept, units, draws, strict=True)
        ]

    def _train_units(self, method: Method, units: Sequence[Unit], use: Use) -> list[Arrays]:
        benchmark = self.benchmark

        def keep(result: SequenceResult) -> dict[str, Any]:
            kept = benchmark.keep(method, result)
            return {**kept, "losses": result.losses, **result.usage._asdict()}

        after_task = None
        if self._keep_nets and use == "evaluation":
            after_task = keeper(self._folder.path, self._part, benchmark.setting, method)
        parts = (
            self._folder,
            units,
            self.build(method),
            self.protocol(method),
            benchmark.shared(method),
            keep,
            RunData,
            after_task,
        )
        if benchmark.store is None:
            return train_units(*parts, one_by_one=benchmark.one_by_one)
        with naming_files(benchmark.store):
            return train_units(*parts, benchmark.store.announce)


def _sizes(sequence: TaskSequence) -> Int[np.ndarray, "t"]:
    """Return the number of training samples of each task."""
    return np.sum(np.asarray(sequence.tasks.train.mask), axis=1)


def _padded(values: Int[np.ndarray, "some"], tasks: int) -> Int[np.ndarray, "t"]:
    """Pad the values of joint training, whose only task stands for the last one."""
    return np.pad(values, (tasks - len(values), 0))
