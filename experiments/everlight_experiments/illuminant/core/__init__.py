"""The core of all experiments: training, cross-validation, comparison, tables, the report."""
