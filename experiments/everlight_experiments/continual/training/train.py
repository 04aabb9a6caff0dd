"""Training of all methods on prepared benchmarks, with an estimate before the first."""

from collections.abc import Sequence

from everlight_experiments.continual.benchmarks.benchmark import Benchmarks
from everlight_experiments.continual.training.estimate import estimate_duration
from everlight_experiments.continual.training.outcome import Outcomes
from everlight_experiments.continual.training.queue import (
    Job,
    check_jobs,
    print_size_of_nets,
    runners_of,
    train_jobs,
)
from everlight_experiments.run_folder.folder import RunFolder


def train_benchmarks(
    folder: RunFolder,
    benchmarks: Benchmarks,
    jobs: Sequence[Job],
    seed: int,
    validation_seeds: int = 1,
    keep_nets: bool = False,
) -> Outcomes:
    """Train all jobs on prepared benchmarks; before the first, print how long they will take.

    Raises:
      DataError: a method has no score on the benchmark's validation tasks, or has no samples there.
    """
    runners = runners_of(folder, benchmarks, seed, validation_seeds, keep_nets)
    check_jobs(runners, jobs)
    if keep_nets:
        print_size_of_nets(runners, jobs, str(folder.path))
    stages = [
        (job, stage)
        for job in jobs
        for stage in runners[job.column].missing_stages(job.method, job.seeds)
    ]
    estimate_duration(folder, runners, stages)
    return train_jobs(runners, jobs)
