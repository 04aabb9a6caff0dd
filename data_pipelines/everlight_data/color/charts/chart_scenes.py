"""Synthetic raw pairs with a colour chart under known illuminants, for rehearsing calibration.

Two measured cameras see tiles of measured surfaces and a chart under measured illuminants. The
cameras' relative position is fixed, as on a phone; the chart moves from scene to scene.
"""

from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from everlight.color.radiometry import response_table
from everlight_data.color.charts.chart_geometry import COLUMNS, ROWS
from everlight_data.color.raw_files.dng import DngTags, mosaic_rggb, write_dng
from everlight_data.color.spectra.library import EMBEDDED_CAMERAS, SpectralLibrary, embedded_library
from everlight_data.writing import make_folder

HEIGHT, WIDTH = 360, 480
ALIGNMENT = np.array([[0.92, -0.015, 18.0], [0.012, 0.93, 10.0], [1e-5, -2e-5, 1.0]])
"""Homography from main to second pixels."""
TILE = 60
BLACK_LEVEL, WHITE_LEVEL = 512, 16383
NOISE_STD = 0.002
"""Standard deviation of the noise per pixel, relative to white."""
# fmt: off
ILLUMINANTS = (
    "A", "D50", "D65", "D75", "FL2", "FL8", "FL11", "E", "D55", "C", "FL3.10", "B", "FL1",
    "FL4", "FL5", "FL7", "FL9", "FL12", "FL3.1", "FL3.5", "FL3.12", "LED-B1", "LED-B3",
    "LED-B5", "LED-BH1", "LED-V1", "LED-V2", "HP2", "PHOS-1", "Metal Halide",
)
# fmt: on


class ChartScenes(NamedTuple):
    """Ground truth of the written pairs."""

    names: tuple[str, ...]
    main: Float[np.ndarray, "n 3"]
    second: Float[np.ndarray, "n 3"]
    homography: Float[np.ndarray, "3 3"]
    charts: Float[np.ndarray, "n 3 3"]
    """Homographies from chart coordinates to main pixels."""
    transforms: Float[np.ndarray, "n 3 3"]
    """Least-squares transforms of all surfaces' exact colours, divided by their mean row sum."""


def write_chart_pairs(folder: Path, count: int, seed: int = 0) -> ChartScenes:
    """Write `main/NAME.dng` and `second/NAME.dng`, each pair under a different illuminant.

    Args:
      folder: destination folder.
      count: number of pairs, at most the number of `ILLUMINANTS`.
      seed: random seed of surfaces, positions, exposures and noise.
    """
    library, rng = embedded_library(), np.random.default_rng(seed)
    illuminants = [library.illuminant_names.index(name) for name in ILLUMINANTS[:count]]
    tables = [
        response_table(
            library.illuminants[illuminants], library.reflectances, library.sensitivity(camera)
        )
        for camera in EMBEDDED_CAMERAS
    ]
    surfaces = [np.asarray(table.surfaces, float) for table in tables]
    whites = [np.asarray(table.illuminants, float) for table in tables]
    charts = np.stack([_place_chart(rng) for _ in illuminants])
    names = tuple(f"scene-{index:02}" for index in range(count))
    for index, name in enumerate(names):
        shown = _surfaces_of_scene(library, charts[index], rng)
        for view, reflected, white in zip(("main", "second"), surfaces, whites, strict=True):
            colors = reflected[index][shown if view == "main" else _seen_by_second(shown)]
            # Exposed for the brightest surface, up to a stop under.
            colors = colors / white[index].max() * rng.uniform(0.45, 0.95)
            colors = colors + NOISE_STD * rng.normal(size=colors.shape)
            make_folder(folder / view)
            _write(folder / view / f"{name}.dng", colors, EMBEDDED_CAMERAS[view == "second"])
    transforms = [np.linalg.lstsq(a, b)[0] for a, b in zip(*surfaces, strict=True)]
    return ChartScenes(
        names,
        *whites,
        ALIGNMENT,
        charts,
        np.stack([3 * transform / transform.sum() for transform in transforms]),
    )


def _place_chart(rng: np.random.Generator) -> Float[np.ndarray, "3 3"]:
    """Return a homography from chart coordinates to main pixels, slightly rotated and tilted."""
    size, turn = rng.uniform(26, 32), rng.uniform(-0.2, 0.2)
    low, high = (90, 80), (WIDTH - 260, HEIGHT - 190)
    across, down = rng.uniform(low, high)
    cosine, sine = size * np.cos(turn), size * np.sin(turn)
    tilt = rng.uniform(-3e-3, 3e-3, 2)
    return np.array([[cosine, -sine, across], [sine, cosine, down], [*tilt, 1.0]])


def _surfaces_of_scene(
    library: SpectralLibrary, chart: Float[np.ndarray, "3 3"], rng: np.random.Generator
) -> Int[np.ndarray, "h w"]:
    """Return the surface at each main pixel: tiles, the chart's frame, and its patches."""
    count = len(library.reflectances)
    drawn = rng.integers(0, count - 24, (HEIGHT // TILE, WIDTH // TILE))
    shown = drawn.repeat(TILE, axis=0).repeat(TILE, axis=1)
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    places = _mapped(np.linalg.inv(chart), x, y)
    across, down = places[..., 0], places[..., 1]
    framed = (across > -0.8) & (across < COLUMNS - 0.2) & (down > -0.8) & (down < ROWS - 0.2)
    shown[framed] = count - 1
    column, row = np.round(across).astype(int), np.round(down).astype(int)
    on_patch = framed & (np.abs(across - column) < 0.42) & (np.abs(down - row) < 0.42)
    on_patch &= (column >= 0) & (column < COLUMNS) & (row >= 0) & (row < ROWS)
    shown[on_patch] = (count - 24 + COLUMNS * row + column)[on_patch]
    return shown


def _seen_by_second(shown: Int[np.ndarray, "h w"]) -> Int[np.ndarray, "h w"]:
    """Return the surface at each second pixel; beyond the main view, the border is repeated."""
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    places = np.round(_mapped(np.linalg.inv(ALIGNMENT), x, y)).astype(int)
    column = np.clip(places[..., 0], 0, WIDTH - 1)
    row = np.clip(places[..., 1], 0, HEIGHT - 1)
    return shown[row, column]


def _mapped(
    homography: Float[np.ndarray, "3 3"], x: Int[np.ndarray, "h w"], y: Int[np.ndarray, "h w"]
) -> Float[np.ndarray, "h w 2"]:
    lifted = np.stack([x, y, np.ones_like(x)], axis=-1) @ homography.T
    return lifted[..., :2] / lifted[..., 2:]


def _write(path: Path, colors: Float[np.ndarray, "h w 3"], camera: str) -> None:
    """Write colours as an RGGB sensor records them."""
    levels = np.clip(
        np.round(BLACK_LEVEL + mosaic_rggb(colors) * (WHITE_LEVEL - BLACK_LEVEL)), 0, 65535
    ).astype(np.uint16)
    write_dng(path, levels, [BLACK_LEVEL] * 4, WHITE_LEVEL, tags=DngTags(model=camera))
