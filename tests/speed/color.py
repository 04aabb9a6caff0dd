"""Color transforms by least squares, and the training of illuminant networks."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from everlight.color.transforms import fit_color_transform
from everlight.models.illuminant_net import IlluminantNet
from everlight.models.illuminant_training import Problem, TrainingSettings, make_trainer
from tests.speed.cases import OURS, Case, Machine, has_torch

# Products with the pivot (6 + 5 + 4 columns), and columns freed of earlier pivots (5, then 5 + 4).
FLOPS_PER_PIXEL = 2 * (15 + 14)
RATE, WIDTH = 3e-3, 9
SAMPLES, HELD_OUT = 10_000, 512


@jax.jit
@jax.vmap
def fit(source: Float[Array, "n 3"], target: Float[Array, "n 3"]) -> Float[Array, "3 3"]:
    """Fit one transform per image."""
    return fit_color_transform(source, target).transform


def numpy_fit(sources: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Fit one transform after another by NumPy."""
    pairs = zip(sources, targets, strict=True)
    return np.stack([np.linalg.lstsq(source, target, rcond=None)[0] for source, target in pairs])


def pixels_of(fits: int, pixels: int) -> tuple[np.ndarray, np.ndarray]:
    """Return random pixels and what noisy transforms make of them."""
    rng = np.random.default_rng(0)
    source = rng.uniform(0, 1, (fits, pixels, 3)).astype(np.float32)
    change = np.eye(3) + 0.2 * rng.uniform(size=(fits, 3, 3))
    return source, np.float32(source @ change + 0.01 * rng.normal(size=source.shape))


def color_transforms(machine: Machine, fits: int = 19_500, pixels: int = 24) -> Case:
    """Fit many transforms: the charts of an augmented set, or thumbnails."""
    source, target = pixels_of(fits, pixels)
    on_device = jnp.asarray(source), jnp.asarray(target)
    doubles = np.float64(source), np.float64(target)
    memory = (source.nbytes + target.nbytes + fits * 9 * 4) / machine.bandwidth
    arithmetic = fits * pixels * FLOPS_PER_PIXEL / machine.flops
    return Case(
        f"{fits:,} color transforms of {pixels:,} pixels",
        {
            OURS: lambda: fit(*on_device),
            "NumPy float32": lambda: numpy_fit(source, target),
            "NumPy float64": lambda: numpy_fit(*doubles),
        },
        max(memory, arithmetic),
    )


def thumbnails(machine: Machine) -> Case:
    """Fit transforms of thumbnails."""
    return color_transforms(machine, 2_000, 1536)


def illuminant_networks(
    machine: Machine, depth: int = 2, models: int = 48, batch: int = 256, steps: int = 100
) -> Case:
    """Train many networks by Adam on the L1 loss; PyTorch trains them one after another."""
    weights = weight_counts(depth)
    # Forward, and the gradients by weights and by inputs, which the first layer does not need.
    per_step = 2 * batch * (3 * sum(weights) - weights[0])
    contestants = {OURS: everlight_steps(depth, models, batch, steps)}
    if has_torch():
        contestants["PyTorch"] = torch_steps(depth, batch, models * steps)
    name = f"{models} illuminant networks of {depth} layers, {steps} steps"
    return Case(name, contestants, models * steps * per_step / machine.flops, 3)


def weight_counts(depth: int) -> list[int]:
    """Return the sizes of the network's kernels, first to last."""
    return [9 * WIDTH] + [WIDTH * WIDTH] * (depth - 1) + [WIDTH * 2]


def everlight_steps(depth: int, models: int, batch: int, steps: int) -> Callable[[], object]:
    """Return a call of the compiled trainer, with one validation at its end."""
    settings = TrainingSettings(
        batch_size=batch, learning_rate=RATE, schedule="constant", validate_every=steps
    )
    trainer = make_trainer(IlluminantNet(depth, WIDTH), settings)
    rng = np.random.default_rng(0)
    shapes = ((SAMPLES, 9), (SAMPLES, 2), (HELD_OUT, 9), (HELD_OUT, 2))
    problems = Problem(
        *(jax.device_put(rng.uniform(size=(models, *s)).astype(np.float32)) for s in shapes)
    )
    keys = jax.random.split(jax.random.key(0), models)
    state = jax.jit(jax.vmap(trainer.init))(keys, problems)
    advance = jax.jit(jax.vmap(trainer.advance))
    return lambda: advance(keys, state, problems)


def torch_steps(depth: int, batch: int, steps: int) -> Callable[[], object]:
    """Return eager steps of one network."""
    import torch
    from torch import nn

    layers: list[nn.Module] = []
    for units in [9, *[WIDTH] * (depth - 1)]:
        layers += [nn.Linear(units, WIDTH), nn.ReLU()]
    net = nn.Sequential(*layers, nn.Linear(WIDTH, 2))
    optimizer = torch.optim.Adam(net.parameters(), lr=RATE)
    features, targets = torch.rand(SAMPLES, 9), torch.rand(SAMPLES, 2)

    def run() -> None:
        # Small networks are faster on one thread.
        torch.set_num_threads(1)
        for _ in range(steps):
            index = torch.randint(SAMPLES, (batch,))
            optimizer.zero_grad()
            loss = nn.functional.l1_loss(torch.exp(net(features[index])), targets[index])
            loss.backward()
            optimizer.step()

    return run
