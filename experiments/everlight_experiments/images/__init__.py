"""Benchmarks of images with one class each: data, tasks, network, optimizer and protocol."""
