"""The two-camera paper's radiometric experiment (section 4.1, table 1, figures 4 and 5).

    everlight two_camera radiometric --preset demo

Presets:
  demo: measured spectra that ship with colour-science, its two cameras in both roles.
  small: the 28 cameras of Jiang et al. and the SFU lights below EVERLIGHT_DATA; a map of linear
    regression over all 756 ordered pairs, then the nets on five pairs drawn by the seed.
  paper: as small, with the paper's optimizer: rate 1e-4, batches of 1,024, 1 million epochs (its
    10 hours on a V100).

Twice: on exact responses of 24 surfaces at one exposure, as the paper has them, and as sensors give
them, with noise, quantisation, unknown exposures and 1 to 24 colours.
"""

import itertools
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, NamedTuple, get_args

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from everlight.checks import Between
from everlight.color.chromaticity import from_chromaticity
from everlight.models.illuminant_training import IlluminantModel, Problem, TrainingSettings
from everlight_data.color.radiometric import (
    RadiometricSettings,
    Scenes,
    Split,
    draw_color_counts,
    draw_scenes,
    show_colors,
)
from everlight_data.color.spectra import SpectralLibrary, embedded_library, measured_library
from everlight_data.errors import DataError
from everlight_experiments.common.checkpoint import Checkpoints
from everlight_experiments.common.progress import progress
from everlight_experiments.common.report import FirstScreen, Section, write_report
from everlight_experiments.common.run_folder import RunFolder
from everlight_experiments.common.settings import Count, Preset, RunSettings, in_words
from everlight_experiments.common.trees import rows_of, stacked
from everlight_experiments.illuminant import CITATION
from everlight_experiments.illuminant.networks import (
    best_of_restarts,
    predict_all,
    stack_problems,
    train_nets,
)
from everlight_experiments.illuminant.pair_map import PairMap, map_of_pairs
from everlight_experiments.illuminant.radiometric_methods import (
    LIGHTS,
    REPORTED,
    REPORTED_NOISE,
    VARIANTS,
    WIDTHS,
    Input,
    PairData,
    compare_methods,
    pair_exact,
    pair_noisy,
    prior_of,
    views_of,
)
from everlight_experiments.illuminant.radiometric_models import (
    ENSEMBLE,
    PairCoverage,
    measure_coverage,
    save_models,
    train_models,
)
from everlight_experiments.illuminant.radiometric_report import (
    Condition,
    RadiometricResults,
    report_sections,
)

RESTARTS = 2
"""Trainings of every net from different initial parameters; validation chooses."""

LEAST_SCENES = 16
"""Of which ten train: linear regression fits that many numbers."""

SPLITS: tuple[Split, ...] = get_args(Split)
# Of 3e-3, 1e-2 and 2e-2 the latter two are equally good on pairs and scenes that are not reported.
TRAINING = {
    "demo": TrainingSettings(6_000, 256, 1e-2, validate_every=60),
    "small": TrainingSettings(20_000, 512, 1e-2),
    # 11 batches an epoch; a validation every 100 epochs.
    "paper": TrainingSettings(11_000_000, 1024, 1e-4, "constant", validate_every=1_100),
}

TRAINING_NOISE = (0.002, 0.05)
"""Read noise of the noisy training scenes, drawn evenly in its logarithm, as a share of white."""
SWEEP_SCENES = 1_200
"""Test scenes photographed anew under each of `VARIANTS`."""


class Net(NamedTuple):
    """What a net is given, and its hidden layers."""

    given: Input
    depth: int


NETS: dict[Condition, dict[str, Net]] = {
    "exact": {
        "Net, 200 parameters": Net("T", 2),
        "Net, 470 parameters": Net("T", 5),
        "Net, 1460 parameters": Net("T", 16),
        "Net, 470 parameters, T with exposure": Net("T with exposure", 5),
        "Net, 470 parameters, T of sum-normalised": Net("T of sum-normalised", 5),
        "Net on moments, 470 parameters": Net("moments", 5),
        "Net on T and moments, 551 parameters": Net("T and moments", 5),
    },
    "noisy": {
        "Net, 470 parameters": Net("T", 5),
        "Net, 470 parameters, T of sum-normalised": Net("T of sum-normalised", 5),
        "Net on moments, 470 parameters": Net("moments", 5),
        "Net on T and moments, 551 parameters": Net("T and moments", 5),
    },
}


