"""The estimated duration of a run, printed before its first method is trained."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

import jax

from everlight_experiments.continual.training.queue import Job
from everlight_experiments.continual.training.runner import Runner, Stage
from everlight_experiments.report.cells import in_time
from everlight_experiments.run_folder.folder import COMPILED, COMPILING, ESTIMATE, RunFolder

REPORT = 5.0
"""Seconds that tables, figures and page of a report take, as measured on two cores."""


def estimate_duration(
    folder: RunFolder,
    runners: Mapping[str, Runner],
    stages: Sequence[tuple[Job, Stage]],
    times: int = 1,
) -> None:
    """Compile and try the programs of unfinished stages, and print how long they will take.

    Other processes that share the folder do not count. Joined processes have no estimate, nor do
    runs in which JAX looks for NaN: few samples may have some.

    Args:
      folder: folder of the run.
      runners: runners by column.
      stages: stages in the order of their training, each with its job.
      times: number of configurations that are trained as long as these stages.
    """
    if jax.process_count() > 1 or jax.config.jax_debug_nans or jax.config.jax_debug_infs:
        return
    seconds: dict[str, float] = defaultdict(float)
    runs: dict[str, int] = defaultdict(int)
    # The first methods come last, so that their programs are in memory when they are trained.
    for job, stage in reversed(stages):
        runner, name = runners[job.column], runners[job.column].title(job.method)
        folder.log(event=COMPILING, method=name)
        print(f"compiling {name}, {stage.use} ... ", end="", flush=True)
        trial = runner.try_stage(job.method, stage)
        folder.log(event=COMPILED, method=name, seconds=trial.compilation)
        print(f"{trial.compilation:.1f} s", flush=True)
        # Counting takes seconds, and the results have the cost.
        runner.programs.cost(job.method)
        seconds[name] += trial.seconds * times
        runs[name] += len(stage.run_ids) * times
    if not runs:
        return
    passed = folder.seconds_since_opened()
    total = passed + sum(seconds.values()) + REPORT
    methods = [
        {"method": name, "runs": runs[name], "seconds": seconds[name]} for name in reversed(runs)
    ]
    folder.log(event=ESTIMATE, seconds=total, passed=passed, methods=methods)
    by_method = "; ".join(
        f"{row['method']} {in_time(row['seconds'])} ({row['runs']} runs)" for row in methods
    )
    print(f"training will take: {by_method}")
    print(
        f"estimated total: {in_time(total)}, of which {in_time(passed)} have passed (data and "
        f"compilation), and with {in_time(REPORT)} for the report",
        flush=True,
    )
