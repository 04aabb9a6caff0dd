"""What the radiometric experiment shows: tables, curves, scatters and the map of pairs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from everlight.color.chromaticity import to_chromaticity
from everlight_data.color.radiometric import PATCHES, SAME_ILLUMINANT_COSINE
from everlight_data.color.spectra import SpectralLibrary
from everlight_experiments.common.report import Column, Figure, FirstScreen, Section, Table
from everlight_experiments.illuminant import plots
from everlight_experiments.illuminant.pair_map import PairMap
from everlight_experiments.illuminant.paper import TABLE_1_RADIOMETRIC
from everlight_experiments.illuminant.radiometric_methods import (
    REPORTED_NOISE,
    VARIANTS,
    PairData,
    Variant,
)
from everlight_experiments.illuminant.radiometric_models import PairCoverage, coverage_table
from everlight_experiments.illuminant.tables import (
    ABBREVIATIONS,
    Comparison,
    Resampled,
    angular_errors,
    curves_with_least,
    error_table,
    first_screen,
    spread,
)

Condition = Literal["exact", "noisy"]

CONDITION_NAMES: dict[Condition, str] = {
    "exact": "Exact responses, one exposure, 24 colours",
    "noisy": "Noisy sensors, unknown exposures, 24 colours",
}
SPLIT_NAMES = {
    "random": "Seen illuminants: every test illuminant also lit training scenes (the paper's "
    "protocol)",
    "illuminant": "Unseen illuminants: no test illuminant, and no spectrum with a cosine above "
    f"{SAME_ILLUMINANT_COSINE} to it, occurs in training",
}
CURVES = (
    "Net, 470 parameters",
    "Net on moments, 470 parameters",
    "Net on T and moments, 551 parameters",
    "Linear regression",
    "Chromagenic",
    "GW",
    "PCA",
    "Gamut Pixel",
)
# What the question "what does the second camera add" is asked of.
ADDED = {
    "T": "Net, 470 parameters",
    "moments": "Net on moments, 470 parameters",
    "T and moments": "Net on T and moments, 551 parameters",
}
ALONE, TOGETHER = ADDED["moments"], ADDED["T and moments"]


class RadiometricResults(NamedTuple):
    """All that the report is made of."""

    pairs: Sequence[tuple[str, str]]
    tests: Mapping[tuple[Condition, str], Sequence[PairData]]
    estimates: Mapping[tuple[Condition, str], Mapping[str, Float[np.ndarray, "p n 3"]]]
    variants: Mapping[str, Mapping[str, Mapping[str, Float[np.ndarray, "p k 3"]]]]
    validation: Mapping[tuple[Condition, str], Mapping[str, Float[np.ndarray, "validations p"]]]
    coverage: Sequence[PairCoverage]
    pair_map: PairMap | None
    library: SpectralLibrary

    def errors(self) -> dict[tuple[Condition, str], dict[str, Float[np.ndarray, "p n"]]]:
        """Angular errors by table and method."""
        return {
            table: {
                name: np.asarray(angular_errors(values, self._truth(table)))
                for name, values in by_method.items()
            }
            for table, by_method in self.estimates.items()
        }

    def variant_errors(self) -> dict[str, dict[str, dict[str, Float[np.ndarray, "p"]]]]:
        """Mean angular errors by split, way of photographing, and net."""
        return {
            split: {
                variant: {
                    name: np.nanmean(
                        np.asarray(angular_errors(values, self._truth(("noisy", split)))), axis=1
                    )
                    for name, values in by_net.items()
                }
                for variant, by_net in by_variant.items()
            }
            for split, by_variant in self.variants.items()
        }

    def comparison(self, table: tuple[Condition, str]) -> Comparison:
        """All methods' lights; runs are camera pairs, whose lights differ, in one fold."""
        estimates = {name: values[:, None] for name, values in self.estimates[table].items()}
        return Comparison(estimates, self._truth(table)[:, None])

    def _truth(self, table: tuple[Condition, str]) -> Float[np.ndarray, "p n 3"]:
        return np.stack([test.main.illuminants[test.scenes.test] for test in self.tests[table]])

    def arrays(self) -> dict[str, np.ndarray]:
        """The raw arrays to be saved."""
        arrays = {
            f"{condition}/{split}/{name}": errors
            for (condition, split), by_method in self.errors().items()
            for name, errors in by_method.items()
        }
        arrays |= {
            f"variants/{split}/{variant}/{name}": means
            for split, by_variant in self.variant_errors().items()
            for variant, by_net in by_variant.items()
            for name, means in by_net.items()
        }
        arrays["camera_pairs"] = np.array(self.pairs)
        if self.pair_map is not None:
            arrays |= {f"pair_map/{name}": v for name, v in self.pair_map._asdict().items()}
        return arrays


