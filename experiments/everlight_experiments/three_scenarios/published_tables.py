"""Accuracies of the authors' code on split MNIST, by scenario and method: one per seed.

GMvandeVen/continual-learning (commit e6d795a) was run for this project on the same images, with its
own settings. What the paper's table 2 prints is not known here.
"""

CODE: dict[tuple[str, str], tuple[float, ...]] = {}
