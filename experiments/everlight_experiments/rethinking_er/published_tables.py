"""Accuracies on split Fashion-MNIST: printed by Buzzega et al. 2020, and those of their code.

Class-incremental accuracy after five tasks of two classes, mean over tasks, as fractions in [0, 1],
by method and total number of stored samples (None without a memory).
"""

PRINTED: dict[tuple[str, int | None], float] = {
    ("joint", None): 0.8447,
    ("online EWC", None): 0.2004,
    ("SI", None): 0.1991,
    ("ER", 200): 0.7254,
    ("ER", 500): 0.7902,
    ("ER", 1000): 0.8139,
    ("ER-tricks", 200): 0.7607,
    ("ER-tricks", 500): 0.8011,
    ("ER-tricks", 1000): 0.8246,
    ("iCaRL", 200): 0.7546,
    ("iCaRL", 500): 0.7754,
    ("iCaRL", 1000): 0.7813,
}
"""Means of the paper's table; of the deviations none is known here."""
CODE: dict[tuple[str, int | None], tuple[float, ...]] = {
    ("joint", None): (0.8405, 0.8135, 0.7576, 0.8198, 0.8339),
    ("ER", 200): (0.7605, 0.7393, 0.7435),
    ("ER", 500): (0.7837, 0.7981, 0.7922),
    ("ER", 1000): (0.8097, 0.8192),
    ("ER-tricks", 200): (0.7742, 0.6949, 0.7651),
    ("ER-tricks", 500): (0.7733, 0.7622, 0.7834, 0.7808),
    ("ER-tricks", 1000): (0.8125, 0.8135, 0.8114, 0.7960, 0.8103, 0.8070, 0.8064, 0.8155),
    ("GEM", 200): (0.6859, 0.6618, 0.7075),
    ("GEM", 500): (0.7653, 0.7325, 0.7592),
    ("GEM", 1000): (0.8049, 0.7860, 0.7997),
    ("A-GEM", 200): (0.4777, 0.5235, 0.4625),
    ("A-GEM", 500): (0.5194, 0.5020, 0.5042),
    ("A-GEM", 1000): (0.5117, 0.5226, 0.5051),
    ("HAL", 200): (0.6959, 0.6775, 0.6965, 0.7021, 0.7112, 0.7032, 0.7160, 0.7177),
    ("HAL", 500): (
        *(0.7765, 0.7655, 0.7734, 0.7582, 0.7695, 0.7755, 0.7745),
        *(0.7854, 0.7869, 0.7697, 0.7707, 0.7767, 0.7729),
    ),
    ("HAL", 1000): (0.7973, 0.8013),
    ("iCaRL", 200): (0.6541, 0.6410, 0.6296),
    ("iCaRL", 500): (0.6383, 0.6347, 0.6359),
    ("iCaRL", 1000): (0.6457, 0.6398, 0.6272, 0.6264, 0.6346),
}
"""Each seed's accuracy of the authors' code (hastings24/rethinking_er) with the settings that it
ships (`--load_best_args`), on the same images.

Run for this project with PyTorch 2.13 on a CPU, one thread, seeds counted from 0. In place of
torchvision stood a reader of the IDX files and `ToTensor`, and the data loader had no workers.
Nothing else was changed.
"""
