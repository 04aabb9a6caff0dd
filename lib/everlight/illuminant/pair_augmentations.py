"""Augmentations of images and image pairs: re-illumination with and without charts, mixing."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Float, Int, PRNGKeyArray

from everlight.color.chromaticity import illuminant_to_chromaticity
from everlight.color.mixing import mix_neighbors
from everlight.color.moments import reilluminate_moments
from everlight.color.reillumination import augment_transforms, von_kries
from everlight.color.transforms import scale_free
from everlight.illuminant.camera_pairs import (
    Augment,
    CameraPairs,
    FoldedInputs,
    Samples,
)
from everlight.illuminant.charted_pairs import ChartedPairs
from everlight.illuminant.pair_inputs import (
    MOMENTS,
    TRANSFORM,
    WHITE_BALANCE,
    View,
    alone_and_joined,
)
from everlight.illuminant.pair_reillumination import (
    reilluminate_training,
    relight_by_charts,
)

COPIES = 99
"""Re-illuminations of each pair or image, the paper's number."""
SAMPLES = 19_500
"""Maximum number of re-illuminated samples of images, to which each image itself is added.

The paper's NUS set has as many samples in all.
"""
NEIGHBORS = (5, 20)
"""Numbers of neighbours to mix a pair with; each fold's validation pairs select one."""


def repeat_samples(data: FoldedInputs, train: Int[np.ndarray, "k"], times: int) -> Samples:
    """Return the training rows repeated, as many samples as an augmentation gives."""
    inputs = {name: np.tile(values[train], (times, 1)) for name, values in data.inputs.items()}
    return Samples(inputs, np.tile(data.targets(train), (times, 1)))


def chart_augmentations(charted: ChartedPairs) -> dict[str, Augment]:
    """Return the training pairs as they are, and the paper's re-illumination by their charts."""
    return {
        "none": lambda pairs, train, _: repeat_samples(pairs, train, 1 + copy_count(train)),
        "re-illuminated": partial(_relit_by_charts, charted),
    }


def resampled(augment: Augment, count: int) -> Augment:
    """Return an augmentation with `count` samples, drawn or repeated, whatever the fold's size.

    The key draws both the augmentation and its samples, so that trainings of other seeds differ.
    """

    def augmented(data: FoldedInputs, train: Int[np.ndarray, "k"], key: PRNGKeyArray) -> Samples:
        augment_key, draw_key = jax.random.split(key)
        samples = augment(data, train, augment_key)
        rows = np.resize(jax.random.permutation(draw_key, len(samples.targets)), count)
        inputs = {name: np.asarray(values)[rows] for name, values in samples.inputs.items()}
        return Samples(inputs, np.asarray(samples.targets)[rows])

    return augmented


def copy_count(train: Int[np.ndarray, "k"]) -> int:
    """Return the re-illuminations of each row: `COPIES`, or as many as there are other rows."""
    return min(COPIES, len(train) - 1)


def _relit_by_charts(
    charted: ChartedPairs, pairs: CameraPairs, train: Int[np.ndarray, "k"], key: PRNGKeyArray
) -> Samples:
    seed = int(jax.random.bits(key))
    augmented = reilluminate_training(charted, np.sort(train), seed, copy_count(train))
    view = augmented.main if pairs.view == "main" else augmented.second
    moments = jax.vmap(reilluminate_moments)(
        jnp.asarray(pairs.inputs[MOMENTS][augmented.sources]), jnp.asarray(view.relights)
    )
    inputs = {TRANSFORM: augmented.normalized.reshape(-1, 9), MOMENTS: moments}
    return Samples(
        alone_and_joined(inputs), illuminant_to_chromaticity(jnp.asarray(view.illuminants))
    )


def relit_inputs(
    charted: ChartedPairs, moments: Float[np.ndarray, "n 9"], view: View
) -> dict[str, Float[np.ndarray, "n n f"]]:
    """Return inputs by name of every pair under every pair's illuminant.

    Args:
      charted: transforms and charts.
      moments: nine colour moments of the images of `view`.
      view: camera whose moments are inputs.
    """
    relit = relight_by_charts(charted, np.arange(len(charted.names)))
    relight_all = jax.vmap(jax.vmap(reilluminate_moments, (None, 0)))
    relit_moments = relight_all(jnp.asarray(moments), getattr(relit, view))
    count = len(moments)
    transforms = np.asarray(relit.normalized).reshape(count, count, 9)
    return alone_and_joined({TRANSFORM: transforms, MOMENTS: np.asarray(relit_moments)})


