"""Compiled programs kept on disk from run to run: JAX's own cache, on by default here."""

import os
from pathlib import Path

import jax

LEAST_SECONDS = 0.1
"""Of compilation; what is compiled sooner is not kept."""


def keep_compiled_programs() -> None:
    """Keeps them below the user's cache folder, unless JAX was told where or told not to.

    `JAX_COMPILATION_CACHE_DIR` names another folder, `JAX_ENABLE_COMPILATION_CACHE=false` is none.
    """
    if "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    try:
        caches = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    except RuntimeError:  # no home
        return
    jax.config.update("jax_compilation_cache_dir", str(caches / "everlight"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", LEAST_SECONDS)
