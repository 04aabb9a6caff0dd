"""Write `docs/pages/api.md`: every public name, its docstring's first sentence, its arguments.

python -m docs.tools.make_api
"""

import importlib
import inspect
from collections.abc import Callable, Mapping
from pathlib import Path

import flax.linen as nn

PACKAGES = ("color", "continual", "illuminant", "metrics", "models", "plots", "scenarios")
PARTS = (
    "naive",
    "parts.passes",
    "parts.teacher",
    "parts.memory",
    "parts.exemplars",
    "parts.replayed",
    "parts.distillation",
    "parts.class_statistics",
    "parts.importance",
    "parts.quadratic",
    "parts.merging",
    "parts.frozen",
)
"""Modules of `continual.strategies` with functions for building strategies."""
PAGE = Path(__file__).parents[1] / "pages" / "api.md"
LONGEST = 12
"""Limit on the characters of a default; an ellipsis replaces a longer one."""


def render() -> str:
    """Return the text of the page."""
    parts = [
        "# Public names\n\n"
        "Made from the docstrings by `python -m docs.tools.make_api`; `help(NAME)` shows shapes, "
        "units, errors and sources. "
        "An ellipsis stands in place of long defaults.\n"
    ]
    for package in PACKAGES:
        module = importlib.import_module(f"everlight.{package}")
        rows = {name: inspect.unwrap(getattr(module, name)) for name in module.__all__}
        title = f"## everlight.{package}\n\n{module.__doc__.strip().splitlines()[0]}\n\n"
        parts.append(title + _table(rows))
    parts.append("## everlight.continual.strategies\n\nWhat strategies are made of, by file.\n")
    for part in PARTS:
        parts.append(f"### {part}\n\n{_table(strategy_functions(part))}")
    return "\n".join(parts)


def strategy_functions(part: str) -> dict[str, Callable]:
    """Return the public functions of a file of `continual.strategies`."""
    module = importlib.import_module(f"everlight.continual.strategies.{part}")
    return {
        name: public
        for name, public in vars(module).items()
        if inspect.isfunction(public)
        and public.__module__ == module.__name__
        and not name.startswith("_")
    }


def _table(names: Mapping[str, object]) -> str:
    rows = [
        f"| `{name}` | {_first_line(public)} | {_arguments(public)} |\n"
        for name, public in names.items()
    ]
    return "| name | what | arguments |\n|---|---|---|\n" + "".join(rows)


def _first_line(public: object) -> str:
    if not _is_called(public):
        return "a constant or a type"
    return (inspect.getdoc(public) or "").splitlines()[0].replace("|", "\\|")


def _arguments(public: object) -> str:
    """Return the names and short defaults of the arguments, as code."""
    if not _is_called(public) or getattr(public, "_is_protocol", False):
        return ""
    signature = inspect.signature(public)
    # Every module of Flax has these.
    is_module = inspect.isclass(public) and issubclass(public, nn.Module)
    parameters = [
        parameter.replace(annotation=parameter.empty, default=_shorten(parameter.default))
        for parameter in signature.parameters.values()
        if not (is_module and parameter.name in ("parent", "name"))
    ]
    text = str(signature.replace(parameters=parameters, return_annotation=signature.empty))[1:-1]
    return f"`{text}`".replace("|", "\\|") if text else ""


def _shorten(default: object) -> object:
    """Return the default, or an object that prints an ellipsis if the default is long."""
    is_short = default is inspect.Parameter.empty or len(repr(default)) <= LONGEST
    return default if is_short else _Ellipsis()


class _Ellipsis:
    def __repr__(self) -> str:
        return "…"


def _is_called(public: object) -> bool:
    return inspect.isfunction(public) or inspect.isclass(public)


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
