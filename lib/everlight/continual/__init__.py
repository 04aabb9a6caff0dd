"""Continual learning: strategies as pure functions over pytrees, and the engine that runs them."""

from everlight.base import (
    Batch,
    Epoch,
    Learner,
    Objective,
    Outputs,
    Predictions,
    Samples,
    Setup,
    SplitNetwork,
    StepInfo,
    Strategy,
    Task,
    TaskGenerator,
    TaskSequence,
)
from everlight.continual.ema import with_ema
from everlight.continual.engine import *  # noqa: F403
from everlight.continual.engine import __all__ as _engine
from everlight.continual.methods.selection import (
    Choice,
    choose_hyperparameter,
    fixed_hyperparameter,
)
from everlight.continual.named_optimizer import Optimizer, named_optimizer
from everlight.continual.objectives import *  # noqa: F403
from everlight.continual.objectives import __all__ as _objectives
from everlight.continual.strategies import *  # noqa: F403
from everlight.continual.strategies import __all__ as _strategies
from everlight.continual.strategies.hat import UnitsUsed, units_used
from everlight.continual.training.train import train
from everlight.continual.training.train_targets import TrainedTargets, train_targets
from everlight.continual.training.trained import Trained, TrainedScores

__all__ = [
    "Batch",
    "Choice",
    "Epoch",
    "Learner",
    "Objective",
    "Optimizer",
    "Outputs",
    "Predictions",
    "Samples",
    "Setup",
    "SplitNetwork",
    "StepInfo",
    "Strategy",
    "Task",
    "TaskGenerator",
    "TaskSequence",
    "Trained",
    "TrainedScores",
    "TrainedTargets",
    "UnitsUsed",
    "choose_hyperparameter",
    "fixed_hyperparameter",
    "named_optimizer",
    "train",
    "train_targets",
    "units_used",
    "with_ema",
    *_engine,
    *_objectives,
    *_strategies,
]
