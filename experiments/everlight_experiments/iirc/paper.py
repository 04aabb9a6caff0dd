"""The paper's report: findings, confusion of labels and exemplars."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from everlight.continual import multi_hot
from everlight.continual.methods.registry import METHODS
from everlight.metrics import confusion_matrix
from everlight_data.errors import DataError
from everlight_data.iirc.sets import IIRCData, is_imagenet
from everlight_data.names import check_name
from everlight_experiments.continual.benchmarks.run_data import SequenceId
from everlight_experiments.continual.paper import (
    Claim,
    Experiment,
    Paper,
    PaperOptions,
    Results,
    Verdict,
)
from everlight_experiments.continual.report.metric_items import plot_shares
from everlight_experiments.continual.training.outcome import Outcome
from everlight_experiments.continual.training.programs import method_on
from everlight_experiments.continual.training.queue import Job
from everlight_experiments.iirc import benchmark as iirc
from everlight_experiments.iirc.config import (
    FORMS,
    IMAGENET,
    PAPER_PRESETS,
    WITH_EXEMPLARS,
    PaperConfig,
)
from everlight_experiments.report.cells import spread
from everlight_experiments.report.writer import Column, Figure, Section, Table
from everlight_experiments.run_folder.config_options import option_value
from everlight_experiments.run_folder.folder import RunFolder
from everlight_experiments.run_folder.options import check_methods

CITATION = 'Abdelsalam et al. 2021, "IIRC: Incremental Implicitly-Refined Classification"'
Values = Float[np.ndarray, "seeds"]


def experiment(
    config: PaperConfig, folder: RunFolder, options: PaperOptions
) -> Experiment[IIRCData]:
    """Return the benchmark with the paper's methods, and one per further number of exemplars."""
    check_methods(config.methods, FORMS)
    config.benchmark.check_method_names(list(FORMS))
    for name in config.ablated:
        check_name("method with exemplars --ablated", name, WITH_EXEMPLARS)
    base, runs = config.benchmark, config.configurations
    data = iirc.load_data(base, runs, options.seed)
    available = len(data.metadata.configurations)
    if runs > available:
        raise DataError(f"--configurations {runs}; {base.data} has {available}")
    loaded = iirc.load_inputs(base, iirc.decodable(base, data, folder), options.runs)
    benchmarks = {iirc.SETTING: iirc.iirc_benchmark(base, loaded, options.seed)}
    methods = [method_on(benchmarks[iirc.SETTING], FORMS[name]) for name in config.methods]
    ablated = [method for method in methods if method.name in config.ablated]
    aside = {}
    for count in config.ablation if ablated else ():
        column = column_of(count)
        changed = replace(base, exemplars_per_class=count)
        benchmark = iirc.iirc_benchmark(changed, loaded, options.seed)
        scores_alone = benchmark.setting.metrics._replace(others=())
        setting = benchmark.setting._replace(metrics=scores_alone)
        aside[column] = benchmark._replace(prefix=f"{count}-exemplars", setting=setting)
    jobs = [Job(iirc.SETTING, method, runs) for method in methods]
    jobs += [Job(column, method, runs) for method in ablated for column in aside]
    return Experiment(benchmarks | aside, jobs, frozenset(aside), loaded.data)


def selection_rule(config: PaperConfig) -> str:
    """Return the epochs that methods keep, in words."""
    validates = config.benchmark.protocol.select == "best"
    best = [name for name in config.methods if validates and FORMS[name].select == "best"]
    if not best:
        return "All methods keep the last epoch."
    return (
        f"{', '.join(best)}: the epoch with the best in-task validation is kept (among equals, the "
        "last). The other methods keep the last epoch."
    )


def column_of(exemplars: int) -> str:
    """Return the name of the column with another number of exemplars per class."""
    return f"{exemplars} exemplars"


def jaccard_gap(outcome: Outcome) -> Values:
    """Return the mean distance of JS from pw-JS, which superfluous labels make."""
    weighted, plain, *_ = np.moveaxis(outcome.metrics[iirc.SCORES], -1, 0)
    return (plain - weighted).mean(axis=1)


def ordering_claim(
    text: str,
    first: Sequence[str],
    second: Sequence[str],
    value: Callable[[Outcome], Values] = lambda outcome: outcome.over_time.mean(axis=1),
) -> Claim[Outcome]:
    """Return the claim that every first method's value is above every second one's."""
    methods = (*first, *second)

    def test(outcomes: Mapping[str, Outcome]) -> Verdict:
        values = {name: value(outcomes[name]) for name in methods}
        lowest = np.min([values[name] for name in first], axis=0)
        highest = np.max([values[name] for name in second], axis=0)
        means = "; ".join(f"{name} {scores.mean():.3f}" for name, scores in values.items())
        return Verdict(lowest > highest, means)

    return Claim(text, methods, test)


