"""Facts split into tasks, with their images."""
