"""Write `docs/pages/methods.md`: the methods that `everlight methods` prints, and the networks.

python -m docs.tools.make_methods
"""

from pathlib import Path

from everlight.continual.methods.method_list import method_rows
from everlight.models import networks

PAGE = Path(__file__).parents[1] / "pages" / "methods.md"
HEAD = """# Methods

All methods by the names that `--methods` takes, written by `python -m docs.tools.make_methods`;
`everlight methods` prints the same table. [Official code](official_code.md) says where they equal
their authors' code, [Costs](costs.md) what a step takes.

- **Keeps**: data of earlier tasks that are kept between tasks. Samples are the content of a memory,
  or all; an old net is weights of an earlier network or an average of networks; statistics are
  numbers such as importances, class means, projections and masks.
- **Applies to**: requirements of the benchmark or network. Own classes: every task brings new
  classes. Pretrained features: the method trains or computes a head over features of a frozen
  network, or over the inputs. Other words are in [the glossary](glossary.md).
- **In --methods all only with** these benchmarks or layers: elsewhere `all` leaves the method out,
  and `--methods` runs it by its name. It reproduces a paper's results on these benchmarks, or is
  made for pretrained layers (`--pretrained` or `--features`).

| method | year | paper | keeps | applies to |
|---|---|---|---|---|
"""
NETWORKS = """
## Networks

Networks by the names that `--net` takes, with numbers after a colon. [Networks](guide/networks.md)
says how to give one of your own.

| network | numbers |
|---|---|
"""


def render() -> str:
    """Return the text of the page."""
    methods = [f"| {' | '.join(row)} |\n" for row in method_rows()]
    nets = [f"| `{row.form}` | {row.meaning} |\n" for row in networks().values()]
    return "".join([HEAD, *methods, NETWORKS, *nets])


if __name__ == "__main__":
    PAGE.write_text(render(), encoding="utf-8")
