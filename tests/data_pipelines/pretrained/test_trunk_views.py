"""Views of the frozen trunk: colours of places in closed form, maps by the net's layers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from everlight.illuminant.trunk_views import FACTORS, VIEWS_PER_IMAGE
from everlight.models import EfficientNetLite0
from everlight.models.efficientnet import DEVIATION, MEAN, efficientnet_variables
from everlight_data.errors import MissingDataError
from everlight_data.pretrained import trunk_views as module
from everlight_data.pretrained.efficientnet_weights import load_efficientnet_lite0
from everlight_data.pretrained.trunk_views import trunk_views

COLORS = np.array([[0.8, 0.4, 0.2], [0.1, 0.3, 0.6]], np.float32)
_images = np.broadcast_to(COLORS[:, None, None], (2, 16, 24, 3))


@pytest.fixture(scope="module")
def views():
    """Return views of two images of one colour each; the first one's left half is masked."""
    masks = np.ones((2, 16, 24), np.float32)
    masks[0, :, :12] = 0
    images = np.where(masks[..., None] > 0, _images, 7).astype(np.float32)
    try:
        return trunk_views(images, masks), images, masks
    except MissingDataError as error:
        pytest.skip(str(error))


def test_places_have_the_colors_that_are_not_masked(views):
    (maps, colors, factors), _, _ = views
    assert maps.shape == (2, VIEWS_PER_IMAGE, 8, 8, 152)
    assert (factors[:, 0] == 1).all()
    assert factors[:, 1:].min() >= FACTORS[0]
    assert factors[:, 1:].max() <= FACTORS[1]
    assert (np.ptp(factors[:, 1:], axis=(0, 1)) > 0.3).all()
    expected = (COLORS[:, None] * factors)[:, :, None, None]
    seen = colors.any(axis=-1, keepdims=True)
    np.testing.assert_allclose(colors, np.where(seen, expected, 0), rtol=1e-4)
    assert seen[1].all()
    # Enlarged, the border between the halves bleeds into the places beside it.
    assert not seen[0, 0, :, :3].any()
    assert seen[0, 0, :, 4:].all()
    shares = seen[0, 1:].mean(axis=(1, 2, 3))
    assert np.ptp(shares) > 0.1, "windows and mirrors must show other parts"


def test_the_first_view_is_what_the_net_sees_of_the_image(views):
    """The trunk's stages are compared on a flat image, which needs no resampling."""
    (maps, _, _), _, _ = views
    encoded = (COLORS[1] / COLORS[1].max()) ** (1 / 2.2)
    inputs = np.broadcast_to((255 * encoded - MEAN) / DEVIATION, (1, 128, 128, 3))
    weights = efficientnet_variables(load_efficientnet_lite0())
    captured = {"capture_intermediates": True, "mutable": ["intermediates"]}
    net = jax.jit(lambda pixels: EfficientNetLite0().apply(weights, pixels, False, **captured))
    _, state = net(jnp.float32(inputs))
    of_stage = state["intermediates"]["block10"]["__call__"][0][0]
    np.testing.assert_allclose(maps[1, 0, ..., 40:], of_stage, atol=2e-3)
    finer = np.asarray(state["intermediates"]["block4"]["__call__"][0][0])
    means = finer.reshape(8, 2, 8, 2, 40).mean(axis=(1, 3))
    np.testing.assert_allclose(maps[1, 0, ..., :40], means, atol=2e-3)


def test_the_same_images_are_computed_once(views, monkeypatch):
    result, images, masks = views
    monkeypatch.setattr(module, "_compute", lambda images, masks: "anew")
    assert trunk_views(images.copy(), masks.copy()) is result
    monkeypatch.setattr(module, "_last", dict(module._last))
    assert trunk_views(images, 1 - masks) == "anew"
