"""Continual learning: strategies as pure functions over pytrees, and the engine that runs them."""