def report_sections(
    folder: Path, results: RadiometricResults, every: int
) -> tuple[FirstScreen, list[Section]]:
    """The report's first screen and body; pictures are written into `folder`."""
    errors = results.errors()
    tables = []
    for table, by_method in errors.items():
        condition, split = table
        pair = results.tests[table][0]
        tables.append(
            error_table(
                f"{CONDITION_NAMES[condition]}. {SPLIT_NAMES[split]}. Test set: "
                f"{len(results.pairs)} camera pairs, {next(iter(by_method.values())).shape[1]:,} "
                "scenes.",
                results.comparison(table),
                TABLE_1_RADIOMETRIC if condition == "exact" else {},
                "camera pairs",
                Resampled("illuminants", pair.scenes.clusters[pair.scenes.test][None]),
            )
        )
    conditions = {
        f"{condition}, {_short(split).lower()}": by_method
        for (condition, split), by_method in errors.items()
    }
    picture = Figure(
        "Share of test images at or below each angular error, mean over camera pairs; the band "
        "is the range over pairs of the first method.",
        plots.plot_error_curves(folder / "error_curves.png", curves_with_least(CURVES, conditions)),
    )
    in_one_fold = {
        condition: {name: values[:, None] for name, values in by_method.items()}
        for condition, by_method in conditions.items()
    }
    sections = [
        Section(
            "Angular errors beside the paper's table 1",
            (
                ABBREVIATIONS,
                "The paper's columns are of another data set: it does not state which two of the "
                "28 cameras it used, and not all its surfaces and illuminants are published. Bold: "
                "lowest mean. T is divided by its mean row sum, which removes exposure, unless a "
                "row states otherwise. 'On moments' is a network of the same size and training on "
                "nine colour moments of the main image. The chromagenic method selects among "
                "training illuminants, which contain the test illuminants only where these are "
                "seen.",
                "Noisy: each pixel has read noise of 1% of white and shot noise, each camera has "
                "its own exposure, and T is the maximum a posteriori transform under the "
                "distribution of the training scenes' exact transforms.",
            ),
            tables,
        ),
        _added_section(folder, results),
        Section(
            "Intervals of the command estimate",
            (),
            [coverage_table(results.coverage)],
        ),
        _look_section(folder, results, every),
    ]
    if results.pair_map is not None:
        sections.append(_map_section(folder, results.pair_map, results.library.camera_names))
    resampled = {
        condition: Resampled("illuminants", pair.scenes.clusters[pair.scenes.test][None])
        for condition, pair in zip(
            conditions, (results.tests[table][0] for table in errors), strict=True
        )
    }
    first = first_screen(results.library.note, picture, in_one_fold, TABLE_1_RADIOMETRIC, resampled)
    return first, sections


