"""What a chart shows of two cameras: how far their sensors differ, and what is made of a pair."""

from collections.abc import Mapping
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from everlight.color.reillumination import chart_transforms
from everlight.color.rendering import encode_srgb, white_balance
from everlight_data.color.quasi_real import QuasiReal
from everlight_experiments.common.report import Figure, Section
from everlight_experiments.illuminant import plots
from everlight_experiments.illuminant.tables import angular_errors

WHITE = 0.97
"""Quantile of an image's brightest channels that is shown as white."""


def sensors_section(
    folder: Path,
    quasi: QuasiReal,
    images: Mapping[str, Float[np.ndarray, "n h w 3"]],
    cameras: tuple[str, str],
) -> Section:
    """Chart colours in both cameras, and two pairs under each other's light.

    Args:
      folder: for the pictures.
      quasi: charts, transforms and lights.
      images: small ones of every pair, "main" and, where there are any, "second".
      cameras: names, main first.
    """
    apart = sensor_differences(quasi)
    middle = int(np.argsort(apart)[len(apart) // 2])
    colors = {
        camera: np.asarray(charts[middle])[quasi.usable[middle]]
        for camera, charts in zip(cameras, _balanced_charts(quasi), strict=True)
    }
    rows = farthest_lights(quasi)
    return Section(
        "The two sensors",
        [
            "Each camera's chart is divided by its own illuminant. With equal sensors the colours "
            "would be equal, T would be diagonal, and the second camera would add no information. "
            f"The mean difference is {apart.mean():.1f} degrees per patch "
            f"({apart.min():.1f} to {apart.max():.1f} over {len(apart)} pairs)."
        ],
        [
            Figure(
                f"The chart's colours, each camera white-balanced, in {_name(quasi, middle)}, "
                "whose difference is the median (the paper's figure S1).",
                plots.plot_chart_colors(folder / "chart_colors.png", colors),
            ),
            Figure(
                "The two pairs with the most different illuminants, raw colours with a gamma: "
                "the main "
                "image, the same re-lit by the other pair's illuminant (the paper's figure 3), and "
                "the second camera's image predicted by the chart's T (figure 7).",
                plots.plot_picture_grid(
                    folder / "relit_pairs.png",
                    [_name(quasi, row) for row in rows],
                    made_of_pairs(quasi, images, rows),
                ),
            ),
        ],
    )


def sensor_differences(quasi: QuasiReal) -> Float[np.ndarray, "n"]:
    """Mean angle between a patch's white-balanced colours in the two cameras, in degrees."""
    return np.mean(angular_errors(*_balanced_charts(quasi)), axis=1, where=quasi.usable)


def farthest_lights(quasi: QuasiReal) -> tuple[int, int]:
    """The two pairs whose main lights are farthest apart."""
    lights = jnp.asarray(quasi.illuminants_main, jnp.float32)
    angles = np.asarray(angular_errors(lights[:, None], lights[None]))
    first, second = np.unravel_index(np.argmax(angles), angles.shape)
    return int(first), int(second)


def made_of_pairs(
    quasi: QuasiReal,
    images: Mapping[str, Float[np.ndarray, "n h w 3"]],
    rows: tuple[int, int],
) -> dict[str, list[tuple[Float[np.ndarray, "h w 3"], str]]]:
    """Columns of pictures: as photographed, re-illuminated, and made by the chart's transform."""
    here = list(rows)
    charts, usable = quasi.charts_main[here], quasi.usable[here]
    relight = chart_transforms(jnp.asarray(charts), jnp.asarray(usable, jnp.float32))
    main = jnp.asarray(images["main"][here])
    columns = {
        "main": main,
        "other pair's illuminant": jnp.stack([main[0] @ relight[0, 1], main[1] @ relight[1, 0]]),
        "second, by T": jnp.stack(
            [
                image @ jnp.asarray(quasi.transforms[row])
                for image, row in zip(main, rows, strict=True)
            ]
        ),
    }
    if "second" in images:
        columns["second, photo"] = jnp.asarray(images["second"][here])
    return {
        title: [(_shown(picture), "") for picture in pictures]
        for title, pictures in columns.items()
    }


def _balanced_charts(quasi: QuasiReal) -> list[Float[Array, "n 24 3"]]:
    """Every pair's charts, main and second, each divided by its own light."""
    return [
        jax.vmap(white_balance)(jnp.asarray(charts, jnp.float32), jnp.asarray(lights, jnp.float32))
        for charts, lights in (
            (quasi.charts_main, quasi.illuminants_main),
            (quasi.charts_second, quasi.illuminants_second),
        )
    ]


def _name(quasi: QuasiReal, row: int) -> str:
    return " + ".join(dict.fromkeys(quasi.names[row]))


def _shown(image: Float[Array, "h w 3"]) -> Float[np.ndarray, "h w 3"]:
    bright = jnp.quantile(jnp.max(image, axis=-1), WHITE)
    return np.asarray(encode_srgb(jnp.clip(image / bright, 0, 1)))
