"""A model for a phone, from raw pairs that show a colour chart."""
