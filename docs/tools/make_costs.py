"""Write `docs/pages/costs.md`: the cost of a training step of every strategy, compiled and not run.

python -m docs.tools.make_costs
"""

import datetime
from pathlib import Path

import jax

from everlight.continual.methods.registry import METHODS
from everlight_experiments.cli import options_of
from everlight_experiments.commands.benchmark_registry import load_benchmarks
from everlight_experiments.continual.training.programs import MethodPrograms
from everlight_experiments.continual.training.queue import jobs_of

# A method is costed in the first setting that it applies to.
SETTINGS = ("class-incremental", "task-incremental")
PAGE = Path(__file__).parents[1] / "pages" / "costs.md"
HEAD = """# Costs of every strategy

A training step of {cheap} of {total} strategies takes at most twice the operations of naive
finetuning; the most expensive strategy, {most}, takes {ratio:.0f} times as many.

Computed by `python -m docs.tools.make_costs` on {date}, JAX {version}, {device}; programs are
compiled and not run.
Split digits as in [Results](results/strategies.md#split-digits): five tasks of two,
an MLP 64-100-100-10 of {parameters:,} parameters in float32, batches of 16,
class-incremental (those that need the task: task-incremental), ten exemplars per class and
a hundred in memories that classes share.

- **Operations** of one training step, from the compiler's analysis of its program, which counts a
  loop once (GEM's quadratic program, the generative classifier's step of one class, expandable
  DER's and MEMO's pass through one earlier extractor). The number of
  steps differs: cumulative and joint train on all samples so far; GDumb trains a new network on its
  memory before every evaluation, and its step is one on memory; closed-form heads, which train
  nothing, take one pass over a task whatever the epochs. Computations once per task (importances,
  herding, a ridge's solution) are not counted.
- CBP and ReDo draw new units only in steps that replace some; the operations count the draw
  in every step.
- **Memory** of the strategy between steps; replayed images are stored as indices into the data
  set, not as pixels.
- **Copies** of the parameters that count as the model's memory in the criteria of
  Díaz-Rodríguez et al. 2018.
- Left out are {left_out}: they need a pretrained transformer, or samples with several labels.
- Rows from CWR on train or compute only a head on the pixels, of {head:,} parameters. The
  generative classifier trains a VAE per class.

| strategy | operations per step | relative to naive | memory, bytes | copies of the parameters |
|---|---|---|---|---|
"""


def render() -> str:
    """Return the text of the page."""
    loaded = load_benchmarks(options_of("run", ["digits", "--setting", *SETTINGS]))
    programs = {setting: MethodPrograms(loaded[setting]) for setting in SETTINGS}
    benchmarks = {setting: loaded[setting] for setting in SETTINGS}
    costs = {}
    for job in jobs_of(benchmarks, list(METHODS.values()), 1):
        if job.method.name not in costs:
            costs[job.method.name] = programs[job.column].cost(job.method)
            jax.clear_caches()
            print(job.method.name, costs[job.method.name], flush=True)
    naive = costs["naive"]
    ratios = {name: cost.operations / naive.operations for name, cost in costs.items()}
    most = max(ratios, key=ratios.get)
    head = HEAD.format(
        date=datetime.date.today().isoformat(),
        version=jax.__version__,
        device=jax.devices()[0].platform,
        parameters=naive.parameters,
        head=costs["CWR"].parameters,
        cheap=sum(ratio <= 2 for ratio in ratios.values()),
        total=len(ratios),
        most=most,
        left_out=in_words([name for name in METHODS if name not in costs]),
        ratio=ratios[most],
    )
    rows = [
        f"| {name} | {cost.operations:,.0f} | {ratios[name]:.2f} | "
        f"{cost.memory_bytes:,} | {cost.parameter_copies} |"
        for name, cost in costs.items()
    ]
    return head + "\n".join(rows) + "\n"


def in_words(names: list[str]) -> str:
    """Return names as a list in a sentence."""
    return f"{', '.join(names[:-1])} and {names[-1]}"


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
