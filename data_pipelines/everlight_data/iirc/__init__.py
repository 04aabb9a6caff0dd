"""Images, class hierarchies and task configurations of IIRC's benchmarks."""
