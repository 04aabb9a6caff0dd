"""Measurements and comparisons that run from a checkout; they are in none of the packages."""
