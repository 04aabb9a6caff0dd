"""Facts with bounding boxes, and those of Visual Relationship Detection (Lu et al. 2016).

VRD's annotations are real, long-tailed facts: 30,355 training and 7,638 test relations between 100
object categories. They come from 4,000 and 1,000 photographs. All are full triples; <S,*,*> and
<S,P,*> are derived from them, as benchmarks of lifelong fact learning mix the three.
"""

import io
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from everlight_data.facts.splits import Fact, FactSamples, FactSet
from everlight_data.facts.word_vectors import load_word_vectors
from everlight_data.formats.files import Archive, opened_archive, parse_json, refusing
from everlight_data.locations import locate
from everlight_data.sets.data_set import DataSet, file_by_file
from everlight_data.sets.preparing import Files, Source, find, npz

SOURCE = "Lu et al. 2016, Visual Relationship Detection with Language Priors (json_dataset)"
ARCHIVE = "vrd_spo_facts/vrd_annotations.zip"
VECTORS = "vrd_word_embeddings.npz"
PARTS = ("train", "test")
# The release's order, in which annotations count. The archive's own `all/predicates.json` has these
# names in another order: with it, "below" would be what is above, and balls would be walked beside.
# fmt: off
PREDICATES = (
    "on", "wear", "has", "next to", "sleep next to", "sit next to", "stand next to", "park next",
    "walk next to", "above", "behind", "stand behind", "sit behind", "park behind",
    "in the front of", "under", "stand under", "sit under", "near", "walk to", "walk",
    "walk past", "in", "below", "beside", "walk beside", "over", "hold", "by", "beneath", "with",
    "on the top of", "on the left of", "on the right of", "sit on", "ride", "carry", "look",
    "stand on", "use", "at", "attach to", "cover", "touch", "watch", "against", "inside",
    "adjacent to", "across", "contain", "drive", "drive on", "taller than", "eat", "park on",
    "lying on", "pull", "talk", "lean on", "fly", "face", "play with", "sleep on", "outside of",
    "rest on", "follow", "hit", "feed", "kick", "skate on",
)
ACTIONS = (
    "sit on", "park on", "walk", "walk to", "skate on", "lean on", "lying on", "rest on",
    "play with", "wear", "hold", "ride", "carry", "look", "use", "cover", "touch", "watch",
    "drive", "eat", "pull", "talk", "fly", "face", "follow", "hit", "feed", "kick",
)
"""Predicates that describe an action of the subject and also give an <S,P,*>."""
# fmt: on
OBJECTS = "all/objects.json"
MAX_BYTES = 100_000_000
"""Limit on the size of a table in the archive; the largest has 4 MB."""
MAX_SIDE = 100_000
"""Limit on a photograph's side in pixels."""
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


def load_vrd() -> BoxedFacts:
    """Load VRD's annotations as facts; the photographs are not needed.

    Each of the 30,355 + 7,638 relations is an <S,P,O>. The 6,074 + 1,460 relations with one of 28
    action predicates are each an <S,P,*> too. The 26,430 + 6,735 distinct objects of all images are
    each an <S,*,*>. Repeated annotations and objects related to themselves are kept. Training has
    6,672 distinct <S,P,O> (3,985 of them seen once), 135 <S,P,*> and 100 <S,*,*>. The test images
    add 1,029, 20 and 0 more.

    Image paths are those of the release's photographs, `sg_train_images/` and `sg_test_images/`.
    With the photographs, `facts.read_images` with `squares` cuts out the samples.

    Raises:
      MissingDataError: `vrd_spo_facts/vrd_annotations.zip` below EVERLIGHT_DATA is missing.
      DataError: the file is damaged or contradicts itself.
    """
    path = locate(ARCHIVE, SOURCE, "0.6 MB")
    remedy = f"Download it again: {SOURCE}."
    with opened_archive(path, remedy) as archive, refusing(path, remedy):
        categories = object_names(archive)
        relations = [
            _relations(part, _read(archive, f"annotations_{part}.json"), len(categories))
            for part in PARTS
        ]
        return boxed_facts("VRD", categories, PREDICATES, ACTIONS, *relations)


def object_names(archive: Archive) -> list[str]:
    """Return the object categories in the order of their annotation numbers.

    Raises:
      DataError: the archive lacks the list.
      TypeError: the content is not a list of names.
    """
    categories = _read(archive, OBJECTS)
    if not isinstance(categories, list) or not all(isinstance(c, str) for c in categories):
        raise TypeError(f"{OBJECTS} is not a list of names")
    return categories


def squares(samples: BoxedSamples) -> Float[np.ndarray, "n 4"]:
    """Return each sample's square: [ymin, ymax, xmin, xmax] in pixels, possibly beyond the scene.

    The square surrounds the boxes of subject and object, for <S,*,*> the subject's alone, with a
    margin of 0.1. The shorter side is centred.
    """
    pair = _pair(samples)
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
    centers, halves = within_squares(_pair(samples), square)
    offset = (centers[1] - centers[0]) / (2 * halves[0])
    ratio = np.log(halves[1] / halves[0])
    has_other = (samples.other >= 0)[:, None]
    other = np.concatenate([centers[1], halves[1], offset, ratio, has_other], axis=1)
    features = np.concatenate([centers[0], halves[0], other * has_other], axis=1)
    return features.astype(np.float32)


