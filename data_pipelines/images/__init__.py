"""Labelled images that are learnt in turn, and what IIRC says of their classes."""