def _relit_by_von_kries(
    pairs: CameraPairs, train: Int[np.ndarray, "k"], key: PRNGKeyArray
) -> Samples:
    """Return each pair under its own and `COPIES` other training illuminants."""
    green = [truth[train] / truth[train][:, 1:2] for truth in (pairs.main, pairs.second)]
    factors = [von_kries(jnp.asarray(illuminants)) for illuminants in green]
    transforms = jnp.asarray(pairs.inputs[TRANSFORM][train]).reshape(-1, 3, 3)
    # Rows of sum-normalized transforms add up to about 1, which the factors change.
    everything = np.asarray(scale_free(augment_transforms(transforms, *factors)))
    target = draw_targets(key, len(train), COPIES)
    inputs = {TRANSFORM: everything[np.arange(len(train))[:, None], target].reshape(-1, 9)}
    targets = pairs.targets(train)
    if WHITE_BALANCE in pairs.inputs:
        # The phone's estimate changes with the illuminant.
        balance = pairs.inputs[WHITE_BALANCE][train][:, None] * targets[target] / targets[:, None]
        inputs = alone_and_joined({**inputs, WHITE_BALANCE: balance.reshape(-1, 2)})
    return Samples(inputs, targets[target.ravel()])


def draw_targets(key: PRNGKeyArray, count: int, copies: int) -> Int[np.ndarray, "count t"]:
    """Return each row's own number and those of `copies` others; too few others occur twice."""
    rows = np.arange(count)[:, None]
    others = jax.vmap(lambda row_key: jax.random.permutation(row_key, count - 1))
    shift = np.resize(np.asarray(others(jax.random.split(key, count))).T, (copies, count))
    return np.concatenate([rows, (rows + 1 + shift.T) % count], axis=1)


def _image_copies(train: Int[np.ndarray, "k"]) -> int:
    return min(SAMPLES // len(train), copy_count(train))


def _relit_moments_by_von_kries(
    data: FoldedInputs, train: Int[np.ndarray, "k"], key: PRNGKeyArray
) -> Samples:
    """Return each image's moments under its own and other training illuminants."""
    target = draw_targets(key, len(train), _image_copies(train))
    relights = np.asarray(von_kries(jnp.asarray(data.illuminants[train])))
    relights = relights[np.arange(len(train))[:, None], target].reshape(-1, 3, 3)
    moments = jnp.asarray(data.inputs[MOMENTS][np.repeat(train, target.shape[1])])
    relit = {MOMENTS: jax.vmap(reilluminate_moments)(moments, relights)}
    return Samples(relit, data.targets(train)[target.ravel()])


def _mixed(
    neighbors: int, pairs: CameraPairs, train: Int[np.ndarray, "k"], key: PRNGKeyArray
) -> Samples:
    targets = jnp.asarray(pairs.targets(train))
    inputs = {}
    for name, values in pairs.inputs.items():
        # One key mixes every input with the same partner in the same proportion.
        mixed = mix_neighbors(key, jnp.asarray(values[train]), targets, neighbors, COPIES)
        inputs[name] = mixed.features
    return Samples(inputs, mixed.targets)


PHONE_AUGMENTATIONS: dict[str, Augment] = {
    "none": lambda pairs, train, _: repeat_samples(pairs, train, 1 + COPIES),
    "von Kries": _relit_by_von_kries,
    **{f"mixed with {count}": partial(_mixed, count) for count in NEIGHBORS},
}
"""Augmentations without charts; mixing pairs under similar illuminants is new here."""
IMAGE_AUGMENTATIONS: dict[str, Augment] = {
    "none": lambda data, train, _: repeat_samples(data, train, 1 + _image_copies(train)),
    "re-illuminated": _relit_moments_by_von_kries,
}
"""Augmentations of colour moments of single images."""
