"""Writer of a split's files, as the authors release them."""

import csv

import numpy as np


def write_split(folder, facts, task):
    """Write the CSV files of a split; a fact's id is its index in `facts.facts`."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(max(task) + 1):
        rows = ((i, facts.facts[i].type, *facts.facts[i]) for i in np.flatnonzero(task == number))
        _write(folder / f"B{number + 1}_facts.csv", ("id", "type", "S", "P", "O"), rows)
        for part, samples in (("train", facts.train), ("test", facts.test)):
            chosen = np.flatnonzero(task[samples.facts] == number)
            rows = ((samples.images[i], samples.facts[i]) for i in chosen)
            _write(folder / f"B{number + 1}_{part}.csv", ("image_links", "id"), rows)


def _write(path, columns, rows):
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows(rows)
