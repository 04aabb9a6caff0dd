"""The compared methods, with their names and options on both sides."""

from typing import NamedTuple

from benchmarks.iirc.inputs import DATA, Workload


class Case(NamedTuple):
    """A method."""

    name: str
    """Name in this project, by `everlight_experiments.iirc.config.FORMS`."""
    official: str
    """Value of the authors' option `--method`."""
    replays: bool = True
    keeps_best: bool = False
    """True if the best epoch by in-task validation is kept."""

    def options(self, workload: Workload, seed: int) -> list[str]:
        """Return the options of the authors' command."""
        values = {
            "dataset": DATA,
            "method": self.official,
            "n_layers": workload.layers,
            "epochs_per_task": workload.epochs,
            "batch_size": workload.batch_size,
            "seed": seed,
            "optimizer": "momentum",
            "lr": workload.learning_rate,
            "lr_gamma": 0.1,
            "weight_decay": workload.weight_decay,
            "n_memories_per_class": workload.exemplars_per_class if self.replays else 0,
            # There is no checkpoint within a task.
            "checkpoint_interval": 1_000_000,
        }
        flags = ["--reduce_lr_on_plateau", *["--use_best_model"] * self.keeps_best]
        return [text for name, value in values.items() for text in (f"--{name}", str(value))] + (
            flags
        )


CASES = (
    Case("finetune", "finetune", replays=False, keeps_best=True),
    Case("ER-balanced", "finetune", keeps_best=True),
    Case("iCaRL-CNN", "icarl_cnn"),
    Case("LUCIR", "lucir"),
    Case("A-GEM", "agem"),
)
