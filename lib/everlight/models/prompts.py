"""Prompts of a frozen vision transformer, of L2P, DualPrompt and CODA-Prompt.

    q = features of an image by the frozen network without prompts

Prompt pool (Wang et al. 2022, CVPR, arXiv 2112.08654): N of M prompts P_m of L tokens each, those
whose keys k_m have the greatest cosine with q, come before the image's tokens at the first block:

    loss + λ Σ over the chosen m of −cos(q, k_m)

The features are the mean of the prompts' outputs. On CIFAR-100 λ = 1, M = 10, L = 10 and N = 4 in
the authors' code; the paper has λ = 0.5, L = 5 and N = 5.

Prompt components (CODA-Prompt; Smith et al. 2023, CVPR, arXiv 2211.13218): in each of the first
blocks the prompt is a weighted sum of M components P_m with keys K_m and attentions A_m,

    P = Σ_m α_m P_m,   α_m = cos(q ⊙ A_m, K_m)
    loss + λ Σ over X in K, A, P of mean((X Xᵀ − I)²),   rows of X being the components

half of whose tokens are keys and half values that the block attends to as well (prefix tuning). A
component whose arrays are all 0 has no effect, no gradient and no share in the penalty, so that
components that are still to come are 0 (`continual.coda_prompt`). The paper has λ = 0.1, and its
first code a further factor of 1e-6, whose absence from the paper is an error by the first author's
word (GT-RIPL/CODA-Prompt, issues 4 and 12). The later code has λ = 0.

General and expert prompts (DualPrompt; Wang et al. 2022, ECCV, arXiv 2204.04799): the first blocks
attend to a general prompt G, which all images share, and the blocks after them to the expert
prompt E_m whose key k_m has the greatest cosine with q, keys and values of L tokens each:

    loss − λ cos(q, k_m)

On CIFAR-100 the authors' code has λ = 1, L = 5, G in two blocks and E in three.

Equal to the official codes (google-research/l2p, `models/prompt.py`; GT-RIPL/CODA-Prompt,
`models/zoo.py`) at the prompts of an image, the features and the loss; differs in:

- Every image has its own prompts, as in the papers of L2P and DualPrompt. In their official code
  all images of a batch share those that most of them would have, L2P's in evaluation too and
  DualPrompt's only there (`batchwise_prompt`).
- In CODA-Prompt's official code the penalty is a mean over the components of the tasks so far,
  which is the same as in everlight where the others are 0. It is added once per GPU.
- The networks of GT-RIPL/CODA-Prompt have the exact GELU, those of everlight its tanh
  approximation.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray, PyTree

from everlight.base import Outputs, Setup
from everlight.checks import NonNegativeFloat, NonNegativeInt, PositiveInt, checked
from everlight.errors import ArgumentError
from everlight.models.frozen_layers import with_trained_part
from everlight.models.heads import unit_vectors
from everlight.models.vit import Prompts, VisionTransformer
from everlight.precision import matrix_product

MAX_START = 0.01
"""Bound of the uniform distribution from 0 of a pool's first prompts and keys."""


class Prompting(NamedTuple):
    """A way to choose prompts, as functions of trained parameters."""

    init: Callable[[PRNGKeyArray], PyTree]
    """Function that returns the first parameters."""
    choose: Callable[[PyTree, Float[Array, "b w"]], tuple[Prompts, Float[Array, "b"]]]
    """Function from parameters and queries to the prompts and each sample's penalty."""


@checked
def with_prompts(
    setup: Setup, net: VisionTransformer, layers: Mapping[str, PyTree], prompting: Prompting
) -> Setup:
    """Return the setup that trains prompts of a frozen transformer, and its layers not given.

    Its parameters are `params["prompts"]` and the layers that are not given, such as the head. The
    loss of its objective has the penalty of the prompts, so that any strategy trains them.

    Args:
      setup: setup of the transformer.
      net: the transformer.
      layers: parameters by layer, such as pretrained ones. They are constants of a program that
        closes over them; give them with the data of the run instead.
      prompting: how prompts are chosen: `prompt_pool`, `dual_prompts` or `prompt_components`.

    Raises:
      ValueError: the setup has frozen parameters; set `trainable` of the result instead. In `init`,
        if the network has no such layer, or one of other shapes; in `apply`, if it has fewer blocks
        than have prompts.
    """
    task_loss = setup.objective.loss

    def forward(
        variables: PyTree,
        prompt_params: PyTree,
        inputs: Float[Array, "b h w c"],
        train: bool,
        key: PRNGKeyArray | None,
    ) -> Outputs:
        query = jax.lax.stop_gradient(net.apply(variables, inputs, False).features)
        prompts, penalty = prompting.choose(prompt_params, query)
        return net.apply(variables, inputs, train, prompts)._replace(penalty=penalty)

    def loss(
        outputs: Outputs, labels: Int[Array, "b k"], seen: Bool[Array, "c"]
    ) -> Float[Array, "b"]:
        return task_loss(outputs, labels, seen) + outputs.penalty

    trained = with_trained_part(setup, layers, "prompts", prompting.init, forward)
    return trained._replace(objective=setup.objective._replace(loss=loss))


