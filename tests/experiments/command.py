"""The command line for functions of a test's own process."""

import sys

from everlight_experiments import cli


def run_as_command(*arguments: str) -> None:
    """Run the main module's `run` as a command with the options of its `Settings`."""
    # Commands are looked up by module below the package.
    sys.modules["everlight_experiments.tested"] = sys.modules["__main__"]
    cli.COMMANDS["tested"] = cli.Command("Run a test.", "tested:run")
    cli.main(["tested", *arguments])