@dataclass(frozen=True)
class RadiometricRun(RunSettings):
    """Estimate illuminants of scenes rendered from measured spectra with two cameras (table 1)."""

    preset: Preset = "demo"
    """Configuration to run: demo uses spectra that ship with colour-science, small measured
    spectra, paper also the paper's optimizer."""
    camera_pairs: Count = 5
    """Number of randomly drawn camera pairs, for the presets small and paper."""
    scenes: Annotated[int, Between(LEAST_SCENES, 10_000_000)] | None = None
    """Number of scenes of 24 surfaces, split 60/20/20; by default 12,000 for demo and 18,000 for
    others."""

    @property
    def scene_count(self) -> int:
        """The number of scenes asked for, or the preset's."""
        if self.scenes is not None:
            return self.scenes
        return 12_000 if self.preset == "demo" else 18_000


def run_radiometric(
    settings: RadiometricRun, training: Mapping[Preset, TrainingSettings] = TRAINING
) -> Path:
    """Runs it all; returns the report's path."""
    folder = RunFolder("two_camera", "radiometric", settings)
    summary, first, sections = radiometric_sections(folder, settings, training)
    title = f"Two-camera illuminant estimation: radiometric set ({settings.preset})"
    return write_report(folder.path, title, summary, sections, first)


def radiometric_sections(
    folder: RunFolder,
    settings: RadiometricRun,
    training: Mapping[Preset, TrainingSettings] = TRAINING,
) -> tuple[list[tuple[str, str]], FirstScreen, list[Section]]:
    """Trains and compares; gives the report's summary, first screen and body."""
    library, pairs = _library_and_pairs(settings)
    pair_map = None if settings.preset == "demo" else _map_of_pairs(library, settings)
    data = prepare_data(library, pairs, settings)
    optimizer = training[settings.preset]
    train_started = time.monotonic()
    nets = train_all(data, optimizer, settings.seed, folder.checkpoints)
    models = train_models(
        data["noisy", "random"], pairs, optimizer, settings.seed, folder.checkpoints, library.note
    )
    train_seconds = time.monotonic() - train_started

    estimates: dict[tuple[Condition, Split], dict[str, np.ndarray]] = {}
    tests: dict[tuple[Condition, Split], list[PairData]] = {}
    variants: dict[Split, dict[str, dict[str, np.ndarray]]] = {}
    coverage: list[PairCoverage] = []
    with progress("estimators", 2 * len(SPLITS) * len(pairs), unit="pair") as bar:
        for split in SPLITS:
            photographed = photograph_variants(library, pairs, data, split, settings)
            tests["exact", split] = data["exact", split]
            tests["noisy", split] = photographed[REPORTED]
            for condition in NETS:
                compared = []
                for pair, test in zip(data[condition, split], tests[condition, split], strict=True):
                    compared.append(compare_methods(pair, test, test.scenes.test))
                    bar.update()
                estimates[condition, split] = {
                    name: np.stack([each[name] for each in compared]) for name in compared[0]
                } | nets.estimates(condition, split, tests[condition, split])
            variants[split] = {
                name: nets.estimates("noisy", split, again) for name, again in photographed.items()
            }
            if split == "random":
                like_training = {"as in training": data["noisy", split]}
                coverage = measure_coverage(models, like_training | photographed)
    results = RadiometricResults(
        pairs, tests, estimates, variants, nets.validation(data), coverage, pair_map, library
    )

    for (condition, split), by_method in results.errors().items():
        for name, errors in by_method.items():
            means = np.nanmean(errors, axis=1)
            folder.log(condition=condition, split=split, method=name, mean_error=means)
    folder.save_results(**results.arrays())
    save_models(folder.path, models)
    jobs = sum(len(each) for each in NETS.values()) * len(SPLITS) * len(pairs)
    trainings = RESTARTS * jobs + ENSEMBLE * len(LIGHTS) * len(pairs)
    low, high = TRAINING_NOISE
    summary = [
        ("Paper", CITATION),
        ("Data", library.note),
        ("Scenes", f"{settings.scene_count:,} of 24 surfaces: 60% train, 20% validate, 20% test"),
        (
            "Noisy scenes",
            "1 to 24 colours, exposures of each camera up to two stops under, read noise "
            f"{low:.1%} to {high:.0%} of white per pixel in training, {REPORTED_NOISE:.0%} in the "
            "tables, photon noise of 10,000 electrons at white, 10 bits; tested on "
            f"{SWEEP_SCENES:,} scenes of 24 colours",
        ),
        ("Camera pairs (main + second)", "; ".join(" + ".join(pair) for pair in pairs)),
        (
            "Selection rule",
            f"held-out selection: of {RESTARTS} trainings the step with the lowest validation "
            "loss; "
            "learning rate and misfit selected on validation camera pairs and scenes",
        ),
        ("Seeds", f"scenes, camera pairs and trainings from seed {settings.seed}"),
        ("Training", f"{trainings} trainings in {train_seconds:.0f} s: {in_words(optimizer)}"),
        ("Duration", folder.duration()),
    ]
    return summary, *report_sections(folder.path, results, optimizer.validate_every)