def _pair(samples: BoxedSamples) -> Float[np.ndarray, "2 n 4"]:
    """Return the boxes of subject and object; the subject's twice if it is alone."""
    other = np.where(samples.other < 0, samples.subject, samples.other)
    return samples.scenes.box[np.stack([samples.subject, other])].astype(np.float64)


def within_squares(
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
    pieces, samples = zip(*(_samples(part, is_action) for part in (train, test)), strict=True)
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


def _samples(
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


def _read(archive: Archive, name: str) -> Any:
    return parse_json(archive.read(name, MAX_BYTES).decode("utf-8"))


def _relations(part: str, annotations: dict[str, Any], categories: int) -> Relations:
    """Return the relations of all images; equal boxes of a category in an image are one object."""
    rows: dict[tuple[int, ...], int] = {}
    relations = []
    for image, listed in enumerate(annotations.values()):
        for one in listed:
            subject, other = (
                rows.setdefault((image, *_object(role, categories)), len(rows))
                for role in (one["subject"], one["object"])
            )
            relations.append((subject, _place(one["predicate"], len(PREDICATES)), other))
    table = np.array(list(rows), np.int32)
    scenes = AnnotatedScenes(
        tuple(f"sg_{part}_images/{name}" for name in annotations),
        image=table[:, 0],
        category=table[:, 1],
        box=table[:, 2:],
    )
    if (scenes.box[:, [1, 3]] <= scenes.box[:, [0, 2]]).any():
        raise ValueError("a box ends before it begins")
    return Relations(scenes, np.array(relations, np.int32))


def _object(role: dict[str, Any], categories: int) -> tuple[int, ...]:
    """Return category and box of an annotated object."""
    top, bottom, left, right = role["bbox"]
    box = (_place(edge, MAX_SIDE) for edge in (top, bottom, left, right))
    return _place(role["category"], categories), *box


def _place(value: Any, count: int) -> int:
    # A JSON's true, "3" and 1.7 would pass for numbers in an array.
    if type(value) is not int or not 0 <= value < count:
        raise ValueError(f"{value!r} instead of an integer from 0 to {count - 1}")
    return value


def vrd_annotations(source: Source) -> Files:
    """Return the recipe of one zip with both parts' annotations and the object names.

    The release `json_dataset.zip` holds `annotations_train.json`, `annotations_test.json`,
    `objects.json` and `predicates.json`.
    """

    def make() -> bytes:
        predicates = parse_json(source.read(find(source, "predicates.json"), MAX_BYTES))
        if sorted(predicates) != sorted(PREDICATES):
            raise ValueError("predicates.json does not list the 70 predicates of VRD")
        members = {OBJECTS: "objects.json"}
        members |= {name: name for name in (f"annotations_{part}.json" for part in PARTS)}
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w") as archive:
            for name, published in members.items():
                # If every call had its own date, the bytes would differ.
                info = zipfile.ZipInfo(name)
                info.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(info, source.read(find(source, published), MAX_BYTES))
        return stream.getvalue()

    return {Path(ARCHIVE).name: make}


def vrd_vectors(source: Source) -> Files:
    """Return the recipe of unit vectors for the names of objects and predicates.

    A name's vector is the normalized sum of its words' unit vectors. Words without a vector, such
    as "of", are left out. The release is `GoogleNews-vectors-negative300.bin`, compressed with
    gzip.
    """

    def vectors(names: list[str]) -> Float[np.ndarray, "n d"]:
        words = sorted({word for name in names for word in name.split()})
        values = load_word_vectors(source.path, words, unknown="zeros").vectors
        lengths = np.linalg.norm(values, axis=1, keepdims=True)
        unit = dict(zip(words, values / np.where(lengths > 0, lengths, 1), strict=True))
        sums = np.stack([sum(unit[word] for word in name.split()) for name in names])
        lengths = np.linalg.norm(sums, axis=1, keepdims=True)
        if not lengths.all():
            raise ValueError(f"no vector for any word of {names[lengths[:, 0].argmin()]!r}")
        return (sums / lengths).astype(np.float32)

    def make() -> bytes:
        path = locate(ARCHIVE, f"{SOURCE}; prepare vrd first", "0.6 MB")
        with opened_archive(path, f"Download it again: {SOURCE}.") as archive:
            objects = object_names(archive)
        predicates = list(PREDICATES)
        return npz(
            objects=np.array(objects),
            objects_gnews=vectors(objects),
            predicates=np.array(predicates),
            predicates_gnews=vectors(predicates),
        )

    return {VECTORS: make}


DATA_SETS = {
    "vrd": DataSet(
        "Visual Relationship Detection (VRD): relations with bounding boxes in 5,000 images",
        files=(ARCHIVE,),
        owner="Lu et al. 2016 (cs.stanford.edu/people/ranjaykrishna/vrd)",
        source="json_dataset.zip",
        bytes=1_000_000,
        prepare=file_by_file(vrd_annotations),
    ),
    "vrd-vectors": DataSet(
        "word2vec vectors of VRD's words; prepare vrd first",
        files=(f"vrd_spo_facts/{VECTORS}",),
        owner="Mikolov et al. 2013 (code.google.com/archive/p/word2vec)",
        source="GoogleNews-vectors-negative300.bin, unpacked",
        bytes=400_000,
        prepare=file_by_file(vrd_vectors),
    ),
}
