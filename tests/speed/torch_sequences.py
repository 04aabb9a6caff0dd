"""The same strategies, net and samples in plain PyTorch, as one would write them for one run."""

from collections.abc import Callable

import numpy as np
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

from everlight.continual.base import Samples, TaskSequence
from everlight.continual.engine.flax_setup import StoredImages
from everlight.continual.engine.sequence import Protocol
from tests.speed.sequences import Sizes

FISHER_CHUNK = 16


def torch_sequence(
    name: str,
    sizes: Sizes,
    stored: StoredImages,
    sequence: TaskSequence,
    protocol: Protocol,
) -> Callable[[], object]:
    """A function that trains one whole sequence, validated and evaluated as everlight's is.

    Args:
      name: naive, EWC or experience replay.
      sizes: of the net, the tasks and the settings.
      stored, sequence, protocol: those that everlight trains on.
    """
    images = torch.from_numpy(np.array(stored.images)).permute(0, 3, 1, 2).contiguous()
    tasks = [
        tuple(_indices(part, number) for part in (sequence.tasks.train, sequence.tasks.valid))
        for number in range(sizes.tasks)
    ]
    introduced = torch.from_numpy(np.array(sequence.tasks.classes))
    test = _indices(sequence.test, None)

    def inputs(index: torch.Tensor) -> torch.Tensor:
        return (images[index].float() - 127.5) / 74.0

    def accuracy(net: nn.Module, samples, seen: torch.Tensor) -> torch.Tensor:
        net.eval()
        with torch.no_grad():
            hits = [
                net(inputs(index)).masked_fill(~seen, -torch.inf).argmax(1) == labels
                for index, labels in zip(*(part.split(256) for part in samples), strict=True)
            ]
        return torch.cat(hits).float().mean() if hits else torch.tensor(0.0)

    def run() -> list[float]:
        net = _small_cnn(sizes)
        seen = torch.zeros(sizes.classes, dtype=torch.bool)
        buffer = torch.empty(0, dtype=torch.long), torch.empty(0, dtype=torch.long)
        anchors: list[tuple[list[torch.Tensor], list[torch.Tensor]]] = []
        rows = []
        for number, (train, valid) in enumerate(tasks):
            seen = seen | introduced[number]
            optimizer = torch.optim.Adam(net.parameters(), lr=sizes.rate)
            index, labels = (torch.cat(pair) for pair in zip(train, buffer, strict=True))
            for _ in range(protocol.epochs):
                net.train()
                for batch in torch.randperm(len(index)).split(protocol.batch_size):
                    optimizer.zero_grad()
                    logits = net(inputs(index[batch])).masked_fill(~seen, -torch.inf)
                    loss = nn.functional.cross_entropy(logits, labels[batch])
                    for importance, old in anchors:
                        penalties = [
                            (omega * (now - then) ** 2).sum()
                            for omega, now, then in zip(
                                importance, net.parameters(), old, strict=True
                            )
                        ]
                        loss = loss + sizes.strength / 2 * sum(penalties)
                    loss.backward()
                    optimizer.step()
                accuracy(net, valid, seen)
            if name == "EWC":
                old = [p.detach().clone() for p in net.parameters()]
                anchors.append((_fisher(net, inputs, train, seen, sizes.fisher_samples), old))
            if name == "experience replay":
                chosen = _exemplars(train[1], sizes.exemplars)
                new = train[0][chosen], train[1][chosen]
                buffer = tuple(torch.cat(pair) for pair in zip(buffer, new, strict=True))
            rows.append(float(accuracy(net, test, seen)))
        return rows

    return run


def _indices(samples: Samples, task: int | None) -> tuple[torch.Tensor, torch.Tensor]:
    index, labels, mask = (np.array(leaf if task is None else leaf[task]) for leaf in samples)
    return torch.from_numpy(index[mask]).long(), torch.from_numpy(labels[mask, 0]).long()


def _small_cnn(sizes: Sizes) -> nn.Module:
    (first, second), layers, depth = sizes.channels, [], 3
    for width in (first, second):
        for _ in range(2):
            layers += [nn.Conv2d(depth, width, 3, padding=1), nn.ReLU()]
            depth = width
        layers += [nn.MaxPool2d(2), nn.Dropout(0.25)]
    flat = depth * (sizes.side // 4) ** 2
    head = [nn.Linear(flat, sizes.hidden), nn.ReLU(), nn.Dropout(0.5)]
    return nn.Sequential(*layers, nn.Flatten(), *head, nn.Linear(sizes.hidden, sizes.classes))


def _fisher(net: nn.Module, inputs: Callable, train, seen: torch.Tensor, limit: int) -> list:
    """Mean squared gradient of single samples, several at once: PyTorch's fast way."""
    net.eval()
    params = {name: p.detach() for name, p in net.named_parameters()}

    def loss(params: dict, image: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        logits = functional_call(net, params, (image[None],)).masked_fill(~seen, -torch.inf)
        return nn.functional.cross_entropy(logits, label[None])

    per_sample = vmap(grad(loss), in_dims=(None, 0, 0))
    index, labels = (part[:limit] for part in train)
    total = {name: torch.zeros_like(p) for name, p in params.items()}
    for chunk, targets in zip(index.split(FISHER_CHUNK), labels.split(FISHER_CHUNK), strict=True):
        for name, gradient in per_sample(params, inputs(chunk), targets).items():
            total[name] += (gradient**2).sum(0)
    return [value / len(index) for value in total.values()]


def _exemplars(labels: torch.Tensor, per_class: int) -> torch.Tensor:
    """Places of some random samples of every class."""
    shuffled = torch.randperm(len(labels))
    places = [shuffled[labels[shuffled] == c][:per_class] for c in labels.unique()]
    return torch.cat(places)
