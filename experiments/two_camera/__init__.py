"""Illuminant estimation from the two cameras of a phone."""
