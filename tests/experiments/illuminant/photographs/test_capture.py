"""Time-aware white balance on made-up thumbnails whose illuminant depends on the time of day."""

import jax
import jax.numpy as jnp
import numpy as np

from everlight.color.learned.capture_aware import capture_features
from everlight_data.color.photographs.camera_images import split_across, split_within
from everlight_experiments.illuminant.photographs import source
from everlight_experiments.illuminant.photographs.dataset import DatasetOptions
from everlight_experiments.illuminant.photographs.source import load_cameras

HOUR = 3600
SUN = np.array([5.5, 6, 12, 18, 18.5, 24]) * HOUR


def write_day(path, camera, count, rng):
    """Write scenes of one dominant colour each, in which the illuminant is hard to see."""
    time = rng.uniform(6, 18, count) * HOUR
    warm = np.abs(time / HOUR - 12) / 6
    illuminants = np.stack([0.3 + 0.3 * warm, np.full(count, 0.8), 0.5 - 0.25 * warm], axis=1)
    surfaces = np.exp(
        rng.normal(0, 0.25, (count, 1, 1, 3)) + rng.normal(0, 0.1, (count, 16, 16, 3))
    )
    np.savez(
        path,
        images=0.2 * surfaces * illuminants[:, None, None],
        illuminant_rgb=illuminants,
        names=np.array([f"{camera}_{index}" for index in range(count)]),
        time=time,
        sun_events=np.tile(SUN, (count, 1)),
        iso=np.full(count, 100),
        exposure=np.full(count, 0.01),
        flash=np.zeros(count, bool),
    )
    return time, illuminants


def test_captures_stay_with_their_images(tmp_path, rng, monkeypatch):
    monkeypatch.setattr(source, "MIN_IMAGES", 6)
    files = tuple(tmp_path / f"{camera}.npz" for camera in ("P1", "P2"))
    times = [
        write_day(file, file.stem, count, rng)[0]
        for file, count in zip(files, (10, 8), strict=True)
    ]
    cameras, _ = load_cameras(DatasetOptions(thumbnails=files))
    across = split_across(cameras)["P1"]
    settings = jnp.float32(SUN), jnp.float32(100), jnp.float32(0.01), jnp.array(False)
    features = jax.vmap(capture_features, (0, *[None] * 4))
    inputs = features(jnp.float32(np.concatenate(times)), *settings)
    np.testing.assert_allclose(across.captures, inputs, rtol=1e-6)
    within = split_within("P2", cameras["P2"], [np.array([7, 0]), np.array([3, 5])])
    np.testing.assert_allclose(within.captures, inputs[10:][jnp.array([0, 3, 5, 7])], rtol=1e-6)
    # One camera without its captures leaves the network out for all.
    cameras["P2"] = cameras["P2"]._replace(captures=None)
    assert split_across(cameras)["P1"].captures is None
