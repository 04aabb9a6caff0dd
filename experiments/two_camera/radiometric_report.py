"""What the radiometric experiment shows: tables, curves, scatters and the map of pairs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from data_pipelines.spectra import SpectralLibrary
from everlight.color.chromaticity import to_chromaticity
from everlight.models.illuminant_training import Losses
from experiments.common.report import Figure, Section
from experiments.two_camera import plots
from experiments.two_camera.paper_tables import TABLE_1_RADIOMETRIC
from experiments.two_camera.radiometric_methods import PairData, thumbnails
from experiments.two_camera.tables import angular_errors, error_table
from experiments.two_camera.training import PARAMETERS

SPLIT_NAMES = {
    "random": "Random split: every test light also lit training scenes (the paper's protocol)",
    "illuminant": "Split by illuminant: no test light occurs in training",
}
CURVES = (
    "Net, 470 parameters",
    "Net, 200 parameters",
    "Linear regression",
    "Chromagenic",
    "GW",
    "PCA",
    "Gamut Pixel",
)


class RadiometricResults(NamedTuple):
    """All that the report is made of."""

    pairs: Sequence[tuple[str, str]]
    data: Mapping[str, Sequence[PairData]]
    estimates: Mapping[str, Mapping[str, Float[np.ndarray, "p n 3"]]]
    losses: Mapping[int, Losses]
    pair_map: Float[np.ndarray, "c c"] | None
    library: SpectralLibrary

    def errors(self) -> dict[str, dict[str, Float[np.ndarray, "p n"]]]:
        """Angular errors by split and method."""
        return {
            split: {
                name: np.asarray(angular_errors(values, self._truth(split)))
                for name, values in by_method.items()
            }
            for split, by_method in self.estimates.items()
        }

    def _truth(self, split: str) -> Float[np.ndarray, "p n 3"]:
        return np.stack([p.main.illuminants[p.scenes.test] for p in self.data[split]])

    def arrays(self) -> dict[str, np.ndarray]:
        """The raw arrays to be saved."""
        arrays = {
            f"{split}/{name}": errors
            for split, by_method in self.errors().items()
            for name, errors in by_method.items()
        }
        arrays["camera_pairs"] = np.array(self.pairs)
        if self.pair_map is not None:
            arrays["pair_map"] = self.pair_map
        return arrays


def report_sections(folder: Path, results: RadiometricResults, every: int) -> list[Section]:
    """The report's body; pictures are written into `folder`."""
    errors = results.errors()
    tables = [
        error_table(
            f"{SPLIT_NAMES[split]}. Our test part: {len(results.data[split])} camera pairs.",
            {name: values[:, None] for name, values in errors[split].items()},
            TABLE_1_RADIOMETRIC,
            "camera pairs",
        )
        for split in errors
    ]
    curves = {
        SPLIT_NAMES[split].split(":")[0]: {
            name: errors[split][name] for name in CURVES if name in errors[split]
        }
        for split in errors
    }
    sections = [
        Section(
            "Angular errors beside the paper's table 1",
            (
                "The paper does not say which two of the 28 cameras it used, and its surfaces and "
                "lights are not all published: its columns are another data set's. Bold: least "
                "mean. The chromagenic method chooses among the lights seen in training, which the "
                "random split gives it and the split by illuminant denies it.",
            ),
            [
                *tables,
                Figure(
                    "Share of test images at or below each angular error, mean over camera pairs; "
                    "the band spans the pairs for the net of 470 parameters.",
                    plots.plot_error_curves(folder / "error_curves.png", curves),
                ),
            ],
        ),
        _look_section(folder, results, every),
    ]
    if results.pair_map is not None:
        sections.append(_map_section(folder, results.pair_map, results.library.camera_names))
    return sections


def _look_section(folder: Path, results: RadiometricResults, every: int) -> Section:
    pair, cameras = results.data["random"][0], results.pairs[0]
    test = pair.scenes.test
    some = slice(test.start, test.start + 3)
    views = [np.asarray(thumbnails(view.colors[some])) for view in (pair.main, pair.second)]
    lights = zip(pair.main.illuminants[some], pair.second.illuminants[some], strict=True)
    first = slice(test.start, test.start + 200)
    predicted = {
        name: np.asarray(to_chromaticity(jnp.asarray(values[0])))
        for name, values in results.estimates["random"].items()
        if name in ("GW", "Linear regression", "Net, 470 parameters")
    }
    scatter = {
        f"{main} + {second}": {
            main: data.main.illuminants[first],
            second: data.second.illuminants[first],
        }
        for (main, second), data in zip(results.pairs, results.data["random"], strict=True)
    }
    return Section(
        "What the cameras see",
        (),
        [
            Figure(
                f"Test scenes as {cameras[0]} and {cameras[1]} see them, each over its light.",
                plots.plot_thumbnails(
                    folder / "scenes.png",
                    list(zip(*views, strict=True)),
                    list(lights),
                    cameras,
                ),
            ),
            Figure(
                "Ground-truth lights of 200 test scenes in both cameras' raw colours (the paper's "
                "figure 5A): the farther apart, the more a transform can tell.",
                plots.plot_illuminants(folder / "illuminants.png", dict(list(scatter.items())[:3])),
            ),
            Figure(
                f"Estimated against true chromaticity, {' + '.join(cameras)}, random split.",
                plots.plot_predictions(
                    folder / "predictions.png",
                    np.asarray(pair.targets(test)),
                    predicted,
                ),
            ),
            Figure(
                "Validation loss while training: median over camera pairs, band from least to "
                "largest.",
                plots.plot_training(folder / "training.png", _curves(results), every),
            ),
        ],
    )


def _curves(results: RadiometricResults) -> dict[str, dict[str, np.ndarray]]:
    """Validation losses `[validations, pairs]` by split and net; problems are split by split."""
    count = len(results.pairs)
    return {
        SPLIT_NAMES[split].split(":")[0]: {
            f"{PARAMETERS[depth]} parameters": np.asarray(
                losses.valid[:, i * count : (i + 1) * count]
            )
            for depth, losses in results.losses.items()
        }
        for i, split in enumerate(results.data)
    }


def _map_section(folder: Path, errors: Float[np.ndarray, "c c"], cameras: Sequence[str]) -> Section:
    flat = np.where(np.isnan(errors), np.inf, errors)
    best = np.unravel_index(np.argmin(flat), errors.shape)
    worst = np.unravel_index(np.nanargmax(errors), errors.shape)
    count = len(cameras) * (len(cameras) - 1) // 2
    return Section(
        "Which pairs of cameras tell the light",
        (
            f"Linear regression on all {count} pairs, each camera of a pair as the main one in "
            f"turn, random split. Median {np.nanmedian(errors):.2f} degrees; best "
            f"{errors[best]:.2f} ({cameras[best[0]]} with {cameras[best[1]]}), worst "
            f"{errors[worst]:.2f} ({cameras[worst[0]]} with {cameras[worst[1]]}).",
        ),
        [
            Figure(
                "Mean angular error of linear regression by main and second camera.",
                plots.plot_pair_map(folder / "pair_map.png", errors, cameras),
            )
        ],
    )
