"""Pairs of views of one scene by two cameras: reading and alignment."""
