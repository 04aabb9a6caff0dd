"""Writes `docs/api.md`: every public name with the first sentence of its docstring.

python docs/make_api.py
"""

import importlib
import inspect
from collections.abc import Callable
from pathlib import Path

ROOMS = ("color", "continual", "metrics", "models", "plots", "scenarios")
PARTS = (
    "naive",
    "memory",
    "exemplars",
    "balanced_replay",
    "importance",
    "quadratic",
    "merging",
    "frozen",
)
"""Files of `continual.strategies` whose functions new strategies are made of."""
PAGE = Path(__file__).with_name("api.md")


def render() -> str:
    """The page's text."""
    parts = [
        "# Public names\n\n"
        "Made from the docstrings by `python docs/make_api.py`; `help(NAME)` shows shapes, units, "
        "errors and sources.\n"
    ]
    for room in ROOMS:
        module = importlib.import_module(f"everlight.{room}")
        rows = [f"| `{name}` | {_first_line(getattr(module, name))} |" for name in module.__all__]
        title = f"## everlight.{room}\n\n{module.__doc__.strip().splitlines()[0]}\n\n"
        parts.append(title + "| name | what |\n|---|---|\n" + "\n".join(rows) + "\n")
    parts.append("## everlight.continual.strategies\n\nWhat strategies are made of, by file.\n")
    for part in PARTS:
        rows = [f"| `{name}` | {_first_line(public)} |" for name, public in made_of(part).items()]
        parts.append(f"### {part}\n\n| name | what |\n|---|---|\n" + "\n".join(rows) + "\n")
    return "\n".join(parts)


def made_of(part: str) -> dict[str, Callable]:
    """The public functions of a file of `continual.strategies`."""
    module = importlib.import_module(f"everlight.continual.strategies.{part}")
    return {
        name: public
        for name, public in vars(module).items()
        if inspect.isfunction(public)
        and public.__module__ == module.__name__
        and not name.startswith("_")
    }


def _first_line(public: object) -> str:
    if not (inspect.isfunction(public) or inspect.isclass(public)):
        return "a constant or a type"
    return (inspect.getdoc(public) or "").splitlines()[0].replace("|", "\\|")


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
