"""S20's released pairs as inputs of estimators."""

import jax.numpy as jnp
import numpy as np

from everlight.color.chromaticity import illuminant_to_chromaticity
from everlight.illuminant.camera_pairs import CameraPairs
from everlight.illuminant.pair_inputs import TRANSFORM, WHITE_BALANCE, View, alone_and_joined
from everlight_data.color.s20 import load_s20


def released_pairs(view: View = "main") -> CameraPairs:
    """Return S20's transforms of the whole image, its illuminants, white balance and folds.

    Raises:
      MissingDataError: the release is missing.
      DataError: a file is damaged.
    """
    release = load_s20()
    neutral = release.as_shot_neutral_main if view == "main" else release.as_shot_neutral_second
    transforms = release.transform_image.reshape(-1, 9).astype(np.float32)
    white_balance = np.asarray(illuminant_to_chromaticity(jnp.asarray(neutral)))
    return CameraPairs(
        inputs=alone_and_joined({TRANSFORM: transforms, WHITE_BALANCE: white_balance}),
        main=release.illuminant_main.astype(np.float32),
        second=release.illuminant_second.astype(np.float32),
        folds=np.stack(release.folds),
        cameras=("S20 Ultra main", "S20 Ultra wide-angle"),
        note=f"S20 release: {len(release.names)} real pairs (the paper counts 156), transforms of "
        "sum-normalised images",
        view=view,
    )
