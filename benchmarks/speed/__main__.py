"""`python -m benchmarks.speed [CASE ...]` times everlight and other ways to do the work."""

import os

# OpenMP's idle threads would spin after each of PyTorch's turns and slow the next contestant; set
# before anything loads OpenMP. Devices are as many as the commands of everlight take.
if __name__ == "__main__":
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("JAX_NUM_CPU_DEVICES", str(os.cpu_count() or 1))

import argparse
import importlib.metadata

import jax

from benchmarks.speed import arrays, color, growth, networks, replay, sequences
from benchmarks.speed.picture import plot_growth
from benchmarks.speed.timing import HAS_TORCH, measure, measure_machine, table

CASES = {
    "fits": color.fits,
    "nets": color.nets,
    "sequences": sequences.sequences,
    "many-runs": sequences.many_runs,
    "networks": networks.networks,
    "replay": replay.replay,
    "growth": growth.growth,
    "iirc-metrics": arrays.iirc_metrics,
    "iirc-training": sequences.iirc_training,
    "iirc-race": sequences.iirc_race,
    "herding": arrays.herding,
    "fact-ranking": arrays.fact_ranking,
}
NAMED_ONLY = ("iirc-race", "networks", "replay", "growth")
"""Cases that take five minutes or more, and run only if they are named."""


def main(arguments: list[str] | None = None) -> None:
    """Measure the cases that are named, or all but the longest, and print a table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.speed", description=__doc__)
    parser.add_argument(
        "case",
        nargs="*",
        help=f"one of {', '.join(CASES)}; none is all that take less than five minutes",
    )
    parser.add_argument("--small", action="store_true", help="least sizes, to try the code")
    parser.add_argument("--picture", help="file for a picture of the cases that grow (growth)")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.case if name not in CASES]
    if unknown:
        parser.error(f"no case {unknown[0]!r}; there are {', '.join(CASES)}")
    if options.picture and "growth" not in options.case:
        parser.error("--picture is of the case growth; name it, or leave --picture out")
    names = options.case or [name for name in CASES if name not in NAMED_ONLY]
    machine = measure_machine(*((4, 64) if options.small else ()))
    packages = ("jax", "numpy", "flax", "optax", *(("torch",) if HAS_TORCH else ()))
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
    print(
        f"{os.cpu_count()} cores, {jax.device_count()} devices ({jax.devices()[0].device_kind}; "
        f"{versions}). The machine copies {machine.bandwidth / 1e9:.0f} GB/s and multiplies "
        f"matrices at {machine.flops / 1e9:.0f} GFLOP/s.\n"
    )
    if not HAS_TORCH:
        print('PyTorch is not installed: `make bench` or `pip install -e ".[bench]"` adds it.\n')
    timed = []
    for name in names:
        for case in CASES[name](machine, options.small):
            timed.append(measure(case))
            # The header is printed first, and each case when it ends: the longest take minutes.
            rows = table(timed[-1:]).splitlines()
            print("\n".join(rows if len(timed) == 1 else rows[2:]), flush=True)
    if options.picture:
        plot_growth(timed, options.picture)


if __name__ == "__main__":
    main()
