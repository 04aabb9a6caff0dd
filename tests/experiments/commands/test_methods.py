"""The command `everlight methods` has the rows of the list of methods."""

import re

from everlight.continual.methods.method_list import method_rows
from everlight.continual.methods.registry import METHODS
from everlight_experiments import cli


def test_the_command_prints_the_rows_of_the_list(capsys):
    cli.main(["methods"])
    listed, grids = capsys.readouterr().out.split("\n\n")
    lines = listed.splitlines()
    assert len(lines) == 1 + len(METHODS)
    assert "SI=0.01,0.1,1,10,100" in grids
    cells = [tuple(re.split(" {2,}", line)) for line in lines[1:]]
    described = [(*row, METHODS[row.name].summary) for row in method_rows()]
    assert cells == [tuple(filter(None, row)) for row in described]
