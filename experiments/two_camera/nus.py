"""The two-camera paper's experiment on NUS images (section 4.2, table 2, figures 5B and 9).

    EVERLIGHT_DATA=... python -m experiments two_camera nus --scale cpu

Scales:
  demo: no data needed: 162 rendered thumbnails in the place of NUS's; a rehearsal.
  cpu: the nine single-image estimators on the D5200's 200 thumbnails of 64x64. Their charts are
    masked, so the paper's quasi-real pairs cannot be made from them.

The gamuts are trained on two thirds of the images and tested on the third, in three folds; the
other estimators learn nothing.
"""

import time
from dataclasses import dataclass
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

from data_pipelines.nus import load_same_scene_pairs, load_thumbnails
from data_pipelines.radiometric import RadiometricSettings, draw_scenes, photograph
from data_pipelines.spectra import EMBEDDED_CAMERAS, embedded_library
from everlight.color.estimators import ESTIMATORS
from everlight.color.gamut import fit_gamut, gamut_estimate
from experiments.common.report import write_report
from experiments.common.run_folder import RunFolder, Scale
from experiments.two_camera.nus_report import NusImages, NusResults, report_sections
from experiments.two_camera.radiometric_methods import thumbnails
from experiments.two_camera.tables import angular_errors, estimate_all

MAIN, SECOND = "NikonD5200", "Canon1DsMkIII"
FOLDS = 3

# Share of a thumbnail's own maximum from which a pixel counts as saturated. The sensor's level is
# lost; with no mask at all White Patch and Shades of Gray err two to three degrees more, while
# anything from 0.9 to 0.98 moves no method's mean by more than 0.15.
SATURATION = 0.95


@dataclass(frozen=True)
class NusRun:
    """Single-image estimators on images of the NUS set (table 2)."""

    scale: Scale = "cpu"
    """demo: rendered images instead; cpu: thumbnails."""
    seed: int = 0
    """Of the folds, and of the rendered images."""
    tag: str = ""
    """Added to the name of the run's folder."""
    runs: Path = Path("runs")
    """Where run folders are made."""


def run_nus(settings: NusRun) -> Path:
    """Runs it all; returns the report's path."""
    started = time.monotonic()
    folder = RunFolder("two_camera", "nus", settings)
    load = {"demo": rendered_images, "cpu": thumbnail_images}[settings.scale]
    images = load(settings.seed)
    estimates = single_image_estimates(images)
    errors = {
        name: np.asarray(angular_errors(light, images.illuminants))
        for name, light in estimates.items()
    }
    for name, values in errors.items():
        folder.log(method=name, mean_error=np.nanmean(values))
    folder.save_results(**errors)
    results = NusResults(images, estimates, errors)
    summary = [
        ("Data", images.note),
        ("Protocol", f"gamuts: {FOLDS} folds; statistics over all test images at once"),
        ("Selection rule", "none: nothing here is chosen on results"),
        ("Seeds", f"folds drawn by {settings.seed}"),
        ("Duration", f"{time.monotonic() - started:.0f} s on {jax.devices()[0].device_kind}"),
    ]
    title = f"Illuminant estimation on NUS images ({settings.scale})"
    return write_report(folder.path, title, summary, report_sections(folder.path, results))


def thumbnail_images(seed: int) -> NusImages:
    """The D5200's thumbnails, and both cameras' lights in the pairs of one scene."""
    main, second, pairs = load_thumbnails(MAIN), load_thumbnails(SECOND), load_same_scene_pairs()
    saturated = (main.images >= SATURATION).any(axis=-1)
    lights = {
        camera: data.illuminants[[data.names.index(name) for name in names]]
        for camera, data, names in ((MAIN, main, pairs.main), (SECOND, second, pairs.second))
    }
    return NusImages(
        main.images,
        np.where(saturated, 0, main.mask),
        main.illuminants,
        draw_folds(len(main.images), seed),
        lights,
        f"NUS-8: {len(main.images)} linear thumbnails (64x64) of {MAIN}; masked are the chart and "
        f"pixels from {SATURATION} of the image's maximum on ({saturated.mean():.1%})",
    )


def rendered_images(seed: int) -> NusImages:
    """Rendered patch thumbnails, for a rehearsal without data."""
    library, count = embedded_library(), 162
    scenes = draw_scenes(library, RadiometricSettings(count, "random", seed))
    views = {camera: photograph(library, camera, scenes) for camera in EMBEDDED_CAMERAS}
    main = views[EMBEDDED_CAMERAS[0]]
    images = np.asarray(thumbnails(main.colors))
    return NusImages(
        images,
        np.ones(images.shape[:3], np.float32),
        main.illuminants,
        draw_folds(count, seed),
        {camera: view.illuminants for camera, view in views.items()},
        f"NOT NUS: {count} thumbnails (32x48) rendered from the spectra of colour-science",
    )


def draw_folds(count: int, seed: int) -> list[np.ndarray]:
    """Three disjoint sets of test images that differ in size by one at most."""
    return np.array_split(np.random.default_rng(seed).permutation(count), FOLDS)


def single_image_estimates(data: NusImages) -> dict[str, Float[np.ndarray, "n 3"]]:
    """Every estimator's light of every image; gamuts are those of the other two folds."""
    images, masks = jnp.asarray(data.images), jnp.asarray(data.masks)
    estimates = {name: estimate_all(method, images, masks) for name, method in ESTIMATORS.items()}
    for order, name in enumerate(("Gamut Pixel", "Gamut Edge")):
        pooled = np.full_like(data.illuminants, np.nan)
        for test in data.folds:
            train = np.setdiff1d(np.arange(len(images)), test)
            gamut = fit_gamut(images[train], masks[train], data.illuminants[train], order)
            pooled[test] = estimate_all(gamut_estimate, images[test], masks[test], gamut)
        estimates[name] = pooled
    return {name: np.asarray(light) for name, light in estimates.items()}
