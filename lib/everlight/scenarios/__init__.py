"""Pure builders of task sequences from label arrays."""
