"""Recycling dormant neurons (ReDo; Sokar et al. 2023, ICML).

Every F steps the dormant hidden units are replaced. A unit is dormant if its mean absolute
activation is at most a share τ of the mean over its layer:

    s_i = E|h_i| / (mean over the units j of the layer of E|h_j|) ≤ τ

Their incoming weights are drawn from the network's initial distribution and their outgoing weights
become 0, so that a unit with τ = 0 is replaced without a change of the outputs. A weight between
two new units is 0. E is the mean over the last F steps of each batch's mean, so that a smaller last
batch has the same weight. `threshold` τ from 0 to 0.1 is usual.

Equal to the official code (google/dopamine, `labs/redo/weight_recyclers.py`, `NeuronRecycler`) at
scores, dormant units, their new weights, given the same draws, and Adam's moments, which become 0;
differs in:

- Activations are those of the training batches of the last F steps; in the official code those of
  256 samples that are redrawn from the replay buffer.
- New incoming weights and biases come from the setup's `init`, in the official code from Xavier's
  distribution and 0. Moments of biases become 0 too.
- Outgoing weights of a channel whose maps are flattened are its own; in the official code a mask
  for maps with channels first is applied to maps with channels last.
- τ and F are the paper's 0.1 and 1,000 by default; in the official code 0 and 200,000 steps of the
  optimizer. The registry's τ are a grid.
- The mean over the layer has 1e-9 added in the official code.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Int, PRNGKeyArray

from everlight.base import Learner, Proportion, Setup, StepInfo, Strategy
from everlight.checks import PositiveInt, checked
from everlight.conditional import where_under_vmap
from everlight.continual.methods.method import Method, Publication
from everlight.continual.strategies.naive import naive
from everlight.continual.strategies.parts.hidden_units import (
    ByLayer,
    batch_mean,
    layer_widths,
    unit_activations,
    with_new_units,
)
from everlight.metrics.plasticity import dormant_units


class Activity(NamedTuple):
    """Memory of ReDo."""

    total: ByLayer
    """Sum of mean absolute activations over the steps since the last replacement."""
    steps: Int[Array, ""]
    """Number of these steps."""


@checked
def redo(
    setup: Setup, layers: tuple[str, ...], threshold: Proportion = 0.1, period: PositiveInt = 1000
) -> Strategy:
    """Return the recycling of dormant units (ReDo), whose memory is `Activity`.

    It needs no task boundaries. The network returns the activations of the layers
    (`Outputs.hidden`).

    Args:
      setup: network, objective, optimizer and data access.
      layers: names of the hidden layers in order; the last one is read by `params["head"]`.
      threshold: share τ of the layer's mean activation at or below which a unit is dormant.
      period: number F of steps between replacements.

    Raises:
      ValueError: at `init`, the layers are not those of the network; at a step, the network does
        not return their activations.
    """

    def init(key: PRNGKeyArray, learner: Learner) -> Activity:
        widths = layer_widths(learner.params, layers)
        total = {name: jnp.zeros(width, jnp.float32) for name, width in widths.items()}
        return Activity(total, jnp.int32(0))

    def after_step(
        memory: Activity, learner: Learner, info: StepInfo, key: PRNGKeyArray
    ) -> tuple[Activity, Learner]:
        activations = unit_activations(info.aux, layer_widths(learner.params, layers))
        total = {
            name: memory.total[name] + batch_mean(jnp.abs(values), info.batch)
            for name, values in activations.items()
        }
        steps = memory.steps + 1

        def recycle_units() -> tuple[Activity, Learner]:
            dormant = {name: dormant_units(leaf, threshold) for name, leaf in total.items()}
            none = Activity(jax.tree.map(jnp.zeros_like, total), jnp.zeros_like(steps))
            new = with_new_units(setup, learner, layers, dormant, key, connected=False)
            return none, new

        return where_under_vmap(steps >= period, recycle_units, (Activity(total, steps), learner))

    return naive(setup)._replace(init=init, after_step=after_step)


METHODS = (
    Method(
        "ReDo",
        redo,
        Publication("Sokar et al.", 2023, "ICML", ("statistics",)),
        "the recycling of dormant units (ReDo)",
        tunes="threshold",
        hyperparameters=(0.0, 0.025, 0.1),
        requirements=("named head", "hidden layers"),
        authors={"threshold": 0, "period": 200000},
        takes_targets=True,
    ),
)
