"""Colours of a camera in the files of other software."""