def newest_task_decline(outcomes: Mapping[str, Outcome]) -> Verdict:
    """Compare the newest task's score in the last third of the tasks with the first third."""
    newest = outcomes["LUCIR"].metrics[iirc.NEWEST]
    third = max(1, newest.shape[1] // 3)
    # The first task has superclasses alone and twice the epochs.
    early, late = newest[:, 1 : 1 + third].mean(axis=1), newest[:, -third:].mean(axis=1)
    return Verdict(late < early, f"R_jj {early.mean():.3f} early, {late.mean():.3f} late")


CLAIMS = (
    ordering_claim(
        "Incremental joint, which has all labels, is above ER-infinite, which has not",
        ["incremental joint"],
        ["ER-infinite"],
    ),
    ordering_claim(
        "Both iCaRLs are ahead of ER and finetune",
        ["iCaRL-CNN", "iCaRL-norm"],
        ["ER-balanced", "finetune"],
    ),
    ordering_claim(
        "iCaRL predicts too many labels: JS is further above pw-JS than for LUCIR",
        ["iCaRL-CNN", "iCaRL-norm"],
        ["LUCIR"],
        jaccard_gap,
    ),
    ordering_claim(
        "LUCIR retains: its first task is above ER's at the end",
        ["LUCIR"],
        ["ER-balanced"],
        lambda outcome: outcome.matrices[:, -1, 0],
    ),
    Claim("LUCIR learns new labels less and less: R_jj falls", ("LUCIR",), newest_task_decline),
    ordering_claim("A-GEM is below ER-balanced", ["ER-balanced"], ["A-GEM"]),
)


def sections(results: Results[PaperConfig, IIRCData]) -> list[Section]:
    """Return what only this paper's report shows."""
    body = [Section("Confusion of labels", items=[confusion(results)])]
    if results.experiment.hidden_columns:
        body.append(Section("More exemplars", items=[exemplars(results)]))
    return body


def confusion(results: Results[PaperConfig, IIRCData]) -> Figure:
    """Return the labels that are predicted for samples of each label, and those that are true."""
    order, benchmark = results.experiment.data.order(0), results.benchmarks[iirc.SETTING]
    sequence = benchmark.data.sequence(METHODS["naive"], SequenceId("evaluation", results.seed, 0))
    labels = multi_hot(sequence.test.labels, len(order))
    squares = {"truth": np.asarray(confusion_matrix(labels, labels, jnp.arange(len(order))))}
    for name, outcome in results.outcomes[iirc.SETTING].items():
        squares[name] = outcome.metrics[iirc.CONFUSION][0]
    caption = (
        "After the last task of the first configuration: of the samples with one label, the share "
        "for which another is predicted (figure 6). Lines of the truth off its diagonal are "
        "superclasses and their subclasses. Labels are in order of introduction: "
        # ImageNet's names are lists of synonyms.
        f"{', '.join(name.split(',')[0] for name in order)}."
    )
    return Figure(caption, plot_shares(results.folder / "confusion.png", squares, "label"))


def exemplars(results: Results[PaperConfig, IIRCData]) -> Table:
    """Return the final pw-JS by the number of exemplars per class."""
    by_count = {count: results.outcomes[column_of(count)] for count in results.config.ablation}
    names = next(iter(by_count.values()))
    by_count[results.config.benchmark.exemplars_per_class] = results.outcomes[iirc.SETTING]
    counts = sorted(by_count)
    columns = [Column("method"), *(Column(f"{count:,}", "exemplars per class") for count in counts)]
    rows = [[name, *(spread(by_count[count][name].final) for count in counts)] for name in names]
    caption = (
        "pw-JS after the last task with more exemplars per class (appendix E); ± is the standard "
        "deviation over configurations."
    )
    return Table(caption, columns, rows)


def file_remarks(results: Results[PaperConfig, IIRCData]) -> list[tuple[str, str]]:
    """Return deviations of ImageNet's files from the complete set."""
    remarks = getattr(results.experiment.data.images, "remarks", ())
    return [("Files", remark) for remark in remarks]


def options(arguments: Sequence[str]) -> type:
    """Return the command's options; preset paper has other defaults on ImageNet's data."""
    on_imagenet = is_imagenet(option_value(arguments, "--data") or "")
    presets = {**PAPER_PRESETS, "paper": IMAGENET} if on_imagenet else PAPER_PRESETS
    return PAPER._replace(presets=presets).options(arguments)


PAPER = Paper(
    "iirc",
    CITATION,
    lambda config: f"IIRC: {len(config.methods)} methods on {config.benchmark.data}",
    PAPER_PRESETS,
    experiment,
    sections,
    file_remarks,
    rule=selection_rule,
    findings=lambda results: [claim.check(results.outcomes[iirc.SETTING]) for claim in CLAIMS],
    findings_source="Each finding of the paper is for IIRC-CIFAR; the table counts the "
    "configurations of this run in which it holds. Means are over tasks and configurations.",
)
