"""Colour transforms against NumPy's least squares, and small illuminant networks against PyTorch.

`fits` fits one transform per chart or thumbnail; `nets` trains 48 networks at once, PyTorch one
after another.
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.speed.timing import HAS_TORCH, Case, Machine
from everlight.color.transforms import fit_color_transform
from everlight.illuminant.illuminant_net import IlluminantNet
from everlight.illuminant.illuminant_training import Problem, TrainingSettings, make_trainer

FLOPS_PER_PIXEL = 2 * (15 + 14)
"""Products with the pivot (6 + 5 + 4 columns) and removal of earlier pivots (5, then 5 + 4)."""
RATE = 3e-3
WIDTH = 9
SAMPLES, HELD_OUT = 10_000, 512


def fits(machine: Machine, small: bool) -> list[Case]:
    """Return the charts of an augmented set, and thumbnails."""
    sizes = ((20, 24),) if small else ((19_500, 24), (2_000, 1536))
    return [_fit_case(machine, *size) for size in sizes]


def nets(machine: Machine, small: bool) -> list[Case]:
    """Return trainings of networks with 200, 470 and 1,460 parameters."""
    if small:
        return [_net_case(machine, 2, models=2, batch_size=8, steps=4)]
    return [_net_case(machine, depth, models=48, batch_size=256, steps=20) for depth in (2, 5, 16)]


def _fit_case(machine: Machine, count: int, pixels: int) -> Case:
    rng = np.random.default_rng(0)
    source = rng.uniform(0, 1, (count, pixels, 3)).astype(np.float32)
    change = np.eye(3) + 0.2 * rng.uniform(size=(count, 3, 3))
    target = np.float32(source @ change + 0.01 * rng.normal(size=source.shape))
    fit = jax.jit(jax.vmap(lambda *views: fit_color_transform(*views).transform))
    doubles = np.float64((source, target))
    # The halves are separate: iterating over one array would copy them within the measurement.
    on_device = jnp.asarray(source), jnp.asarray(target)
    contestants = {
        "everlight": lambda: fit(*on_device),
        "NumPy, float32": lambda: numpy_fits(source, target),
        "NumPy, float64": lambda: numpy_fits(*doubles),
    }
    floor = machine.floor(2 * source.nbytes + 36 * count, count * pixels * FLOPS_PER_PIXEL)
    return Case(f"{count:,} fits of {pixels:,} pixels", contestants, floor, rounds=9)


def numpy_fits(sources: np.ndarray, targets: np.ndarray) -> np.ndarray:
    """Return the transforms of a loop over `numpy.linalg.lstsq`."""
    pairs = zip(sources, targets, strict=True)
    return np.stack([np.linalg.lstsq(source, target, rcond=None)[0] for source, target in pairs])


def weight_counts(depth: int) -> list[int]:
    """Return the sizes of the network's kernels, first to last."""
    return [9 * WIDTH] + [WIDTH * WIDTH] * (depth - 1) + [WIDTH * 2]


def _net_case(machine: Machine, depth: int, models: int, batch_size: int, steps: int) -> Case:
    contestants = {"everlight": _everlight_training(depth, models, batch_size, steps)}
    if HAS_TORCH:
        for name, threads in (("PyTorch, one thread", 1), ("PyTorch, all cores", None)):
            contestants[name] = _torch_training(depth, models * steps, batch_size, threads)
    weights = weight_counts(depth)
    parameters = sum(weights) + depth * WIDTH + 2
    # Forward, and the gradients by weights and by inputs, which the first layer does not need.
    operations = 2 * batch_size * (3 * sum(weights) - weights[0]) * models * steps
    name = f"{steps} steps of {models} networks with {parameters:,} parameters, batch {batch_size}"
    return Case(name, contestants, machine.floor(0, operations))


def _everlight_training(
    depth: int, models: int, batch_size: int, steps: int
) -> Callable[[], object]:
    """Return a function that trains all networks and validates them at the end."""
    settings = TrainingSettings(
        batch_size=batch_size, learning_rate=RATE, schedule="constant", validate_every=steps
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


def _torch_training(
    depth: int, steps: int, batch_size: int, threads: int | None
) -> Callable[[], None]:
    """Return a function that takes as many steps, of one network."""
    import torch
    from torch import nn

    threads = threads or torch.get_num_threads()
    layers: list[nn.Module] = []
    for units in [9, *[WIDTH] * (depth - 1)]:
        layers += [nn.Linear(units, WIDTH), nn.ReLU()]
    net = nn.Sequential(*layers, nn.Linear(WIDTH, 2))
    optimizer = torch.optim.Adam(net.parameters(), lr=RATE)
    features, targets = torch.rand(SAMPLES, 9), torch.rand(SAMPLES, 2)

    def train() -> None:
        torch.set_num_threads(threads)
        for _ in range(steps):
            index = torch.randint(SAMPLES, (batch_size,))
            optimizer.zero_grad()
            loss = nn.functional.l1_loss(torch.exp(net(features[index])), targets[index])
            loss.backward()
            optimizer.step()

    return train