@checked
def prompt_pool(
    width: PositiveInt,
    size: PositiveInt = 10,
    length: PositiveInt = 10,
    chosen: PositiveInt = 4,
    pull: NonNegativeFloat = 1.0,
) -> Prompting:
    """Return the pool of prompts of L2P, with parameters prompt, `[m, l, w]`, and key, `[m, w]`.

    Args:
      width: features of each token.
      size: number M of prompts.
      length: tokens L of each prompt.
      chosen: number N of prompts of an image.
      pull: coefficient λ of the cosines.

    Raises:
      ValueError: more prompts are chosen than there are.
    """
    if chosen > size:
        raise ArgumentError(f"{chosen} prompts of a pool of {size}; choose {size} or fewer")

    def init(key: PRNGKeyArray) -> PyTree:
        key_prompt, key_key = jax.random.split(key)
        return {
            "prompt": jax.random.uniform(key_prompt, (size, length, width), maxval=MAX_START),
            "key": jax.random.uniform(key_key, (size, width), maxval=MAX_START),
        }

    def choose(params: PyTree, query: Float[Array, "b w"]) -> tuple[Prompts, Float[Array, "b"]]:
        cosines, position = _nearest_keys(params["key"], query, chosen)
        tokens = params["prompt"][position].reshape(query.shape[0], chosen * length, width)
        return Prompts(tokens), -pull * jnp.sum(cosines, axis=1)

    return Prompting(init, choose)


def _nearest_keys(
    key: Float[Array, "m w"], query: Float[Array, "b w"], count: int
) -> tuple[Float[Array, "b n"], Int[Array, "b n"]]:
    """Return the greatest cosines with the keys, in falling order, and these keys' numbers."""
    values, position = jax.lax.top_k(unit_vectors(query, -1) @ unit_vectors(key, -1).T, count)
    return values, position


@checked
def dual_prompts(
    width: PositiveInt,
    experts: PositiveInt = 10,
    length: PositiveInt = 5,
    general_blocks: NonNegativeInt = 2,
    expert_blocks: PositiveInt = 3,
    pull: NonNegativeFloat = 1.0,
) -> Prompting:
    """Return DualPrompt's general and expert prompts, keys and values of blocks by their names.

    The parameters are general, `[2, l, w]` of each block, expert, `[m, 2, l, w]` of each block, and
    key, `[m, w]`. Without general blocks there is no general.

    Args:
      width: features of each token.
      experts: number M of expert prompts, at least one per task.
      length: keys, and values, L of a prompt.
      general_blocks: number of blocks with the general prompt, the first ones.
      expert_blocks: number of blocks with expert prompts, those after the general ones.
      pull: coefficient λ of the cosine.
    """

    def init(key: PRNGKeyArray) -> PyTree:
        keys = iter(jax.random.split(key, general_blocks + expert_blocks + 1))

        def draw(*shape: int) -> Float[Array, "*shape"]:
            return jax.random.uniform(next(keys), shape, maxval=MAX_START)

        shape = 2, length, width
        general = {f"block{number}": draw(*shape) for number in range(general_blocks)}
        last = general_blocks + expert_blocks
        expert = {f"block{number}": draw(experts, *shape) for number in range(general_blocks, last)}
        params = {"expert": expert, "key": draw(experts, width)}
        return {**params, "general": general} if general else params

    def choose(params: PyTree, query: Float[Array, "b w"]) -> tuple[Prompts, Float[Array, "b"]]:
        cosines, position = _nearest_keys(params["key"], query, 1)
        shared = {
            name: jnp.broadcast_to(prompt, (query.shape[0], *prompt.shape))
            for name, prompt in params.get("general", {}).items()
        }
        expert = {name: prompt[position[:, 0]] for name, prompt in params["expert"].items()}
        return Prompts(prefixes={**shared, **expert}), -pull * cosines[:, 0]

    return Prompting(init, choose)


