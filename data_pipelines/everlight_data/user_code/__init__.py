"""Objects of a user's own Python files, and checksums of their sources."""
