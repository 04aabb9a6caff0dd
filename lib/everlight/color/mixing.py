"""More training pairs where only transforms are at hand: mixtures of pairs under similar lights."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from everlight.checks import NonNegativeInt, PositiveInt, checked


class Mixtures(NamedTuple):
    """Mixed features and their chromaticities."""

    features: Float[Array, "n f"]
    targets: Float[Array, "n 2"]


@checked
def mix_neighbors(
    key: PRNGKeyArray,
    features: Float[Array, "n f"],
    targets: Float[Array, "n 2"],
    neighbors: PositiveInt,
    copies: NonNegativeInt,
) -> Mixtures:
    """Convex mixtures of each pair with pairs whose light is near to its own.

    C-Mixup (Yao et al. 2022, NeurIPS), with the partner drawn evenly from the `neighbors` nearest
    in log-chromaticity. A scene under a mixture of two lights has about the mixed transform, as
    long as the lights are alike. Features mix linearly and chromaticities geometrically, by the
    same even random share.

    Args:
      key: of partners and shares.
      features: transforms flattened row by row, or others, `[n, f]`; one key mixes all alike.
      targets: [R/G, B/G], positive, `[n, 2]`.
      neighbors: how many partners each pair has, fewer than n.
      copies: mixtures per pair.

    Returns:
      The originals, then `copies` mixtures of each.

    Raises:
      ValueError: as many neighbours as there are pairs.
    """
    count = features.shape[0]
    if neighbors >= count:
        raise ValueError(f"neighbors={neighbors}, but there are only {count - 1} other pairs")
    logs = jnp.log(targets)
    distances = jnp.sum((logs[:, None] - logs[None]) ** 2, axis=-1)
    partners = jnp.argsort(distances.at[jnp.diag_indices(count)].set(-1), axis=1)[:, 1:]
    key_partner, key_share = jax.random.split(key)
    rank = jax.random.randint(key_partner, (copies, count), 0, neighbors)
    partner = partners[jnp.arange(count), rank]
    share = jax.random.uniform(key_share, (copies, count, 1))

    def mix(values: Float[Array, "n c"]) -> Float[Array, "m c"]:
        mixed = values + share * (values[partner] - values)
        return jnp.concatenate([values, mixed.reshape(-1, values.shape[1])])

    return Mixtures(mix(features), jnp.exp(mix(logs)))
