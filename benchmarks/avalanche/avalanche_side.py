"""Avalanche's side of `python -m benchmarks.avalanche`.

    python benchmarks/avalanche/avalanche_side.py REQUEST.npz ANSWER.npz

It runs in an environment with avalanche-lib and imports nothing of everlight, so that the two need
not share one. `runs.py` describes the files.
"""

import importlib.metadata
import json
import random
import sys
import time
import warnings
from collections import OrderedDict
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from avalanche.benchmarks import nc_benchmark
from avalanche.benchmarks.utils import _make_taskaware_tensor_classification_dataset as with_tasks
from avalanche.models import IncrementalClassifier
from avalanche.training import DER, ER_ACE, ICaRL, Naive, StreamingLDA
from avalanche.training.plugins import (
    AGEMPlugin,
    EWCPlugin,
    GDumbPlugin,
    GEMPlugin,
    LwFPlugin,
    MASPlugin,
    ReplayPlugin,
    SupervisedPlugin,
    SynapticIntelligencePlugin,
)
from torch import Tensor, nn


class ChannelsLast(nn.Module):
    """Flattens maps in the order height, width, channel."""

    def forward(self, maps: Tensor) -> Tensor:
        """Return `[b, h * w * c]` from `[b, c, h, w]`."""
        return maps.permute(0, 2, 3, 1).flatten(1)


class Net(nn.Module):
    """Features and head with given initial values; layers have their names."""

    def __init__(self, start: dict[str, np.ndarray], masked: bool):
        super().__init__()
        layers, names = OrderedDict(), {name.partition("/")[0] for name in start}
        # Layers are in the order of their names, but the head is last.
        self.names = [*sorted(names - {"head"}), "head"]
        for name in self.names[:-1]:
            kernel = start[f"{name}/kernel"]
            if kernel.ndim == 4:
                layers[name] = nn.Conv2d(*kernel.shape[2:], kernel.shape[0], padding="same")
                layers[f"{name}-after"] = nn.Sequential(nn.ReLU(), nn.MaxPool2d(2))
            else:
                if layers and not any(isinstance(layer, nn.Linear) for layer in layers.values()):
                    layers["flat"] = ChannelsLast()
                layers[name] = nn.Linear(*kernel.shape)
                layers[f"{name}-after"] = nn.ReLU()
        self.features = nn.Sequential(layers)
        wide = start["head/kernel"].shape
        self.head = IncrementalClassifier(*wide) if masked else nn.Linear(*wide)
        with torch.no_grad():
            for name in self.names:
                kernel = torch.from_numpy(start[f"{name}/kernel"])
                kernel = kernel.permute(3, 2, 0, 1) if kernel.ndim == 4 else kernel.T
                self.layer(name).weight.copy_(kernel)
                self.layer(name).bias.copy_(torch.from_numpy(start[f"{name}/bias"]))

    def forward(self, inputs: Tensor) -> Tensor:
        """Return the logits."""
        return self.head(self.features(inputs))

    def layer(self, name: str) -> nn.Module:
        """Return the layer of this name."""
        if name == "head":
            return getattr(self.head, "classifier", self.head)
        return getattr(self.features, name)

    def values(self) -> dict[str, np.ndarray]:
        """Return the weights in everlight's layout."""
        out = {}
        for name in self.names:
            weight = self.layer(name).weight.detach()
            weight = weight.permute(2, 3, 1, 0) if weight.ndim == 4 else weight.T
            out[f"{name}/kernel"] = weight.numpy().copy()
            out[f"{name}/bias"] = self.layer(name).bias.detach().numpy().copy()
        return out


