"""Test scenes with other read noise or fewer colours than those of training."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from everlight_data.color.rendered.ambient_sensor import read_ambient
from everlight_data.color.rendered.radiometric import PATCHES, IlluminantSplit, Scenes, show_colors
from everlight_data.color.rendered.rendered_pairs import RenderedPair, SceneKind, noisy_inputs
from everlight_data.color.rendered.rendered_views import render_views
from everlight_data.color.spectra.library import SpectralLibrary

REPORTED_NOISE = 0.01
"""Read noise of the noisy test scenes as a share of white."""
VARIANT_SCENES = 1_200
"""Number of test scenes rendered under each of `VARIANTS`."""


class Variant(NamedTuple):
    """Noise and colours of test scenes that were photographed in noise."""

    read_noise: float = REPORTED_NOISE
    """Read noise as a share of white."""
    colors: int = PATCHES
    """Number of different colours in a scene."""
    dominant_patches: int = 0
    """Number of patches that all show one colour."""

    @property
    def name(self) -> str:
        """Name in words."""
        seen = f"{self.colors} colours" if self.colors > 1 else "1 colour"
        if self.dominant_patches:
            seen = f"{self.dominant_patches} of {PATCHES} patches in one colour"
        return f"{seen}, {100 * self.read_noise:g}% noise"


VARIANTS: dict[str, Variant] = {
    variant.name: variant
    for variant in (
        *(Variant(read_noise=level) for level in (REPORTED_NOISE, 0.001, 0.003, 0.03, 0.1)),
        *(Variant(colors=count) for count in (1, 2, 3, 4, 8)),
        Variant(dominant_patches=20),
    )
}
REPORTED_VARIANT = Variant().name


def render_variants(
    library: SpectralLibrary,
    pairs: Sequence[tuple[str, str]],
    trained: Mapping[SceneKind, Sequence[RenderedPair]],
    split: IlluminantSplit,
    seed: int,
) -> dict[str, list[RenderedPair]]:
    """Render the first test scenes under every variant for every pair."""
    scenes = trained[SceneKind("exact", split)][0].scenes
    rows = slice(scenes.test.start, min(scenes.test.start + VARIANT_SCENES, scenes.test.stop))
    count = rows.stop - rows.start
    photographed = Scenes(
        scenes.illuminant[rows],
        scenes.surfaces[rows],
        scenes.clusters[rows],
        train=slice(0, 0),
        valid=slice(0, 0),
        test=slice(0, count),
    )
    rendered = {}
    for number, (name, variant) in enumerate(VARIANTS.items(), start=1):
        shown = show_colors(photographed, np.full(count, variant.colors), variant.dominant_patches)
        noise = np.full(count, variant.read_noise)
        views = render_views(library, pairs, shown, seed + 1_000 * number, noise)
        ambient = read_ambient(library, shown, seed + 1_000 * number)
        rendered[name] = [
            noisy_inputs(views[main], views[second], shown, pair.prior, ambient)
            for (main, second), pair in zip(pairs, trained[SceneKind("noisy", split)], strict=True)
        ]
    return rendered
