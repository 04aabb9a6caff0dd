"""SGD, ER, EWC and DER++ by Avalanche's own strategies, without loggers and evaluation."""

import numpy as np
import torch
from avalanche.benchmarks import nc_benchmark
from avalanche.benchmarks.utils import _make_taskaware_tensor_classification_dataset as with_tasks
from avalanche.training import DER, EWC, Naive
from avalanche.training.plugins import EvaluationPlugin, ReplayPlugin
from avalanche.training.storage_policy import ReservoirSamplingBuffer
from avalanche.training.templates import SupervisedTemplate

from benchmarks.speed.replay import ALPHA, BATCH, BETA, CLASSES, PENALTY, RATE, REPLAYED, TASKS
from benchmarks.speed.torch_replay import make_net, one_thread


def avalanche_sequences(
    images: np.ndarray, labels: np.ndarray, method: str, buffer_size: int, seeds: int
) -> None:
    """Train the seeds one after another.

    Avalanche replays nothing in the first task. From the second one on its passes through the
    memory give ER 128 replayed samples and the rest of the memory in turn, and its DER++ one batch
    of 128 for both terms, where everlight draws two.
    """
    with one_thread():
        for _ in range(seeds):
            _train(images, labels, _strategy(method, buffer_size))


def _train(images: np.ndarray, labels: np.ndarray, strategy: SupervisedTemplate) -> None:
    data = with_tasks(torch.from_numpy(images), torch.from_numpy(labels), task_labels=0)
    stream = nc_benchmark(
        *(data, data),
        n_experiences=TASKS,
        task_labels=False,
        fixed_class_order=list(range(CLASSES)),
    )
    for experience in stream.train_stream:
        strategy.train(experience, num_workers=0)


def _strategy(method: str, buffer_size: int) -> SupervisedTemplate:
    net = make_net()
    common = {
        "model": net,
        "optimizer": torch.optim.SGD(net.parameters(), lr=RATE),
        "criterion": torch.nn.CrossEntropyLoss(),
        "train_mb_size": BATCH,
        "train_epochs": 1,
        "evaluator": EvaluationPlugin(),
    }
    if method == "EWC":
        return EWC(ewc_lambda=PENALTY, **common)
    if method == "DER++":
        return DER(mem_size=buffer_size, batch_size_mem=REPLAYED, alpha=ALPHA, beta=BETA, **common)
    plugins = []
    if method == "ER":
        reservoir = ReservoirSamplingBuffer(max_size=buffer_size)
        plugins.append(
            ReplayPlugin(mem_size=buffer_size, batch_size_mem=REPLAYED, storage_policy=reservoir)
        )
    return Naive(plugins=plugins, **common)