class Run:
    """A question: one method on one order of classes."""

    def __init__(self, arrays: dict[str, np.ndarray], request: dict):
        self.request, self.settings = request, request["settings"]
        self.images, self.labels = (torch.from_numpy(arrays[key]) for key in ("images", "labels"))
        if self.images.ndim == 4:
            self.images = self.images.permute(0, 3, 1, 2).contiguous()
        seed = request["seed"]
        self.tasks, self.train = arrays[f"tasks/{seed}"], arrays[f"train/{seed}"]
        self.replay, self.held = arrays[f"replay/{seed}"], arrays[f"held/{seed}"]
        self.logits = torch.from_numpy(arrays[f"logits/{seed}"])
        self.test = arrays["test"]
        self.batches = arrays[f"batches/{request['batches']}"]
        prefix = f"start/{seed}/"
        start = {key.removeprefix(prefix): arrays[key] for key in arrays if key.startswith(prefix)}
        self.net = Net(start, request["masked"])

    def samples(self, index: np.ndarray) -> list[Tensor]:
        """Return inputs, labels and task labels, which are all 0."""
        index = torch.from_numpy(index)
        return [self.images[index], self.labels[index], torch.zeros(len(index), dtype=torch.long)]

    def benchmark(self):
        """Return Avalanche's benchmark, with every task's samples in stored order."""
        train = np.sort(np.concatenate([row[row >= 0] for row in self.train]))
        datasets = [
            with_tasks(*self.samples(part)[:2], task_labels=0) for part in (train, self.test)
        ]
        order = [int(label) for label in self.tasks.ravel()]
        return nc_benchmark(
            *datasets, n_experiences=len(self.tasks), task_labels=False, fixed_class_order=order
        )


class Fed(SupervisedPlugin):
    """Loader of the file's batches and, in a stepwise run, of the samples that steps replay."""

    def __init__(self, run: Run):
        super().__init__()
        self.run, self.epoch, self.now, self.task = run, 0, None, 0

    def before_training_exp(self, strategy, **kwargs):
        """Replace the task's loaders."""
        self.epoch, self.task = 0, strategy.clock.train_exp_counter
        strategy.dataloader = self
        if self.run.request["stepwise"] and self.task and hasattr(strategy, "replay_loader"):
            strategy.replay_loader = iter(self.replayed, None)

    def __iter__(self) -> Iterator[list[Tensor]]:
        rows = self.run.batches[self.task, self.epoch]
        self.epoch += 1
        for row in rows:
            self.now = row[row >= 0]
            if not len(self.now):
                continue
            stepwise = self.run.request["stepwise"] and self.task
            joined = stepwise and self.run.request["method"] == "replay"
            index = np.concatenate([self.now, self.drawn()]) if joined else self.now
            yield self.run.samples(index)

    def drawn(self) -> np.ndarray:
        """Return the samples that the present step replays."""
        return self.run.replay[self.task, self.now[0]]

    def replayed(self) -> list[Tensor]:
        """Return them as a loader does, for DER with their logits."""
        index = self.drawn()
        logits = [self.run.logits[index]] if self.run.request["method"] == "DER" else []
        return [*self.run.samples(index), *logits]


class FedAGEM(AGEMPlugin):
    """A-GEM with a given reference batch."""

    def __init__(self, fed: Fed, **settings):
        super().__init__(**settings)
        self.fed = fed

    def sample_from_memory(self):
        """Return the given samples."""
        return self.fed.replayed()


class FedGEM(GEMPlugin):
    """GEM with a given memory."""

    def __init__(self, run: Run, **settings):
        super().__init__(**settings)
        self.run = run

    def update_memory(self, dataset, t, batch_size):
        """Store the given samples."""
        self.memory_x[t], self.memory_y[t], self.memory_tid[t] = self.run.samples(self.run.held[t])


def synaptic_intelligence(copied: bool = False, **settings) -> SynapticIntelligencePlugin:
    """Return SI as shipped, or with copies of the weights, as on a GPU."""

    def copy_weights(model: nn.Module, target: dict, excluded: set[str]) -> None:
        shared(model, target, excluded)
        for weight in target.values():
            weight.data = weight.data.clone()

    shared = SHARED_WEIGHTS
    SynapticIntelligencePlugin.extract_weights = staticmethod(copy_weights if copied else shared)
    return SynapticIntelligencePlugin(**settings)


