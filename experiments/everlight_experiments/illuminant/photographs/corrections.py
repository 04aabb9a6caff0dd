"""Photographs corrected by several methods' estimates (the paper's figure 9)."""

from collections.abc import Mapping
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from everlight.color.rendering import encode_srgb, full_scale_balance, render
from everlight.illuminant.pair_inputs import TRANSFORM
from everlight_data.color.photographs.camera_images import IlluminantImages
from everlight_experiments.illuminant.core.cross_validation import Estimator, method_name
from everlight_experiments.illuminant.core.experiment import angular_errors
from everlight_experiments.report.plots import new_canvas, save
from everlight_experiments.report.writer import Figure

LARGE_NETWORK = Estimator(method_name(TRANSFORM, 16), "re-illuminated", ensemble=True)
CORRECTED = {
    "GW": "GW",
    "SoG": "SoG",
    "PCA": "PCA",
    "Gamut Pixel": "Gamut Pixel",
    "FFCC": "FFCC",
    LARGE_NETWORK.name: "Net, 1460",
}
"""Methods of the corrected examples, and their titles."""
SCENES = {"easy": 0.1, "median": 0.5, "hard": 0.9}
"""Rows of the corrected examples: quantiles of Gray World's errors."""

Columns = dict[str, list[tuple[Float[np.ndarray, "h w 3"], str]]]
"""Pictures and their captions by column."""


def corrections_figure(
    folder: Path,
    data: IlluminantImages,
    estimates: Mapping[str, Float[np.ndarray, "runs folds k 3"]],
) -> Figure:
    """Return the figure of test images corrected by several methods, written into `folder`."""
    quantiles = ", ".join(map(str, SCENES.values()))
    return Figure(
        "Images corrected by each method's estimate (the paper's figure 9), with its angular "
        f"error; scenes at the quantiles {quantiles} of Gray World's errors. The camera's matrix "
        "is unknown: its own primaries are shown with a gamma, not in sRGB. One exposure per row; "
        "masked charts are black.",
        _plot(folder / "corrections.png", correction_columns(data, estimates)),
    )


def correction_columns(
    data: IlluminantImages, estimates: Mapping[str, Float[np.ndarray, "runs folds k 3"]]
) -> Columns:
    """Return an easy, a median and a hard test image, corrected by each method's first run."""
    tested = np.concatenate(list(data.folds))
    truth, images = data.illuminants[tested], data.images[tested]
    shown = {name: estimates[name][0].reshape(-1, 3) for name in CORRECTED if name in estimates}
    errors = {name: angular_errors(estimate, truth) for name, estimate in shown.items()}
    order = np.argsort(errors["GW"])
    rows = [order[round(share * (len(order) - 1))] for share in SCENES.values()]
    exposed = [_exposed(images[row], truth[row]) for row in rows]
    columns = {"input": [(np.asarray(encode_srgb(jnp.clip(e, 0, 1))), "gamma") for e in exposed]}
    for name, illuminants in (shown | {"truth": truth}).items():
        columns[CORRECTED.get(name, name)] = [
            (
                np.asarray(render(image, jnp.asarray(illuminants[row]))),
                f"{errors[name][row]:.1f}°" if name in errors else "0°",
            )
            for image, row in zip(exposed, rows, strict=True)
        ]
    return columns


def _exposed(image: Float[np.ndarray, "h w 3"], truth: Float[np.ndarray, "3"]) -> Array:
    """Scale an image so that 3% of its correctly balanced pixels are white."""
    brightest = jnp.max(full_scale_balance(jnp.asarray(image), jnp.asarray(truth)), axis=-1)
    return jnp.asarray(image) / jnp.quantile(brightest, 0.97)


def _plot(path: Path, columns: Columns) -> Path:
    """Plot the scenes as rows, with each picture's caption below it."""
    height, width = next(iter(columns.values()))[0][0].shape[:2]
    canvas, axes = new_canvas(len(columns), 1.6, 1.4 * height / width + 0.35, len(SCENES))
    for row, scene in enumerate(SCENES):
        row_axes = axes[row * len(columns) : (row + 1) * len(columns)]
        for axis, (title, pictures) in zip(row_axes, columns.items(), strict=True):
            picture, caption = pictures[row]
            axis.imshow(picture, interpolation="nearest")
            axis.set(xticks=[], yticks=[], xlabel=caption, title=title if row == 0 else "")
            axis.set_frame_on(False)
        row_axes[0].set_ylabel(scene)
    return save(canvas, path)
