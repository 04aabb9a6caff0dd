"""Files, packages and archives in, NumPy arrays out; the only part that reads from disk."""
