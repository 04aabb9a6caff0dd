"""The one runner: the table of methods, the record of a benchmark, and the table of benchmarks."""
