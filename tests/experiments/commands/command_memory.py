"""Resident memory of a command over time, sampled while it runs.

python -m tests.experiments.commands.command_memory FILE.csv everlight run digits --methods ER
"""

import re
import subprocess
import sys
import time
from pathlib import Path

INTERVAL = 10.0
"""Seconds between samples."""


def resident(process: int) -> int:
    """Return the resident memory of a process in bytes; 0 if it has ended."""
    try:
        status = Path(f"/proc/{process}/status").read_text()
    except FileNotFoundError:
        return 0
    result = re.search(r"VmRSS:\s+(\d+) kB", status)
    return int(result[1]) * 1024 if result else 0


def main(path: Path, command: list[str], interval: float = INTERVAL) -> int:
    """Run a command, write a line of seconds and megabytes per sample; return its status."""
    began = time.monotonic()
    with subprocess.Popen(command) as running, path.open("w") as stream:
        stream.write("seconds,megabytes\n")
        while running.poll() is None:
            held = resident(running.pid)
            stream.write(f"{time.monotonic() - began:.0f},{held / 1e6:.0f}\n")
            stream.flush()
            time.sleep(interval)
    return running.returncode


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
