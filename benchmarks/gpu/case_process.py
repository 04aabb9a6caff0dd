"""One case in this process: `python -m benchmarks.gpu.case_process TARGET FOLDER SMALL ARGUMENTS`.

SMALL and ARGUMENTS are JSON. A line per result begins with `MARK`; a case that is stopped leaves
those that it had.
"""

import importlib
import json
import sys
from pathlib import Path

from benchmarks.gpu.cases import Setting, Unavailable

MARK = "RESULT "


def main(target: str, folder: str, small: str, arguments: str) -> None:
    """Print the results of a case as they come."""
    module, _, function = target.partition(":")
    setting = Setting(json.loads(small), Path(folder))
    try:
        measure = getattr(importlib.import_module(module), function)
        for result in measure(setting, *json.loads(arguments)):
            print(MARK + json.dumps(result), flush=True)
    except Unavailable as reason:
        print(MARK + json.dumps({"skipped": str(reason)}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
