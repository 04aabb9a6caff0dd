"""Facts divided into tasks, with their images."""
