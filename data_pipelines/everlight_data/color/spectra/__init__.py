"""Measured spectra of illuminants, surfaces and cameras, and the libraries of them."""

from everlight_data.color.spectra import cameras, illuminants, munsell, psychtoolbox

DATA_SETS = cameras.DATA_SETS | illuminants.DATA_SETS | munsell.DATA_SETS | psychtoolbox.DATA_SETS
"""Rows of the measured spectra."""
