"""Selection of hyper-parameters on the first tasks of validation seeds (`--validation-tasks`)."""

from everlight.continual.methods.method import Method
from everlight_data.errors import DataError
from everlight_experiments.continual.benchmark import Benchmark
from everlight_experiments.continual.metrics import OVER_ALL_TIMES


def refuse_unscored(benchmark: Benchmark, method: Method, evaluate_every: int, tasks: int) -> None:
    """Refuse a number of validation tasks after which there is no score.

    Args:
      benchmark: benchmark, with the number of its validation tasks.
      method: method whose hyper-parameter is selected.
      evaluate_every: tasks between two evaluations.
      tasks: number of tasks of the benchmark.

    Raises:
      DataError: there are not so many tasks; they end without an evaluation; or the benchmark or
        the method has a score after the last task alone.
    """
    count = benchmark.selection.tasks
    if count is None:
        return
    option = f"--validation-tasks {count}"
    if count > tasks:
        raise DataError(f"{option}; {benchmark.name} has {tasks} tasks, give {tasks} or less")
    criterion = benchmark.selection.criterion
    if criterion not in (None, OVER_ALL_TIMES):
        raise DataError(
            f"{option}: {benchmark.name} selects by the {criterion.name} after the last "
            "task; leave it out"
        )
    if count < tasks and count % evaluate_every:
        raise DataError(
            f"{option} ends without an evaluation; give a multiple of --evaluate-every "
            f"{evaluate_every}"
        )
    if count < tasks and method.label_setting == "joint":
        raise DataError(
            f"{option}: {method.name} learns all tasks at the last one; leave one of them out"
        )
