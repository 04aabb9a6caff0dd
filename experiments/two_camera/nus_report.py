"""What the NUS experiment shows."""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from everlight.color.rendering import encode_srgb, render, white_balance
from everlight.plots import COLORS
from experiments.common.report import Figure, Section
from experiments.two_camera import plots
from experiments.two_camera.nus_images import NusImages
from experiments.two_camera.pair_folds import RULES
from experiments.two_camera.paper_tables import TABLE_2_NUS, TABLE_4_NUS_NOT_AUGMENTED
from experiments.two_camera.tables import angular_errors, error_table
from experiments.two_camera.training import PARAMETERS

SHOWN_NET = "Net, 1460 parameters, re-illuminated, ensemble"
MOMENTS_NET = "Net on moments, chosen in the fold"

# Of those that a run has, the curves take as many as there are colours.
CURVES = (
    SHOWN_NET,
    MOMENTS_NET,
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
    SHOWN_NET: "Net, 1460",
}
# Rows of figure 9: where Gray World is good, middling and bad.
SCENES = {"easy": 0.1, "median": 0.5, "hard": 0.9}


class NusResults(NamedTuple):
    """Lights of every image by method; errors by selection rule."""

    data: NusImages
    estimates: Mapping[str, Float[np.ndarray, "n 3"]]
    errors: Mapping[str, Mapping[str, Float[np.ndarray, "runs folds k"]]]


def report_sections(folder: Path, results: NusResults) -> list[Section]:
    """The report's body; pictures are written into `folder`."""
    paper = dict(TABLE_2_NUS)
    paper["Net, 200 parameters, none"] = TABLE_4_NUS_NOT_AUGMENTED
    for count in PARAMETERS.values():
        paper[f"Net, {count} parameters, re-illuminated"] = TABLE_2_NUS[f"Net, {count} parameters"]
    tables = [
        error_table(RULES[rule], errors, paper, "seeds") for rule, errors in results.errors.items()
    ]
    curves = {
        f"selection: {rule}": _first_curves(errors) for rule, errors in results.errors.items()
    }
    return [
        Section(
            "Angular errors beside the paper's table 2",
            (
                "The paper's columns are of full images of its own 195 scenes, with the statistics "
                "of three folds averaged. Gray Edge's filters are one pixel wide here, as fits "
                "thumbnails; the paper does not state its own. Bold: least mean. Saturated pixels "
                "are masked here: left in, WGE's errors on the thumbnails rise from 3.63 to 5.29 "
                "degrees in the mean and from 8.4 to 13.1 in the worst quarter, which is where the "
                "paper's are (5.77 and 14.75); so it seems that it left them in.",
                "Nets and regression on moments see nine colour moments of the main image alone, "
                "with the same training, augmentation and selection as those on T. On quasi-real "
                "pairs T is the chart's own transform, and the scene has no part in it.",
            ),
            [
                *tables,
                Figure(
                    "Share of images at or below each angular error, for a choice of the methods; "
                    "the band, where there is one, spans the first method's seeds.",
                    plots.plot_error_curves(folder / "error_curves.png", curves),
                ),
            ],
        ),
        look_section(folder, results),
    ]


def _first_curves(errors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    present = [name for name in CURVES if name in errors]
    return {name: errors[name] for name in present[: len(COLORS)]}


def look_section(folder: Path, results: NusResults) -> Section:
    """The lights of both cameras, and corrected images."""
    lights = results.data.lights
    return Section(
        "Lights and corrections",
        (),
        [
            Figure(
                "Ground-truth lights of the same scenes in both cameras' raw colours (the paper's "
                "figure 5B).",
                plots.plot_illuminants(folder / "illuminants.png", {" + ".join(lights): lights}),
            ),
            Figure(
                "Images corrected by each method's light (the paper's figure 9), with its angular "
                "error; scenes at the quantiles 0.1, 0.5 and 0.9 of Gray World's errors. The "
                "camera's matrix is not known here: its own primaries are shown with a gamma, not "
                "in sRGB. One exposure a row; masked charts are black.",
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
    truth = results.data.illuminants
    names = [name for name in CORRECTIONS if name in results.estimates]
    errors = {name: angular_errors(results.estimates[name], truth) for name in names}
    order = np.argsort(errors["GW"])
    rows = [order[round(share * (len(order) - 1))] for share in SCENES.values()]
    exposed = [_exposed(results.data.images[row], truth[row]) for row in rows]
    columns = {"input": [(np.asarray(encode_srgb(jnp.clip(e, 0, 1))), "gamma") for e in exposed]}
    for name in names:
        columns[CORRECTIONS[name]] = [
            (
                np.asarray(render(e, jnp.asarray(results.estimates[name][row]))),
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
    brightest = jnp.max(white_balance(jnp.asarray(image), jnp.asarray(light)), axis=-1)
    return jnp.asarray(image) / jnp.quantile(brightest, 0.97)
