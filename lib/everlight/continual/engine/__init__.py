"""Training step, tasks and whole sequences, as one compiled program or in chunks of epochs.

`driver` trains many runs in chunks and `sequence` one run in one program. Both call `tasks`, which
calls `epochs`, which calls `updates` for a step; `evaluation` follows each task. `generated` draws
tasks inside the program.
"""

from everlight.continual.engine.cost.costs import RunCost, count_cost, replayed_per_step
from everlight.continual.engine.driver import Runs, diverged_runs, drive_runs, initial_runs_state
from everlight.continual.engine.evaluation import (
    Measured,
    evaluate,
    predict_samples,
    sample_features,
    validate,
)
from everlight.continual.engine.generated import GeneratedResult, learn_generated
from everlight.continual.engine.protocol import Protocol, fixed_steps_protocol, online_protocol
from everlight.continual.engine.run import (
    Build,
    Run,
    SequenceResult,
    SequenceState,
    StepEvaluations,
    Usage,
)
from everlight.continual.engine.sequence import (
    initial_state,
    lower_step,
    operations_per_step,
    run_sequence,
)
from everlight.continual.engine.setups.equinox_setup import equinox_setup
from everlight.continual.engine.setups.flax_setup import flax_setup
from everlight.continual.engine.setups.network_setup import network_setup
from everlight.continual.engine.setups.nnx_setup import nnx_setup
from everlight.continual.engine.sources import ComputedInputs, StoredImages, StreamedImages
from everlight.continual.engine.tasks import init_learner
from everlight.continual.engine.updates import train_step
from everlight.meshes import runs_mesh

__all__ = [
    "Build",
    "ComputedInputs",
    "GeneratedResult",
    "Measured",
    "Protocol",
    "Run",
    "RunCost",
    "Runs",
    "SequenceResult",
    "SequenceState",
    "StepEvaluations",
    "StoredImages",
    "StreamedImages",
    "Usage",
    "count_cost",
    "diverged_runs",
    "drive_runs",
    "equinox_setup",
    "evaluate",
    "fixed_steps_protocol",
    "flax_setup",
    "init_learner",
    "initial_runs_state",
    "initial_state",
    "learn_generated",
    "lower_step",
    "network_setup",
    "nnx_setup",
    "online_protocol",
    "operations_per_step",
    "predict_samples",
    "replayed_per_step",
    "run_sequence",
    "runs_mesh",
    "sample_features",
    "train_step",
    "validate",
]
