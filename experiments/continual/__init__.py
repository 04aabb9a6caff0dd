"""Continual learning in general: the table of all strategies, and the small digits benchmark."""
