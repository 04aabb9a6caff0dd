"""Packages of the extras in pyproject.toml, each imported where a reader or a command needs it."""

import importlib
from types import ModuleType

from everlight_data.errors import MissingPackageError

PACKAGES: dict[str, tuple[str, str]] = {
    "colour": ("colour-science", "experiments"),
    "docstring_parser": ("docstring-parser", "experiments"),
    "filelock": ("filelock", "experiments"),
    "iirc": ("iirc", "experiments"),
    "imagecodecs": ("imagecodecs", "experiments"),
    "jinja2": ("jinja2", "experiments"),
    "markupsafe": ("markupsafe", "experiments"),
    "matplotlib": ("matplotlib", "experiments"),
    "orbax": ("orbax-checkpoint", "experiments"),
    "PIL": ("pillow", "experiments"),
    "rawpy": ("rawpy", "experiments"),
    "sklearn": ("scikit-learn", "experiments"),
    "tensorboardX": ("tensorboardX", "tensorboard"),
    "tensorflow_datasets": ("tensorflow-datasets", "experiments"),
    "tifffile": ("tifffile", "experiments"),
    "tqdm": ("tqdm", "experiments"),
    "tyro": ("tyro", "experiments"),
    "wandb": ("wandb", "wandb"),
}
"""Package and extra by the name of the module that is imported."""


def import_package(module: str) -> ModuleType:
    """Import a module of an extra's package.

    Args:
      module: name of the module, one of `PACKAGES` or below it.

    Raises:
      MissingPackageError: the package is not installed; the message names it and its extra.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = missing_package(error)
        if missing is None:
            raise
        raise missing from error


def missing_package(error: BaseException) -> MissingPackageError | None:
    """Return the error that names a missing package and its extra; None for any other error."""
    if not isinstance(error, ModuleNotFoundError):
        return None
    module = (error.name or "").partition(".")[0]
    if module not in PACKAGES:
        return None
    package, extra = PACKAGES[module]
    return MissingPackageError(f'{package} is not installed: pip install "everlight[{extra}]"')
