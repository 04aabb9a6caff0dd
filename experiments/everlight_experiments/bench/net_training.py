"""Training of illuminant nets: all in one compiled program against eager PyTorch, one by one."""

import importlib.util
from collections.abc import Callable
from typing import NamedTuple

import jax
import numpy as np

from everlight.models.illuminant_net import IlluminantNet
from everlight.models.illuminant_training import Problem, TrainingSettings, make_trainer
from everlight_experiments.bench.timing import calls_per_second_in_turns, median_ratio

RATE = 3e-3
WIDTH = 9
SAMPLES, HELD_OUT = 10_000, 512
NO_TORCH = (
    "PyTorch is not installed, so training was timed without it: `make bench` installs it, "
    'and so does `pip install -e ".[bench]"`.'
)


class TrainingSpeed(NamedTuple):
    """Median model-steps per second; PyTorch's fields are None where it is not installed."""

    parameters: int
    models: int
    batch_size: int
    everlight: float
    torch_one_thread: float | None
    torch_all_cores: float | None
    ratio: float | None
    arithmetic_bound: float


def has_torch() -> bool:
    """Whether PyTorch can be imported."""
    return importlib.util.find_spec("torch") is not None


def training_speed(
    depth: int, models: int, batch_size: int, block: int, rounds: int, window: float, flops: float
) -> TrainingSpeed:
    """Times training by Adam on the L1 loss, `window` seconds for each in each round.

    Args:
      depth: hidden layers of the nets.
      models: nets that everlight trains at once; PyTorch trains one.
      batch_size: samples per step, drawn with replacement by both.
      block: steps per call of everlight's trainer, each with one validation at its end.
      rounds: turns of each.
      window: seconds of each turn.
      flops: floating-point operations per second of the machine, for the bound.
    """
    contestants = {"everlight": _everlight_block(depth, models, batch_size, block)}
    steps = {"everlight": models * block}
    if has_torch():
        for name, threads in (("one thread", 1), ("all cores", None)):
            contestants[name], steps[name] = _torch_step(depth, batch_size, threads), 1
    calls = calls_per_second_in_turns(contestants, rounds, window)
    rates = {name: [steps[name] * rate for rate in calls[name]] for name in calls}
    medians = {name: float(np.median(rate)) for name, rate in rates.items()}
    rivals = [name for name in rates if name != "everlight"]
    best = max(rivals, key=medians.get, default=None)
    weights = weight_counts(depth)
    # Forward, and the gradients by weights and by inputs, which the first layer does not need.
    flops_per_step = 2 * batch_size * (3 * sum(weights) - weights[0])
    return TrainingSpeed(
        parameters=sum(weights) + depth * WIDTH + 2,
        models=models,
        batch_size=batch_size,
        everlight=medians["everlight"],
        torch_one_thread=medians.get("one thread"),
        torch_all_cores=medians.get("all cores"),
        ratio=median_ratio(rates["everlight"], rates[best]) if best else None,
        arithmetic_bound=flops / flops_per_step,
    )


def weight_counts(depth: int) -> list[int]:
    """The sizes of the net's kernels, first to last."""
    return [9 * WIDTH] + [WIDTH * WIDTH] * (depth - 1) + [WIDTH * 2]


def _everlight_block(depth: int, models: int, batch_size: int, block: int) -> Callable[[], object]:
    settings = TrainingSettings(
        batch_size=batch_size, learning_rate=RATE, schedule="constant", validate_every=block
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


def _torch_step(depth: int, batch_size: int, threads: int | None) -> Callable[[], object]:
    import torch
    from torch import nn

    threads = threads or torch.get_num_threads()
    layers: list[nn.Module] = []
    for units in [9, *[WIDTH] * (depth - 1)]:
        layers += [nn.Linear(units, WIDTH), nn.ReLU()]
    net = nn.Sequential(*layers, nn.Linear(WIDTH, 2))
    optimizer = torch.optim.Adam(net.parameters(), lr=RATE)
    features, targets = torch.rand(SAMPLES, 9), torch.rand(SAMPLES, 2)

    def step() -> None:
        torch.set_num_threads(threads)
        index = torch.randint(SAMPLES, (batch_size,))
        optimizer.zero_grad()
        loss = nn.functional.l1_loss(torch.exp(net(features[index])), targets[index])
        loss.backward()
        optimizer.step()

    return step
