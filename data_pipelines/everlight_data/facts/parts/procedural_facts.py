"""Facts of the procedural world, which need no data."""

import numpy as np
from jaxtyping import Int

from everlight_data.errors import DataError
from everlight_data.facts.parts.boxes import AnnotatedScenes, BoxedFacts, Relations, boxed_facts
from everlight_data.facts.parts.fact_renderer import FILLING_SHAPES

PREDICATES = ("left of", "above", "inside", "larger than")
"""Predicates of the procedural world; every layout satisfies exactly one."""


def procedural_facts(train: int, test: int, seed: int = 0) -> BoxedFacts:
    """Return facts of the procedural world: shapes in layouts, such as <disc, inside, star>.

    A scene shows two of nine shapes in one of four relations. The 288 triples are sampled in
    proportion to 1, 1/2, 1/3, ... in an order that depends on the seed, so facts are long-tailed.
    All predicates count as actions: a scene gives one <S,P,O>, one <S,P,*> and two <S,*,*>. These
    facts alone support no claim: their difficulty was chosen.

    Args:
      train: number of training scenes; more scenes leave the earlier ones unchanged.
      test: number of test scenes.
      seed: random seed of all choices.

    Raises:
      DataError: `train` or `test` is below 1.
    """
    if train < 1 or test < 1:
        raise DataError(f"train={train}, test={test}; give at least 1 scene for each")
    kinds, predicates = np.arange(len(FILLING_SHAPES)), np.arange(len(PREDICATES))
    triples = np.stack(np.meshgrid(kinds, predicates, kinds), axis=-1).reshape(-1, 3)
    triples = triples[triples[:, 0] != triples[:, 2]]
    triples = np.random.default_rng(seed).permutation(triples)
    parts = [
        _procedural_scenes(f"procedural {seed} {part}", triples, count, np.random.default_rng(key))
        for part, count, key in (("train", train, (seed, 0)), ("test", test, (seed, 1)))
    ]
    return boxed_facts("procedural world", FILLING_SHAPES, PREDICATES, PREDICATES, *parts)


def _procedural_scenes(
    name: str, triples: Int[np.ndarray, "f 3"], count: int, generator: np.random.Generator
) -> Relations:
    """Return scenes of two objects, the subject first, within about 256 pixels."""
    chances = np.cumsum(1 / np.arange(1, len(triples) + 1))
    drawn = generator.random((count, 8))
    subject, predicate, other = triples[np.searchsorted(chances / chances[-1], drawn[:, 0])].T
    # Half heights and widths: alike, alike, a third, and twice to thrice the other's.
    size = np.choose(predicate, [1.0, 1.0, 0.3 + 0.15 * drawn[:, 1], 2.0 + drawn[:, 1]])[:, None]
    half = np.choose(predicate, [40, 40, 75, 30])[:, None] * (0.85 + 0.3 * drawn[:, 2:4])
    subject_half = half * size * (0.9 + 0.2 * drawn[:, 4:6])
    aside, sign = drawn[:, 6:8] - 0.5, np.sign(drawn[:, 6:8] - 0.5)
    apart = (subject_half + half) * (1.05 + 0.3 * drawn[:, 1:2])
    offset = np.choose(
        predicate[:, None],
        [
            np.stack([40 * aside[:, 0], -apart[:, 1]], axis=1),
            np.stack([-apart[:, 0], 40 * aside[:, 1]], axis=1),
            1.8 * aside * (half - subject_half),
            sign * apart,
        ],
    )
    centers = np.stack([offset, 0 * offset], axis=1) + 128
    halves = np.stack([subject_half, half], axis=1)
    box = np.stack([centers - halves, centers + halves], axis=-1).reshape(-1, 4)
    rows = 2 * np.arange(count)
    scenes = AnnotatedScenes(
        tuple(f"{name} {i}" for i in range(count)),
        np.repeat(np.arange(count), 2),
        np.stack([subject, other], axis=1).reshape(-1),
        np.rint(box).astype(np.int32),
    )
    return Relations(scenes, np.stack([rows, predicate, rows + 1], axis=1))
