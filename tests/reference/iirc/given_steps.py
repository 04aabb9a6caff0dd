"""Parts of the authors' side that make its steps those of everlight, imported by `authors_side`.

Both sides then have the same initial weights, batches and random exemplars, and no augmentation.
"""

import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils import data

PLAIN_LOADER = data.DataLoader


class GivenOrder:
    """Indices of a task's samples and the buffer's in the order of everlight's next epoch."""

    def __init__(self, dataset: Any, orders: list[list]):
        self.dataset, self.orders = dataset, orders

    def __len__(self) -> int:
        return len(self.dataset)

    def __iter__(self) -> Iterator[int]:
        own, buffer = self.dataset.task_data, self.dataset.buffer
        rows = [(False, *own.get_item(index)) for index in range(len(own))]
        kept = [
            (True, *buffer._fetch_item(name, place))
            for name, stored in buffer.mem_class_x.items()
            for place in range(len(stored))
        ]
        rows += [kept[place] for place in self.dataset._buffer_sampling_array]
        places = {key_of(*row): place for place, row in enumerate(rows)}
        order = self.orders.pop(0)
        if sorted(map(tuple, order)) != sorted(places):
            raise ValueError("the samples of an epoch are not those of everlight")
        return iter([places[tuple(key)] for key in order])


class Steps:
    """Everlight's choices for a run, and what this run leaves after every task.

    Args:
      folder: folder with `weights.npz`, by the names of the authors' parameters.
      given: the orders of all epochs, and the exemplars after every task.
    """

    def __init__(self, folder: Path, given: dict):
        with np.load(folder / "weights.npz") as stored:
            self.weights = dict(stored)
        self.orders = given["orders"]
        self.exemplars = given["exemplars"]
        self.tasks: list[dict] = []
        self.chosen: list[list] = []

    def install(self) -> None:
        """Patch the loader, the initial weights, the choice of exemplars and the task's end."""
        steps = self

        def loader(dataset: Any, *arguments: Any, shuffle: bool = False, **options: Any) -> Any:
            if shuffle and hasattr(dataset, "task_data"):
                options["sampler"] = GivenOrder(dataset, steps.orders)
                return PLAIN_LOADER(dataset, *arguments, **options)
            return PLAIN_LOADER(dataset, *arguments, shuffle=shuffle, **options)

        data.DataLoader = torch.utils.data.DataLoader = loader
        from iirc.lifelong_dataset.base_dataset import BaseDataset
        from lifelong_methods.buffer.buffer import BufferBase
        from lifelong_methods.methods.base_method import BaseMethod

        prepare, update = BaseMethod.prepare_model_for_new_task, BufferBase.update_buffer_new_task
        by_class = BaseDataset.get_image_indices_by_cla

        def prepared(model: Any, *arguments: Any, **options: Any) -> None:
            if not model.seen_classes:
                load(model.net.model, steps.weights)
            prepare(model, *arguments, **options)

        def updated(buffer: Any, *arguments: Any, model: Any, **options: Any) -> None:
            update(buffer, *arguments, model=model, **options)
            kept = [
                key_of(True, *buffer._fetch_item(name, place))[1:]
                for name, stored in buffer.mem_class_x.items()
                for place in range(len(stored))
            ]
            steps.chosen.append(sorted(kept))
            state = model.net.model.state_dict()
            steps.tasks.append({name: each.numpy().copy() for name, each in state.items()})

        def indices(own: Any, cla: str, num_samples: int = -1, shuffle: bool = True) -> np.ndarray:
            every = by_class(own, cla, -1, False)
            # Herding takes all samples, of which it chooses by itself.
            if not shuffle or not 0 <= num_samples < len(every):
                return every
            keys = [tuple(key) for key in steps.exemplars[own.cur_task_id]]
            kept = [i for i in every if key_of(True, *own.get_item(i))[1:] in keys]
            return np.array(kept, int)

        BaseMethod.prepare_model_for_new_task = prepared
        BufferBase.update_buffer_new_task = updated
        BaseDataset.get_image_indices_by_cla = indices

    def save(self, folder: Path) -> None:
        """Save the network after every task."""
        arrays = {
            f"{task}/{name}": value
            for task, state in enumerate(self.tasks)
            for name, value in state.items()
        }
        np.savez(folder / "after.npz", **arrays)


def key_of(stored: bool, image: Any, *labels: str) -> tuple[bool, int, str]:
    """Return what identifies a sample: replayed or not, its pixels' checksum, and its labels."""
    known = sorted(label for label in labels if label != "None")
    return stored, zlib.crc32(image.tobytes()), "+".join(known)


def load(net: torch.nn.Module, weights: dict[str, np.ndarray]) -> None:
    """Copy weights by name; a head of fewer classes takes the first ones."""
    with torch.no_grad():
        for name, each in net.named_parameters():
            each.copy_(torch.from_numpy(weights[name][: len(each)]).view_as(each))
