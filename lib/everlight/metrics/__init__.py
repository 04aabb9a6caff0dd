"""Evaluation metrics as pure functions."""
