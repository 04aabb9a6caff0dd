"""IIRC's splits by the authors' package, and their comparison with everlight's."""

from itertools import chain

import numpy as np


def samples(part, task=None):
    """Return the set of labels of every sample by its index; a repeated sample is an error."""
    arrays = [np.asarray(leaf)[... if task is None else task] for leaf in part]
    index, labels = (array[arrays[2]] for array in arrays[:2])
    assert len(set(index.tolist())) == len(index)
    assert list(index) == sorted(index)
    assert np.all(labels[:, 0] >= 0)
    label_sets = ({label for label in row if label >= 0} for row in labels.tolist())
    return dict(zip(index.tolist(), label_sets, strict=True))


SHARES = {"superclass_data_pct": 0.4, "subclass_data_pct": 0.8, "superclass_sampling_size_cap": 8}


class Reference:
    """The package's splits of one configuration, in the form that `samples` returns.

    A split is a list of (what identifies a sample, its class names).
    """

    def __init__(self, splits, shares, tasks, kind, index_of):
        from iirc.lifelong_dataset.base_dataset import BaseDataset

        class Listed(BaseDataset):
            def __getitem__(self, index):
                return self.get_item(index)

        self.splits = {
            name: Listed(
                content,
                tasks,
                kind,
                test_mode=name in ("posttask_valid", "test"),
                **{key: shares[key] for key in SHARES},
            )
            for name, content in splits.items()
        }
        self.index = {
            name: [index_of(name, label_sets) for label_sets, _ in content]
            for name, content in splits.items()
        }
        self.number = {name: number for number, name in enumerate(chain(*tasks))}

    def __call__(self, name):
        """Return the samples of the split's present task."""
        split = self.splits[name]
        index = [self.index[name][place] for place in split.cur_task_data_ids]
        names = ({*split.get_labels(place)} - {"None"} for place in range(len(split)))
        labels = [{self.number[name] for name in label_sets} for label_sets in names]
        return dict(zip(index, labels, strict=True))


def compare(actual, reference, complete=False):
    """Compare every task and split of a sequence, and the unions of all tasks so far."""
    sequence, post_task, _ = actual
    taught = {"train": sequence.tasks.train, "intask_valid": sequence.tasks.valid}
    tested = {"test": sequence, "posttask_valid": post_task}
    for name in taught if complete else ():
        reference.splits[name].enable_complete_information_mode()
    for task in range(sequence.tasks.id.shape[0]):
        seen = set(np.flatnonzero(np.asarray(sequence.class_task) <= task).tolist())
        for split in reference.splits.values():
            split.choose_task(task)
        for name, part in taught.items():
            assert samples(part, task) == reference(name)
        for name, part in tested.items():
            assert members(part, slice(task, task + 1), seen) == reference(name)
            reference.splits[name].load_tasks_up_to(task)
            assert members(part, slice(task + 1), seen) == reference(name)


def members(sequence, tasks, seen):
    """Return test samples of some tasks with their labels among the classes seen."""
    chosen = np.any(np.asarray(sequence.test_member)[tasks], axis=0)
    index = np.asarray(sequence.test.index)[chosen].tolist()
    labels = samples(sequence.test)
    return {i: labels[i] & seen for i in index}
