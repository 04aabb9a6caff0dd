"""What the NUS experiment shows."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from everlight.color.cross_camera import ADDITIONAL_IMAGES
from everlight.color.rendering import encode_srgb, full_scale_balance, render
from everlight_data.color.quasi_real import QuasiReal
from everlight_experiments.common.report import Figure, FirstScreen, Section
from everlight_experiments.illuminant import plots
from everlight_experiments.illuminant.image_methods import left_out
from everlight_experiments.illuminant.image_sets import MAIN, SECOND, ImageSet
from everlight_experiments.illuminant.networks import PARAMETERS
from everlight_experiments.illuminant.pair_folds import RULES, SELECTIONS
from everlight_experiments.illuminant.paper import TABLE_2_NUS, TABLE_4_NUS_NOT_AUGMENTED
from everlight_experiments.illuminant.sensor_views import sensors_section
from everlight_experiments.illuminant.tables import (
    ABBREVIATIONS,
    Comparison,
    Errors,
    angular_errors,
    curves_with_least,
    error_table,
    first_screen,
)
from everlight_experiments.illuminant.trunk_views import SIDE

SHOWN_NET = "Net, 1460 parameters, re-illuminated, ensemble"
MOMENTS_NET = "Net on moments, chosen in the fold"

# Of those that a run has, the curves take as many as there are colours.
CURVES = (
    SHOWN_NET,
    MOMENTS_NET,
    "FFCC",
    "APAP (PCA)",
    "Net, 200 parameters, re-illuminated",
    "Linear regression, chosen in the fold",
    "GW",
    "SoG",
    "PCA",
    "WP",
    "Gamut Pixel",
    "GE-1",
    "WGE",
    "Gamut Edge",
)
# Columns of figure 9, and their titles.
CORRECTIONS = {
    "GW": "GW",
    "SoG": "SoG",
    "PCA": "PCA",
    "Gamut Pixel": "Gamut Pixel",
    "FFCC": "FFCC",
    SHOWN_NET: "Net, 1460",
}
# Rows of figure 9: where Gray World is good, middling and bad.
SCENES = {"easy": 0.1, "median": 0.5, "hard": 0.9}


METHODS = (
    "Corrected moments, homography and APAP are fitted by alternating least squares, as "
    "in the papers; APAP has width 3 and floor 0.065. FFCC has its authors' steps and their "
    "thumbnail settings of another camera, since they tuned them on each camera's test images; a "
    "row with the camera's own settings is marked. Gamut mapping's rule (largest trace, a hull "
    "grown by 3%) was selected on NUS thumbnails, where its rows are optimistic.",
    "SIIE is a smaller version (see everlight.color.sensor_independent), trained once on all "
    "training images for a fixed number of steps; in folds it trains on the tested camera, which "
    "its authors exclude.",
    "DMCC is its authors' net of 783 parameters on four colours of an image (bright, max, mean, "
    "dark), with their loss, learning rate and re-lit images, trained for a fixed number of "
    "steps. Across cameras, training illuminants are mapped to the tested camera by both cameras' "
    "white under daylight of 6500 K, as its authors measured it.",
    "C5 is a smaller version (see everlight.color.cross_camera). Its input is the histogram of the "
    f"tested image and of {ADDITIONAL_IMAGES} unlabelled images of the same camera.",
    "FC4-style is FC4's confidence-weighted pooling on a frozen EfficientNet-Lite0 pretrained on "
    f"ImageNet, at {SIDE}x{SIDE} pixels. FC4 itself trains its trunk on full photographs; its row "
    "is the paper's. Predicting each location's illuminant relative to its colour, and the stage "
    "of the trunk, were selected on Sony A57's folds.",
    "Single-image networks and regressions use nine colour moments, with or without von Kries "
    "re-illumination, as selected by each fold's validation images. These networks have five "
    "layers of nine units, with the loss and training of the two-camera networks. Ensembles are "
    "geometric means over the seeds' networks.",
)
"""What the rows are."""


class NusResults(NamedTuple):
    """Images, and every method's lights by selection rule; the first rule's are shown."""

    data: ImageSet
    compared: Mapping[str, Comparison]
    quasi: QuasiReal | None = None
    """Of quasi-real pairs."""

    def lights(self) -> dict[str, Float[np.ndarray, "n 3"]]:
        """The first run's lights of every image; NaN where it is in no fold."""
        folds = np.stack(self.data.folds)
        shown = {}
        for name, estimates in next(iter(self.compared.values())).estimates.items():
            shown[name] = np.full_like(self.data.illuminants, np.nan)
            shown[name][folds] = estimates[0]
        return shown


