"""Split MNIST in three scenarios: five tasks of two digits, with settings of the authors' code.

Presets:
  demo: handwritten digits at 8 pixels, four methods, two seeds; no data needed.
  small: MNIST with all methods, three seeds; for two cores.
  paper: the same with the paper's twenty seeds.

Coefficients and lengths are those of `param_values.py` (GMvandeVen/continual-learning, commit
e6d795a), which the authors selected on one seed by the tests of each scenario.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from flax.core import FrozenDict

from everlight.continual import Protocol
from everlight.continual.methods.method import Method
from everlight.continual.methods.registry import METHODS
from everlight_experiments.continual.benchmarks.config import UNNAMED, refuse_options
from everlight_experiments.continual.benchmarks.run_data import Seeds
from everlight_experiments.continual.benchmarks.statements import general_statement
from everlight_experiments.images.config import Config, MethodSettings
from everlight_experiments.images.table_columns import TableColumn
from everlight_experiments.run_folder.options import Preset

Scenario = Literal["task-incremental", "domain-incremental", "class-incremental"]
SCENARIOS: tuple[Scenario, ...] = ("task-incremental", "domain-incremental", "class-incremental")
EWC_COEFFICIENTS: Mapping[Scenario, float] = {
    "task-incremental": 1e5,
    "domain-incremental": 1e10,
    "class-incremental": 1e9,
}
SI_COEFFICIENTS: Mapping[Scenario, float] = {
    "task-incremental": 10.0,
    "domain-incremental": 50_000.0,
    "class-incremental": 5000.0,
}
FROMP_COEFFICIENTS: Mapping[Scenario, float] = {
    "task-incremental": 0.01,
    "domain-incremental": 10.0,
    "class-incremental": 1000.0,
}
# All samples count, and every label by its probability, as in the authors' code.
_FISHER = {"fisher": "expected", "importance_samples": 12_800}
# The likelihood that the authors have for pixels from 0 to 1.
_OF_PIXELS = {"likelihood": "bernoulli"}
_ROWS: dict[str, Method] = {
    "none": METHODS["naive"],
    "joint": METHODS["joint"],
    "separate networks": METHODS["separate networks"],
    "XdG": METHODS["XdG"]._replace(fixed=FrozenDict(gated_share=0.9)),
    "EWC": METHODS["EWC"]._replace(fixed=FrozenDict(_FISHER)),
    "SI": METHODS["SI"]._replace(fixed=FrozenDict(damping=0.1)),
    "LwF": METHODS["LwF"],
    # A step compares as many points as a batch has samples. Kernels are per task; the authors have
    # one of all earlier tasks in the domain- and class-incremental scenarios.
    "FROMP": METHODS["FROMP"]._replace(
        fixed=FrozenDict(points_per_step=128, importance_samples=12_800)
    ),
    "DGR": METHODS["DGR"]._replace(fixed=FrozenDict(_OF_PIXELS)),
    "BI-R": METHODS["BI-R"]._replace(fixed=FrozenDict(_OF_PIXELS)),
    **{name: METHODS[name] for name in ("ER", "A-GEM", "iCaRL")},
    "generative classifier": METHODS["generative classifier"]._replace(
        fixed=FrozenDict(_OF_PIXELS)
    ),
}
PAPER_METHODS: dict[str, Method] = {
    name: row._replace(name=name, published=None) for name, row in _ROWS.items()
}
# Cross-entropy with the old network's probabilities at temperature 2, without the factor of 4; once
# for each earlier task unless classes of all tasks are told apart.
LWF_COEFFICIENT = 0.25
_LWF_PER_TASK = PAPER_METHODS["LwF"]._replace(fixed=FrozenDict(times_tasks=True))
# Gates of a tenth of the decoder's units for every class, for every task where tasks share the
# classes, and none where the task is given.
_BIR_WITHOUT_GATES = PAPER_METHODS["BI-R"]._replace(fixed=FrozenDict(_OF_PIXELS, gated_share=0.0))
_BIR_OF_TASKS = PAPER_METHODS["BI-R"]._replace(fixed=FrozenDict(_OF_PIXELS, gating="task"))
_SCENARIO_METHODS: dict[Scenario, dict[str, Method]] = {
    "task-incremental": {"LwF": _LWF_PER_TASK, "BI-R": _BIR_WITHOUT_GATES},
    "domain-incremental": {"LwF": _LWF_PER_TASK, "BI-R": _BIR_OF_TASKS},
    "class-incremental": {},
}


@dataclass(frozen=True)
class PaperConfig:
    """Configuration of the paper's command."""

    benchmark: Annotated[Config, UNNAMED]
    scenarios: tuple[Scenario, ...] = SCENARIOS
    """Scenarios to run: task-incremental, domain-incremental, class-incremental."""
    methods: tuple[str, ...] = tuple(PAPER_METHODS)
    """Methods to train: none (finetuning), joint, separate networks, XdG, EWC, SI, LwF, FROMP, DGR,
    BI-R, ER, A-GEM, iCaRL, generative classifier. Those that do not apply to a scenario are left
    out."""
    separate_net: str = "mlp:100,100"
    """Network of each task with separate networks; all together have about as many parameters as
    the network of the other methods."""
    seeds: Seeds = 20
    """Number of evaluation seeds, each with its own order of classes and initial network."""

    def check_changed(self, options: Sequence[str]) -> None:
        """Refuse options of streams, which the scenarios set.

        Raises:
          DataError: the message has the first of them and the remedy.
        """
        by_scenarios = "here, where the scenarios set it; leave it out"
        refuse_options(options, dict.fromkeys(("stream", "stream-draws"), by_scenarios))

    def column_of(self, scenario: Scenario) -> TableColumn:
        """Return the methods of a scenario, with the authors' settings for it.

        Joint training has as many steps as all tasks together. A domain-incremental label stands
        for a class in every task, and has as many stored samples as these classes together.
        """
        config, tasks = self.benchmark, self.benchmark.number_of_tasks
        by_domain = scenario == "domain-incremental"
        domains = {
            "stream": "split-domains",
            "exemplars_per_class": tasks * config.exemplars_per_class,
        }
        config = replace(
            config,
            **(domains if by_domain else {}),
            method_settings={
                "joint": MethodSettings(epochs=tasks * config.protocol.epochs),
                "separate networks": MethodSettings(net=self.separate_net),
            },
            grids={
                "EWC": (EWC_COEFFICIENTS[scenario],),
                "SI": (SI_COEFFICIENTS[scenario],),
                "LwF": (LWF_COEFFICIENT,),
                "FROMP": (FROMP_COEFFICIENTS[scenario],),
            },
        )
        methods = [{**PAPER_METHODS, **_SCENARIO_METHODS[scenario]}[name] for name in self.methods]
        return TableColumn(config, methods, "class-incremental" if by_domain else scenario)


