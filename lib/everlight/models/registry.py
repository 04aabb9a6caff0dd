"""Registry of networks: the rows that the files of `models` declare as `NETWORKS`.

A new network is one file in that package. `--net`, its help, documentation and contract tests read
the rows.
"""

import functools

from everlight import models
from everlight.calls import parse_call
from everlight.checks import checked
from everlight.declared_rows import declared_rows
from everlight.errors import ArgumentError
from everlight.models.network import NamedNetwork, Network, NetworkRequest

MOST = 100_000
"""Largest number of units, channels or blocks; compilers fail on larger ones."""


@functools.cache
def networks() -> dict[str, NamedNetwork]:
    """Return all networks by name.

    The files are imported when it is called first, since some import packages that need `models`.
    """
    return declared_rows((models,), "NETWORKS")


@checked
def named_network(text: str, request: NetworkRequest) -> Network:
    """Return a network by its name.

    Args:
      text: a name of `networks()`, with numbers after a colon, as in mlp:256,256; its row has their
        meaning.
      request: sizes and dtype that it is made for.

    Raises:
      ValueError: there is no such network, it takes other numbers, or the request has an option of
        another network.
    """
    name, numbers, options = parse_call(text)
    if name not in networks():
        raise ArgumentError(f"no network {name!r}; there are {', '.join(networks())}")
    row = networks()[name]
    is_valid = all(type(number) is int and 0 < number <= MOST for number in numbers)
    if options or not is_valid or len(numbers) not in row.counts:
        allowed = " or ".join(map(str, row.counts))
        form = f"{allowed} whole numbers from 1 to {MOST:,}, as in {row.form}"
        raise ArgumentError(f"{name} takes {form if row.example else 'no numbers'}")
    for option in ("dropout", "remat"):
        if getattr(request, option) and option not in row.options:
            owners = [other.name for other in networks().values() if option in other.options]
            raise ArgumentError(f"{option} is for {' and '.join(owners)}, not {name}; leave it out")
    network, dtype = row.make(numbers, request), request.dtype
    below = "" if dtype == "float32" else f", computed in {dtype} below its head"
    return network._replace(note=network.note + below, classes=request.classes)
