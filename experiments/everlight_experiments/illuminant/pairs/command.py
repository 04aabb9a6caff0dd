"""Does the second camera help? Pairs of photographs with known illuminants, without a chart.

    everlight illuminant pairs --main CANON --second NIKON
    everlight illuminant pairs --main a.npz --second b.npz --block 4
    everlight illuminant pairs --main a.npz --second b.npz --match list.csv --groups scenes.txt

CANON and NIKON are folders of raw files, or of linear PNG and TIFF of 16 bits, with
illuminants.csv. The images of a pair are registered by their brightness.

The main camera's illuminant is estimated from one camera and from two, on folds of whole groups.
The report has paired differences against one camera at equal size, against FFCC, against the mean
of both cameras' own estimates, and the oracle of the pair.
"""

from pathlib import Path

import numpy as np

from everlight.illuminant.pair_inputs import VIEWS
from everlight_experiments.illuminant.config import CALIBRATE
from everlight_experiments.illuminant.core.camera_means import camera_mean_name
from everlight_experiments.illuminant.core.cross_validation import HELD_OUT
from everlight_experiments.illuminant.core.experiment import (
    IlluminantExperiment,
    estimate_arrays,
    record_errors,
)
from everlight_experiments.illuminant.core.networks import NetworkTraining
from everlight_experiments.illuminant.core.report import error_table, publish
from everlight_experiments.illuminant.pairs.methods import (
    FFCC,
    ONE_CAMERA,
    ORACLE,
    TRANSFORM_ALONE,
    TWO_CAMERAS,
    compare_methods,
)
from everlight_experiments.illuminant.pairs.options import PairsOptions
from everlight_experiments.illuminant.pairs.report import (
    QUESTION,
    answer,
    gain_figure,
    gain_table,
    pair_gains,
)
from everlight_experiments.illuminant.pairs.sources import (
    MIN_CORRELATION,
    PairSet,
    measure_pairs,
    read_pairs,
)
from everlight_experiments.illuminant.paper import METHOD_NOTES
from everlight_experiments.report.writer import Column, Section, Table
from everlight_experiments.run_folder.folder import RunFolder


def run_pairs(options: PairsOptions) -> Path:
    """Compare one camera with two, and return the report's path."""
    options.check_sources()
    folder = RunFolder("illuminant", "pairs", options)
    source = read_pairs(options)
    usable = measure_pairs(source, options.seed)
    seeds = range(options.seed, options.seed + options.seeds)
    networks = NetworkTraining(CALIBRATE[options.preset], seeds, folder.checkpoints)
    compared = compare_methods(folder, usable, networks)
    gains = pair_gains(compared)
    folder.save_results(
        **record_errors(folder, {"main": compared}),
        **estimate_arrays({"main": compared}),
        transforms=usable.pairs.transforms,
        groups=usable.groups,
        correlations=usable.correlations,
    )
    cameras = source.cameras
    illuminants = dict(
        zip(cameras, (usable.pairs.illuminants[view] for view in VIEWS), strict=True)
    )
    groups = len(np.unique(usable.groups))
    experiment = IlluminantExperiment(
        title=f"Two cameras without a chart: {cameras[0]} + {cameras[1]}",
        question=QUESTION,
        answer=answer(gains),
        answer_figure=gain_figure(folder.path / "gains.png", gains),
        data=source.note,
        comparisons={"main camera": compared},
        protocol={
            "Cameras": " + ".join(cameras),
            "Pairs": f"{len(usable.names)} usable in {groups} groups; "
            f"{len(usable.left_out)} left out",
            "Protocol": f"{len(usable.folds)} folds of whole groups: "
            f"{options.folds or f'drawn by seed {options.seed}'}",
        },
        selection_rule=f"{HELD_OUT} of the training pairs",
        seeds=f"{options.seeds} per network, from {options.seed}",
        illuminants={" + ".join(cameras): illuminants},
        training=networks.settings,
        curves=(TWO_CAMERAS, ONE_CAMERA, FFCC, camera_mean_name(FFCC), TRANSFORM_ALONE, ORACLE),
        headline=TWO_CAMERAS,
        notes=METHOD_NOTES[:1],
        tables=[gain_table(gains), error_table(compared)],
        after=[Section("The pairs", _left_out(usable), [_quality_table(usable)])],
    )
    return publish(folder, experiment)


def _left_out(usable: PairSet) -> list[str]:
    return [f"Left out: {reason}." for reason in usable.left_out]


def _quality_table(usable: PairSet) -> Table:
    """Return the quality of each pair's registration, the lowest first."""
    order = np.argsort(usable.correlations)
    rows = [
        [
            usable.names[row],
            str(usable.groups[row] + 1),
            f"{usable.correlations[row]:.3f}",
            f"{usable.overlaps[row]:.0%}",
        ]
        for row in order
    ]
    columns = [Column("Pair"), Column("Group"), Column("Correlation"), Column("Overlap")]
    caption = (
        "Correlation of both images' logarithmic brightness after registration, at least "
        f"{MIN_CORRELATION}, and the share of the main image that the second one shows."
    )
    return Table(caption, columns, rows)
