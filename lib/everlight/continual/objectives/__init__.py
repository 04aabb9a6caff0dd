"""Objectives: losses, class scores and evaluation results of a network's outputs."""

from everlight.continual.objectives.embedding import embedding_objective
from everlight.continual.objectives.fixed_test_set import FixedTest, fixed_test_objective
from everlight.continual.objectives.multilabel import binary_objective, multi_hot
from everlight.continual.objectives.predicted import with_predictions
from everlight.continual.objectives.regression import regression_objective, target_objective
from everlight.continual.objectives.softmax import Accuracies, softmax_objective

__all__ = [
    "Accuracies",
    "FixedTest",
    "binary_objective",
    "embedding_objective",
    "fixed_test_objective",
    "multi_hot",
    "regression_objective",
    "softmax_objective",
    "target_objective",
    "with_predictions",
]
