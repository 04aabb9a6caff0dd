"""Measured spectra, thumbnails, phone pairs and raw photographs: arrays of colours."""
