"""Colour charts in photographs: detection, measured colours, and pairs aligned by them."""