def _added_section(folder: Path, results: RadiometricResults) -> Section:
    """What the second camera adds to a trained regressor on the first one's image."""
    errors = results.variant_errors()
    rows = []
    for split, by_variant in errors.items():
        for variant, by_net in by_variant.items():
            gains = by_net[ALONE] - by_net[TOGETHER]
            rows.append(
                [
                    _short(split),
                    variant,
                    *(spread(by_net[name]) for name in ADDED.values()),
                    spread(gains),
                ]
            )
    columns = [Column("Split"), Column("Test scenes")]
    columns += [Column(given, "input of the network, degrees") for given in ADDED]
    columns.append(Column("Gain of the second camera", "moments minus both, degrees"))
    table = Table(
        "Networks trained on noisy scenes and tested under other conditions: read noise of 0.1% to "
        "10% of white per pixel with 24 colours, and at 1% noise 1 to 8 colours, or 20 of 24 "
        "patches in one colour. Means over test scenes and camera pairs; ± is the standard "
        "deviation over pairs.",
        columns,
        rows,
    )

    def series(split: str, asked: Literal["read_noise", "colors"]) -> plots.Curves:
        usual = Variant()
        places = {
            getattr(variant, asked): name
            for name, variant in VARIANTS.items()
            if variant._replace(**{asked: getattr(usual, asked)}) == usual
        }
        return {
            given: {place: errors[split][places[place]][name] for place in sorted(places)}
            for given, name in ADDED.items()
        }

    panels = {}
    for split in errors:
        title = _short(split).lower()
        panels[f"{title}, {PATCHES} colours"] = (
            "read noise (share of white)",
            series(split, "read_noise"),
        )
        panels[f"{title}, {100 * REPORTED_NOISE:g}% noise"] = (
            "colours in the scene",
            series(split, "colors"),
        )
    return Section(
        "Gain of the second camera",
        (_verdict(errors),),
        [
            table,
            Figure(
                "Mean angular error of the three networks against noise and against the number of "
                "colours in the scene; bands are the range over camera pairs.",
                plots.plot_series(folder / "second_camera.png", panels),
            ),
        ],
    )


def _verdict(errors: Mapping[str, Mapping[str, Mapping[str, Float[np.ndarray, "p"]]]]) -> str:
    """Where both inputs are better than the main image alone on every pair, and where not."""
    sentences = []
    for split, by_variant in errors.items():
        helps = [
            variant
            for variant, by_net in by_variant.items()
            if np.all(by_net[TOGETHER] < by_net[ALONE])
        ]
        rest = [variant for variant in by_variant if variant not in helps]
        sentences.append(
            f"{_short(split)}: both inputs have a lower error than moments alone on every camera "
            f"pair for {'; '.join(helps) or 'no condition'}. They do not for "
            f"{'; '.join(rest) or 'no condition'}."
        )
    return " ".join(sentences)


def _short(split: str) -> str:
    """A split's name alone."""
    return SPLIT_NAMES[split].split(":")[0]


def _look_section(folder: Path, results: RadiometricResults, every: int) -> Section:
    exact, noisy = (results.tests[condition, "random"][0] for condition in CONDITION_NAMES)
    cameras = results.pairs[0]
    views, lights = [], []
    for test, rows in ((exact, 3), (noisy, 3)):
        some = slice(test.scenes.test.start, test.scenes.test.start + rows)
        views.append([np.asarray(view.images(some)) for view in (test.main, test.second)])
        lights += list(zip(test.main.illuminants[some], test.second.illuminants[some], strict=True))
    pictures = [pair for sides in views for pair in zip(*sides, strict=True)]
    test = exact.scenes.test
    first = slice(test.start, test.start + 200)
    predicted = {
        name: np.asarray(to_chromaticity(jnp.asarray(values[0])))
        for name, values in results.estimates["exact", "random"].items()
        if name in ("GW", "Net on moments, 470 parameters", "Net, 470 parameters")
    }
    scatter = {
        f"{main} + {second}": {
            main: data.main.illuminants[first],
            second: data.second.illuminants[first],
        }
        for (main, second), data in zip(
            results.pairs, results.tests["exact", "random"], strict=True
        )
    }
    return Section(
        "Camera views",
        (),
        [
            Figure(
                f"Test scenes in the raw colours of {cameras[0]} and {cameras[1]}, each above its "
                "illuminant: three exact and three noisy scenes.",
                plots.plot_thumbnails(folder / "scenes.png", pictures, lights, cameras),
            ),
            Figure(
                "Ground-truth illuminants of 200 test scenes in both cameras' raw colours (the "
                "paper's figure 5A).",
                plots.plot_illuminants(folder / "illuminants.png", dict(list(scatter.items())[:3])),
            ),
            Figure(
                f"Estimated against true chromaticity, {' + '.join(cameras)}, exact responses, "
                "seen illuminants.",
                plots.plot_predictions(
                    folder / "predictions.png", np.asarray(exact.targets(test)), predicted
                ),
            ),
            Figure(
                "Validation loss during training: median over camera pairs; the band is the range.",
                plots.plot_training(folder / "training.png", _curves(results), every),
            ),
        ],
    )


