"""ER's epoch on IIRC in plain PyTorch: the same reduced ResNet, samples and augmentation."""

from collections.abc import Callable

import numpy as np
import torch
from jaxtyping import Array, Bool
from torch import nn

from everlight.continual.base import Samples
from everlight.continual.engine.flax_setup import StoredImages
from everlight.continual.objectives.many_labels import multi_hot
from everlight_experiments.iirc.record import MOMENTUM, WEIGHT_DECAY

PADDING = 4


def torch_epoch(
    stored: StoredImages,
    samples: Samples,
    seen: Bool[Array, "c"],
    blocks: int,
    batch_size: int,
    rate: float,
) -> Callable[[], float]:
    """A function that trains one epoch and returns its last loss; the net goes on between calls.

    Args:
      stored: images of all samples.
      samples: of the epoch, exemplars too.
      seen: classes that the loss counts.
      blocks: of each stage of the net.
      batch_size: samples a step.
      rate: of SGD.
    """
    images = torch.from_numpy(np.array(stored.images)).permute(0, 3, 1, 2).contiguous()
    mean, deviation = (
        torch.from_numpy(np.array(part))[:, None, None] for part in (stored.mean, stored.deviation)
    )
    mask = np.asarray(samples.mask)
    index = torch.from_numpy(np.asarray(samples.index)[mask]).long()
    hot = np.asarray(multi_hot(samples.labels, seen.shape[0]))[mask][:, np.asarray(seen)]
    targets, active = torch.from_numpy(hot).float(), torch.from_numpy(np.array(seen))
    net = reduced_resnet(seen.shape[0], blocks)
    optimizer = torch.optim.SGD(net.parameters(), rate, MOMENTUM, weight_decay=WEIGHT_DECAY)

    def epoch() -> float:
        net.train()
        for batch in torch.randperm(len(index)).split(batch_size):
            inputs = (crop_and_flip(images[index[batch]]).float() - mean) / deviation
            optimizer.zero_grad()
            logits = net(inputs)[:, active]
            loss = nn.functional.binary_cross_entropy_with_logits(logits, targets[batch])
            loss.backward()
            optimizer.step()
        return loss.item()

    return epoch


def crop_and_flip(images: torch.Tensor) -> torch.Tensor:
    """All windows of a batch in one gather, half of them mirrored."""
    count, channels, side, _ = images.shape
    padded = nn.functional.pad(images, (PADDING,) * 4)
    shift = torch.randint(2 * PADDING + 1, (2, count, 1))
    rows, columns = shift + torch.arange(side)
    mirrored = torch.rand(count, 1) < 0.5
    columns = torch.where(mirrored, columns.flip(1), columns)
    return padded[
        torch.arange(count)[:, None, None, None],
        torch.arange(channels)[:, None, None],
        rows[:, None, :, None],
        columns[:, None, None, :],
    ]


class _Block(nn.Module):
    """Two 3x3 convolutions and a shortcut of option B; the ReLU before it belongs to the block."""

    def __init__(self, before: int, width: int, stride: int):
        super().__init__()
        self.body = nn.Sequential(
            *_normalized(before, width, 3, stride), nn.ReLU(), *_normalized(width, width, 3, 1)
        )
        changes = before != width
        self.shortcut = nn.Sequential(*(_normalized(before, width, 1, stride) if changes else ()))

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(inputs)
        return self.body(hidden) + self.shortcut(hidden)


def _normalized(before: int, width: int, size: int, stride: int) -> list[nn.Module]:
    convolution = nn.Conv2d(before, width, size, stride, size // 2, bias=False)
    return [convolution, nn.BatchNorm2d(width)]


def reduced_resnet(classes: int, blocks: int) -> nn.Module:
    """The reduced ResNet of `6 * blocks + 2` layers with a linear head."""
    layers, before = _normalized(3, 16, 3, 1), 16
    for width in (16, 32, 64):
        for number in range(blocks):
            layers.append(_Block(before, width, 2 if width > 16 and number == 0 else 1))
            before = width
    pooled = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes)]
    return nn.Sequential(*layers, *pooled)
