"""Weights of trained networks, and the features that a frozen network computes."""
