"""Instance losses of OCM and OnPro: a view attracts the other views of its class."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from everlight.continual.strategies.parts.passes import weighted_mean
from everlight.models.heads import unit_vectors
from everlight.precision import full_precision

SMALL = 1e-8
"""The authors' constant added to sums and within logarithms of the instance loss."""


@full_precision
def similarities(
    z: Float[Array, "v w"], features: Float[Array, "v f"], start: Int[Array, ""]
) -> Float[Array, "v v"]:
    """Return z·z + z·f of all views, f being w features from one on, of unit features.

    Args:
      z: projections of length 1; w is at most f.
      features: features of any length.
      start: number of the first feature that counts.
    """
    part = jax.lax.dynamic_slice_in_dim(unit_vectors(features, -1), start, z.shape[1], axis=1)
    return z @ part.T + z @ z.T


def class_losses(
    near: Float[Array, "v v"],
    ids: Int[Array, "v"],
    weight: Float[Array, "v"],
    temperature: float,
) -> Float[Array, "v"]:
    """Return − mean over j of i's class of log P_ij of each view i, P_i = softmax(S_i / τ).

    Args:
      near: similarities S of the views with others, or the same ones, of the same classes.
      ids: class of each view.
      weight: 0 for padding, which is compared with no view.
      temperature: temperature τ.
    """
    mask = weight > 0
    return _class_mean(_surprise(near, mask, True, temperature), ids, mask)


def instance_losses(
    near: Float[Array, "v v"],
    ids: Int[Array, "n"],
    weight: Float[Array, "n"],
    temperature: float,
    replayed: bool,
) -> Float[Array, "v"]:
    """Return the instance loss l of each view; v = 2n, all first views and then all second ones.

    Args:
      near: similarities S of the views.
      ids: class of each sample.
      weight: 0 for padding, which is compared with no view.
      temperature: temperature τ.
      replayed: form for replayed samples, where a view counts as one of its own class; the form for
        incoming ones leaves it out, and has a term of the sample's other view.
    """
    view_ids, view_weight = jnp.tile(ids, 2), jnp.tile(weight, 2)
    if replayed:
        return class_losses(near, view_ids, view_weight, temperature)
    mask, count = view_weight > 0, ids.shape[0]
    surprise = _surprise(near, mask, False, temperature)
    other = jnp.concatenate([jnp.diag(surprise[:count, count:]), jnp.diag(surprise[count:])])
    return other + 2 * _class_mean(surprise, view_ids, mask)


def _surprise(
    near: Float[Array, "v v"], mask: Bool[Array, "v"], counts_itself: bool, temperature: float
) -> Float[Array, "v v"]:
    """Return − log P of each view (rows) with the others."""
    greatest = jnp.max(near, axis=1, where=mask, initial=-jnp.inf, keepdims=True)
    # Without any view that counts the greatest similarity would be infinite.
    shift = jax.lax.stop_gradient(jnp.where(jnp.isfinite(greatest), greatest, 0))
    powers = jnp.exp((near - shift) / temperature)
    counted = mask if counts_itself else mask & ~jnp.eye(near.shape[0], dtype=bool)
    powers = jnp.where(counted, powers, 0)
    total = jnp.sum(powers, axis=1, keepdims=True)
    return -jnp.log(powers / (total + SMALL) + SMALL)


def _class_mean(
    surprise: Float[Array, "v v"], ids: Int[Array, "v"], mask: Bool[Array, "v"]
) -> Float[Array, "v"]:
    same = ((ids[:, None] == ids) & mask).astype(surprise.dtype)
    return jnp.sum(same * surprise, axis=1) / (jnp.sum(same, axis=1) + SMALL)


class FormSamples(NamedTuple):
    """Samples whose views are compared: the class of each one, and its weight, 0 for padding."""

    ids: Int[Array, "n"]
    weight: Float[Array, "n"]

    def repeated(self, forms: int, stride: int) -> "FormSamples":
        """Return the samples of all forms, in which every form of a class is a class of its own.

        Args:
          forms: number of forms.
          stride: number above that of every class.
        """
        ids = self.ids + stride * jnp.arange(forms)[:, None]
        return FormSamples(ids.reshape(-1), jnp.tile(self.weight, forms))

    def instance_loss(
        self, near: Float[Array, "v v"], temperature: float, replayed: bool
    ) -> Float[Array, ""]:
        """Return the mean of `instance_losses` of both views of the samples."""
        losses = instance_losses(near, self.ids, self.weight, temperature, replayed)
        return weighted_mean(losses, jnp.tile(self.weight, 2))
