"""Measured spectra of illuminants, surfaces and cameras, and the libraries of them."""
