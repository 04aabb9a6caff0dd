"""The same strategies, networks and samples in plain PyTorch, as one would write a single run."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap

from benchmarks.speed.sequences import (
    ADAM_RATE,
    EXEMPLARS_PER_CLASS,
    FISHER_SAMPLES,
    MOMENTUM,
    REGULARIZATION,
    SGD_RATE,
    WEIGHT_DECAY,
    Training,
)
from benchmarks.speed.torch_penalty import SummedPenalty
from everlight.continual import Samples
from everlight.models import ReducedResNet, SmallCNN

FISHER_CHUNK = 16
PADDING = 4


class Labelled(NamedTuple):
    """Indices of images, and their labels as one column per class."""

    index: Tensor
    hot: Tensor

    def chosen(self, places: Tensor) -> "Labelled":
        """Return some of the samples."""
        return Labelled(self.index[places], self.hot[places])


def torch_training(training: Training) -> Callable[[], list[float]]:
    """Return a function that trains one sequence, validated and evaluated as everlight's is."""
    stored, sequence, protocol = training.stored, training.sequence, training.protocol
    images = torch.from_numpy(np.array(stored.images)).permute(0, 3, 1, 2).contiguous()
    tasks, classes = sequence.tasks.classes.shape
    introduced = torch.from_numpy(np.array(sequence.tasks.classes))
    train, valid = (
        [_labelled(part, classes, number) for number in range(tasks)]
        for part in (sequence.tasks.train, sequence.tasks.valid)
    )
    test = _labelled(sequence.test, classes)
    loss_of, is_right = (binary_loss, all_labels) if training.is_iirc else (softmax_loss, one_label)

    def inputs(index: Tensor, augment: bool = False) -> Tensor:
        taken = images[index]
        return ((crop_and_flip(taken) if augment else taken).float() - 127.5) / 74.0

    def accuracy(net: nn.Module, samples: Labelled, seen: Tensor) -> float:
        net.eval()
        with torch.no_grad():
            hits = [
                is_right(net(inputs(index)), hot, seen)
                for index, hot in zip(*(part.split(256) for part in samples), strict=True)
            ]
        return float(torch.cat(hits).float().mean()) if hits else 0.0

    def run() -> list[float]:
        net = torch_net(training.net, images.shape[-1])
        seen, rows = torch.zeros(classes, dtype=torch.bool), []
        buffer = train[0].chosen(torch.zeros(0, dtype=torch.long))
        penalty = SummedPenalty()
        for number in range(tasks):
            seen = seen | introduced[number]
            optimizer = optimizer_of(net, training.is_iirc)
            index, hot = (torch.cat(pair) for pair in zip(train[number], buffer, strict=True))
            for _ in range(protocol.epochs):
                net.train()
                for batch in torch.randperm(len(index)).split(protocol.batch_size):
                    optimizer.zero_grad()
                    loss = loss_of(net(inputs(index[batch], training.is_iirc)), hot[batch], seen)
                    loss = loss + REGULARIZATION / 2 * penalty.distance(net.parameters())
                    loss.backward()
                    optimizer.step()
                accuracy(net, valid[number], seen)
            if training.strategy == "EWC":
                anchor = [p.detach() for p in net.parameters()]
                penalty.add(_fisher(net, inputs, train[number], seen), anchor)
            if training.strategy == "ER-balanced":
                new = train[number].chosen(_exemplars(train[number].hot))
                buffer = Labelled(*(torch.cat(pair) for pair in zip(buffer, new, strict=True)))
            rows.append(accuracy(net, test.chosen(test.hot[:, seen].any(1)), seen))
        return rows

    return run


def softmax_loss(logits: Tensor, hot: Tensor, seen: Tensor) -> Tensor:
    """Return the cross-entropy over seen classes."""
    return nn.functional.cross_entropy(logits.masked_fill(~seen, -torch.inf), hot.int().argmax(1))


def binary_loss(logits: Tensor, hot: Tensor, seen: Tensor) -> Tensor:
    """Return the mean binary cross-entropy over seen classes."""
    return nn.functional.binary_cross_entropy_with_logits(logits[:, seen], hot[:, seen].float())


def one_label(logits: Tensor, hot: Tensor, seen: Tensor) -> Tensor:
    """Return True where the largest logit is that of the label."""
    return logits.masked_fill(~seen, -torch.inf).argmax(1) == hot.int().argmax(1)


