"""A user's benchmark, from a Python file."""

import inspect
from typing import Any

from everlight.continual.methods.method import Method
from everlight_data.errors import DataError
from everlight_data.user_code.objects import load_object
from everlight_experiments.commands.user_strategy import naming_lines
from everlight_experiments.continual.benchmarks.benchmark import Benchmark

_FORM = "give my_file.py:my_benchmark, a Benchmark or a function without arguments that returns one"


def is_user_file(text: str) -> bool:
    """Return True if a benchmark is named as `my_file.py:my_benchmark`."""
    return text.rpartition(":")[0].endswith(".py")


def load_user_benchmark(reference: str) -> Benchmark:
    """Return the benchmark that `my_file.py:my_benchmark` names; the file is run.

    The file's content belongs to the fingerprint of its runs, so that a changed file trains again.

    Raises:
      MissingDataError: there is no such file.
      DataError: the file fails or has no such name; or the object is no benchmark.
    """
    benchmark, module, version = load_object(reference, "BENCHMARK", _FORM)
    if callable(benchmark) and not isinstance(benchmark, type):
        if inspect.signature(benchmark).parameters:
            raise DataError(f"{reference} takes arguments; {_FORM}")
        with naming_lines(reference, _FORM, module):
            benchmark = benchmark()
    if not isinstance(benchmark, Benchmark):
        raise DataError(f"{reference} is {type(benchmark).__name__}, no Benchmark; {_FORM}")
    training = benchmark.training

    def fingerprint(method: Method) -> dict[str, Any]:
        return {**training.fingerprint(method), "file": version}

    name = reference.rpartition(":")[2]
    return benchmark._replace(name=name, training=training._replace(fingerprint=fingerprint))
