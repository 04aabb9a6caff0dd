"""Every strategy on split digits: five tasks of two, told and not told, and online in one pass.

    python -m experiments continual digits

No data needed: the digits ship with scikit-learn. All seeds of a strategy are one compiled program.
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from jaxtyping import Array, Float, Int

from data_pipelines.digits import load_digits
from data_pipelines.image_set import ImageSet
from everlight.continual import (
    Build,
    Protocol,
    Setup,
    StoredImages,
    Strategy,
    TaskSequence,
    flax_setup,
    online_protocol,
    run_sequence,
    softmax_objective,
)
from everlight.models import MLP
from everlight.scenarios import (
    class_incremental,
    equal_tasks,
    same_shapes,
    tested_on_validation,
)
from experiments.common.progress import progress
from experiments.common.report import write_report
from experiments.common.run_folder import RunFolder, as_json
from experiments.common.settings import Count, RunSettings, check_methods
from experiments.continual.digits_report import SCENARIOS, Cell, Scenario, report_sections
from experiments.continual.methods import METHODS, Method, Needs

TASKS, CLASSES = 5, 10
ONLINE_BATCH = 10
TUNING_SEED = 1_000
"""Task orders from here on choose strengths and are never reported."""


@dataclasses.dataclass(frozen=True)
class DigitsRun(RunSettings):
    """Every strategy on split digits: five tasks of two, told, not told, and online."""

    methods: tuple[str, ...] | None = None
    """Names of the table of methods, each in quotes; None is all. naive is always among them."""
    seeds: Count = 10
    """Runs of every strategy, each with its own order of classes."""
    epochs: Count = 10
    """Of a task, but for online learning, which is one pass."""
    batch_size: Count = 16
    """Samples a step; 10 online."""
    rate: float = 0.02
    """Of gradient descent."""
    momentum: float = 0.9
    """Of gradient descent."""
    hidden: Count = 100
    """Units of each of the net's two hidden layers."""
    exemplars: Count = 10
    """Of every class, where a method keeps any; a memory that classes share has as many in all."""
    tuning_orders: Count = 2
    """Unreported orders whose validation samples choose strengths."""


class DigitsData(NamedTuple):
    """What a compiled sequence gets as its data; other values compile nothing."""

    images: StoredImages
    class_task: Int[Array, "c"]
    strength: Float[Array, ""]


class Trainer:
    """Trains a method on all orders of a scenario as one program."""

    def __init__(self, settings: DigitsRun, images: ImageSet):
        """Prepares the orders that choose strengths and those that are reported."""
        self._settings, self._images = settings, images
        values = jnp.asarray(images.images[..., :1])
        train = values[: len(images.train_labels)]
        self._stored = StoredImages(values, jnp.mean(train)[None], jnp.std(train)[None])
        tuning = [
            tested_on_validation(self._sequence(TUNING_SEED + settings.seed + number))
            for number in range(settings.tuning_orders)
        ]
        reported = [self._sequence(settings.seed + number) for number in range(settings.seeds)]
        # Nothing is chosen by validation within a task, which would train GDumb's nets for it.
        every = [_not_validating(each) for each in same_shapes([*tuning, *reported])]
        self._tuning, self._reported = every[: len(tuning)], every[len(tuning) :]

    def train(self, scenario: Scenario, name: str) -> Cell:
        """The method's accuracies on the reported orders, its strength chosen on the others."""
        method, settings = METHODS[name], self._settings
        build = self._build(scenario, method)
        protocol = self._protocol(scenario, build)

        @jax.jit
        def program(sequences: TaskSequence, keys: Array, strength: Float[Array, ""]) -> Array:
            def one(sequence: TaskSequence, key: Array) -> Float[Array, "t t"]:
                data = DigitsData(self._stored, sequence.class_task, strength)
                result = run_sequence(build, protocol, data, sequence, key)
                told, not_told = result.evaluation.task_aware, result.evaluation.class_incremental
                matrix = told if scenario == "told" else not_told
                return jnp.where(jnp.all(jnp.isfinite(result.losses)), matrix, jnp.nan)

            return jax.lax.map(lambda pair: one(*pair), (sequences, keys))

        def accuracies(chosen: Sequence[TaskSequence], first: int, strength: float) -> np.ndarray:
            keys = jax.random.split(jax.random.key(first), len(chosen))
            stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *chosen)
            return np.asarray(program(stacked, keys, jnp.float32(strength)))

        def final(strength: float) -> float:
            last = accuracies(self._tuning, TUNING_SEED + settings.seed, strength)[:, -1]
            # An order that diverges counts as none right.
            return float(np.mean(np.nan_to_num(last)))

        tried = [final(strength) for strength in method.strengths]
        strength = method.strengths[int(np.argmax(tried))] if tried else 0.0
        matrices = accuracies(self._reported, settings.seed, strength)
        return Cell(matrices, np.array(method.strengths), np.array(tried), np.array(strength))

    def _sequence(self, seed: int) -> TaskSequence:
        order = np.random.default_rng(seed).permutation(CLASSES).tolist()
        images = self._images
        return class_incremental(
            images.train_labels, images.test_labels, equal_tasks(order, TASKS), CLASSES
        )

    def _build(self, scenario: Scenario, method: Method) -> Build:
        settings = self._settings
        hidden = 2 * (settings.hidden,) if method.trains == "net" else ()
        # So far does a constant gradient carry in the end, as implicit steps on penalties need it.
        reach = settings.rate / (1 - settings.momentum)
        net = MLP(CLASSES, hidden, method.head)

        def build(data: DigitsData) -> tuple[Setup, Strategy]:
            group = data.class_task if scenario == "told" else None
            objective = softmax_objective(group)
            optimizer = optax.sgd(settings.rate, momentum=settings.momentum)
            setup = flax_setup(net, data.images, objective, optimizer)
            needs = Needs(
                strength=data.strength,
                reach=reach,
                tasks=TASKS,
                classes=CLASSES,
                exemplars=settings.exemplars,
                layers=tuple(f"hidden{number + 1}" for number in range(len(hidden))),
                class_group=group,
            )
            return setup, method.make(setup, needs)

        return build

    def _length(self, scenario: Scenario) -> tuple[int, int]:
        """Epochs and samples a step."""
        settings = self._settings
        return (1, ONLINE_BATCH) if scenario == "online" else (settings.epochs, settings.batch_size)

    def _protocol(self, scenario: Scenario, build: Build) -> Protocol:
        epochs, size = self._length(scenario)
        strategy = build(DigitsData(self._stored, self._reported[0].class_task, jnp.float32(1)))[1]
        if scenario == "online" and not strategy.needs_boundaries:
            return online_protocol(size)
        return Protocol(epochs=epochs, batch_size=size, select="last")


