"""Measured spectra, and scenes, views and sensors rendered from them."""
