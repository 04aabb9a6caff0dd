"""`python -m everlight_experiments`, the same program as the command `everlight`."""

from everlight_experiments.cli import command

if __name__ == "__main__":
    command()
