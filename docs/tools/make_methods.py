"""Write `docs/pages/methods.md`: the methods that `everlight methods` prints, and the networks.

python -m docs.tools.make_methods
"""

from pathlib import Path

from docs.tools.measured import STRATEGIES, pages_of_methods
from everlight.continual.methods.method_list import MethodRow, method_rows
from everlight.continual.methods.registry import METHODS, ORDER
from everlight.models import networks

PAGE = Path(__file__).parents[1] / "pages" / "methods.md"
HEAD = """# Methods

All {count} methods by the names that `--methods` takes, written by
`python -m docs.tools.make_methods`; `everlight methods` prints the same table. A name leads to the
method's file, or on the site to its page with equations, source and measured rows.

- **Keeps**: data of earlier tasks that are kept between tasks. Samples are the content of a memory,
  or all; an old net is weights of an earlier network or an average of networks; statistics are
  numbers such as importances, class means, projections and masks.
- **Applies to**: requirements of the benchmark or network. Own classes: every task brings new
  classes. Pretrained features: the method trains or computes a head over features of a frozen
  network, or over the inputs. Other words are in [the glossary](glossary.md).
- **In --methods all only with** these benchmarks or layers: elsewhere `all` leaves the method out,
  and `--methods` runs it by its name. It reproduces a paper's results on these benchmarks, or is
  made for pretrained layers (`--pretrained` or `--features`).
- **See**: [Official code](official_code.md) says where the method equals its authors' code; the
  other links lead to the first table of each page that has a measured row of it.

| method | what it is | paper | keeps | applies to | see |
|---|---|---|---|---|---|
"""
LABELS = {
    "avalanche": "Avalanche",
    "core50": "CORe50",
    "fashion_mnist": "Fashion-MNIST",
    "iirc": "IIRC",
    "mnist_streams": "MNIST streams",
    "networks": "pretrained transformer",
    "runner": "features",
}
"""Texts of links to pages, by file; other pages have the file's name."""
NETWORKS = """
## Networks

Networks by the names that `--net` takes, with numbers after a colon. [Networks](guide/networks.md)
says how to give one of your own.

| network | numbers |
|---|---|
"""


def render() -> str:
    """Return the text of the page."""
    pages = pages_of_methods()
    head = HEAD.format(count=len(METHODS))
    methods = [_line(row, pages[row.name]) for row in method_rows()]
    nets = [f"| `{row.form}` | {row.meaning} |\n" for row in networks().values()]
    return "".join([head, *methods, NETWORKS, *nets])


def _line(row: MethodRow, pages: dict[str, str]) -> str:
    method = METHODS[row.name]
    file = method.factory.__module__.removeprefix(f"{STRATEGIES}.")
    name = row.name.replace("*", r"\*")
    link = f"[{name}](../../lib/everlight/continual/strategies/{file.replace('.', '/')}.py)"
    paper = f"{row.paper} {row.year}".strip() or "–"
    links = [f"[official code](official_code.md#{file})"] if file in ORDER else []
    links += [f"[{_label(page)}]({target})" for page, target in pages.items()]
    cells = (link, method.summary, paper, row.keeps, row.applies, ", ".join(links) or "–")
    return f"| {' | '.join(cells)} |\n"


def _label(page: str) -> str:
    stem = Path(page).stem
    return LABELS.get(stem, stem.replace("_", " "))


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