def all_labels(logits: Tensor, hot: Tensor, seen: Tensor) -> Tensor:
    """Return True where the positive logits are those of the labels."""
    return ((logits > 0) == hot)[:, seen].all(1)


def crop_and_flip(images: Tensor) -> Tensor:
    """Return shifted windows of a batch in one gather, half of them mirrored."""
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


def torch_net(net: SmallCNN | ReducedResNet, side: int) -> nn.Module:
    """Return the network of everlight's sizes for images of `side` pixels."""
    if isinstance(net, ReducedResNet):
        return _reduced_resnet(net.classes, net.blocks)
    layers, depth = [], 3
    for width in net.channels:
        for _ in range(2):
            layers += [nn.Conv2d(depth, width, 3, padding=1), nn.ReLU()]
            depth = width
        layers += [nn.MaxPool2d(2), nn.Dropout(0.25)]
    flat = depth * (side // 4) ** 2
    head = [nn.Linear(flat, net.hidden), nn.ReLU(), nn.Dropout(0.5)]
    return nn.Sequential(*layers, nn.Flatten(), *head, nn.Linear(net.hidden, net.classes))


def _reduced_resnet(classes: int, blocks: int) -> nn.Module:
    layers, before = normalized_convolution(3, 16, 3, 1), 16
    for width in (16, 32, 64):
        for number in range(blocks):
            layers.append(_Block(before, width, 2 if width > 16 and number == 0 else 1))
            before = width
    pooled = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, classes)]
    return nn.Sequential(*layers, *pooled)


class _Block(nn.Module):
    """Two 3x3 convolutions and a shortcut of option B; the ReLU before it belongs to the block."""

    def __init__(self, before: int, width: int, stride: int):
        super().__init__()
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
        hidden = torch.relu(inputs)
        return self.body(hidden) + self.shortcut(hidden)


def normalized_convolution(before: int, width: int, size: int, stride: int) -> list[nn.Module]:
    """Return a convolution without bias and its batch norm."""
    convolution = nn.Conv2d(before, width, size, stride, size // 2, bias=False)
    return [convolution, nn.BatchNorm2d(width)]


def optimizer_of(net: nn.Module, is_iirc: bool) -> torch.optim.Optimizer:
    """Return IIRC's SGD or Adam for the network's parameters."""
    if is_iirc:
        return torch.optim.SGD(net.parameters(), SGD_RATE, MOMENTUM, weight_decay=WEIGHT_DECAY)
    return torch.optim.Adam(net.parameters(), lr=ADAM_RATE)


def _labelled(samples: Samples, classes: int, task: int | None = None) -> Labelled:
    index, labels, mask = (np.array(leaf if task is None else leaf[task]) for leaf in samples)
    hot = (labels[mask][:, :, None] == np.arange(classes)).any(axis=1)
    return Labelled(torch.from_numpy(index[mask]).long(), torch.from_numpy(hot))


def _fisher(net: nn.Module, inputs: Callable, train: Labelled, seen: Tensor) -> list[Tensor]:
    """Return the mean squared gradient of single samples, several at once: PyTorch's fast way."""
    net.eval()
    params = {name: p.detach() for name, p in net.named_parameters()}

    def loss(params: dict, image: Tensor, hot: Tensor) -> Tensor:
        return softmax_loss(functional_call(net, params, (image[None],)), hot[None], seen)

    per_sample = vmap(grad(loss), in_dims=(None, 0, 0))
    index, hot = (part[:FISHER_SAMPLES] for part in train)
    total = {name: torch.zeros_like(p) for name, p in params.items()}
    for chunk, targets in zip(index.split(FISHER_CHUNK), hot.split(FISHER_CHUNK), strict=True):
        for name, gradient in per_sample(params, inputs(chunk), targets).items():
            total[name] += (gradient**2).sum(0)
    return [value / len(index) for value in total.values()]


def _exemplars(hot: Tensor) -> Tensor:
    """Return the places of some random samples of every class."""
    shuffled = torch.randperm(len(hot))
    places = [shuffled[hot[shuffled, c]][:EXEMPLARS_PER_CLASS] for c in range(hot.shape[1])]
    return torch.cat(places)
