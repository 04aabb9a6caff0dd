"""Builders of continual-learning task sequences from label arrays."""

from everlight.scenarios.appended_task import append_task
from everlight.scenarios.class_incremental import (
    class_incremental,
    equal_tasks,
    relabel_within_tasks,
    replace_test_with_validation,
    without_validation,
)
from everlight.scenarios.class_orders import (
    class_incremental_by_seed,
    divide_classes,
    seeded_class_incremental,
    validation_fractions,
)
from everlight.scenarios.core50 import TrainingBatch, core50, training_batches
from everlight.scenarios.experiences import experience_sequence
from everlight.scenarios.facts import (
    Examples,
    Statistics,
    check_facts,
    fact_sequence,
    join_tasks,
    split_statistics,
)
from everlight.scenarios.facts_splits import (
    SemanticSplit,
    distances_between_facts,
    embedding_distances,
    random_split,
    semantic_split,
)
from everlight.scenarios.generated_tasks import (
    class_pair_tasks,
    label_permuted_tasks,
    permuted_tasks,
)
from everlight.scenarios.iirc import IIRC, TaskConfiguration, iirc
from everlight.scenarios.online import online_stream
from everlight.scenarios.shapes import pad_sequences, stack_samples
from everlight.scenarios.slowly_changing_regression import (
    TargetNetwork,
    binary_digits,
    change_slow_bits,
    draw_numbers,
    draw_samples,
    draw_target_network,
    target_values,
)
from everlight.scenarios.streams import (
    domain_incremental,
    draw_transform,
    named_stream,
    noisy_labels,
    permuted_labels,
    permuted_pixels,
    recurring_classes,
    rotated,
    transform_inputs,
    with_shots,
)
from everlight.scenarios.uneven_streams import (
    long_tailed_counts,
    long_tailed_samples,
    with_blurry_boundaries,
    with_recurring_classes,
)

__all__ = [
    "IIRC",
    "Examples",
    "SemanticSplit",
    "Statistics",
    "TargetNetwork",
    "TaskConfiguration",
    "TrainingBatch",
    "append_task",
    "binary_digits",
    "change_slow_bits",
    "check_facts",
    "class_incremental",
    "class_incremental_by_seed",
    "class_pair_tasks",
    "core50",
    "distances_between_facts",
    "divide_classes",
    "domain_incremental",
    "draw_numbers",
    "draw_samples",
    "draw_target_network",
    "draw_transform",
    "embedding_distances",
    "equal_tasks",
    "experience_sequence",
    "fact_sequence",
    "iirc",
    "join_tasks",
    "label_permuted_tasks",
    "long_tailed_counts",
    "long_tailed_samples",
    "named_stream",
    "noisy_labels",
    "online_stream",
    "pad_sequences",
    "permuted_labels",
    "permuted_pixels",
    "permuted_tasks",
    "random_split",
    "recurring_classes",
    "relabel_within_tasks",
    "replace_test_with_validation",
    "rotated",
    "seeded_class_incremental",
    "semantic_split",
    "split_statistics",
    "stack_samples",
    "target_values",
    "training_batches",
    "transform_inputs",
    "validation_fractions",
    "with_blurry_boundaries",
    "with_recurring_classes",
    "with_shots",
    "without_validation",
]
