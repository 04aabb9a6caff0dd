"""Print the tests that `make test` leaves to `make test-medium`, from a run with --junitxml.

`python tests/choose_medium.py DURATIONS.xml > tests/medium_tests.txt`, after a run of both on an
idle machine. A test is medium if one of its cases takes 0.6 seconds or all of them three. The
quickest test of a file without another is not printed. Where it takes long by the set-up of a
module, add the fixture to the list by hand, as `tests/.../test_nets.py::finished`.
"""

import sys
from collections import defaultdict
from xml.etree import ElementTree

LONGEST_CASE, LONGEST_TEST = 0.6, 3.0
"""Seconds."""


def durations(path):
    """Return the seconds of the cases of every test, by file and name."""
    seconds = defaultdict(list)
    for case in ElementTree.parse(path).iter("testcase"):
        file = case.get("classname").replace(".", "/") + ".py"
        seconds[file, case.get("name").split("[")[0].split("@")[0]].append(float(case.get("time")))
    return seconds


def medium_tests(seconds):
    """Return the medium tests."""
    by_file = defaultdict(list)
    for test, cases in seconds.items():
        by_file[test[0]].append((sum(cases), test, max(cases)))
    medium = []
    for tests in by_file.values():
        long = [test for total, test, most in tests if most > LONGEST_CASE or total > LONGEST_TEST]
        quickest = min(tests)[1] if len(long) == len(tests) else None
        medium += [test for test in long if test != quickest]
    return sorted(medium)


if __name__ == "__main__":
    for file, name in medium_tests(durations(sys.argv[1])):
        print(f"{file}::{name}")
