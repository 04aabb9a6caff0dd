"""Training of all methods on benchmarks, and the outcomes that reports read."""
