"""Training of all methods on their benchmarks, with an estimate before the first."""

from collections.abc import Mapping, Sequence

from everlight_experiments.continual.training.estimate import estimate_duration
from everlight_experiments.continual.training.outcome import Outcomes
from everlight_experiments.continual.training.queue import (
    Job,
    check_jobs,
    print_size_of_nets,
    train_jobs,
)
from everlight_experiments.continual.training.runner import Runner
from everlight_experiments.run_folder.folder import RunFolder


def train_benchmarks(
    folder: RunFolder,
    runners: Mapping[str, Runner],
    jobs: Sequence[Job],
) -> Outcomes:
    """Train all jobs on their benchmarks; before the first, print how long they will take.

    Raises:
      DataError: a method has no score on the benchmark's validation tasks, or has no samples there.
    """
    check_jobs(runners, jobs)
    if any(runner.keep_nets for runner in runners.values()):
        print_size_of_nets(runners, jobs, str(folder.path))
    stages = [
        (job, stage)
        for job in jobs
        for stage in runners[job.column].missing_stages(job.method, job.seeds)
    ]
    estimate_duration(folder, runners, stages)
    return train_jobs(runners, jobs)
