"""Pages of the site that are made while it is built, so that nothing is written twice.

The first page is README.md. A page a strategy shows its file's docstring, where equation and paper
stand, and what the tables of other pages say of it; a page a folder of the library shows the
docstring of every public name. Tutorials are run and shown with their output.
"""

import importlib
import inspect
import posixpath
import re
from collections.abc import Iterator

import jupytext
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from nbclient import NotebookClient
from nbconvert import MarkdownExporter
from nbconvert.preprocessors import CoalesceStreamsPreprocessor

from docs.tools.docstrings import escaped
from docs.tools.make_api import PARTS, ROOMS, made_of
from docs.tools.measured import ROOT, STRATEGIES, measured_of, with_sources

TUTORIALS = ROOT / "docs" / "pages" / "tutorials"
SECONDS = 600
"""That a cell of a tutorial may take on a busy machine."""
ROOT_PAGES = {
    "index.md": "README.md",
    "changelog.md": "CHANGELOG.md",
    "contributing.md": "CONTRIBUTING.md",
    "security.md": "SECURITY.md",
    "build_notes.md": "BUILD_NOTES.md",
}


def strategies() -> dict[str, list[str]]:
    """Files of `continual.strategies` that hold strategies, and the names of these."""
    package = importlib.import_module(STRATEGIES)
    by_file: dict[str, list[str]] = {}
    for name in package.__all__:
        file = getattr(package, name).__module__.removeprefix(f"{STRATEGIES}.")
        by_file.setdefault(file, []).append(name)
    return dict(sorted(by_file.items()))


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Adds the made pages to the navigation."""
    config.nav += [
        {
            "Strategies": [
                "strategies/index.md",
                *(f"strategies/{file}.md" for file in strategies()),
            ]
        },
        {
            "API": [
                {"Public names": "api.md"},
                *({f"everlight.{room}": f"api/{room}.md"} for room in ROOMS),
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
    """Adds the made pages."""
    pages = {page: _from_root(source) for page, source in ROOT_PAGES.items()}
    pages |= {f"api/{room}.md": _room(room) for room in ROOMS}
    pages["api/strategy_parts.md"] = _parts()
    pages["strategies/index.md"] = _list_of_strategies()
    pages |= {
        f"strategies/{file}.md": _strategy(file, names) for file, names in strategies().items()
    }
    for path, content in (*pages.items(), *_tutorials()):
        files.append(File.generated(config, path, content=content))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Makes links of the list of public names, and those of other pages to what they show; says
    below measured tables what made them."""
    if page.file.src_uri != "api.md":
        source = ROOT_PAGES.get(page.file.src_uri, page.file.src_uri)
        return to_made_pages(with_sources(markdown, source), page.file.src_uri)
    paths = {f"{STRATEGIES}.{part}.{name}": name for part in PARTS for name in made_of(part)}
    for room in ROOMS:
        paths |= {path: name for name, path in _paths(room).items()}
    for path, name in paths.items():
        markdown = markdown.replace(f"\n| `{name}` |", f"\n| [`{name}`][{path}] |")
    return markdown


def to_made_pages(markdown: str, page: str) -> str:
    """A page's text whose links to files of the project, as who reads the files follows them, lead
    to the pages that are made of these.

    Args:
      markdown: of the page.
      page: its path below docs.
    """
    library = "lib/everlight"
    made = {source: target for target, source in ROOT_PAGES.items()}
    made |= {f"{library}/{room}/__init__.py": f"api/{room}.md" for room in ROOMS}
    made[f"{library}/continual/strategies/__init__.py"] = "strategies/index.md"
    for file in strategies():
        source = file.replace(".", "/")
        made[f"{library}/continual/strategies/{source}.py"] = f"strategies/{file}.md"
    for source in TUTORIALS.glob("*.py"):
        made[f"docs/pages/tutorials/{source.name}"] = f"tutorials/{source.stem}.md"
    here = posixpath.dirname(page)

    def lead(link: re.Match) -> str:
        target = made.get(posixpath.normpath(posixpath.join("docs", here, link[1])))
        return link[0] if target is None else f"]({posixpath.relpath(target, here or '.')}"

    return re.sub(r"\]\(([^)#\s]+)", lead, markdown)


