"""A user's own images, lists of them, features and labels."""
