"""`python -m tests.speed [CASE ...]`: a table of ratios, measured side by side in one run."""

import os

# OpenMP's idle threads would spin after each of PyTorch's turns and slow the next contestant; set
# before anything loads OpenMP.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import argparse
import importlib.metadata
from functools import partial

import jax

from tests.speed import color, metrics, sequences
from tests.speed.cases import measure, table, this_machine

CASES = {
    "transforms": color.color_transforms,
    "thumbnails": color.thumbnails,
    "networks": color.illuminant_networks,
    "naive": partial(sequences.task_sequence, strategy="naive"),
    "ewc": partial(sequences.task_sequence, strategy="EWC"),
    "replay": partial(sequences.task_sequence, strategy="experience replay"),
    "many-runs": sequences.many_runs,
    "iirc": metrics.iirc_matrix,
    "herding": metrics.herding,
    "ranks": metrics.fact_ranks,
}


def main() -> None:
    """Measure the named cases, or all, and print one table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("cases", nargs="*", choices=[*CASES, []], help="names; none is all")
    names = parser.parse_args().cases or list(CASES)
    jax.config.update("jax_num_cpu_devices", os.cpu_count() or 1)
    load = os.getloadavg()[0]
    machine = this_machine()
    timed = []
    for name in names:
        timed.append(measure(CASES[name](machine)))
        print(f"{name}: measured", flush=True)
    packages = [name for name in ("jax", "numpy", "flax", "torch") if _version(name)]
    versions = ", ".join(f"{name} {_version(name)}" for name in packages)
    print(f"\n{table(timed)}\n")
    print(
        f"{os.cpu_count()} cores ({jax.devices()[0].device_kind}; {versions}), load {load:.1f} "
        f"before and {os.getloadavg()[0]:.1f} after; copies {machine.bandwidth / 1e9:.0f} GB/s, "
        f"products {machine.flops / 1e9:.0f} GFLOP/s. Contestants take turns; medians."
    )


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


if __name__ == "__main__":
    main()
