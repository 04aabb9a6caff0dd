"""IIRC's ResNet-32 in PyTorch, written for a GPU: bfloat16, channels last, data on the device."""

from collections.abc import Callable

import numpy as np
import torch
from torch import nn

from benchmarks.speed.sequences import Training
from benchmarks.speed.torch_sequences import crop_and_flip, optimizer_of, torch_net


def train_epochs(
    training: Training, device: str, graphs: bool
) -> Callable[[int], tuple[int, float]]:
    """Return a function that trains and returns its steps and its last loss.

    Args:
      training: network, images and tasks; every epoch passes over all training images.
      device: "cuda" or "cpu".
      graphs: True to compile the network with `mode="reduce-overhead"` (CUDA graphs).
    """
    torch.set_default_device(device)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    train = training.sequence.tasks.train
    labels = torch.from_numpy(np.array(train.labels[train.mask]))[:, 0].to(device)
    index = torch.from_numpy(np.array(train.index[train.mask])).to(device)
    images = torch.from_numpy(np.array(training.stored.images)).permute(0, 3, 1, 2).to(device)
    side, batch_size = images.shape[-1], training.protocol.batch_size
    net = torch_net(training.net, side).to(device, memory_format=torch.channels_last)
    hot = nn.functional.one_hot(labels.long(), training.net.classes).float()
    optimizer = optimizer_of(net, is_iirc=True)
    forward = torch.compile(net, mode="reduce-overhead") if graphs else net

    def step(batch: torch.Tensor) -> torch.Tensor:
        inputs = (crop_and_flip(images[index[batch]]).float() - 127.5) / 74.0
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, torch.bfloat16):
            outputs = forward(inputs.contiguous(memory_format=torch.channels_last))
        loss = nn.functional.binary_cross_entropy_with_logits(outputs.float(), hot[batch])
        loss.backward()
        optimizer.step()
        return loss

    def run(number: int) -> tuple[int, float]:
        torch.manual_seed(number)
        net.train()
        epochs = training.protocol.epochs
        batches = [b for _ in range(epochs) for b in torch.randperm(len(index)).split(batch_size)]
        losses = [step(batch).detach() for batch in batches]
        # Reading a value waits for the device.
        return len(batches), float(losses[-1])

    return run
