"""Folds of images: what a method reads of other images by the camera."""

import jax.numpy as jnp
import numpy as np
import pytest

from everlight.color import IlluminantMethod, LabelledImages, SideInformation, estimate_fold
from everlight.color.illuminant_method import no_parameters


@pytest.mark.parametrize("camera", [1, 2])
def test_other_images_are_by_the_tested_camera(camera):
    """They are training images if it took any, else tested ones, and never the tested image."""
    method = IlluminantMethod(
        "others",
        None,
        no_parameters,
        lambda parameters, features, others: others[:, 0, 0, 0],
        reads_others=True,
    )
    marked = jnp.zeros((30, 4, 4, 4)).at[:, 0, 0, 0].set(jnp.arange(30))
    train = LabelledImages(marked[:20], jnp.ones((20, 3)), jnp.arange(20) % 2)
    side = SideInformation("abc", "abc"[camera])
    chosen = np.asarray(estimate_fold(method, train, marked[20:], side)).astype(int)
    assert chosen.shape == (10, 6)
    for place, others in enumerate(chosen):
        if camera == 1:
            assert (others % 2 == 1).all()
            assert (others < 20).all()
        else:
            assert (others >= 20).all()
            assert (others != 20 + place).all()
    assert len(np.unique(chosen)) > 5
