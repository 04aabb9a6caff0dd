"""Sidecars of raw files, and the matrices of camera profiles from photographed charts."""
