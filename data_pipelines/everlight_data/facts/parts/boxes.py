"""Facts with bounding boxes: annotated scenes, the samples in them, and the boxes' geometry."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from everlight_data.facts.parts.split_files import Fact, FactSamples, FactSet

MARGIN = 0.1
"""Margin on every side of a sample's square, as a fraction of its boxes' longer side."""


class AnnotatedScenes(NamedTuple):
    """All annotated objects of a set of images, sorted by image."""

    images: tuple[str, ...]
    """Names of the images, including those without objects."""
    image: Int[np.ndarray, "m"]
    """Index in `images` of each object's image, ascending."""
    category: Int[np.ndarray, "m"]
    box: Int[np.ndarray, "m 4"]
    """Edges [ymin, ymax, xmin, xmax] in pixels; the height is ymax - ymin."""


class BoxedSamples(NamedTuple):
    """Subject and object of each sample, as rows of `scenes`."""

    scenes: AnnotatedScenes
    subject: Int[np.ndarray, "n"]
    other: Int[np.ndarray, "n"]
    """Row of the object, also if the fact leaves it undefined, as in <S,P,*>; -1 for <S,*,*>."""

    def take(self, samples: Int[np.ndarray, "k"]) -> "BoxedSamples":
        """Return some of the samples, by their numbers."""
        return self._replace(subject=self.subject[samples], other=self.other[samples])


class BoxedFacts(NamedTuple):
    """Facts with the boxes of their samples, in the same order as `facts`."""

    facts: FactSet
    categories: tuple[str, ...]
    """Names of the object categories."""
    train: BoxedSamples
    test: BoxedSamples


class Relations(NamedTuple):
    """Annotated scenes and their relations: subject, predicate, object; the outer two are rows of
    `scenes`."""

    scenes: AnnotatedScenes
    rows: Int[np.ndarray, "r 3"]


def squares(samples: BoxedSamples) -> Float[np.ndarray, "n 4"]:
    """Return each sample's square: [ymin, ymax, xmin, xmax] in pixels, possibly beyond the scene.

    The square surrounds the boxes of subject and object, for <S,*,*> the subject's alone, with a
    margin of 0.1. The shorter side is centred.
    """
    pair = _boxes_of_pair(samples)
    low, high = pair[:, :, [0, 2]].min(axis=0), pair[:, :, [1, 3]].max(axis=0)
    half = (0.5 + MARGIN) * (high - low).max(axis=1, keepdims=True)
    middle = (low + high) / 2
    return np.stack([middle - half, middle + half], axis=-1).reshape(-1, 4)


def box_features(samples: BoxedSamples) -> Float[np.ndarray, "n 13"]:
    """Return the geometry of the boxes, the input of the layout-only baseline.

    The features, in coordinates where the square spans -1 to 1, are:

    - Centre (y, x) and half height and width of the subject, then of the object.
    - Offset of the object's centre in the subject's heights and widths.
    - Logarithms of the object's height and width over the subject's.
    - 1 if there is an object; else 0, like all its features.
    """
    square = squares(samples)[None]
    centers, halves = scale_to_squares(_boxes_of_pair(samples), square)
    offset = (centers[1] - centers[0]) / (2 * halves[0])
    ratio = np.log(halves[1] / halves[0])
    has_other = (samples.other >= 0)[:, None]
    other = np.concatenate([centers[1], halves[1], offset, ratio, has_other], axis=1)
    features = np.concatenate([centers[0], halves[0], other * has_other], axis=1)
    return features.astype(np.float32)


def _boxes_of_pair(samples: BoxedSamples) -> Float[np.ndarray, "2 n 4"]:
    """Return the boxes of subject and object; the subject's twice if it is alone."""
    other = np.where(samples.other < 0, samples.subject, samples.other)
    return samples.scenes.box[np.stack([samples.subject, other])].astype(np.float64)


def scale_to_squares(
    box: Float[np.ndarray, "*n 4"], square: Float[np.ndarray, "*n 4"]
) -> tuple[Float[np.ndarray, "*n 2"], Float[np.ndarray, "*n 2"]]:
    """Return centres and half sizes (y, x) of boxes, in a square that spans -1 to 1."""
    half = (square[..., 1:2] - square[..., 0:1]) / 2
    low, high = (box[..., edges] for edges in ([0, 2], [1, 3]))
    middle = (square[..., [0, 2]] + square[..., [1, 3]]) / 2
    return ((low + high) / 2 - middle) / half, (high - low) / 2 / half


def boxed_facts(
    name: str,
    categories: Sequence[str],
    predicates: Sequence[str],
    actions: Sequence[str],
    train: Relations,
    test: Relations,
) -> BoxedFacts:
    """Return all facts that relations and objects state.

    They are <S,P,O> from every relation, <S,P,*> from every relation with an action predicate, and
    <S,*,*> from every object, in this order. Equal relations stay separate samples. Facts are
    sorted by first sample, training before test.

    Args:
      name: name of the set in reports.
      categories: names of the object categories.
      predicates: names of the predicates.
      actions: predicates that give an <S,P,*>.
      train: relations in the training images.
      test: relations in the test images.
    """
    is_action = np.isin(predicates, actions)
    pieces, samples = zip(*(_draw_samples(part, is_action) for part in (train, test)), strict=True)
    distinct, first, inverse = np.unique(
        np.concatenate(pieces), axis=0, return_index=True, return_inverse=True
    )
    order = np.argsort(first)
    # Place -1 of a table is the undefined piece.
    tables = (categories, (*predicates, ""), (*categories, ""))
    facts = tuple(
        Fact(*(table[place] for table, place in zip(tables, row, strict=True)))
        for row in distinct[order].tolist()
    )
    numbers = np.split(np.argsort(order).astype(np.int32)[inverse], [len(pieces[0])])
    labelled = [
        FactSamples(tuple(part.scenes.images[i] for i in part.scenes.image[part.subject]), fact)
        for part, fact in zip(samples, numbers, strict=True)
    ]
    return BoxedFacts(FactSet(name, facts, *labelled), tuple(categories), *samples)


def _draw_samples(
    relations: Relations, is_action: Bool[np.ndarray, "p"]
) -> tuple[Int[np.ndarray, "n 3"], BoxedSamples]:
    """Return the components of each sample's fact, -1 if undefined, and its boxes."""
    scenes, rows = relations
    subject, predicate, other = rows.T
    category = scenes.category
    triples = np.stack([category[subject], predicate, category[other]], axis=1)
    acting = is_action[predicate]
    pairs = triples[acting] * [1, 1, 0] - [0, 0, 1]
    singles = category[:, None] * [1, 0, 0] - [0, 1, 1]
    everything = np.arange(len(category))
    return np.concatenate([triples, pairs, singles]), BoxedSamples(
        scenes,
        np.concatenate([subject, subject[acting], everything]),
        np.concatenate([other, other[acting], np.full_like(everything, -1)]),
    )
