"""The ResNet-18 of `benchmarks.speed.networks` in PyTorch, trained by a plain loop."""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.speed.networks import CLASSES, RATE, Block, Sizes, blocks_of
from benchmarks.speed.torch_sequences import normalized_convolution


def torch_training(sizes: Sizes, images: np.ndarray, labels: np.ndarray) -> Callable[[], float]:
    """Return a function that trains one network on the batches in turn; its result is the loss."""
    inputs = torch.tensor(images[: len(labels)]).permute(0, 3, 1, 2).contiguous()
    targets = torch.from_numpy(labels)

    def train() -> float:
        net = torch_net(sizes.filters)
        optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
        loss = torch.zeros(())
        for batch in torch.randperm(len(targets)).split(sizes.batch):
            optimizer.zero_grad(set_to_none=True)
            logits = net((inputs[batch].float() - 127.5) / 74.0)
            loss = nn.functional.cross_entropy(logits, targets[batch])
            loss.backward()
            optimizer.step()
        return loss.item()

    return train


def torch_net(filters: int) -> nn.Sequential:
    """Return ResNet-18 for small images."""
    return nn.Sequential(
        *(*normalized_convolution(3, filters, 3, 1), nn.ReLU()),
        *map(_Residual, blocks_of(filters)),
        *(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8 * filters, CLASSES)),
    )


class _Residual(nn.Module):
    """Basic block."""

    def __init__(self, block: Block):
        super().__init__()
        before, width, stride = block
        self.body = nn.Sequential(
            *normalized_convolution(before, width, 3, stride),
            nn.ReLU(),
            *normalized_convolution(width, width, 3, 1),
        )
        changes = before != width
        self.shortcut = nn.Sequential(
            *(normalized_convolution(before, width, 1, stride) if changes else ())
        )

    def forward(self, inputs: Tensor) -> Tensor:
        return torch.relu(self.body(inputs) + self.shortcut(inputs))
