"""Commands of continual learning that work on every benchmark: run, grid, tune, compare."""
