"""Where a run keeps its networks, and what of them."""

from pathlib import Path
from typing import NamedTuple

from everlight.continual import Learner, SequenceResult
from everlight.continual.base import Memory
from everlight.continual.method import Method
from everlight_data.checkpoints import Checkpoints
from everlight_experiments.continual.benchmark import Benchmark
from everlight_experiments.run_folder.many_runs import AfterTask, Unit

NETS = "models"
"""Folder of the networks that a run keeps."""
BESIDE = 85_000
"""Bytes of a checkpoint beside its arrays, as measured."""


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


def keeper(run: Path, benchmark: Benchmark, method: Method) -> AfterTask:
    """Return the function that writes the network of a run after every task, once."""

    def keep(unit: Unit, task: int, result: SequenceResult) -> None:
        tasks, order = unit.sequence.tasks.id.shape[0], unit.facts["order"]
        path = nets_folder(run, benchmark.part, benchmark.setting, method, order)
        Checkpoints(path, keep=tasks).renew(task, net_of(result), unit.facts)

    return keep
