"""Streams of many short tasks on which plain networks lose the ability to learn."""
