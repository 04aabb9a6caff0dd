"""Options of the commands that train methods on benchmarks."""

import dataclasses
from pathlib import Path
from typing import Annotated, Any, ClassVar

import tyro

from everlight.checks import Between
from everlight.continual.methods.replay_variants import VariantName
from everlight_experiments.continual.benchmarks.config import SettingName
from everlight_experiments.continual.benchmarks.run_data import AddedData, Seeds
from everlight_experiments.run_folder.options import (
    Count,
    Distributed,
    ExperimentOptions,
    FolderOptions,
    Preset,
    ProtocolPreset,
    Seed,
)

ALL = "all"
"""Word that stands for every method in `--methods`."""
BenchmarkArgument = Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="BENCHMARK")]
AddedConfig = tyro.conf.Suppress[Any]
"""Configuration of the named benchmark, whose options `with_config` adds; None of a user's file."""


@dataclasses.dataclass(frozen=True)
class MethodOptions(ExperimentOptions):
    """Options of every command that trains methods on benchmarks."""

    refused: ClassVar[tuple[str, ...]] = ()
    """Options that the named benchmark refuses; help leaves them out."""
    preset: Preset = "demo"
    """Size of the experiment: demo, small or paper. The first takes minutes, small is for two
    cores, and paper has the settings of the benchmark's paper where there is one. The benchmarks
    digits, fashion-mnist, mnist and images have one size."""
    methods: tuple[str, ...] = ("joint", "EWC", "ER", "DER++", "nearest mean")
    """Names of methods, which `everlight methods` lists, or all. Quote names that contain spaces.
    The word all stands for every method that the benchmark supports, but those of little use there,
    which a line names. The baseline naive always runs."""
    setting: tuple[SettingName, ...] | None = None
    """Settings: task-incremental, class-incremental or online. None is class-incremental. Only
    task-incremental gives the task identity at test. Online is class-incremental with one pass;
    methods that act at task boundaries are given them by default, and --no-boundaries leaves these
    methods out. The benchmarks iirc, CORe50 and facts have settings of their own instead: core50-ni
    is domain-incremental (all classes in every task), core50-nc class-incremental, core50-nic both.
    """
    validation_seeds: Count = 2
    """Number of seeds that only select hyper-parameters. They do so on held-out training images;
    reported results never use them. They are counted up from --seed + 1000; iirc and CORe50 take
    their last task orders instead."""
    validation_tasks: Count | None = None
    """Number of tasks that select hyper-parameters; None is all. The first tasks are then the only
    ones trained on a validation seed, as in Chaudhry et al. 2019 (ICLR), who take 3. All tasks are
    optimistic, since no learner has the later tasks beforehand."""
    distributed: Distributed = None


@dataclasses.dataclass(frozen=True)
class TrainOptions(MethodOptions):
    """Options of the commands that evaluate methods on benchmarks."""

    hyperparameters: tuple[str, ...] = ()
    """Methods' values to try, as in EWC=1e2,1e4,1e6 SI=0.1. They replace those that
    `everlight methods` lists. A single value is used without tuning. The word published stands for
    the settings that authors selected on this data set for this buffer, where they are known (mnist
    and its permuted and rotated streams, fashion-mnist, cifar10, cifar100, tiny-imagenet): learning
    rates, replay batches and coefficients. icifar, CORe50 and facts try other values for some
    methods by default."""
    seeds: Seeds = 3
    """Number of evaluation seeds, counted up from --seed. Each has its own order of classes (with
    --order natural, and for facts, only its own initial network). More can be added later."""
    keep_nets: bool = False
    """Save all trained networks after every task, in models/. That is a folder of the run, and the
    Python function `load_net` loads them."""


