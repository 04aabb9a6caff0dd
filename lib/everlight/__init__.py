"""Two-camera illuminant estimation and continual learning as pure JAX functions."""


def __getattr__(name: str) -> str:
    """Return `__version__`, read only on demand: a checkout that is not installed has none."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import version

    return version("everlight")
