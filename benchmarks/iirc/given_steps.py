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


class EpochOrder:
    """Indices of a task's samples and the buffer's in the order of everlight's next epoch."""

    def __init__(self, dataset: Any, orders: list[list]):
        self.dataset, self.orders = dataset, orders

    def __len__(self) -> int:
        return len(self.dataset)

    def __iter__(self) -> Iterator[int]:
        task_data, buffer = self.dataset.task_data, self.dataset.buffer
        rows = [(False, *task_data.get_item(index)) for index in range(len(task_data))]
        buffered = [(True, *row) for _, row in stored_samples(buffer)]
        rows += [buffered[place] for place in self.dataset._buffer_sampling_array]
        places = {key_of(*row): place for place, row in enumerate(rows)}
        order = self.orders.pop(0)
        if sorted(map(tuple, order)) != sorted(places):
            raise ValueError("the samples of an epoch are not those of everlight")
        return iter([places[tuple(key)] for key in order])


class Steps:
    """Everlight's choices for a run, and what this run leaves after every task.

    Args:
      folder: folder with `weights.npz`, by the names of the authors' parameters.
      choices: the orders of all epochs, and the exemplars after every task.
    """

    def __init__(self, folder: Path, choices: dict):
        with np.load(folder / "weights.npz") as stored:
            self.weights = dict(stored)
        self.orders = choices["orders"]
        self.exemplars = choices["exemplars"]
        self.tasks: list[dict] = []
        self.chosen: list[list] = []

    def install(self) -> None:
        """Patch the loader, the initial weights and the exemplars."""
        steps = self

        def loader(dataset: Any, *arguments: Any, shuffle: bool = False, **options: Any) -> Any:
            if shuffle and hasattr(dataset, "task_data"):
                options["sampler"] = EpochOrder(dataset, steps.orders)
                return PLAIN_LOADER(dataset, *arguments, **options)
            return PLAIN_LOADER(dataset, *arguments, shuffle=shuffle, **options)

        data.DataLoader = torch.utils.data.DataLoader = loader
        from lifelong_methods.buffer.buffer import BufferBase
        from lifelong_methods.methods.base_method import BaseMethod

        prepare, update = BaseMethod.prepare_model_for_new_task, BufferBase.update_buffer_new_task

        def prepared(model: Any, *arguments: Any, **options: Any) -> None:
            if not model.seen_classes:
                load(model.net.model, steps.weights)
            prepare(model, *arguments, **options)

        def updated(buffer: Any, task_data: Any, model: Any, **options: Any) -> None:
            update(buffer, task_data, model=model, **options)
            picked = [key[1:] for key, _ in stored_samples(buffer)]
            steps.chosen.append(sorted(key for key in picked if key[1] in task_data.cur_task))
            # The next epochs have everlight's exemplars: near ties in herding do not matter.
            exemplars = [tuple(key) for key in steps.exemplars[task_data.cur_task_id]]
            for name in task_data.cur_task:
                buffer.mem_class_x[name] = []
                for index in task_data.get_image_indices_by_cla(name, shuffle=False):
                    image, *labels = task_data.get_item(index)
                    if key_of(True, image, *labels)[1:] in exemplars:
                        buffer.add_sample(name, image, tuple(labels))
            state = model.net.model.state_dict()
            steps.tasks.append({name: value.numpy().copy() for name, value in state.items()})

        BaseMethod.prepare_model_for_new_task = prepared
        BufferBase.update_buffer_new_task = updated

    def save(self, folder: Path) -> None:
        """Save the network after every task."""
        arrays = {
            f"{task}/{name}": value
            for task, state in enumerate(self.tasks)
            for name, value in state.items()
        }
        np.savez(folder / "after.npz", **arrays)


def stored_samples(buffer: Any) -> list[tuple[tuple, tuple]]:
    """Return the key of every stored sample, and its image and labels, in the buffer's order."""
    rows = [
        buffer._fetch_item(name, place)
        for name, stored in buffer.mem_class_x.items()
        for place in range(len(stored))
    ]
    return [(key_of(True, *row), row) for row in rows]


def key_of(stored: bool, image: Any, *labels: str) -> tuple[bool, int, str]:
    """Return what identifies a sample: replayed or not, its pixels' checksum, and its labels."""
    known = sorted(label for label in labels if label != "None")
    return stored, zlib.crc32(image.tobytes()), "+".join(known)


def load(net: torch.nn.Module, weights: dict[str, np.ndarray]) -> None:
    """Copy weights by name; a head of fewer classes takes the first ones."""
    with torch.no_grad():
        for name, parameter in net.named_parameters():
            parameter.copy_(torch.from_numpy(weights[name][: len(parameter)]).view_as(parameter))