@dataclasses.dataclass(frozen=True)
class RunOptions(TrainOptions):
    """Train any methods on one benchmark or on your own images.

    An example, in full: everlight run fashion-mnist --order natural --net mlp:256,256
    --optimizer sgd --learning-rate 0.03 --batch-size 10 --epochs 1 --validation-fraction 0
    --methods ER --buffer-size 200 --replay-batch-size 128 --seeds 1

    The defaults below are those of the named benchmark, or of digits if none is named.

    digits and procedural need no data, nor do icifar, iirc, facts and CORe50 at --preset demo.
    Other data sets belong in the folder that the environment variable EVERLIGHT_DATA names;
    `everlight data list` says where to download them (Fashion-MNIST: four files from
    github.com/zalandoresearch/fashion-mnist) and which `everlight data prepare` has to convert.

    Instead of a name, --config gives all options: --config RUN/config.json --tag again
    repeats a run in a folder of its own, and --config FILE.py:NAME takes a configuration of your
    own. Other options change them.
    """

    run_selectors = ("methods", "strategy", "setting", "seeds", "published", "variants")
    preset: Preset | ProtocolPreset = "demo"
    """Size (demo, small, paper), or protocol: der (Mammoth's), ocl (online), three-scenarios;
    defaults unlike Mammoth's and Avalanche's: docs/pages/guide/runner.md. Demo takes minutes, small
    is for two cores, and paper has the settings of the benchmark's paper where there is one. The
    benchmarks digits, fashion-mnist, mnist and images have one size. The protocols are of the
    literature: der is for mnist, cifar10, cifar100 and tiny-imagenet-64, ocl (one pass) for cifar10
    and cifar100, three-scenarios (van de Ven et al. 2022) for mnist."""
    benchmark: BenchmarkArgument = ""
    """Name of a benchmark, as in digits or tiny-imagenet:small, or your own, as FILE.py:NAME. The
    part after the colon is a preset; images is for your own --data. FILE.py:NAME is a `Benchmark`
    of a Python file, or a function that returns two lists, of training and of test tasks, each task
    a pair of arrays, images and labels (docs/pages/guide/benchmarks.md). Options of data and tasks
    are then the file's."""
    strategy: tuple[str, ...] = ()
    """Your own strategies, each as my_file.py:my_strategy. That is a function from a `Setup` to a
    `Strategy` (docs/pages/guide/strategy.md)."""
    method_arguments: tuple[str, ...] = ()
    """Arguments of methods, as in DER++:alpha=0.2,beta=0.5. Those of several methods are separated
    by spaces, as in DER:alpha=0.2 ER-ACE:loss_over=all. The report lists each method's arguments
    with their values and meanings."""
    published: bool = True
    """Add a row with the hyper-parameter of each method's paper."""
    variants: tuple[VariantName, ...] | None = None
    """Rows to add for methods with memory: nearest-mean, review. The first predicts by the nearest
    mean of the stored samples' features, review trains on the memory before every evaluation (Mai
    et al. 2022). None adds no row."""
    config: AddedConfig = None


@dataclasses.dataclass(frozen=True)
class GridOptions(TrainOptions):
    """Rank methods over several benchmarks in one table."""

    run_selectors = ("benchmarks", "methods", "setting", "seeds", "set")
    benchmarks: tuple[str, ...] = ("digits", "core50-ni", "core50-nc", "facts")
    """Names of benchmarks, each with an optional preset of its own, as in icifar:small."""
    set: tuple[str, ...] = ()
    """Options of the benchmarks' configurations: NAME=VALUE changes every benchmark that has it,
    as in epochs=2; BENCHMARK.NAME=VALUE changes one, as in icifar:small.learning-rate=0.01. Quote
    several values, as in 'per-class=100 50'."""
    methods: tuple[str, ...] = ("joint", "EWC", "SI", "ER", "DER++", "nearest mean")
    """Names of methods, which `everlight methods` lists, or all. Quote names that contain spaces.
    The word all stands for every method that one of the benchmarks supports. The baseline naive
    always runs."""


@dataclasses.dataclass(frozen=True)
class TuneOptions(MethodOptions):
    """Grid-search values of the configuration on validation seeds."""

    run_selectors = ("vary", "methods", "setting", "validation_seeds")
    seeds: ClassVar[int] = TrainOptions.seeds
    """Number of evaluation seeds of `everlight run`, which must exist beside the others."""
    benchmark: BenchmarkArgument = ""
    """Name of the benchmark, with an optional preset as in tiny-imagenet:small."""
    vary: tuple[str, ...] = ()
    """Values of options to combine, joined by commas, as in learning-rate=0.01,0.03 epochs=5,10.
    Put texts that contain commas in quotes: net="'mlp:100,100','cnn'"."""
    methods: tuple[str, ...] = ("joint", "ER")
    """Names of the methods over which scores are averaged, or all. Quote names that contain spaces;
    `everlight methods` lists them. The word all stands for every method that the benchmark
    supports."""
    config: AddedConfig = None


@dataclasses.dataclass(frozen=True)
class UpdateOptions(FolderOptions):
    """Train the networks of a finished run further on new classes, or on new images of old ones.

    An example: everlight update runs/run-images-demo --data NEW_FOLDER --methods ER. The run must
    have kept its networks (`everlight run ... --keep-nets`), and its data must still be there: old
    test sets are scored again, and some methods replay old images. The result is a new run folder,
    which can be updated in turn.
    """

    run_selectors = ("methods", "seed", "seeds")
    paths = ("run", "data", "test_data")
    run: tyro.conf.Positional[Path]
    """Folder of the finished run, or of its last update."""
    data: str
    """New images, of one class or more: a folder with one sub-folder per class, a .csv of file and
    label, an .npz, or a folder of IDX files. A class with the name of an old one is that class;
    others are added, and no class changes its number. The run's --label-noise, --shots, --per-class
    and other options that change training images do not apply to them."""
    test_data: Path | None = None
    """Path of the new test images, in any of the forms of --data and with the same class names;
    None splits off test images of --data (--test-every)."""
    test_every: Annotated[int, Between(2, 1000)] = 5
    """Every N-th new image of each class is a test image."""
    methods: tuple[str, ...] = ()
    """Names of the methods to update; none is all methods of the run that can be updated."""
    seed: Seed | None = None
    """First seed to update; None is the run's first."""
    seeds: Seeds | None = None
    """Number of seeds, counted up from --seed; None is all."""

    @property
    def added(self) -> AddedData:
        """The new images."""
        return AddedData(self.data, self.test_data, self.test_every)
