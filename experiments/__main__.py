"""Entry point of `python -m experiments`."""

from experiments.cli import main
from experiments.common.compilation import compile_faster, keep_compiled_programs
from experiments.common.devices import one_device_a_core

compile_faster()
keep_compiled_programs()
one_device_a_core()
main()
