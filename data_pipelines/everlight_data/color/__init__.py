"""Readers of measured spectra, thumbnails, image pairs of phones and raw photographs."""
