"""What the NUS experiment shows."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int

from everlight.color.rendering import encode_srgb, render, white_balance
from experiments.common.report import Figure, Section
from experiments.two_camera import plots
from experiments.two_camera.paper_tables import TABLE_2_NUS
from experiments.two_camera.tables import error_table

CURVES = ("GW", "SoG", "GE-1", "WGE", "PCA", "WP", "Gamut Pixel", "Gamut Edge")
CORRECTIONS = ("GW", "SoG", "PCA", "Gamut Pixel")

# Figure 9's scenes: where Gray World is good, middling and bad.
SCENES = {"easy": 0.1, "median": 0.5, "hard": 0.9}


class NusImages(NamedTuple):
    """One camera's images; `folds` are sets of test images, `lights` those of both cameras."""

    images: Float[np.ndarray, "n h w 3"]
    masks: Float[np.ndarray, "n h w"]
    illuminants: Float[np.ndarray, "n 3"]
    folds: Sequence[Int[np.ndarray, "_"]]
    lights: Mapping[str, Float[np.ndarray, "m 3"]]
    note: str


class NusResults(NamedTuple):
    """Lights and angular errors of every image by method."""

    data: NusImages
    estimates: Mapping[str, Float[np.ndarray, "n 3"]]
    errors: Mapping[str, Float[np.ndarray, "n"]]


def report_sections(folder: Path, results: NusResults) -> list[Section]:
    """The report's body; pictures are written into `folder`."""
    errors = {name: values[None, None] for name, values in results.errors.items()}
    curves = {"": {name: errors[name] for name in CURVES}}
    return [
        Section(
            "Angular errors beside the paper's table 2",
            (
                "The paper's columns are of full images of its own 195 scenes, with the statistics "
                "of three folds averaged. Gray Edge's filters are one pixel wide here, as fits "
                "thumbnails; the paper does not state its own. Bold: least mean.",
            ),
            [
                error_table("Single-image estimators.", errors, TABLE_2_NUS, "seeds"),
                Figure(
                    "Share of images at or below each angular error. GE-2 is left out.",
                    plots.plot_error_curves(folder / "error_curves.png", curves),
                ),
            ],
        ),
        look_section(folder, results),
    ]


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
    order = np.argsort(results.errors["GW"])
    rows = [order[round(share * (len(order) - 1))] for share in SCENES.values()]
    truth = results.data.illuminants
    exposed = [_exposed(results.data.images[row], truth[row]) for row in rows]
    columns = {"input": [(np.asarray(encode_srgb(jnp.clip(e, 0, 1))), "gamma") for e in exposed]}
    for name in CORRECTIONS:
        lights, errors = results.estimates[name], results.errors[name]
        columns[name] = [
            (np.asarray(render(e, jnp.asarray(lights[row]))), f"{errors[row]:.1f}°")
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