def _curves(results: RadiometricResults) -> dict[str, dict[str, np.ndarray]]:
    """Validation losses `[validations, pairs]` by split and net, exact responses."""
    return {
        _short(split): {name: losses for name, losses in by_net.items() if ", T " not in name}
        for (condition, split), by_net in results.validation.items()
        if condition == "exact"
    }


def _map_section(folder: Path, pair_map: PairMap, cameras: Sequence[str]) -> Section:
    paragraphs = []
    for index, condition in enumerate(("exact responses", "1% noise")):
        errors = pair_map.transform[index]
        best = np.unravel_index(np.nanargmin(errors), errors.shape)
        worst = np.unravel_index(np.nanargmax(errors), errors.shape)
        gain = pair_map.moments[index] - pair_map.both[index]
        seen = np.isfinite(gain)
        rank = np.corrcoef(_ranks(pair_map.distance[seen]), _ranks(gain[seen]))[0, 1]
        paragraphs.append(
            f"With {condition}: the median error from T is {np.nanmedian(errors):.2f} degrees. The "
            f"best pair has {errors[best]:.2f} ({cameras[best[0]]} with {cameras[best[1]]}), the "
            f"worst {errors[worst]:.2f} ({cameras[worst[0]]} with {cameras[worst[1]]}). The median "
            f"from moments is {np.nanmedian(pair_map.moments[index]):.2f}, from both "
            f"{np.nanmedian(pair_map.both[index]):.2f}. The second camera reduces the error by "
            f"{np.nanmin(gain):.2f} to {np.nanmax(gain):.2f} degrees; the rank correlation with "
            f"the distance of the sensitivities is {rank:.2f}."
        )
    both = [errors[np.isfinite(errors)] for errors in pair_map.transform]
    agree = np.corrcoef(_ranks(both[0]), _ranks(both[1]))[0, 1]
    count = len(cameras) * (len(cameras) - 1)
    return Section(
        "Errors of all camera pairs",
        (
            f"Linear regression on all {count} ordered pairs, seen illuminants. Scenes without a "
            f"transform: {pair_map.invalid}, not scored. Rank correlation of the two maps: "
            f"{agree:.2f}. Exact responses are fitted by least squares, noisy ones by the maximum "
            "a posteriori transform, which removes effects of the scene; an apparent gain from "
            "noise comes from this fit.",
            *paragraphs,
        ),
        [
            Figure(
                "Mean angular error of linear regression on T by main and second camera, exact "
                "responses.",
                plots.plot_pair_map(folder / "pair_map.png", pair_map.transform[0], cameras),
            ),
            Figure(
                "The same with noise.",
                plots.plot_pair_map(folder / "pair_map_noisy.png", pair_map.transform[1], cameras),
            ),
            Figure(
                "Gain of the second camera over moments of the main image, against the distance of "
                "its sensitivities from the best 3x3 transform of the main camera's.",
                plots.plot_gains(
                    folder / "gains.png",
                    pair_map.distance,
                    dict(
                        zip(
                            ("exact", "1% noise"),
                            pair_map.moments - pair_map.both,
                            strict=True,
                        )
                    ),
                ),
            ),
        ],
    )


def _ranks(values: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    return np.argsort(np.argsort(values)).astype(float)
