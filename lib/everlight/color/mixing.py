"""C-Mixup augmentation: convex mixtures of training pairs under similar illuminants."""

from typing import Annotated, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray

from everlight.checks import FINITE, POSITIVE, NonNegativeInt, PositiveInt, checked
from everlight.errors import Argument, ArgumentError


class Mixtures(NamedTuple):
    """Mixed features and their chromaticities."""

    features: Float[Array, "n f"]
    targets: Float[Array, "n 2"]


@checked
def mix_neighbors(
    key: PRNGKeyArray,
    features: Annotated[Float[Array, "n f"], FINITE],
    targets: Annotated[Float[Array, "n 2"], POSITIVE],
    neighbors: PositiveInt,
    copies: NonNegativeInt,
) -> Mixtures:
    """Mix each pair with pairs whose illuminants are close to its own.

    C-Mixup (Yao et al. 2022, NeurIPS) with the partner drawn uniformly from the `neighbors` nearest
    in log-chromaticity. A scene under a mixture of two similar illuminants has approximately the
    mixed transform. Features mix linearly and chromaticities geometrically, with the same uniform
    weight.

    Args:
      key: key of partners and mixing weights.
      features: flattened transforms or other features, `[n, f]`; one key mixes all kinds alike.
      targets: chromaticities [R/G, B/G], positive, `[n, 2]`.
      neighbors: number of candidate partners per pair, less than n.
      copies: mixtures per pair.

    Returns:
      The original pairs, followed by `copies` mixtures of each.

    Raises:
      ValueError: `neighbors` is not less than the number of pairs.
    """
    features, targets, count = jnp.asarray(features), jnp.asarray(targets), features.shape[0]
    if neighbors >= count:
        raise ArgumentError(
            Argument("neighbors", neighbors), f" of {count - 1} other pairs", remedy=("give fewer",)
        )
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
