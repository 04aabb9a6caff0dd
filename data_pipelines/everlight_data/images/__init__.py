"""Readers of labelled images for continual learning."""