@checked
def prompt_components(
    width: PositiveInt,
    components: PositiveInt = 100,
    length: PositiveInt = 8,
    blocks: PositiveInt = 5,
    orthogonality: NonNegativeFloat = 0.0,
) -> Prompting:
    """Return the components of CODA-Prompt, with parameters of each block by its name.

    They are prompt, `[m, l, w]`, key and attention, `[m, w]`, and begin orthonormal.

    Args:
      width: features of each token.
      components: number M of components of a block, at most `width`.
      length: tokens of a prompt, half of them keys and half values; an even number.
      blocks: number of blocks with prompts, the first ones.
      orthogonality: coefficient λ of the penalty, 0 as in the authors' later code, 1e-7
        in their first.

    Raises:
      ValueError: there are more components than features, or the length is odd.
    """
    if components > width:
        raise ArgumentError(
            f"{components} components of width {width} are not orthogonal; give fewer"
        )
    if length % 2:
        raise ArgumentError(f"length {length}; half of the tokens are keys, so give an even number")
    shapes = {"prompt": (length, width), "key": (width,), "attention": (width,)}

    def init(key: PRNGKeyArray) -> PyTree:
        def draw_prompts(part_key: PRNGKeyArray, shape: tuple[int, ...]) -> Float[Array, "m *rest"]:
            empty = jnp.zeros((components, *shape))
            return new_components(empty, jnp.int32(0), jnp.int32(components), part_key)

        keys = jax.random.split(key, (blocks, len(shapes)))
        return {
            f"block{number}": {
                name: draw_prompts(part_key, shape)
                for part_key, (name, shape) in zip(keys[number], shapes.items(), strict=True)
            }
            for number in range(blocks)
        }

    def choose(params: PyTree, query: Float[Array, "b w"]) -> tuple[Prompts, Float[Array, "b"]]:
        prefixes, total = {}, jnp.float32(0)
        for name, block in params.items():
            attended = unit_vectors(query[:, None] * block["attention"], -1)
            share = jnp.einsum("bmw,mw->bm", attended, unit_vectors(block["key"], -1))
            prompt = jnp.einsum("bm,mlw->blw", share, block["prompt"])
            prefixes[name] = prompt.reshape(query.shape[0], 2, length // 2, width)
            total += sum(map(orthonormality_loss, block.values()))
        penalty = jnp.full(query.shape[0], orthogonality * total)
        return Prompts(prefixes=prefixes), penalty

    return Prompting(init, choose)


def orthonormality_loss(components: Float[Array, "m *rest"]) -> Float[Array, ""]:
    """Return the mean of (X Xᵀ − I)² over the components that are not 0, the rows of X."""
    rows = components.reshape(components.shape[0], -1)
    used = jnp.any(rows != 0, axis=1)
    products = matrix_product(rows, rows.T)
    away = jnp.where(used[:, None] & used, products - jnp.eye(rows.shape[0]), 0)
    return jnp.sum(away**2) / jnp.maximum(jnp.sum(used) ** 2, 1)


def new_components(
    components: Float[Array, "m *rest"],
    first: Int[Array, ""],
    end: Int[Array, ""],
    key: PRNGKeyArray,
) -> Float[Array, "m *rest"]:
    """Return components with new ones of length 1, drawn normally, after the given ones; then 0.

    From each new one its projections on all before it are subtracted (Gram-Schmidt), so that it is
    orthogonal to those if they are to each other.

    Args:
      components: components; those before `first` stay.
      first: number of the first new component.
      end: number after the last new component; it and later ones are 0.
      key: random key.
    """
    rows = components.reshape(components.shape[0], -1)
    number = jnp.arange(rows.shape[0])[:, None]
    draw_prompts = jax.random.normal(key, rows.shape, rows.dtype)

    def add(position: Int[Array, ""], rows: Float[Array, "m d"]) -> Float[Array, "m d"]:
        squares = jnp.sum(rows**2, axis=1)
        along = matrix_product(rows, draw_prompts[position])
        share = jnp.where(squares > 0, along / jnp.where(squares > 0, squares, 1), 0)
        rest = draw_prompts[position] - matrix_product(share, rows)
        return rows.at[position].set(rest)

    rows = jax.lax.fori_loop(first, end, add, jnp.where(number < first, rows, 0))
    rows = jnp.where(number < first, rows, unit_vectors(rows, -1))
    return rows.reshape(components.shape)