def report_sections(folder: Path, results: NusResults) -> tuple[FirstScreen, list[Section]]:
    """The report's first screen and body; pictures are written into `folder`."""
    paper = paper_rows()
    paper["Net, 200 parameters, none"] = TABLE_4_NUS_NOT_AUGMENTED
    for count in PARAMETERS.values():
        paper[f"Net, {count} parameters, re-illuminated"] = paper.pop(f"Net, {count} parameters")
    tables = [
        error_table(RULES[rule], compared, paper, "seeds")
        for rule, compared in results.compared.items()
    ]
    errors = {SELECTIONS[rule]: each.errors() for rule, each in results.compared.items()}
    picture = Figure(
        "Share of images at or below each angular error, for at most eight methods; the band, "
        "if any, is the range over seeds of the first method.",
        plots.plot_error_curves(folder / "error_curves.png", first_curves(errors)),
    )
    views = []
    if results.quasi is not None:
        images = {"main": results.data.images}
        views.append(sensors_section(folder, results.quasi, images, (MAIN, SECOND)))
    return first_screen(results.data.note, picture, errors, paper), [
        Section(
            "Angular errors beside the paper's table 2",
            (
                ABBREVIATIONS,
                "The paper's columns are of full images of its own 195 scenes, averaged over three "
                "folds. Gray Edge's filters are one pixel wide here, for thumbnails; the paper "
                "does not state its own. Bold: lowest mean. Saturated pixels are masked here. "
                "Without the mask, WGE's mean error on the thumbnails rises from 3.63 to 5.29 "
                "degrees, and the worst quarter's from 8.4 to 13.1; the paper's are 5.77 and "
                "14.75, which suggests no mask.",
                *METHODS,
                *absent(
                    {results.data.camera: (results.data, next(iter(results.compared.values())))}
                ),
                "On quasi-real pairs T is the chart's own transform, independent of the scene.",
            ),
            tables,
        ),
        look_section(folder, results),
        *views,
    ]


def absent(asked: Mapping[str, tuple[ImageSet, Comparison]]) -> list[str]:
    """A sentence for each method without a row, and why, by the camera that is asked."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for camera, (data, compared) in asked.items():
        for name, reason in left_out(data).items():
            if name not in compared.estimates:
                reasons.setdefault((name, reason), []).append(camera)
    return [
        f"{name} has no row for {', '.join(cameras)}: {reason}."
        for (name, reason), cameras in reasons.items()
    ]


def paper_rows() -> dict[str, tuple[float, ...]]:
    """The paper's table 2 under our names; it does not say which corrected moments it has."""
    return {"Corrected moments, 9 of edges" if n == "CM" else n: v for n, v in TABLE_2_NUS.items()}


def first_curves(conditions: Mapping[str, Errors]) -> dict[str, dict[str, np.ndarray]]:
    """As many of `CURVES` as there are colours, and what errs least."""
    present = [name for name in CURVES if all(name in each for each in conditions.values())]
    return curves_with_least(present, conditions)


def look_section(folder: Path, results: NusResults) -> Section:
    """The lights of both cameras, and corrected images."""
    lights = results.data.lights
    return Section(
        "Illuminants and corrections",
        (),
        [
            Figure(
                f"Ground-truth illuminants in the raw colours of {' and '.join(lights)} (the "
                "paper's "
                "figure 5B).",
                plots.plot_illuminants(folder / "illuminants.png", {" + ".join(lights): lights}),
            ),
            Figure(
                "Images corrected by each method's estimate (the paper's figure 9), with its "
                "angular "
                "error; scenes at the quantiles 0.1, 0.5 and 0.9 of Gray World's errors. The "
                "camera's matrix is unknown: its own primaries are shown with a gamma, not in "
                "sRGB. One exposure per row; masked charts are black.",
                plots.plot_picture_grid(
                    folder / "corrections.png", list(SCENES), correction_columns(results)
                ),
            ),
        ],
    )


def correction_columns(
    results: NusResults,
) -> dict[str, list[tuple[Float[np.ndarray, "h w 3"], str]]]:
    """By column, each scene's picture and the words under it."""
    truth, lights = results.data.illuminants, results.lights()
    names = [name for name in CORRECTIONS if name in lights]
    errors = {name: angular_errors(lights[name], truth) for name in names}
    tested = np.concatenate(list(results.data.folds))
    order = tested[np.argsort(errors["GW"][tested])]
    rows = [order[round(share * (len(order) - 1))] for share in SCENES.values()]
    exposed = [_exposed(results.data.images[row], truth[row]) for row in rows]
    columns = {"input": [(np.asarray(encode_srgb(jnp.clip(e, 0, 1))), "gamma") for e in exposed]}
    for name in names:
        columns[CORRECTIONS[name]] = [
            (
                np.asarray(render(e, jnp.asarray(lights[name][row]))),
                f"{errors[name][row]:.1f}°",
            )
            for e, row in zip(exposed, rows, strict=True)
        ]
    columns["truth"] = [
        (np.asarray(render(e, jnp.asarray(truth[row]))), "0°")
        for e, row in zip(exposed, rows, strict=True)
    ]
    return columns


def _exposed(image: Float[np.ndarray, "h w 3"], light: Float[np.ndarray, "3"]) -> jax.Array:
    """Such that three hundredths of the truly corrected pixels reach white."""
    brightest = jnp.max(full_scale_balance(jnp.asarray(image), jnp.asarray(light)), axis=-1)
    return jnp.asarray(image) / jnp.quantile(brightest, 0.97)
