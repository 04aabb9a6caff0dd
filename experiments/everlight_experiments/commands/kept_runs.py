"""Runs that kept their networks (`--keep-nets`), with benchmark and methods built again.

`load_net` and `everlight update` read them.
"""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from everlight.continual.methods.method import Method
from everlight.continual.methods.registry import METHODS
from everlight.continual.methods.replay_variants import VARIANTS
from everlight_data.errors import DataError, MissingDataError
from everlight_data.names import check_name
from everlight_data.runs.checkpoints import Checkpoints
from everlight_data.runs.configs import read_any_config
from everlight_data.runs.descriptions import name_differences
from everlight_experiments.commands.benchmark_registry import benchmark_name, has_own_settings
from everlight_experiments.commands.grid import runs_of
from everlight_experiments.commands.load_and_train import load_suite
from everlight_experiments.commands.option_defaults import read_options
from everlight_experiments.commands.options import GridOptions, RunOptions, UpdateOptions
from everlight_experiments.continual.benchmarks.benchmark import Benchmark, Benchmarks
from everlight_experiments.continual.benchmarks.run_data import AddedData, SequenceId
from everlight_experiments.continual.training.continuation import CONTINUES
from everlight_experiments.run_folder.folder import NETS, RunFolder

_REMEDY = "Name the folder of an `everlight run`, `grid` or `update` that kept its networks."


class KeptRun(NamedTuple):
    """Options of a run that kept its networks, one benchmark of several."""

    folder: Path
    options: RunOptions
    prefix: str
    """Name of the benchmark in a grid; empty elsewhere."""
    added: tuple[AddedData, ...]
    """Images of the updates that the run is one of, in their order."""
    open_folder: Callable[[], RunFolder]

    @property
    def nets(self) -> Path:
        """Folder of the networks, with one sub-folder per setting."""
        return self.folder / NETS / self.prefix

    def settings(self) -> list[str]:
        """Return the settings whose networks were kept.

        Raises:
          MissingDataError: there are none.
        """
        if not self.nets.is_dir():
            raise MissingDataError(
                f"{self.folder} holds no nets; give its command --keep-nets and a --tag"
            )
        return names_in(self.nets)


def read_kept_run(run: Path, benchmark: str | None = None) -> KeptRun:
    """Return a run with the options with which it began, even if its folder was moved.

    Args:
      run: folder of the run.
      benchmark: name in a grid; None where the run has one.

    Raises:
      MissingDataError: the folder does not exist, or that of a run that it continues.
      DataError: the folder is of another command, or has no such benchmark.
    """
    path = run / "config.json"
    stored = read_any_config(path, _REMEDY)["settings"]
    if {"run", "data", "test_every"} <= stored.keys():
        update = read_options(UpdateOptions, path)
        earlier = read_kept_run(_earlier_folder(run, update.run), benchmark)
        return earlier._replace(folder=run, added=(*earlier.added, update.added))
    is_grid = "benchmarks" in stored
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
            folder = RunFolder("grid", "", options, shared=True, trains=False)
        else:
            name = benchmark_name(options.benchmark)
            folder = RunFolder("run", name, options, shared=True, trains=False)
        if folder.path.resolve() != run.resolve():
            folder.remove_empty()
            raise DataError(f"{run} was {folder.path.name}; give it its name again")
        return folder

    prefix = benchmark if is_grid else ""
    return KeptRun(run, by_name[benchmark], prefix, (), open_folder)


def _earlier_folder(run: Path, stored: Path) -> Path:
    """Return the folder of the run that an update continues, even if both were moved together."""
    sibling = run.resolve().parent / stored.name
    for folder in (stored, sibling):
        if (folder / "config.json").exists():
            return folder
    raise MissingDataError(
        f"{run} continues {stored}, which does not exist, and neither does {sibling}; put the "
        "folder of that run there"
    )


def rebuild_benchmarks(run: KeptRun, settings: Sequence[str]) -> tuple[Benchmarks, list[Method]]:
    """Return the benchmark of a run in every given setting, and every method on it.

    Settings, methods and variants of earlier starts are there too; strategies (`--strategy`) are
    those of the last start.
    """
    rows = [Method.name_in(label) for setting in settings for label in names_in(run.nets / setting)]
    variants = tuple(name for name in VARIANTS if any(row.endswith(f", {name}") for row in rows))
    all_methods = dataclasses.replace(
        run.options,
        setting=None if has_own_settings(run.options) else tuple(settings),
        methods=tuple(METHODS),
        published=True,
        variants=variants or None,
    )
    loaded = load_suite(all_methods, run.added)
    benchmarks = {}
    for setting in settings:
        benchmark = loaded.benchmarks[setting]
        # Only what a folder prepares needs it open.
        if benchmark.prepare is not None:
            benchmark = benchmark.prepared(run.open_folder())
        benchmarks[setting] = benchmark
    return benchmarks, loaded.methods


def find_method(run: KeptRun, setting: str, methods: Sequence[Method], name: str) -> Method:
    """Return the method of a name, whose networks a run kept.

    Raises:
      DataError: there are none, with the methods of which there are; or they are those of a
        strategy that the run's last start lacked, or of another version of a user's file.
    """
    labels = names_in(run.nets / setting)
    check_name("net of method", name, [Method.name_in(label) for label in labels])
    method = next((method for method in methods if method.name == name), None)
    if method is None:
        raise DataError(
            f"{run.folder}: the last start of its command lacked the strategy {name}; give that "
            "command --strategy again"
        )
    if method.label not in labels:
        raise DataError(f"{run.folder}: its {name} was trained with another version of your file")
    return method


def verified_hyperparameter(
    checkpoints: Checkpoints, task: int, benchmark: Benchmark, method: Method, seq_id: SequenceId
) -> float:
    """Return the hyper-parameter of a kept network.

    Raises:
      DataError: the network is of other data or settings; the message has the differences.
    """
    stored = checkpoints.fingerprint(task)
    stored = {name: value for name, value in stored.items() if name != CONTINUES}
    fingerprint = benchmark.run_fingerprint(method, seq_id, stored["hyperparameter"])
    if changed := name_differences(stored, fingerprint):
        raise DataError(f"{checkpoints.folder} belongs to other data or settings ({changed})")
    return stored["hyperparameter"]


def names_in(folder: Path) -> list[str]:
    """Return the names of a folder's entries, sorted."""
    return sorted(path.name for path in folder.iterdir())
