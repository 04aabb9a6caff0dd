"""Networks that a run kept (`--keep-nets`), read back with all that predicts with them.

net = load_net("runs/run-digits-demo", "ER", seed=0, task=4)
best = net.predict(images).argmax(axis=1)
net = load_net("runs/grid-demo", "ER", seed=0, task=4, benchmark="digits")
"""

from pathlib import Path

from everlight.continual.training.saved_net import SavedNet, classes_of_tasks
from everlight_data.errors import DataError
from everlight_data.names import check_name
from everlight_data.runs.checkpoints import open_existing
from everlight_experiments.commands.kept_runs import (
    KeptRun,
    find_method,
    names_in,
    read_kept_run,
    rebuild_benchmarks,
    verified_hyperparameter,
)
from everlight_experiments.continual.benchmarks.run_data import SequenceId
from everlight_experiments.continual.training.programs import MethodPrograms
from everlight_experiments.continual.training.runner import nets_folder


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
      task: number of the task after which the network was stored, from 0.
      setting: task-incremental, class-incremental, online or the benchmark's own; None where the
        run has one.
      benchmark: name in a grid, as in icifar:small; None where the grid has one.

    Raises:
      MissingDataError: the folder, the run's data or its networks are not there.
      DataError: a benchmark, method, seed, task or setting that was not stored, with those that
        were; a network that is damaged, or of other data.
    """
    stored = read_kept_run(Path(run), benchmark)
    setting = _setting_of(stored, setting)
    benchmarks, methods = rebuild_benchmarks(stored, [setting])
    trained, loaded = find_method(stored, setting, methods, method), benchmarks[setting]
    check_name("seed", str(seed), names_in(stored.nets / setting / trained.label))
    checkpoints = open_existing(nets_folder(stored.folder, stored.prefix, setting, trained, seed))
    check_name("task", str(task), [str(number) for number in checkpoints.numbers()])
    seq_id = SequenceId("evaluation", stored.options.seed, seed - stored.options.seed)
    hyperparameter = verified_hyperparameter(checkpoints, task, loaded, trained, seq_id)
    programs, sequence = MethodPrograms(loaded), loaded.data.sequence(trained, seq_id)
    saved = checkpoints.restore(task, programs.saved_shapes(trained)).state
    return SavedNet(
        class_names=() if loaded.data.images is None else tuple(loaded.data.images.class_names),
        task_classes=classes_of_tasks(sequence),
        learner=saved.learner,
        memory=saved.memory,
        build=programs.build(trained),
        data=loaded.run_data(trained, sequence, hyperparameter, seq_id.seed),
        size=loaded.training.protocol(trained).evaluation_batch,
        masked="class scores" in loaded.setting.capabilities,
    )


def _setting_of(run: KeptRun, setting: str | None) -> str:
    """Return the setting of the networks, which may be left out where there is one."""
    settings = run.settings()
    if setting is None and len(settings) > 1:
        raise DataError(f"{run.folder} has several settings; give one: {', '.join(settings)}")
    setting = settings[0] if setting is None else setting
    check_name("setting", setting, settings)
    return setting
