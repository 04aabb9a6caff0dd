"""Measurements for a machine that is lent for an hour; they are not part of the packages."""
