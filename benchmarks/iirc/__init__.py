"""IIRC compared with the code of its authors, step by step and in the mean over seeds."""
