"""Training step, tasks and whole sequences, as one compiled program or as a Python loop."""

from everlight.continual.engine.evaluation import (
    evaluate,
    predict_samples,
    sample_features,
    validate,
)
from everlight.continual.engine.flax_setup import StoredImages, StreamedImages, flax_setup
from everlight.continual.engine.runs import (
    Runs,
    diverged,
    drive_runs,
    initial_runs_state,
    runs_mesh,
)
from everlight.continual.engine.sequence import (
    DivergedError,
    drive_sequence,
    initial_state,
    lower_step,
    operations_per_step,
    run_sequence,
)
from everlight.continual.engine.state import Build, SequenceResult, SequenceState
from everlight.continual.engine.steps import Protocol, Usage, online_protocol, train_step

__all__ = [
    "Build",
    "DivergedError",
    "Protocol",
    "Runs",
    "SequenceResult",
    "SequenceState",
    "StoredImages",
    "StreamedImages",
    "Usage",
    "diverged",
    "drive_runs",
    "drive_sequence",
    "evaluate",
    "flax_setup",
    "initial_runs_state",
    "initial_state",
    "lower_step",
    "online_protocol",
    "operations_per_step",
    "predict_samples",
    "run_sequence",
    "runs_mesh",
    "sample_features",
    "train_step",
    "validate",
]
