"""Networks by name: rows of files, their sizes, their heads, and what is refused."""

from typing import get_args

import pytest

from everlight.continual.training.adapted_net import check_outputs
from everlight.models import NetworkRequest, named_network, networks
from everlight.models.heads import HeadKind

REQUEST = NetworkRequest(10, 8)


@pytest.mark.parametrize("name", networks())
def test_rows_describe_their_network(name):
    """Layers and heads that it declares are those that a trace finds."""
    row = networks()[name]
    assert len(row.example) in row.counts
    assert bool(row.example) == (max(row.counts) > 0)
    assert {*row.options} <= {"dropout", "remat"}
    net = named_network(row.form, NetworkRequest(3, 32))
    for head in get_args(HeadKind) if net.has_head_kinds else ("linear",):
        layers = check_outputs(net.make(head), (32, 32, 3), 3)
        assert layers.head == (net.named and head == "linear")
        assert head != "linear" or net.layers in ((), layers.hidden)


@pytest.mark.parametrize(
    ("text", "side", "expected"),
    [
        ("mlp:5,4", 8, {"hidden": (5, 4)}),
        ("mlp-layer-norm:5", 8, {"layer_norm": True, "crelu": False}),
        ("mlp-crelu:5", 8, {"layer_norm": False, "crelu": True}),
        ("linear", 8, {"hidden": ()}),
        ("cnn", 16, {"channels": (16, 32), "hidden": 64}),
        ("cnn", 32, {"channels": (16, 32, 64), "hidden": 128}),
        ("cnn:8,16,32", 32, {"channels": (8, 16), "hidden": 32}),
        ("small-cnn:4,8,16", 16, {"channels": (4, 8), "dropout": (0.25, 0.25, 0.5)}),
        ("resnet", 32, {"blocks": 5}),
        ("resnet:1", 32, {"blocks": 1}),
        ("resnet50", 64, {"remat": False}),
    ],
)
def test_a_name_gives_a_network_of_its_sizes(text, side, expected):
    result = named_network(text, NetworkRequest(10, side))
    assert {name: getattr(result.shape, name) for name in expected} == expected
    assert (result.classes, result.shape.classes) == (10, 10)


def test_the_head_is_what_a_method_requires():
    """Features keep their sign before a cosine head."""
    net = named_network("mlp:5", REQUEST)
    assert net.make("linear").last_relu
    cosine = net.make("cosine")
    assert (cosine.head, cosine.last_relu) == ("cosine", False)
    proxies = net.make("local similarity")
    assert (proxies.head, proxies.last_relu) == ("local similarity", False)
    assert net.layers == ("hidden1",)
    # Units of a normalized layer cannot be masked one by one.
    assert named_network("mlp-layer-norm:5", REQUEST).layers == ()
    assert named_network("mlp-crelu:5", REQUEST).layers == ("hidden1",)
    unnamed = named_network("small-cnn", REQUEST)
    assert unnamed.make("cosine") is unnamed.shape


def test_the_note_has_the_dtype_of_computation():
    note = named_network("resnet:1", NetworkRequest(10, 32, "bfloat16")).note
    assert note == "reduced ResNet of 8 layers, computed in bfloat16 below its head"


@pytest.mark.parametrize(
    ("text", "request_", "message"),
    [
        ("mpl:8", REQUEST, "no network 'mpl'; there are mlp"),
        ("mlp", REQUEST, "mlp takes 1 or 2"),
        ("mlp:0", REQUEST, "whole numbers from 1 to 100,000"),
        ("mlp:1.5", REQUEST, "whole numbers from 1 to 100,000"),
        ("mlp:" + "9" * 30, REQUEST, "whole numbers from 1 to 100,000"),
        ("resnet:1,2", REQUEST, "takes 0 or 1 whole numbers from 1 to 100,000, as in resnet:1$"),
        ("linear:3", REQUEST, "^linear takes no numbers$"),
        ("mlp:8", REQUEST._replace(dropout=(0.1,)), "dropout is for small-cnn, not mlp"),
        ("small-cnn", REQUEST._replace(dropout=(0.1,)), "dropout 0.1; give 3 values"),
        ("mlp:8", REQUEST._replace(remat=True), "^remat is for resnet50, not mlp; leave it out$"),
    ],
)
def test_other_names_and_numbers_are_refused(text, request_, message):
    with pytest.raises(ValueError, match=message):
        named_network(text, request_)
