"""A checksum of a user's Python file and of the user's own modules that it imports."""

import ast
import importlib.util
import sys
import sysconfig
import zlib
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path

from everlight_data.formats.files import read_bytes

PACKAGES = ("everlight", "everlight_data", "everlight_experiments")
"""Packages of this project, whose modules are not the user's."""
_INSTALLED = ("site-packages", "dist-packages")
_IMPORTERS = ("import_module", "__import__")
_REMEDY = "It is a Python file that your file imports; make it readable."


def sources_checksum(content: bytes, most_bytes: int) -> str:
    """Return the CRC-32 of a file and of the modules that it and they import, as text.

    The modules are those of the user: neither Python's own, nor installed packages, nor
    everlight's. Imports are read from the text, within functions too, and so are names of
    `import_module` and `__import__` that stand there as text. Files that a module reads or runs
    by their paths are not seen.

    Args:
      content: text of the file, which has been run.
      most_bytes: limit on the size of one module.

    Raises:
      DataError: a module's file is too large or cannot be read.
    """
    checksum = zlib.crc32(content)
    modules: dict[str, bytes] = {}
    waiting = list(_list_imports(content, ""))
    while waiting:
        name = waiting.pop()
        spec = None if name in modules else _users_spec(name)
        if spec is None:
            continue
        # A folder without __init__.py has no text of its own.
        text = b"" if spec.origin is None else read_bytes(Path(spec.origin), most_bytes, _REMEDY)
        modules[name] = text
        if spec.origin is None or spec.origin.endswith(".py"):
            waiting += _list_imports(text, name if spec.submodule_search_locations else spec.parent)
    for name in sorted(modules):
        checksum = zlib.crc32(modules[name], zlib.crc32(name.encode(), checksum))
    return f"{checksum:08x}"


def _list_imports(content: bytes, package: str) -> Iterator[str]:
    """Yield names of modules that a text may import; some may be names within modules."""
    try:
        tree = ast.parse(content)
    # The file is run too, and the error is reported there.
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, package)
            names = [base, *(f"{base}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Call):
            names = _list_calls(node, package)
        else:
            continue
        for name in names:
            parts = name.split(".")
            yield from (".".join(parts[: count + 1]) for count in range(len(parts)))


def _list_calls(node: ast.Call, package: str) -> list[str]:
    """Return the module that a call of `import_module` or `__import__` names by texts."""
    function = node.func
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    if name not in _IMPORTERS:
        return []
    arguments = dict(zip(("name", "package"), node.args, strict=False))
    arguments |= {keyword.arg: keyword.value for keyword in node.keywords}
    module, base = (_constant_text(arguments.get(key)) for key in ("name", "package"))
    if module is None:
        return []
    below = module.lstrip(".")
    level = len(module) - len(below)
    return [_absolute(ast.ImportFrom(below, [], level), base or package)]


def _constant_text(node: ast.expr | None) -> str | None:
    """Return the text that an expression is; None if it is anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    return None


def _absolute(node: ast.ImportFrom, package: str) -> str:
    """Return the module of a `from` import; a relative one is below the package."""
    module = node.module or ""
    if not node.level:
        return module
    parts = package.split(".")
    return ".".join(filter(None, [*parts[: len(parts) - node.level + 1], module]))


def _users_spec(name: str) -> ModuleSpec | None:
    """Return the path of a module of the user; None for other modules and unknown names."""
    top, _, below = name.partition(".")
    if not top or top in PACKAGES:
        return None
    # A package is imported to find what lies below it, so that of others is not searched.
    if below and _users_spec(top) is None:
        return None
    # Anything may fail in a user's code; such a module is not imported either.
    try:
        module = sys.modules.get(name)
        spec = getattr(module, "__spec__", None) or importlib.util.find_spec(name)
    except Exception:
        return None
    if spec is None or not _is_users(spec):
        return None
    return spec


def _is_users(spec: ModuleSpec) -> bool:
    if spec.origin is not None and not spec.has_location:
        # Built in or frozen.
        return False
    places = [spec.origin] if spec.origin else list(spec.submodule_search_locations or ())
    return bool(places) and not any(map(_is_installed, places))


def _is_installed(place: str) -> bool:
    path = Path(place)
    if not path.exists() or {*_INSTALLED} & {*path.parts}:
        return True
    libraries = (sysconfig.get_path(name) for name in ("stdlib", "platstdlib"))
    return any(path.is_relative_to(library) for library in libraries)
