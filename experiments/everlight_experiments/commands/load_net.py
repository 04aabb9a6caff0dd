"""Networks that a run kept (`--keep-nets`), read back with all that predicts with them.

net = load_net("runs/run-digits-demo", "ER", seed=0, task=4)
best = net.predict(images).argmax(axis=1)
net = load_net("runs/grid-demo", "ER", seed=0, task=4, benchmark="digits")
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path

from everlight.continual.methods.method import Method
from everlight.continual.methods.registry import METHODS
from everlight.continual.training.saved_net import SavedNet, classes_of_tasks
from everlight_data.errors import DataError, MissingDataError
from everlight_data.names import check_name
from everlight_data.runs.checkpoints import Checkpoints, open_existing
from everlight_data.runs.configs import read_any_config
from everlight_data.runs.descriptions import name_differences
from everlight_experiments.commands.benchmark_registry import benchmark_name
from everlight_experiments.commands.grid import runs_of
from everlight_experiments.commands.load_and_train import load_suite
from everlight_experiments.commands.option_defaults import read_options
from everlight_experiments.commands.options import GridOptions, RunOptions
from everlight_experiments.continual.benchmarks.benchmark import (
    Benchmark,
    UnpreparedBenchmark,
    prepare_benchmark,
)
from everlight_experiments.continual.benchmarks.run_data import SequenceId
from everlight_experiments.continual.training.programs import MethodPrograms
from everlight_experiments.continual.training.runner import NETS, nets_folder
from everlight_experiments.run_folder.folder import RunFolder

_REMEDY = "Name the folder of an `everlight run` or `everlight grid` with --keep-nets."


def load_net(
    run: Path | str,
    method: str,
    seed: int,
    task: int,
    setting: str | None = None,
    benchmark: str | None = None,
) -> SavedNet:
    """Read the network that a run with `--keep-nets` kept after a task.

    The run's configuration and data are read again, as a network alone does not have the
    normalization of its inputs. A network is refused if the data or the file of your own strategy
    have changed since.

    Args:
      run: folder of the run.
      method: name in the report.
      seed: evaluation seed, from the run's `--seed` on, one per row of `results.npz`.
      task: number of the task after which the network was kept, from 0.
      setting: task-incremental, class-incremental, online or the benchmark's own; None where the
        run has one.
      benchmark: name in a grid, as in icifar:small; None where the grid has one.

    Raises:
      MissingDataError: the folder, the run's data or its networks are not there.
      DataError: a benchmark, method, seed, task or setting that was not kept, with those that
        were; a network that is damaged, or of other data.
    """
    run = Path(run)
    options, prefix, open_folder = _stored_options(run, benchmark)
    nets = run / NETS / prefix
    if not nets.is_dir():
        raise MissingDataError(f"{run} holds no nets; give its command --keep-nets and a --tag")
    setting = _setting_of(run, nets, setting)
    labels = _names(nets / setting)
    check_name("net of method", method, [Method.name_in(label) for label in labels])
    loaded, rows = _rebuild_benchmark(options, setting, open_folder)
    row = next((row for row in rows if row.name == method), None)
    if row is None or row.label not in labels:
        raise DataError(f"{run}: its {method} was trained with another version of your file")
    check_name("seed", str(seed), _names(nets / setting / row.label))
    checkpoints = open_existing(nets_folder(run, prefix, setting, row, seed))
    check_name("task", str(task), [str(number) for number in checkpoints.numbers()])
    seq_id = SequenceId("evaluation", options.seed, seed - options.seed)
    hyperparameter = _verified_hyperparameter(checkpoints, task, loaded, row, seq_id)
    programs, sequence = MethodPrograms(loaded), loaded.data.sequence(row, seq_id)
    saved = checkpoints.restore(task, programs.saved_shapes(row)).state
    return SavedNet(
        class_names=() if loaded.data.images is None else tuple(loaded.data.images.class_names),
        task_classes=classes_of_tasks(sequence),
        learner=saved.learner,
        memory=saved.memory,
        build=programs.build(row),
        data=loaded.run_data(row, sequence, hyperparameter, seq_id.seed),
        size=loaded.training.protocol(row).evaluation_batch,
        masked="class scores" in loaded.setting.capabilities,
    )


def _setting_of(run: Path, nets: Path, setting: str | None) -> str:
    """Return the setting of the networks, which may be left out where there is one."""
    settings = _names(nets)
    if setting is None and len(settings) > 1:
        raise DataError(f"{run} has several settings; give one: {', '.join(settings)}")
    setting = settings[0] if setting is None else setting
    check_name("setting", setting, settings)
    return setting


def _rebuild_benchmark(
    options: RunOptions, setting: str, open_folder: Callable[[], RunFolder]
) -> tuple[Benchmark, list[Method]]:
    """Return the benchmark of a run in one setting, and every method on it."""
    # Settings of earlier starts are there too.
    selected = None if options.setting is None else (setting,)
    all_rows = dataclasses.replace(
        options, setting=selected, methods=tuple(METHODS), published=True
    )
    loaded = load_suite(all_rows)
    benchmark = loaded.benchmarks[setting]
    # Only what a folder prepares needs it open.
    if isinstance(benchmark, UnpreparedBenchmark):
        benchmark = prepare_benchmark(benchmark, open_folder())
    return benchmark, loaded.rows


def _verified_hyperparameter(
    checkpoints: Checkpoints, task: int, benchmark: Benchmark, row: Method, seq_id: SequenceId
) -> float:
    """Return the hyper-parameter of a kept network; other data or settings are refused."""
    stored = checkpoints.fingerprint(task)
    fingerprint = benchmark.run_fingerprint(row, seq_id, stored["hyperparameter"])
    if changed := name_differences(stored, fingerprint):
        raise DataError(f"{checkpoints.folder} belongs to other data or settings ({changed})")
    return stored["hyperparameter"]


def _stored_options(
    run: Path, benchmark: str | None
) -> tuple[RunOptions, str, Callable[[], RunFolder]]:
    """Return a benchmark's options, its name among several, and the settings of the folder.

    The options are those with which the run began, even if its folder was moved.
    """
    path = run / "config.json"
    is_grid = "benchmarks" in read_any_config(path, _REMEDY)["settings"]
    options = read_options(GridOptions if is_grid else RunOptions, path)
    options = dataclasses.replace(options, runs=run.parent)
    by_name = runs_of(options) if is_grid else {options.benchmark: options}
    if benchmark is None:
        if len(by_name) > 1:
            raise DataError(f"{run} has several benchmarks; give one: {', '.join(by_name)}")
        (benchmark,) = by_name
    check_name("benchmark", benchmark, list(by_name))

    def open_folder() -> RunFolder:
        if is_grid:
            folder = RunFolder("grid", "", options, shared=True)
        else:
            name = benchmark_name(options.benchmark)
            folder = RunFolder("run", name, options, shared=True)
        if folder.path.resolve() != run.resolve():
            folder.remove_empty()
            raise DataError(f"{run} was {folder.path.name}; give it its name again")
        return folder

    return by_name[benchmark], benchmark if is_grid else "", open_folder


def _names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())
