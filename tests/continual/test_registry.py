"""The registry finds the rows of every file of strategies."""

from types import ModuleType

import pytest

from everlight.continual import registry, strategies
from everlight.continual.method import Method, Source
from everlight.continual.strategies.naive import naive

ROW = Method(naive, lambda needs: {}, Source(""))
FILE = """
from everlight.continual.method import Method, Source
from everlight.continual.strategies.naive import naive

METHODS = {"NAME": Method(naive, lambda needs: {}, Source(""))}
"""


def module_with(name, **rows):
    module = ModuleType(name)
    module.METHODS = rows
    return module


def test_the_order_of_tables_names_files_that_exist_once():
    modules = [module.__name__.rpartition(".")[2] for module in registry.strategy_modules()]
    assert len({*registry.ORDER}) == len(registry.ORDER)
    assert tuple(modules[: len(registry.ORDER)]) == registry.ORDER


def test_new_files_come_last_by_name_and_need_no_other_change(tmp_path, monkeypatch):
    before = list(registry.METHODS)
    for name in ("zebra", "aardvark"):
        (tmp_path / f"{name}.py").write_text(FILE.replace("NAME", f"the {name}"))
    monkeypatch.setattr(strategies, "__path__", [*strategies.__path__, str(tmp_path)])
    modules = registry.strategy_modules()
    later = [module.__name__ for module in modules[len(registry.ORDER) :]]
    assert later == sorted(later)
    methods = registry.collect_methods(modules)
    assert [name for name in methods if name not in before] == ["the aardvark", "the zebra"]
    assert methods["the zebra"].name == "the zebra"


def test_a_name_that_two_files_declare_is_refused_with_both():
    modules = [module_with("a.first", one=ROW, two=ROW), module_with("a.second", two=ROW)]
    with pytest.raises(ValueError, match=r"^a\.first and a\.second both declare 'two'$"):
        registry.collect_methods(modules)
