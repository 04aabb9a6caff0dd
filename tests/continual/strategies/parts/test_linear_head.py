"""The linear head of a network, and which heads are refused."""

import jax.numpy as jnp

from everlight.continual.strategies.parts.linear_head import linear_head
from tests.refusals import refused

HEAD = {"kernel": jnp.ones((2, 3))}


def test_a_head_without_a_name_or_a_kernel_and_one_of_cosines_are_refused():
    assert linear_head({"hidden": {}, "head": HEAD}, "M") is HEAD
    name = "^the parameters are {}; name the network's last layer head, whose weights are kernel, "
    refused(name.format("hidden, out"), lambda: linear_head({"hidden": {}, "out": HEAD}, "M"))
    refused(name.format("head"), lambda: linear_head({"head": {"weights": 1}}, "M"))
    cosines = {"head": {**HEAD, "scale": 1.0}}
    message = "^the head computes cosines; M needs a linear layer named head$"
    refused(message, lambda: linear_head(cosines, "M"))
