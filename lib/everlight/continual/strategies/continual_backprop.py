"""Continual backpropagation (Dohare et al. 2024, Nature 632).

After every optimizer step, a small share ρ of the hidden units is replaced, those of least utility.
A network that learns for long loses units that contribute; new ones keep it able to learn. For a
unit of age a, counted in steps since it was last replaced, whose next layer has weights w:

    u ← η u + (1 − η) mean over the batch of |h| · mean |w|            utility of its contribution
    f ← η f + (1 − η) mean over the batch of h
    û = u / (1 − η^a),   f̂ = f / (1 − η^a)
    c ← c + ρ · (number of units with a > m)                           per layer

The ⌊c⌋ mature units (a > m) with the least û are replaced, and c ← c − ⌊c⌋. Their incoming weights
are drawn from the network's initial distribution. Their outgoing weights, u, f and a become 0, so
that a new unit does not change the outputs; it is protected for m steps. A weight between two new
units is drawn. The contribution in its
adaptable form is

    mean |h − f̂| · mean |w| / mean |v|,   v the incoming weights.

The paper has η = 0.99. The authors' code sets m = 100 and ρ = 3e-4 with the adaptable form on
continual ImageNet, m = 1,000 and ρ = 1e-5 with the plain one on incremental CIFAR-100, and tries ρ
from 1e-6 to 1e-2 with the adaptable form on slowly changing regression.

Equal to the official code (shibhansh/loss-of-plasticity, `gnt.py` with `accumulate=True`) at
utilities, ages, replaced units and their weights, given the same draws, and at Adam's moments that
become 0; differs in:

- New incoming weights come from the setup's `init`; in the official code from a uniform
  distribution of the same width as the initial one. New biases are the initial ones, 0 in the
  official code and in `models`.
- That code adds a replaced unit's mean contribution to the next bias, but has set the mean to 0
  before, so that nothing is added; in everlight nothing is.
- Its Adam counts steps per weight and restarts at replaced ones; optax has one count.
- Moments of every optimizer become 0; in the official code Adam's alone, and the momentum of SGD
  stays.
- The code of continual ImageNet (`convGnT.py`) and of incremental CIFAR-100 (`res_gnt.py`) adds ρ
  times all units of a layer to c once one is mature. The former multiplies |h| and |w| of a
  flattened map place by place before their mean, the latter sums |h| without decay.
- Without `accumulate`, that code replaces a unit with the probability of the fraction.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

from everlight.base import Learner, Proportion, Setup, StepInfo, Strategy
from everlight.checks import NonNegativeInt, ProperFraction, checked
from everlight.conditional import where_under_vmap
from everlight.continual.methods.method import Method, Publication
from everlight.continual.strategies.naive import naive
from everlight.continual.strategies.parts.hidden_units import (
    ByLayer,
    batch_mean,
    incoming_magnitude,
    layer_widths,
    outgoing_magnitude,
    unit_activations,
    with_new_units,
)

Utility = Literal["contribution", "adaptable contribution"]
SMALLEST = 1e-30
"""Smallest divisor, so that a unit without incoming weights has a finite utility."""


class UnitRecords(NamedTuple):
    """Memory of continual backpropagation, one entry per layer."""

    utility: ByLayer
    """Decayed utility u."""
    mean_activation: ByLayer
    """Decayed activation f."""
    age: Mapping[str, Int[Array, "u"]]
    """Steps since the unit was last replaced."""
    due: Mapping[str, Float[Array, ""]]
    """Fraction c of a unit that is still to be replaced."""


@checked
def continual_backprop(
    setup: Setup,
    layers: tuple[str, ...],
    replacement_rate: Proportion = 1e-4,
    decay: ProperFraction = 0.99,
    maturity: NonNegativeInt = 100,
    utility: Utility = "contribution",
) -> Strategy:
    """Return continual backpropagation (CBP), whose memory is `UnitRecords`.

    It needs no task boundaries. The network returns the activations of the layers
    (`Outputs.hidden`).

    Args:
      setup: network, objective, optimizer and data access.
      layers: names of the hidden layers in order; the last one is read by `params["head"]`.
      replacement_rate: share ρ of the mature units that is replaced per step, at most 1.
      decay: decay η of utilities and mean activations, less than 1.
      maturity: age m in steps up to which a new unit is not replaced.
      utility: "contribution" of a unit to the next layer, or the "adaptable contribution", which
        subtracts its mean activation and divides by its incoming weights.

    Raises:
      ValueError: at `init`, the layers are not those of the network; at a step, the network does
        not return their activations.
    """

    def init(key: PRNGKeyArray, learner: Learner) -> UnitRecords:
        zeros = {
            name: jnp.zeros(width, jnp.float32)
            for name, width in layer_widths(learner.params, layers).items()
        }
        age = {name: leaf.astype(jnp.int32) for name, leaf in zeros.items()}
        return UnitRecords(zeros, zeros, age, dict.fromkeys(zeros, jnp.float32(0)))

    def after_step(
        memory: UnitRecords, learner: Learner, info: StepInfo, key: PRNGKeyArray
    ) -> tuple[UnitRecords, Learner]:
        widths = layer_widths(learner.params, layers)
        activations = unit_activations(info.aux, widths)
        age = jax.tree.map(lambda leaf: leaf + 1, memory.age)
        correction = {name: 1 - decay ** leaf.astype(jnp.float32) for name, leaf in age.items()}
        mean, used = {}, {}
        for name, above in zip(layers, (*layers[1:], "head"), strict=True):
            values = activations[name]
            now = batch_mean(values, info.batch)
            # Activations may have 64 bits; the records keep their type.
            mean[name] = jnp.float32(decay * memory.mean_activation[name] + (1 - decay) * now)
            scale = outgoing_magnitude(learner.params[above], widths[name])
            if utility == "adaptable contribution":
                values = values - mean[name] / correction[name]
                incoming = incoming_magnitude(learner.params[name])
                scale = scale / jnp.maximum(incoming, SMALLEST)
            new = scale * batch_mean(jnp.abs(values), info.batch)
            used[name] = jnp.float32(decay * memory.utility[name] + (1 - decay) * new)
        chosen, due = {}, {}
        for name in layers:
            mature = age[name] > maturity
            due[name] = memory.due[name] + replacement_rate * jnp.sum(mature)
            chosen[name] = least_useful(used[name] / correction[name], mature, jnp.floor(due[name]))
            due[name] = (due[name] - jnp.floor(due[name])).astype(jnp.float32)

        def reset_chosen(records: Mapping[str, Array]) -> dict[str, Array]:
            return {name: jnp.where(chosen[name], 0, leaf) for name, leaf in records.items()}

        memory = UnitRecords(reset_chosen(used), reset_chosen(mean), reset_chosen(age), due)
        some = jnp.any(jnp.stack([jnp.any(leaf) for leaf in chosen.values()]))

        def renew_units() -> Learner:
            return with_new_units(setup, learner, layers, chosen, key, connected=True)

        return memory, where_under_vmap(some, renew_units, learner)

    return naive(setup)._replace(init=init, after_step=after_step)


def least_useful(
    utility: Float[Array, "u"], mature: Bool[Array, "u"], count: Float[Array, ""]
) -> Bool[Array, "u"]:
    """Mark the given number of mature units with the least utility; ties go to the first."""
    order = jnp.argsort(jnp.where(mature, utility, jnp.inf))
    rank = jnp.argsort(order)
    return mature & (rank < count)


METHODS = (
    Method(
        "CBP",
        continual_backprop,
        Publication("Dohare et al.", 2024, "Nature", ("statistics",)),
        "continual backpropagation (CBP)",
        tunes="replacement_rate",
        hyperparameters=(1e-5, 1e-4, 1e-3),
        requirements=("named head", "hidden layers"),
        authors={
            "replacement_rate": 0.0003,
            "decay": 0.99,
            "maturity": 100,
            "utility": "adaptable contribution",
        },
        takes_targets=True,
    ),
)
