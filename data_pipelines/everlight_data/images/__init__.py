"""Readers of labelled images for continual learning and of IIRC's class hierarchies."""