def prepare_data(
    library: SpectralLibrary, pairs: Sequence[tuple[str, str]], settings: RadiometricRun
) -> dict[tuple[Condition, Split], list[PairData]]:
    """Every pair under both conditions and splits."""
    data: dict[tuple[Condition, Split], list[PairData]] = {}
    for split in SPLITS:
        drawn = RadiometricSettings(settings.scene_count, split, settings.seed)
        scenes = draw_scenes(library, drawn)
        views = views_of(library, pairs, scenes, settings.seed)
        exact = [pair_exact(views[main], views[second], scenes) for main, second in pairs]

        generator = np.random.default_rng((settings.seed, 2))
        fewer = show_colors(scenes, draw_color_counts(generator, settings.scene_count))
        low, high = TRAINING_NOISE
        noise = low * (high / low) ** generator.random(settings.scene_count)
        views = views_of(library, pairs, fewer, settings.seed, noise)
        data["exact", split] = exact
        data["noisy", split] = [
            pair_noisy(views[main], views[second], fewer, prior_of(whole))
            for (main, second), whole in zip(pairs, exact, strict=True)
        ]
    return data


def photograph_variants(
    library: SpectralLibrary,
    pairs: Sequence[tuple[str, str]],
    data: Mapping[tuple[Condition, Split], Sequence[PairData]],
    split: Split,
    settings: RadiometricRun,
) -> dict[str, list[PairData]]:
    """The first test scenes, photographed anew in every way, by every pair."""
    scenes = data["exact", split][0].scenes
    rows = slice(scenes.test.start, min(scenes.test.start + SWEEP_SCENES, scenes.test.stop))
    count = rows.stop - rows.start
    some = Scenes(
        scenes.illuminant[rows],
        scenes.surfaces[rows],
        scenes.clusters[rows],
        *(slice(0, 0), slice(0, 0), slice(0, count)),
    )
    photographed = {}
    for number, (name, variant) in enumerate(VARIANTS.items(), start=1):
        shown = show_colors(some, np.full(count, variant.colors), variant.dominant)
        seed = settings.seed + 1_000 * number
        views = views_of(library, pairs, shown, seed, np.full(count, variant.read_noise))
        photographed[name] = [
            pair_noisy(views[main], views[second], shown, trained.prior)
            for (main, second), trained in zip(pairs, data["noisy", split], strict=True)
        ]
    return photographed


class Job(NamedTuple):
    """One net to be trained: its place in `NETS`, and its pair."""

    condition: Condition
    split: Split
    name: str
    pair: int

    @property
    def net(self) -> Net:
        """What it is given, and its depth."""
        return NETS[self.condition][self.name]


