"""SGD, ER, EWC and DER++ in plain PyTorch, written for speed: one call per batch, no loader."""

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from benchmarks.speed.replay import (
    ALPHA,
    BATCH,
    BETA,
    CLASSES,
    FISHER_SAMPLES,
    HIDDEN,
    PENALTY,
    PIXELS,
    RATE,
    REPLAYED,
    TASKS,
)
from benchmarks.speed.torch_penalty import SummedPenalty


def make_net() -> nn.Sequential:
    """Return an untrained MLP of two hidden layers."""
    return nn.Sequential(
        *(nn.Linear(PIXELS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU()),
        nn.Linear(HIDDEN, CLASSES),
    )


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread, and with as many as before afterwards."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def torch_sequences(
    images: np.ndarray,
    labels: np.ndarray,
    method: str,
    buffer_size: int,
    seeds: int,
    device: str = "cpu",
) -> list[float]:
    """Train the seeds one after another on a device and return the last loss of each."""
    # Two threads take 1.5 times as long as one for matrices of this size.
    stored, classes = (torch.from_numpy(array).to(device) for array in (images, labels))
    trainer = {"SGD": Sgd, "ER": Replay, "EWC": Ewc, "DER++": DarkReplay}[method]
    with torch.device(device), one_thread():
        return [trainer(stored, classes, buffer_size).train() for _ in range(seeds)]


class Sgd:
    """Gradient descent on each task in turn."""

    def __init__(self, images: Tensor, labels: Tensor, buffer_size: int):
        self.images, self.labels, self.net = images, labels, make_net()
        self.held, self.arrived = torch.zeros(buffer_size, dtype=torch.long), 0
        self.logits = torch.zeros(buffer_size, CLASSES)

    def train(self) -> float:
        """Train the whole sequence and return the last loss."""
        optimizer = torch.optim.SGD(self.net.parameters(), lr=RATE)
        loss = torch.zeros(())
        for task in range(TASKS):
            members = torch.nonzero(self.labels // (CLASSES // TASKS) == task)[:, 0]
            for batch in members[torch.randperm(len(members))].split(BATCH):
                optimizer.zero_grad(set_to_none=True)
                loss = self.loss(batch)
                loss.backward()
                optimizer.step()
                self.after_step(batch)
            self.after_task(members)
        return loss.item()

    def outputs_and_loss(self, index: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits and mean cross-entropy of samples."""
        logits = self.net(self.images[index])
        return logits, cross_entropy(logits, self.labels[index])

    def loss(self, batch: Tensor) -> Tensor:
        """Return the loss of a step."""
        return self.outputs_and_loss(batch)[1]

    def after_step(self, batch: Tensor) -> None:
        """Update the memory after a step."""

    def after_task(self, members: Tensor) -> None:
        """Update the memory after a task."""


class Replay(Sgd):
    """Experience replay from a reservoir."""

    def draw(self) -> Tensor:
        """Return the slots of some stored samples."""
        filled = min(self.arrived, len(self.held))
        return torch.randperm(filled)[:REPLAYED]

    def loss(self, batch: Tensor) -> Tensor:
        """Return the mean loss of the batch and of replayed samples."""
        return self.outputs_and_loss(torch.cat([batch, self.held[self.draw()]]))[1]

    def after_step(self, batch: Tensor) -> None:
        """Store the batch in the reservoir."""
        self.store(batch)

    def store(self, batch: Tensor) -> tuple[Tensor, Tensor]:
        """Return which samples of a batch are stored, and their slots."""
        size = len(self.held)
        number = self.arrived + torch.arange(len(batch))
        drawn = (torch.rand(len(batch)) * (number + 1)).long()
        slot = torch.where(number < size, number, drawn)
        stored = slot < size
        self.held[slot[stored]] = batch[stored]
        self.arrived += len(batch)
        return stored, slot[stored]


class DarkReplay(Replay):
    """DER++: stored logits are matched, and other stored samples are learned by their labels."""

    def loss(self, batch: Tensor) -> Tensor:
        """Return the loss of the batch and of two draws."""
        self.now, loss = self.outputs_and_loss(batch)
        if self.arrived:
            matched = self.draw()
            outputs = self.net(self.images[self.held[matched]])
            loss = loss + ALPHA * mse_loss(outputs, self.logits[matched])
            loss = loss + BETA * self.outputs_and_loss(self.held[self.draw()])[1]
        return loss

    def after_step(self, batch: Tensor) -> None:
        """Store the batch with its logits before the step."""
        stored, slots = self.store(batch)
        self.logits[slots] = self.now.detach()[stored]


class Ewc(Sgd):
    """Elastic weight consolidation with Fisher information of single samples."""

    def __init__(self, images: Tensor, labels: Tensor, buffer_size: int):
        super().__init__(images, labels, buffer_size)
        self.penalty = SummedPenalty()
        weights = dict(self.net.named_parameters())

        def sample_loss(params: dict[str, Tensor], image: Tensor, label: Tensor) -> Tensor:
            logits = torch.func.functional_call(self.net, params, image[None])
            return cross_entropy(logits, label[None])

        self.gradients = torch.func.vmap(torch.func.grad(sample_loss), (None, 0, 0))
        self.names = list(weights)

    def loss(self, batch: Tensor) -> Tensor:
        """Return the batch's loss and the penalty, without the penalty's constant."""
        distance = self.penalty.distance(self.net.parameters())
        return self.outputs_and_loss(batch)[1] + PENALTY / 2 * distance

    def after_task(self, members: Tensor) -> None:
        """Add the task's Fisher information, from as many samples as everlight takes."""
        spaced = torch.linspace(0, len(members) - 1, min(FISHER_SAMPLES, len(members))).long()
        params = {name: value.detach() for name, value in self.net.named_parameters()}
        fisher = [torch.zeros_like(value) for value in params.values()]
        for part in _parts(members[spaced]):
            squares = self.gradients(params, self.images[part], self.labels[part])
            for total, name in zip(fisher, self.names, strict=True):
                total += (squares[name] ** 2).sum(0)
        self.penalty.add([total / len(spaced) for total in fisher], list(params.values()))


def _parts(index: Tensor) -> Iterator[Tensor]:
    """Yield pieces whose gradients, one per sample, stay below 32 MB."""
    yield from index.split(32)
