"""A small split of the procedural facts."""

from everlight_data.facts.splits.fact_splits import PerFact, Size, load_source, split_facts


def small_split():
    source = load_source("procedural", 60, 20, 0)
    return split_facts(source, "procedural", Size(None, 2, PerFact(100, 100)), 0)