def _from_root(source: str) -> str:
    """A file of the root, its links as they are from the site's first page."""
    text = (ROOT / source).read_text(encoding="utf-8").replace("](docs/", "](")
    for page, file in ROOT_PAGES.items():
        text = text.replace(f"]({file}", f"]({page}")
    text = re.sub(r"\]\((tutorials/\w+)\.py\)", r"](\1.md)", text)
    # What is no page of the site stays a name.
    return re.sub(r"\[([^\]]+)\]\((?:CITATION\.cff|LICENSE)\)", r"`\1`", text)


def _room(room: str) -> str:
    module = importlib.import_module(f"everlight.{room}")
    title = f"# everlight.{room}\n\n{inspect.cleandoc(module.__doc__)}\n\n"
    if room == "continual":
        title += "Strategies have [pages of their own](../strategies/index.md).\n\n"
    factories = set().union(*strategies().values())
    paths = [
        path
        for name, path in _paths(room).items()
        if not (path.startswith(STRATEGIES) and name in factories)
    ]
    return title + "\n".join(f"::: {path}\n" for path in paths)


def _paths(room: str) -> dict[str, str]:
    """Where each public name is defined, since a file may have its function's name."""
    module = importlib.import_module(f"everlight.{room}")
    paths = {}
    for name in module.__all__:
        home = getattr(getattr(module, name), "__module__", "")
        defined = home.startswith("everlight.") and name in vars(importlib.import_module(home))
        paths[name] = f"{home if defined else module.__name__}.{name}"
    return paths


def _parts() -> str:
    text = "# What strategies are made of\n"
    with_page = set().union(*strategies().values())
    for part in PARTS:
        text += f"\n## {part}\n\n{escaped(_docstring(part))}\n\n"
        names = [name for name in made_of(part) if name not in with_page]
        text += "\n".join(f"::: {STRATEGIES}.{part}.{name}\n" for name in names)
    return text


def _list_of_strategies() -> str:
    rows = "\n".join(
        f"| [{', '.join(names)}]({file}.md) | {_docstring(file).splitlines()[0]} |"
        for file, names in strategies().items()
    )
    return (
        "# Strategies\n\nOne file each in `lib/everlight/continual/strategies`; equations and "
        "citations are its docstring's.\n[A strategy of your own](../guide/strategy.md) says how "
        "one is added; [Results](../results/index.md) has their accuracies.\n\n"
        f"| name | what |\n|---|---|\n{rows}\n"
    )


def _strategy(file: str, names: list[str]) -> str:
    module = f"{STRATEGIES}.{file}"
    functions = "\n".join(f"::: {module}.{name}\n" for name in names)
    measured = (
        "## Costs and results\n\nData, settings and selection rules stand where the links lead.\n\n"
        f"{measured_of(file)}"
    )
    return f"# {', '.join(names)}\n\n{escaped(_docstring(file))}\n\n{functions}\n{measured}"


def _tutorials() -> Iterator[tuple[str, str | bytes]]:
    """Pages and pictures of the tutorials, run from the root as `python FILE` would.

    Raises:
      CellExecutionError: one fails.
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
        for cell in notebook.cells:
            if cell.cell_type == "code":
                # Not progress, and what libraries have to say of the machine.
                cell.outputs = [output for output in cell.outputs if output.get("name") != "stderr"]
        keys = {"unique_key": source.stem, "output_files_dir": f"{source.stem}_files"}
        text, made = exporter.from_notebook_node(notebook, keys)
        file = source.relative_to(ROOT)
        yield f"tutorials/{source.stem}.md", f"{text}\n\nThis page is what `{file}` gives.\n"
        for name, content in made["outputs"].items():
            yield f"tutorials/{name}", content


def _docstring(file: str) -> str:
    return inspect.getdoc(importlib.import_module(f"{STRATEGIES}.{file}"))
