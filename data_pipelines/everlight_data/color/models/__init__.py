"""Folders of trained illuminant estimators."""