MNIST = Config(
    data="mnist",
    pixels="unit",
    tasks=(5,),
    net="mlp:400,400",
    loss_classes="all",
    optimizer="adam",
    learning_rate=0.001,
    # 2,000 steps per task. The optimizer's state continues across tasks.
    protocol=Protocol(
        epochs=20, epoch_steps=100, batch_size=128, select="last", new_optimizer=False
    ),
    exemplars_per_class=100,
    validation_fraction=0.0,
    chosen=general_statement(
        "All is as in the authors' code, which selected each coefficient on one seed by the test "
        "accuracy of its scenario. The generative classifier has twice their steps, each with "
        "half the samples of a class."
    ),
)
DIGITS = replace(
    MNIST,
    data="digits",
    net="mlp:100,100",
    protocol=replace(MNIST.protocol, epochs=10, epoch_steps=10, batch_size=32),
    exemplars_per_class=10,
    chosen=general_statement("Each method has the coefficient that the authors selected on MNIST."),
)
PAPER_PRESETS: Mapping[Preset, PaperConfig] = {
    "demo": PaperConfig(
        DIGITS, methods=("none", "joint", "SI", "ER"), separate_net="mlp:32,32", seeds=2
    ),
    "small": PaperConfig(MNIST, seeds=3),
    "paper": PaperConfig(MNIST),
}