def run_digits(settings: DigitsRun) -> Path:
    """Runs it all; returns the report's path.

    Raises:
      DataError: a method that there is not.
    """
    check_methods(settings.methods, METHODS)
    folder = RunFolder("continual", "digits", settings)
    images = load_digits()
    trainer = Trainer(settings, images)
    chosen = [name for name in METHODS if name in (*(settings.methods or METHODS), "naive")]
    asked = [
        (scenario, name)
        for scenario in SCENARIOS
        for name in chosen
        if scenario in METHODS[name].scenarios
    ]
    cells: dict[Scenario, dict[str, Cell]] = {scenario: {} for scenario in SCENARIOS}
    facts = as_json(dataclasses.asdict(settings))
    for left_out in ("methods", "runs"):
        del facts[left_out]
    with progress("continual digits", len(asked), 0, "result") as bar:
        for scenario, name in asked:
            unit, described = f"{scenario}-{name}", {**facts, "method": name, "for": scenario}
            arrays = folder.read_unit(unit, described)
            if arrays is None:
                arrays = trainer.train(scenario, name)._asdict()
                folder.save_unit(unit, described, **arrays)
                jax.clear_caches()
            cells[scenario][name] = Cell(**arrays)
            bar.update()
    folder.save_results(
        **{
            f"{scenario}/{name}/{field}": value
            for scenario, by_name in cells.items()
            for name, cell in by_name.items()
            for field, value in cell._asdict().items()
        }
    )
    summary = [
        (
            "Data",
            f"{images.name}: {len(images.train_labels):,} training images, a tenth of them for "
            f"validation, and {len(images.test_labels)} test images of 8×8 pixels; "
            f"{TASKS} tasks of two classes",
        ),
        (
            "Seeds",
            f"{settings.seeds} ({settings.seed} to {settings.seed + settings.seeds - 1}), each "
            "with an order of classes of its own; ± is the standard deviation over them",
        ),
        (
            "Selection rule",
            f"strengths: greatest final accuracy on the validation images of "
            f"{settings.tuning_orders} orders that are not reported; the last epoch is kept",
        ),
        (
            "Training",
            f"two hidden layers of {settings.hidden} units, gradient descent at "
            f"{settings.rate:g} with momentum {settings.momentum:g}; "
            f"{settings.epochs} epochs a task in steps of "
            f"{settings.batch_size}; online one pass in steps of {ONLINE_BATCH}; "
            f"{settings.exemplars} exemplars a class",
        ),
        ("Duration", folder.duration()),
    ]
    title = "Split digits: every strategy, told the task, not told, and online"
    return write_report(folder.path, title, summary, report_sections(folder.path, cells))


def _not_validating(sequence: TaskSequence) -> TaskSequence:
    valid = sequence.tasks.valid
    none = valid._replace(mask=jnp.zeros_like(valid.mask))
    return sequence._replace(tasks=sequence.tasks._replace(valid=none))
