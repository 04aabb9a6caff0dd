"""A user's benchmark or stream of arrays, from a Python file."""

import functools
import inspect
from types import ModuleType
from typing import Any

from everlight.continual.methods.method import Method
from everlight_data.errors import DataError
from everlight_data.user_code.objects import load_object
from everlight_data.user_code.streams import UserStream, read_stream
from everlight_experiments.commands.options import RunOptions
from everlight_experiments.commands.user_strategy import naming_lines
from everlight_experiments.continual.benchmarks.benchmark import Benchmark, Data, Training
from everlight_experiments.continual.benchmarks.metric import Metric
from everlight_experiments.continual.benchmarks.run_data import TrainedRun
from everlight_experiments.images.config import PICTURES
from everlight_experiments.images.metrics import PREDICTED
from everlight_experiments.run_folder.config_options import changed_options
from everlight_experiments.run_folder.folder import RunFolder

_FORM = (
    "give my_file.py:my_benchmark, a Benchmark, or a stream: two lists, of training and of test "
    "tasks, with a pair (images, labels) per task; or a function without arguments that returns one"
)


def is_user_file(text: str) -> bool:
    """Return True if a benchmark is named as `my_file.py:my_benchmark`."""
    return text.rpartition(":")[0].endswith(".py")


def load_user_benchmark(reference: str) -> Benchmark | UserStream:
    """Return the benchmark or stream that `my_file.py:my_benchmark` names; the file is run.

    The file's content belongs to the fingerprint of its runs: a changed file needs another `--tag`.

    Raises:
      MissingDataError: there is no such file.
      DataError: the file fails or has no such name; or the object is no benchmark and no stream.
    """
    value, module, version = load_object(reference, "BENCHMARK", _FORM)
    if callable(value) and not isinstance(value, type):
        if inspect.signature(value).parameters:
            raise DataError(f"{reference} takes arguments; {_FORM}")
        with naming_lines(reference, _FORM, module):
            value = value()
    if isinstance(value, Benchmark):
        benchmark = value._replace(name=reference.rpartition(":")[2])
        return identified_by_file(with_named_metrics(benchmark, reference, module), version)
    if not isinstance(value, tuple | list) or len(value) != 2:
        raise DataError(
            f"{reference} is {type(value).__name__}, no Benchmark and no stream; {_FORM}"
        )
    return read_stream(reference, value)._replace(version=version)


def with_named_metrics(benchmark: Benchmark, reference: str, module: ModuleType) -> Benchmark:
    """Return the benchmark with metrics whose errors name them and the line of a user's file."""

    def named(metric: Metric) -> Metric:
        label = f"{reference}: the metric {metric.name!a}"

        @functools.wraps(metric.compute)
        def compute(run: TrainedRun) -> Any:
            with naming_lines(label, "return its values", module):
                try:
                    return metric.compute(run)
                except KeyError as error:
                    if error.args != (PREDICTED,):
                        raise
                    raise DataError(
                        f"{label} reads predicted classes, which its runs do not store; give the "
                        'Config metrics=("confusion",)'
                    ) from error

        return metric._replace(compute=compute)

    metrics, criterion = benchmark.setting.metrics, benchmark.selection.criterion
    metrics = metrics._replace(
        score=named(metrics.score),
        score_by_task=named(metrics.score_by_task),
        others=tuple(map(named, metrics.others)),
    )
    return benchmark._replace(
        setting=benchmark.setting._replace(metrics=metrics),
        selection=benchmark.selection._replace(criterion=criterion and named(criterion)),
    )


def identified_by_file(benchmark: Benchmark, version: str) -> Benchmark:
    """Return the benchmark whose runs are identified by the version of a user's file too."""
    prepare = benchmark.prepare

    def identified(training: Training) -> Training:
        def fingerprint(method: Method) -> dict[str, Any]:
            return {**training.fingerprint(method), "file": version}

        return training._replace(fingerprint=fingerprint)

    def prepare_identified(folder: RunFolder) -> tuple[Data, Training]:
        data, training = prepare(folder)
        return data, identified(training)

    return benchmark._replace(
        training=identified(benchmark.training),
        prepare=None if prepare is None else prepare_identified,
    )


def with_user_config(
    options: RunOptions, user_benchmark: Benchmark | UserStream | None
) -> RunOptions:
    """Return the options without a configuration if a user's benchmark has its own.

    Raises:
      DataError: an option of the configuration is given with such a benchmark.
    """
    if not isinstance(user_benchmark, Benchmark) or options.config is None:
        return options
    changed = [*changed_options(PICTURES, options.config)]
    if changed:
        raise DataError(
            f"--{changed[0]} is for a stream of arrays; {options.benchmark} is a Benchmark, which "
            "has its own; leave it out"
        )
    return RunOptions(**{**vars(options), "config": None})
