"""Variants of methods that store samples: further rows, which the registry does not have."""

import functools
from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple, get_args

from everlight.base import Setup, Strategy
from everlight.continual.methods.method import Method, Requirement
from everlight.continual.strategies.parts.replay_tricks import (
    predict_by_nearest_mean,
    review_memory,
)

VariantName = Literal["nearest-mean", "review"]


class Variant(NamedTuple):
    """A change of any strategy that stores samples."""

    change: Callable[[Setup, Strategy], Strategy]
    meaning: str
    requirements: tuple[Requirement, ...] = ()


VARIANTS: dict[VariantName, Variant] = {
    "nearest-mean": Variant(
        predict_by_nearest_mean,
        "predicting by the nearest mean of stored samples",
        ("class scores", "one label"),
    ),
    "review": Variant(review_memory, "trained on its memory before every evaluation"),
}
assert tuple(VARIANTS) == get_args(VariantName)


def with_variants(methods: Sequence[Method], names: Sequence[VariantName]) -> list[Method]:
    """Return the methods, before its variants each that has some."""
    rows = []
    for method in methods:
        rows.append(method)
        rows += [_variant(method, name) for name in names if has_variant(method, name)]
    return rows


def has_variant(method: Method, name: VariantName) -> bool:
    """Return True if the method stores samples and predicts by the head of the trained network.

    Stored outputs of a layer are no samples. A review needs more: the usual loss must train the
    network that predicts. An average of networks, or a fixed head that the setup lacks, has none.
    """
    other = method.nearest_mean or method.extends_network
    stores = method.stores_samples and not other and "layer outputs" not in method.requirements
    return stores and (method.has_review or name != "review")


def _variant(method: Method, name: VariantName) -> Method:
    variant = VARIANTS[name]
    return method._replace(
        name=f"{method.name}, {name}",
        factory=_make_variant(method.factory, name),
        requirements=tuple(dict.fromkeys((*method.requirements, *variant.requirements))),
        summary=f"{method.summary}; {variant.meaning}",
    )


@functools.cache
def _make_variant(factory: Callable[..., Strategy], name: VariantName) -> Callable[..., Strategy]:
    """Return the factory of a variant, one object per factory, so that equal rows stay equal."""

    @functools.wraps(factory)
    def make(setup: Setup, **arguments: Any) -> Strategy:
        return VARIANTS[name].change(setup, factory(setup, **arguments))

    return make
