"""Strategies with their objectives for small images, and their protocol."""

from everlight.continual.engine import Protocol
from everlight.continual.objectives.multilabel import binary_objective
from everlight.continual.objectives.softmax import (
    accuracy_per_sample,
    accuracy_row,
    softmax_objective,
)
from everlight.continual.strategies import balanced_replay, ewc, icarl

PROTOCOL = Protocol(epochs=2, batch_size=8, evaluation_batch=16)
BINARY = binary_objective()._replace(
    per_sample_metrics=accuracy_per_sample, evaluate=accuracy_row, evaluates_unseen_classes=True
)
STRATEGIES = {
    "experience replay": (softmax_objective(), lambda setup: balanced_replay(setup, 2)),
    "icarl": (BINARY, lambda setup: icarl(setup, 2)),
    "ewc": (softmax_objective(), lambda setup: ewc(setup, 1.0, importance_samples=8)),
}
