"""Pages of the site that are generated while it is built, so that nothing is written twice.

The first page is README.md. The page of a strategy shows the docstring of its file, with equation
and paper, and its rows in the tables of other pages. The page of a folder of the library shows the
docstring of every public name. Tutorials are run and shown with their output.
"""

import importlib
import inspect
import posixpath
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import jupytext
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from nbclient import NotebookClient
from nbconvert import MarkdownExporter
from nbconvert.preprocessors import CoalesceStreamsPreprocessor

from docs.tools.docstrings import escaped
from docs.tools.make_api import PACKAGES, PARTS, strategy_functions
from docs.tools.measured import ROOT, STRATEGIES, add_sources, measured_rows
from everlight.continual.methods.registry import METHODS

DOCS = ROOT / "docs"
PAGES = DOCS / "pages"
TUTORIALS = PAGES / "tutorials"
SECONDS = 600
"""Limit on the seconds that a cell of a tutorial takes on a busy machine."""
ROOT_PAGES = {
    "index.md": "README.md",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "security.md": "SECURITY.md",
    "build_notes.md": "BUILD_NOTES.md",
}


OFFICIAL_FILE = re.compile(r"(\| \[(\w+)\]\([^)]*/strategies/\w+\.py\))(?= \|)")
"""Cell of the table of official code that links a strategy's file."""


def strategies() -> dict[str, list[str]]:
    """Return the names of the strategies in each file of `continual.strategies`, by file."""
    package = importlib.import_module(STRATEGIES)
    by_file: dict[str, list[str]] = {}
    for name in package.__all__:
        file = getattr(package, name).__module__.removeprefix(f"{STRATEGIES}.")
        by_file.setdefault(file, []).append(name)
    return dict(sorted(by_file.items()))


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add the generated pages to the navigation."""
    config.nav += [
        {
            "Strategies": [
                "strategies/index.md",
                *({title(file): f"strategies/{file}.md"} for file in strategies()),
            ]
        },
        {
            "API": [
                {"Public names": "api.md"},
                *({f"everlight.{package}": f"api/{package}.md"} for package in PACKAGES),
                {"Parts of strategies": "api/strategy_parts.md"},
            ]
        },
        {
            "Project": [
                {"Changes": "changelog.md"},
                {"Contributing": "contributing.md"},
                {"Security": "security.md"},
                {"Build notes": "build_notes.md"},
            ]
        },
    ]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages and the pictures."""
    pages = {page: _root_page(source) for page, source in ROOT_PAGES.items()}
    pages |= {f"api/{package}.md": _package_page(package) for package in PACKAGES}
    pages["api/strategy_parts.md"] = _parts()
    pages["strategies/index.md"] = _list_of_strategies()
    pages |= {
        f"strategies/{file}.md": _strategy(file, names) for file, names in strategies().items()
    }
    for path, content in (*pages.items(), *_tutorials()):
        files.append(File.generated(config, path, content=content))
    for picture in _pictures():
        path = picture.relative_to(DOCS).as_posix()
        files.append(File(path, str(DOCS), config.site_dir, config.use_directory_urls))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Return a page's text with links to pages of the site and the sources of measured tables.

    The list of public names has links to their docstrings.
    """
    path = page.file.src_uri
    if path == "official_code.md":
        # Rows of the table of methods link these rows.
        markdown = OFFICIAL_FILE.sub(r"\1{#\2}", markdown)
    if path != "api.md":
        return convert_links(add_sources(markdown, ROOT_PAGES.get(path, path)), path)
    paths = {
        f"{STRATEGIES}.{part}.{name}": name for part in PARTS for name in strategy_functions(part)
    }
    for package in PACKAGES:
        paths |= {path: name for name, path in _paths(package).items()}
    for path, name in paths.items():
        markdown = markdown.replace(f"\n| `{name}` |", f"\n| [`{name}`][{path}] |")
    return markdown


def convert_links(markdown: str, page: str) -> str:
    """Return a page's text whose links to files of the project lead to their places on the site.

    Args:
      markdown: text of the page.
      page: path of the page on the site.
    """
    source = ROOT_PAGES.get(page, f"docs/pages/{page}")
    paths = _site_paths()

    def lead(link: re.Match) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(source), link[1]))
        if target not in paths:
            return link[0]
        return f"]({posixpath.relpath(paths[target], posixpath.dirname(page) or '.')}"

    return re.sub(r"\]\(([^)#\s]+)", lead, markdown)


@cache
def _site_paths() -> dict[str, str]:
    """Return the paths on the site by the paths of files of the project."""
    library = "lib/everlight"
    paths = {source: page for page, source in ROOT_PAGES.items()}
    paths |= {f"{library}/{package}/__init__.py": f"api/{package}.md" for package in PACKAGES}
    paths[f"{library}/continual/strategies/__init__.py"] = "strategies/index.md"
    for file in strategies():
        source = file.replace(".", "/")
        paths[f"{library}/continual/strategies/{source}.py"] = f"strategies/{file}.md"
    for source in (*PAGES.rglob("*.md"), *TUTORIALS.glob("*.py")):
        # A tutorial's page has its output.
        page = source.relative_to(PAGES)
        paths[source.relative_to(ROOT).as_posix()] = page.with_suffix(".md").as_posix()
    for source in _pictures():
        paths[source.relative_to(ROOT).as_posix()] = source.relative_to(DOCS).as_posix()
    return paths


def _pictures() -> list[Path]:
    return sorted(path for path in (DOCS / "pictures").rglob("*") if path.is_file())


def _root_page(source: str) -> str:
    """Return the text of a file of the root; files without a page on the site become names."""
    text = (ROOT / source).read_text(encoding="utf-8")
    return re.sub(r"\[([^\]]+)\]\((?:CITATION\.cff|LICENSE)\)", r"`\1`", text)


def _package_page(package: str) -> str:
    module = importlib.import_module(f"everlight.{package}")
    title = f"# everlight.{package}\n\n{inspect.cleandoc(module.__doc__)}\n\n"
    if package == "continual":
        title += "Strategies have [pages of their own](../strategies/index.md).\n\n"
    factories = set().union(*strategies().values())
    paths = [
        path
        for name, path in _paths(package).items()
        if not (path.startswith(STRATEGIES) and name in factories)
    ]
    return title + "\n".join(f"::: {path}\n" for path in paths)


def _paths(package: str) -> dict[str, str]:
    """Return the path where each public name is defined.

    A file may have the name of its function.
    """
    module = importlib.import_module(f"everlight.{package}")
    paths = {}
    for name in module.__all__:
        home = getattr(getattr(module, name), "__module__", "")
        defined = home.startswith("everlight.") and name in vars(importlib.import_module(home))
        paths[name] = f"{home if defined else module.__name__}.{name}"
    return paths


def _parts() -> str:
    text = "# Parts of strategies\n"
    with_page = set().union(*strategies().values())
    for part in PARTS:
        text += f"\n## {part}\n\n{escaped(_docstring(part))}\n\n"
        names = [name for name in strategy_functions(part) if name not in with_page]
        text += "\n".join(f"::: {STRATEGIES}.{part}.{name}\n" for name in names)
    return text


def title(file: str) -> str:
    """Return a strategy's name in words, as its docstring begins, and the names of its methods."""
    line = _docstring(file).splitlines()[0].rstrip(".")
    words = re.split(r" \(", line)[0] if " (" in line else line.split(", ")[0]
    names = [
        name
        for name, method in METHODS.items()
        if method.factory.__module__ == f"{STRATEGIES}.{file}"
    ]
    new = [name for name in names if not re.search(rf"\b{re.escape(name)}(?!\w)", words, re.I)]
    return f"{words} ({', '.join(names)})" if new else words