SHARED_WEIGHTS = SynapticIntelligencePlugin.extract_weights
PLUGINS: dict[str, Callable] = {
    "EWC": EWCPlugin,
    "SI": synaptic_intelligence,
    "MAS": MASPlugin,
    "LwF": LwFPlugin,
    "A-GEM": AGEMPlugin,
    "GEM": GEMPlugin,
    "GDumb": GDumbPlugin,
    "replay": ReplayPlugin,
}
"""Plugins of plain finetuning, made from their settings alone."""


def make(run: Run):
    """Return the strategy of the question."""
    request, fed = run.request, Fed(run)
    method, settings, stepwise = request["method"], run.settings, request["stepwise"]
    plugins: list = [] if request["own_loader"] else [fed]
    common = {
        "train_mb_size": request["batch_size"],
        "train_epochs": request["epochs"],
        "eval_mb_size": 256,
        "evaluator": None,
    }
    if method == "streaming LDA":
        return StreamingLDA(
            slda_model=run.net.features,
            criterion=nn.CrossEntropyLoss(),
            input_size=run.net.layer("head").in_features,
            num_classes=run.tasks.size,
            plugins=plugins,
            **settings,
            **common,
        )
    common["optimizer"] = torch.optim.SGD(
        run.net.parameters(), lr=request["rate"], momentum=request["momentum"]
    )
    if method == "iCaRL":
        parts = {"feature_extractor": run.net.features, "classifier": run.net.head}
        return ICaRL(
            **parts,
            buffer_transform=None,
            fixed_memory=False,
            plugins=plugins,
            **settings,
            **common,
        )
    common |= {"model": run.net, "criterion": nn.CrossEntropyLoss()}
    if method in ("DER", "ER-ACE"):
        return (DER if method == "DER" else ER_ACE)(plugins=plugins, **settings, **common)
    # The file's loader comes last, so that no other one stays.
    if method == "A-GEM" and stepwise:
        plugins.insert(0, FedAGEM(fed, **settings))
    elif method == "GEM" and stepwise:
        plugins.insert(0, FedGEM(run, **settings))
    elif method in PLUGINS and not (method == "replay" and stepwise):
        plugins.insert(0, PLUGINS[method](**settings))
    return Naive(plugins=plugins, **common)


def answer(run: Run) -> dict[str, np.ndarray]:
    """Return weights, the test samples' scores after the last task, and seconds."""
    torch.manual_seed(run.request["seed"])
    random.seed(run.request["seed"])
    np.random.seed(run.request["seed"])  # noqa: NPY002, since Avalanche draws from it
    strategy, out = make(run), {}
    begin = time.perf_counter()
    counts = run.request["method"] == "streaming LDA"
    for experience in run.benchmark().train_stream:
        strategy.train(experience, **({} if counts else {"reset_optimizer_state": True}))
    out["seconds"] = np.array(time.perf_counter() - begin)
    strategy.model.eval()
    with torch.no_grad():
        features = strategy.model(run.samples(run.test)[0])
        out["scores"] = (strategy.predict(features) if counts else features).numpy()
    # GDumb trains copies of the net.
    return out if counts or run.request["method"] == "GDumb" else out | run.net.values()


def main(request: str, answered: str) -> None:
    """Run all questions of one file and write the answers to the other."""
    # Avalanche warns of its own deprecations.
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    arrays = dict(np.load(request))
    runs = json.loads(str(arrays["runs"]))
    versions = {name: importlib.metadata.version(name) for name in ("avalanche-lib", "torch")}
    out = {"versions": np.array(json.dumps(versions))}
    for number, run in enumerate(runs):
        out |= {f"{number}/{key}": value for key, value in answer(Run(arrays, run)).items()}
        print(f"{number + 1} of {len(runs)}: {run['method']}", flush=True)
    np.savez(Path(answered), **out)


if __name__ == "__main__":
    main(*sys.argv[1:])
