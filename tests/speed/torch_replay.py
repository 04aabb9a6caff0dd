"""Experience replay in plain PyTorch, written for speed: one call per batch, no data loader."""

import numpy as np
import torch
from torch import nn

from tests.speed.replay import BATCH, CLASSES, HIDDEN, PIXELS, RATE, REPLAYED, TASKS


def torch_replay(images: np.ndarray, labels: np.ndarray, buffer_size: int, seeds: int) -> list:
    """Train the seeds one after another and return the last loss of each."""
    # Two threads take 1.5 times as long as one for matrices of this size.
    torch.set_num_threads(1)
    stored, classes = torch.from_numpy(images), torch.from_numpy(labels)
    return [_one_run(stored, classes, buffer_size) for _ in range(seeds)]


def _one_run(stored: torch.Tensor, classes: torch.Tensor, buffer_size: int) -> float:
    net = nn.Sequential(
        *(nn.Linear(PIXELS, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU()),
        nn.Linear(HIDDEN, CLASSES),
    )
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
    held, arrived = torch.zeros(buffer_size, dtype=torch.long), 0
    loss = torch.zeros(())
    for task in range(TASKS):
        members = torch.nonzero(classes // (CLASSES // TASKS) == task)[:, 0]
        for batch in members[torch.randperm(len(members))].split(BATCH):
            filled = min(arrived, buffer_size)
            drawn = held[torch.randperm(filled)[:REPLAYED]]
            both = torch.cat([batch, drawn])
            optimizer.zero_grad(set_to_none=True)
            loss = nn.functional.cross_entropy(net(stored[both]), classes[both])
            loss.backward()
            optimizer.step()
            number = arrived + torch.arange(len(batch))
            slot = torch.where(
                number < buffer_size, number, (torch.rand(len(batch)) * (number + 1)).long()
            )
            kept = slot < buffer_size
            held[slot[kept]] = batch[kept]
            arrived += len(batch)
    return loss.item()
