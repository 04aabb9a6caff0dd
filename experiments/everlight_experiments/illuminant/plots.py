"""Pictures of the two-camera runs."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from everlight import plots
from everlight.color.rendering import encode_srgb
from everlight.plots import COLORS
from everlight_experiments.common.plots import new_canvas, save


def plot_error_curves(
    path: Path,
    panels: Mapping[str, Mapping[str, Float[np.ndarray, "runs *n"]]],
    limit: float = 12.0,
) -> Path:
    """Share of images below each angular error, a panel per title and a curve per method."""
    rows = 2 if len(panels) > 3 else 1
    columns = len(panels) // rows
    legend = 3.2
    canvas, axes = new_canvas(columns, 5.0 + legend / columns, 4.0, rows)
    for axis, (title, errors) in zip(axes, panels.items(), strict=True):
        plots.plot_error_curves(errors, axis, limit).set_title(title)
    handles, names = axes[0].get_legend_handles_labels()
    canvas.legend(handles, names, loc="outside right center")
    return save(canvas, path)


def plot_illuminants(
    path: Path,
    panels: Mapping[str, Mapping[str, Float[np.ndarray, "n 3"]]],
) -> Path:
    """Both cameras' ground-truth lights as chromaticities (the paper's figure 5)."""
    canvas, axes = new_canvas(len(panels), 4.6, 4.0)
    for axis, (title, cameras) in zip(axes, panels.items(), strict=True):
        plots.plot_chromaticity(cameras, axes=axis).set_title(title)
        axis.legend()
    return save(canvas, path)


def plot_chart_colors(path: Path, cameras: Mapping[str, Float[np.ndarray, "k 3"]]) -> Path:
    """The same patches in two cameras as chromaticities, joined (the paper's figure S1)."""
    canvas, (axis,) = new_canvas(1, 5.4, 4.6)
    places = np.stack([np.asarray(each) / each.sum(-1, keepdims=True) for each in cameras.values()])
    axis.plot(places[..., 0], places[..., 1], color="0.6", linewidth=0.8, zorder=1)
    plots.plot_chromaticity(cameras, axes=axis)
    axis.legend()
    return save(canvas, path)


def plot_predictions(
    path: Path,
    truth: Float[np.ndarray, "n 2"],
    estimates: Mapping[str, Float[np.ndarray, "n 2"]],
) -> Path:
    """Estimated against true R/G and B/G, a panel each."""
    canvas, axes = new_canvas(2, 4.6, 4.2)
    for axis, channel, label in zip(axes, (0, 1), ("R/G", "B/G"), strict=True):
        ends = np.quantile(truth[:, channel], [0.0, 1.0])
        axis.plot(ends, ends, color="black", linewidth=0.8, zorder=3)
        for color, (name, values) in zip(COLORS, estimates.items(), strict=False):
            axis.scatter(truth[:, channel], values[:, channel], s=4, alpha=0.35, color=color)
            axis.scatter([], [], s=20, color=color, label=name)
        margin = 0.1 * (ends[1] - ends[0])
        axis.set(
            xlabel=f"true {label}",
            ylabel=f"estimated {label}",
            xlim=(ends[0] - margin, ends[1] + margin),
            ylim=(ends[0] - margin, ends[1] + margin),
        )
    axes[0].legend(loc="upper left")
    return save(canvas, path)


def plot_training(
    path: Path,
    panels: Mapping[str, Mapping[str, Float[np.ndarray, "validations problems"]]],
    every: int,
) -> Path:
    """Validation loss over steps: median over problems, band from least to largest."""
    canvas, axes = new_canvas(len(panels), 5.4, 3.8)
    for axis, (title, curves) in zip(axes, panels.items(), strict=True):
        for color, (name, losses) in zip(COLORS, curves.items(), strict=False):
            steps = every * np.arange(1, len(losses) + 1)
            axis.plot(steps, np.median(losses, axis=1), color=color, label=name)
            axis.fill_between(steps, losses.min(1), losses.max(1), color=color, alpha=0.12)
        axis.set(
            title=title,
            xlabel="optimizer steps",
            ylabel="validation loss (chromaticity)",
            yscale="log",
        )
        axis.legend()
    return save(canvas, path)


def plot_thumbnails(
    path: Path,
    pairs: Sequence[tuple[Float[np.ndarray, "h w 3"], Float[np.ndarray, "h w 3"]]],
    illuminants: Sequence[tuple[Float[np.ndarray, "3"], Float[np.ndarray, "3"]]],
    cameras: tuple[str, str],
) -> Path:
    """Scenes as both cameras see them, each over its light (the paper's figure 4)."""
    canvas, axes = new_canvas(2 * len(pairs), 1.7, 1.7)
    for index, axis in enumerate(axes):
        pair, side = divmod(index, 2)
        image, light = pairs[pair][side], illuminants[pair][side]
        strip = np.broadcast_to(light / light.max(), (8, image.shape[1], 3))
        exposed = np.clip(image / image.max(), 0, 1)
        shown = np.concatenate([exposed, np.ones((2, *strip.shape[1:])), strip])
        axis.imshow(np.asarray(encode_srgb(jnp.asarray(shown, jnp.float32))))
        axis.set_title(cameras[side], fontsize=7)
        axis.set_axis_off()
    return save(canvas, path)


def plot_pair_map(path: Path, errors: Float[np.ndarray, "c c"], cameras: Sequence[str]) -> Path:
    """Mean error by main camera (row) and second camera (column)."""
    canvas, (axis,) = new_canvas(1, 9.5, 8.4)
    image = axis.imshow(errors, cmap="viridis_r")
    axis.set_xticks(range(len(cameras)), cameras, rotation=90, fontsize=7)
    axis.set_yticks(range(len(cameras)), cameras, fontsize=7)
    axis.set(xlabel="second camera", ylabel="main camera (illuminant estimated)")
    axis.grid(visible=False)
    bar = canvas.colorbar(image, shrink=0.8)
    bar.set_label("mean angular error of linear regression (degrees)")
    return save(canvas, path)


Curves = Mapping[str, Mapping[float, Float[np.ndarray, "p"]]]
"""Mean errors of several camera pairs by a quantity, of every named curve."""


def plot_series(path: Path, panels: Mapping[str, tuple[str, Curves]]) -> Path:
    """Errors against a quantity on a logarithmic axis: a panel per title, means and their range."""
    canvas, axes = new_canvas(len(panels), 3.9, 3.6)
    for axis, (title, (label, curves)) in zip(axes, panels.items(), strict=True):
        for color, marker, (name, by_place) in zip(COLORS, "os^", curves.items(), strict=False):
            places, errors = list(by_place), np.stack(list(by_place.values()))
            means = errors.mean(axis=1)
            axis.plot(places, means, color=color, marker=marker, markersize=4, label=name)
            axis.fill_between(
                places, errors.min(axis=1), errors.max(axis=1), color=color, alpha=0.15
            )
        axis.set(title=title, xlabel=label, ylabel="mean angular error (degrees)", xscale="log")
        axis.set_ylim(bottom=0)
    axes[0].legend()
    return save(canvas, path)


def plot_gains(
    path: Path,
    distance: Float[np.ndarray, "c c"],
    panels: Mapping[str, Float[np.ndarray, "c c"]],
) -> Path:
    """Degrees that the second camera takes off, against the distance of the sensitivities."""
    canvas, axes = new_canvas(len(panels), 4.8, 3.8)
    for axis, (title, gains) in zip(axes, panels.items(), strict=True):
        axis.axhline(0, color="black", linewidth=0.8)
        axis.scatter(distance.ravel(), gains.ravel(), s=6, alpha=0.4, color=COLORS[0])
        axis.set(
            title=title,
            xlabel="distance of the sensitivities (share of norm)",
            ylabel="error reduction by the second camera (degrees)",
        )
    return save(canvas, path)


def plot_picture_grid(
    path: Path,
    rows: Sequence[str],
    columns: Mapping[str, Sequence[tuple[Float[np.ndarray, "h w 3"], str]]],
) -> Path:
    """Pictures in named rows and columns, each over its caption (the paper's figure 9)."""
    height, width = next(iter(columns.values()))[0][0].shape[:2]
    step = height + round(0.16 * width)
    canvas, axes = new_canvas(len(columns), 1.6, 1.53 * step * len(rows) / width + 0.4)
    for axis, (title, cells) in zip(axes, columns.items(), strict=True):
        for index, (picture, caption) in enumerate(cells):
            bottom = index * step + height
            axis.imshow(picture, extent=(0, width, bottom, index * step), interpolation="nearest")
            middle = (width / 2, (bottom + (index + 1) * step) / 2)
            axis.text(*middle, caption, ha="center", va="center", fontsize=8)
        axis.set(xlim=(0, width), ylim=(step * len(rows), 0), title=title)
        axis.set_axis_off()
    for index, name in enumerate(rows):
        place = (-0.04 * width, index * step + height / 2)
        axes[0].text(*place, name, rotation=90, ha="right", va="center", fontsize=9)
    return save(canvas, path)