def _list_of_strategies() -> str:
    rows = "\n".join(
        f"| [{', '.join(names)}]({file}.md) | {_docstring(file).splitlines()[0]} |"
        for file, names in strategies().items()
    )
    return (
        "# Strategies\n\nEvery strategy is one file in `lib/everlight/continual/strategies`, whose "
        "docstring has its equations and citations.\n[A strategy of your own](../guide/strategy.md)"
        " explains how to add one; [Results](../results/index.md) has accuracies.\n\n"
        f"| strategies | summary |\n|---|---|\n{rows}\n"
    )


def _strategy(file: str, names: list[str]) -> str:
    module = f"{STRATEGIES}.{file}"
    functions = "\n".join(f"::: {module}.{name}\n" for name in names)
    measured = (
        "## Costs and results\n\nData, settings and selection rules stand where the links lead.\n\n"
        f"{measured_rows(file)}"
    )
    return f"# {escaped(title(file))}\n\n{escaped(_docstring(file))}\n\n{functions}\n{measured}"


def _tutorials() -> Iterator[tuple[str, str | bytes]]:
    """Yield the pages and pictures of the tutorials, which run in the root as by `python FILE`.

    Raises:
      CellExecutionError: a cell fails, or a claim of the text does not hold.
    """
    exporter = MarkdownExporter(preprocessors=[CoalesceStreamsPreprocessor])
    for source in sorted(TUTORIALS.glob("*.py")):
        notebook = jupytext.read(source)
        NotebookClient(
            notebook,
            timeout=SECONDS,
            kernel_name="python3",
            resources={"metadata": {"path": str(ROOT)}},
        ).execute()
        # Cells with this tag check what the text says of the numbers.
        cells = notebook.cells
        notebook.cells = [cell for cell in cells if "check" not in cell.metadata.get("tags", ())]
        for cell in notebook.cells:
            if cell.cell_type == "code":
                # Progress and warnings of libraries about the machine are left out.
                cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
        keys = {"unique_key": source.stem, "output_files_dir": f"{source.stem}_files"}
        text, resources = exporter.from_notebook_node(notebook, keys)
        file = source.relative_to(ROOT)
        yield f"tutorials/{source.stem}.md", f"{text}\n\nThis page is the output of `{file}`.\n"
        for name, content in resources["outputs"].items():
            yield f"tutorials/{name}", content


def _docstring(file: str) -> str:
    return inspect.getdoc(importlib.import_module(f"{STRATEGIES}.{file}"))
