"""Entry point of `python -m experiments`."""

from experiments.cli import main
from experiments.common.compilation import keep_compiled_programs

keep_compiled_programs()
main()
