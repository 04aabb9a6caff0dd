"""Readers that turn files, packages and archives into NumPy arrays; the only part that reads files."""
