"""Scenes, views and sensors that are rendered from measured spectra."""
