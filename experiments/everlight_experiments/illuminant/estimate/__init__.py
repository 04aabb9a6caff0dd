"""Estimates of photos and of pairs by a kept model."""
