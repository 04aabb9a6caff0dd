"""Cumulative and joint training, which learn from all data and are references for other methods.

Cumulative training restarts from new parameters at every task and learns from all data so far.
Joint training waits for the last task and then learns from all data at once.

Neither has official code. Equal to unlimited replay (`unlimited_replay`) at the samples and labels
of every epoch of cumulative training, and at those of the last task of joint training; differs in
the parameters from which a task starts, and in the validation samples, which are those of all tasks
so far.
"""

from jaxtyping import PRNGKeyArray

from everlight.base import Epoch, Learner, Memory, Samples, Setup, Strategy, Task
from everlight.checks import PositiveInt, checked
from everlight.continual.methods.method import Method, Publication
from everlight.continual.strategies.naive import naive
from everlight.continual.strategies.unlimited_replay import cumulative_epoch, unlimited_replay


@checked
def cumulative(setup: Setup) -> Strategy:
    """Return cumulative training: all data so far, from new parameters at every task.

    The baseline of Díaz-Rodríguez et al. 2018. The validation samples of all tasks so far choose
    the best epoch.

    Args:
      setup: network, objective, optimizer and data access.
    """

    def begin_task(
        memory: Memory, learner: Learner, task: Task, key: PRNGKeyArray
    ) -> tuple[Memory, Learner]:
        params, batch_stats = setup.init(key)
        # The momentum of other parameters would move these.
        opt_state = setup.optimizer.init(params)
        return memory, learner._replace(params=params, batch_stats=batch_stats, opt_state=opt_state)

    return unlimited_replay(setup)._replace(begin_task=begin_task, valid_data=_all_validation)


@checked
def joint(setup: Setup, tasks: PositiveInt) -> Strategy:
    """Return joint training: all tasks' data at the last task, none before it.

    Args:
      setup: network, objective, optimizer and data access.
      tasks: number of tasks in the sequence.
    """

    def epoch_data(memory: Memory, task: Task) -> Epoch:
        epoch = cumulative_epoch(memory, task)
        now = epoch.samples.mask & (task.id == tasks - 1)
        return epoch._replace(samples=epoch.samples._replace(mask=now))

    return unlimited_replay(setup)._replace(
        epoch_data=epoch_data, valid_data=_all_validation, tasks=tasks
    )


def _all_validation(memory: Memory, task: Task) -> Samples:
    return task.past_valid


METHODS = (
    Method(
        "cumulative",
        cumulative,
        Publication(keeps=("all samples",)),
        "cumulative training: all data so far, from new parameters at every task",
        retrains_from_scratch=True,
        takes_targets=True,
    ),
    Method(
        "joint",
        joint,
        Publication(keeps=("all samples",)),
        "joint training: all tasks' data at the last task, none before it",
        retrains_from_scratch=True,
        label_setting="joint",
        planned_total="tasks",
        takes_targets=True,
    ),
    Method(
        "incremental joint",
        naive,
        Publication("Abdelsalam et al.", 2021, "CVPR", ("all samples",)),
        "naive finetuning on all samples so far, with all their labels (IIRC)",
        requirements=("multi-label",),
        label_setting="incremental joint",
    ),
)
