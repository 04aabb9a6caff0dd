"""Objects of a user's files: what is refused, and with which words."""

import sys
import zlib

import jax
import pytest
from flax import nnx

from everlight_data.errors import DataError, MissingDataError
from everlight_data.user_code.objects import load_network, load_object
from tests.refusals import refused


def test_an_object_of_a_file_comes_with_its_module_and_the_file_s_checksum(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from dataclasses import dataclass\n\n@dataclass\nclass Net:\n    width: int = 3\n"
    )
    result = load_object(f"{path}:Net", "--net", "give FILE.py:NAME")
    assert result.value().width == 3
    assert result.module.Net is result.value
    path.write_text(path.read_text().replace("3", "4"))
    again = load_object(f"{path}:Net", "--net", "give FILE.py:NAME")
    assert again.value().width == 4
    assert again.version != result.version


@pytest.mark.parametrize(
    ("content", "requested", "kind", "message"),
    [
        ("a = 1", "mine.py", DataError, r"^--net 'mine\.py'; give FILE"),
        ("a = 1", "mine.py:1", DataError, r"^--net 'mine\.py:1'; give FILE"),
        ("a = 1", "other.py:a", MissingDataError, r"other\.py does not exist. For --net give FILE"),
        ("small = 1", "mine.py:smal", DataError, r"has no 'smal'; did you mean 'small'"),
        ("1 / 0", "mine.py:a", DataError, r"cannot be run \(Zero.*\); correct the file"),
    ],
)
def test_missing_objects_of_a_file_are_named(
    tmp_path, monkeypatch, content, requested, kind, message
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(content)
    with pytest.raises(kind, match=message):
        load_object(requested, "--net", "give FILE.py:NAME")


NETS = """
import flax.linen as nn
from flax import nnx

class Dense(nn.Dense):
    def __call__(self, images, train):
        return super().__call__(images)

def linen(classes):
    return Dense(classes)

def wide(classes):
    return Dense(classes + 3)

class Nnx(nnx.Module):
    def __init__(self, classes, rngs):
        self.head = nnx.Linear(3, classes, rngs=rngs)

    def __call__(self, images):
        return self.head(images)

def equinox(classes, key):
    import equinox as eqx
    return eqx.nn.Linear(3, classes, key=key)

class Leaving(nn.Module):
    @nn.compact
    def __call__(self, images, train):
        raise SystemExit(3)

def leaving(classes):
    return Leaving()

def nothing(classes):
    return classes

def no_nnx(classes, rngs):
    return nn.Dense(classes)

def failing(classes, rngs):
    return 1 / 0
"""


@pytest.fixture
def nets(tmp_path):
    (tmp_path / "nets.py").write_text(NETS)
    return tmp_path / "nets.py"


def test_networks_of_a_file_are_linen_modules_or_functions(nets):
    result = load_network(f"{nets}:linen", "--net", 5, (3,))
    created = result.make("linear")
    assert (type(created).__name__, created.features) == ("Dense", 5)
    assert result[1:-1] == ("linen of nets.py", (), False, 5)
    assert result.version == f"{zlib.crc32(nets.read_bytes()):08x}"
    created = load_network(f"{nets}:Nnx", "--net", 5, (3,)).make("linear")(rngs=nnx.Rngs(0))
    assert created.head.kernel.shape == (3, 5)


def test_an_equinox_network_of_a_file_is_a_function_of_the_key(nets):
    pytest.importorskip("equinox", reason="Equinox is not installed (the extra equinox)")
    make = load_network(f"{nets}:equinox", "--net", 5, (3,)).make("linear")
    assert make(key=jax.random.key(0)).weight.shape == (5, 3)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nothing", r"nothing cannot be built \(TypeError: it returned int\); give FILE.py:NAME"),
        ("no_nnx", r"no_nnx: net .*\(ArgumentError: the function of rngs returned Dense; give"),
        ("failing", r"\(ZeroDivisionError: division by zero\)"),
        (
            "wide",
            r"nets.py:wide: net returns outputs of shape \(2, 8\) for 2 images of 5 classes; give "
            r"one whose logits have the shape \(2, 5\)",
        ),
        ("leaving", r"nets.py:leaving ends the process \(3\); give FILE.py:NAME, a function"),
    ],
)
def test_other_objects_of_a_file_than_networks_are_named(nets, name, message):
    refused(message, lambda: load_network(f"{nets}:{name}", "--net", 5, (3,)), DataError)


def test_a_network_of_equinox_without_the_package_names_the_extra(nets, monkeypatch):
    monkeypatch.setitem(sys.modules, "equinox", None)
    with pytest.raises(DataError, match=r"pip install 'everlight\[equinox\]'"):
        load_network(f"{nets}:equinox", "--net", 5, (3,))
