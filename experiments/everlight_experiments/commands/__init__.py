"""Commands that belong to no single paper: run, grid, tune, compare, cost, data, demo."""
