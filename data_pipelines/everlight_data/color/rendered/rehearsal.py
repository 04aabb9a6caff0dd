"""Rendered pairs in place of those of S20, for a rehearsal without data."""

import jax
import numpy as np

from everlight.color.transforms import fit_color_transform
from everlight.illuminant.camera_pairs import CameraPairs
from everlight.illuminant.pair_inputs import TRANSFORM, View
from everlight_data.color.rendered.radiometric import RadiometricSettings, draw_scenes, photograph
from everlight_data.color.spectra.library import EMBEDDED_CAMERAS, embedded_library


def rehearsal_pairs(seed: int, view: View = "main") -> CameraPairs:
    """Render as many pairs as S20 has, for a rehearsal without data."""
    library, count = embedded_library(), 162
    scenes = draw_scenes(library, RadiometricSettings(count, "random", seed))
    main, second = (photograph(library, camera, scenes) for camera in EMBEDDED_CAMERAS)
    fit = jax.vmap(lambda a, b: fit_color_transform(a, b, normalize="sum"))
    transforms = np.asarray(fit(main.colors, second.colors).transform).reshape(-1, 9)
    return CameraPairs(
        inputs={TRANSFORM: transforms},
        main=main.illuminants,
        second=second.illuminants,
        folds=np.random.default_rng(seed).permutation(count).reshape(3, -1),
        cameras=EMBEDDED_CAMERAS,
        note=f"NOT S20: {count} pairs rendered from the spectra of colour-science",
        view=view,
    )
