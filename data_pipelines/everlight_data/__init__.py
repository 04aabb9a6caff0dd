"""Readers that turn files, packages and archives into NumPy arrays; all file input is here."""
