"""`python -m everlight_experiments`, the same program as the command `everlight`."""

from everlight_experiments.cli import main

if __name__ == "__main__":
    main()
