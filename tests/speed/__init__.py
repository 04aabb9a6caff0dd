"""Speed of the library against floors and other implementations: `python -m tests.speed`."""
