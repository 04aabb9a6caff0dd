"""thin"""
from pathlib import Path
from typing import NamedTuple
from collections.abc import Mapping
import numpy as np
from experiments.common.report import Column, Figure, Section, Table
from experiments.facts.benchmarks import Benchmark
from experiments.facts.scores import Groups, Outcomes, final

class Results(NamedTuple):
    """All of a benchmark."""
    benchmark: Benchmark
    seeds: int
    outcomes: Outcomes
    grids: Mapping
    strengths: Mapping
    groups: Groups
    shown: np.ndarray

def report_sections(path, results, side, photographs):
    rows=[]
    for name, each in results.items():
        for split, methods in each.outcomes.items():
            for method, outcome in methods.items():
                rows.append([f"{name} {split} {method}", f"{100*final(outcome,'standard').mean():.1f}", f"{100*final(outcome).mean():.1f}", f"{outcome.backward.mean():.3f}", f"{outcome.forward.mean():.3f}", str(each.grids.get((split,method),''))])
                print(rows[-1])
    return [Section("Top-5", items=[Table("", [Column(c) for c in ("what","standard","generalised","BWT","FWT","grid")], rows)])]