class AllNets(NamedTuple):
    """Every trained net, a model without leading axes, and its validation losses."""

    models: dict[Job, IlluminantModel]
    losses: dict[Job, Float[np.ndarray, "validations"]]

    def stacked(self, condition: Condition, split: Split, name: str) -> IlluminantModel:
        """One net's models of all pairs, with a leading axis."""
        models = [
            model
            for job, model in self.models.items()
            if (job.condition, job.split, job.name) == (condition, split, name)
        ]
        return stacked(models)

    def estimates(
        self, condition: Condition, split: Split, tests: Sequence[PairData]
    ) -> dict[str, Float[np.ndarray, "p n 3"]]:
        """Lights of the test scenes by net."""
        lights = {}
        for name, net in NETS[condition].items():
            inputs = jnp.stack([test.inputs[net.given][test.scenes.test] for test in tests])
            models = self.stacked(condition, split, name)
            lights[name] = np.asarray(from_chromaticity(predict_all(net.depth, models, inputs)))
        return lights

    def validation(
        self, data: Mapping[tuple[Condition, Split], Sequence[PairData]]
    ) -> dict[tuple[Condition, Split], dict[str, Float[np.ndarray, "validations p"]]]:
        """Validation losses by table and net."""
        return {
            (condition, split): {
                name: np.stack(
                    [self.losses[condition, split, name, pair] for pair in range(len(pairs))], 1
                )
                for name in NETS[condition]
            }
            for (condition, split), pairs in data.items()
        }


def train_all(
    data: Mapping[tuple[Condition, Split], Sequence[PairData]],
    optimizer: TrainingSettings,
    seed: int,
    checkpoints: Path,
) -> AllNets:
    """Trains every net on every pair, those of one shape in one program."""
    programs: dict[tuple[int, int], list[Job]] = {}
    for condition, split in data:
        for name, net in NETS[condition].items():
            for pair in range(len(data[condition, split])):
                shape = net.depth, WIDTHS[net.given]
                programs.setdefault(shape, []).append(Job(condition, split, name, pair))
    models, losses = {}, {}
    for (depth, width), jobs in programs.items():
        problems: list[Problem] = [
            data[job.condition, job.split][job.pair].problem(job.net.given) for job in jobs
        ]
        trained = train_nets(
            stack_problems([problem for problem in problems for _ in range(RESTARTS)]),
            (depth,),
            optimizer,
            seed,
            Checkpoints(checkpoints / f"depth-{depth}-width-{width}"),
        )
        best = best_of_restarts(trained, RESTARTS)
        for index, job in enumerate(jobs):
            models[job] = rows_of(best.models[depth], index)
            losses[job] = np.asarray(best.losses[depth].valid[:, index])
    return AllNets(models, losses)


def draw_pairs(cameras: Sequence[str], count: int, seed: int) -> list[tuple[str, str]]:
    """`count` different pairs of cameras, the first of each being the main one.

    Raises:
      DataError: fewer than one pair, or more than there are.
    """
    every = list(itertools.combinations(cameras, 2))
    if not 1 <= count <= len(every):
        raise DataError(
            f"camera_pairs={count}; {len(cameras)} cameras make 1 to {len(every)} pairs"
        )
    drawn = np.random.default_rng(seed).choice(len(every), count, replace=False)
    return [every[index] for index in drawn]


def _library_and_pairs(
    settings: RadiometricRun,
) -> tuple[SpectralLibrary, list[tuple[str, str]]]:
    if settings.preset == "demo":
        library = embedded_library()
        first, second = library.camera_names
        return library, [(first, second), (second, first)]
    library = measured_library()
    return library, draw_pairs(library.camera_names, settings.camera_pairs, settings.seed)


def _map_of_pairs(library: SpectralLibrary, settings: RadiometricRun) -> PairMap:
    return map_of_pairs(library, min(settings.scene_count, 6_000), settings.seed, REPORTED_NOISE)
