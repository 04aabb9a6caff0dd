"""Accuracies of DER's and X-DER's tables, in [0, 1], by benchmark, method and buffer size.

Class-incremental for split CIFAR-10 and Tiny-ImageNet, domain-incremental for MNIST, after all
tasks. None is a method without a memory. Values of SGD and joint training are those of the paper's
table 2; those on split CIFAR-100 are of X-DER's main table (Boschini et al. 2022, TPAMI); the
others on images are those that Cha et al. 2021 (Co2L, ICCV) print of it. What the table has of
MNIST for methods with a memory is not known here.
"""

from everlight_experiments.continual.report.reproduction import ReferenceScore

PRINTED: dict[tuple[str, str, int | None], ReferenceScore] = {
    ("permuted-mnist", "SGD", None): ReferenceScore(0.4070, 0.0233, 10),
    ("permuted-mnist", "joint", None): ReferenceScore(0.9433),
    ("rotated-mnist", "SGD", None): ReferenceScore(0.6766, 0.0853, 10),
    ("rotated-mnist", "joint", None): ReferenceScore(0.9576),
    ("split-cifar10", "SGD", None): ReferenceScore(0.1962, 0.0005, 10),
    ("split-cifar10", "joint", None): ReferenceScore(0.9220),
    ("split-tiny-imagenet", "SGD", None): ReferenceScore(0.0792, 0.0026, 10),
    ("split-tiny-imagenet", "joint", None): ReferenceScore(0.5999),
    ("split-cifar10", "ER", 200): ReferenceScore(0.4479),
    ("split-cifar10", "ER", 500): ReferenceScore(0.5774),
    ("split-cifar10", "GEM", 200): ReferenceScore(0.2554),
    ("split-cifar10", "GEM", 500): ReferenceScore(0.2620),
    ("split-cifar10", "A-GEM", 200): ReferenceScore(0.2004),
    ("split-cifar10", "A-GEM", 500): ReferenceScore(0.2267),
    ("split-cifar10", "iCaRL", 200): ReferenceScore(0.4902),
    ("split-cifar10", "iCaRL", 500): ReferenceScore(0.4755),
    ("split-cifar10", "HAL", 200): ReferenceScore(0.3236),
    ("split-cifar10", "HAL", 500): ReferenceScore(0.4179),
    ("split-cifar10", "DER", 200): ReferenceScore(0.6193),
    ("split-cifar10", "DER", 500): ReferenceScore(0.7051),
    ("split-cifar10", "DER++", 200): ReferenceScore(0.6488),
    ("split-cifar10", "DER++", 500): ReferenceScore(0.7270),
    ("split-cifar100", "joint", None): ReferenceScore(0.7044),
    ("split-cifar100", "ER", 500): ReferenceScore(0.2210),
    ("split-cifar100", "ER", 2000): ReferenceScore(0.3858),
    ("split-cifar100", "ER-ACE", 500): ReferenceScore(0.3875),
    ("split-cifar100", "ER-ACE", 2000): ReferenceScore(0.4972),
    ("split-cifar100", "iCaRL", 500): ReferenceScore(0.4652),
    ("split-cifar100", "iCaRL", 2000): ReferenceScore(0.4982),
    ("split-cifar100", "BiC", 500): ReferenceScore(0.3602),
    ("split-cifar100", "BiC", 2000): ReferenceScore(0.4639),
    ("split-cifar100", "DER++", 500): ReferenceScore(0.3825),
    ("split-cifar100", "DER++", 2000): ReferenceScore(0.5363),
    ("split-cifar100", "X-DER-RPC", 500): ReferenceScore(0.4853),
    ("split-cifar100", "X-DER-RPC", 2000): ReferenceScore(0.5700),
    ("split-tiny-imagenet", "ER", 200): ReferenceScore(0.0849),
    ("split-tiny-imagenet", "ER", 500): ReferenceScore(0.0999),
    ("split-tiny-imagenet", "A-GEM", 200): ReferenceScore(0.0807),
    ("split-tiny-imagenet", "A-GEM", 500): ReferenceScore(0.0806),
    ("split-tiny-imagenet", "iCaRL", 200): ReferenceScore(0.0753),
    ("split-tiny-imagenet", "iCaRL", 500): ReferenceScore(0.0938),
    ("split-tiny-imagenet", "DER", 200): ReferenceScore(0.1187),
    ("split-tiny-imagenet", "DER", 500): ReferenceScore(0.1775),
    ("split-tiny-imagenet", "DER++", 200): ReferenceScore(0.1096),
    ("split-tiny-imagenet", "DER++", 500): ReferenceScore(0.1938),
}
