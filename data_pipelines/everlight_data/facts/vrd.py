"""Facts with bounding boxes of Visual Relationship Detection (VRD; Lu et al. 2016).

The annotations are real, long-tailed facts: 30,355 training and 7,638 test relations between 100
object categories. They come from 4,000 and 1,000 photographs. All are full triples; <S,*,*> and
<S,P,*> are derived from them, as benchmarks of lifelong fact learning mix the three.
"""

import io
import zipfile
from typing import Any

import numpy as np

from everlight_data.facts.parts.boxes import AnnotatedScenes, BoxedFacts, Relations, boxed_facts
from everlight_data.formats.archives import Archive, opened_archive
from everlight_data.formats.files import refusing
from everlight_data.formats.tables import parse_json
from everlight_data.sets.data_set import DataSet, file_by_file
from everlight_data.sets.preparing import Files, Source, find

OWNER = "Lu et al. 2016 (cs.stanford.edu/people/ranjaykrishna/vrd)"
FOLDER, ARCHIVE = "vrd_spo_facts", "vrd_annotations.zip"
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
OBJECTS_FILE = "all/objects.json"
MAX_BYTES = 100_000_000
"""Limit on the size of a table in the archive; the largest has 4 MB."""
MAX_SIDE = 100_000
"""Limit on a photograph's side in pixels."""


def load_vrd() -> BoxedFacts:
    """Load VRD's annotations as facts; the photographs are not needed.

    Each of the 30,355 + 7,638 relations is an <S,P,O>. The 6,074 + 1,460 relations with one of 28
    action predicates are each an <S,P,*> too. The 26,430 + 6,735 distinct objects of all images are
    each an <S,*,*>. Repeated annotations and objects related to themselves are kept. Training has
    6,672 distinct <S,P,O> (3,985 of them seen once), 135 <S,P,*> and 100 <S,*,*>. The test images
    add 1,029, 20 and 0 more.

    Image paths are those of the release's photographs, `sg_train_images/` and `sg_test_images/`.
    With the photographs, `split_files.read_images` with `squares` cuts out the samples.

    Raises:
      MissingDataError: `vrd_spo_facts/vrd_annotations.zip` below EVERLIGHT_DATA is missing.
      DataError: the file is damaged or contradicts itself.
    """
    row = DATA_SETS["vrd"]
    path, remedy = row.locate(ARCHIVE), row.remedy
    with opened_archive(path, remedy) as archive, refusing(path, remedy):
        categories = _object_names(archive)
        relations = [
            _relations(part, _read_table(archive, f"annotations_{part}.json"), len(categories))
            for part in PARTS
        ]
    return boxed_facts("VRD", categories, PREDICATES, ACTIONS, *relations)


def vrd_object_names() -> list[str]:
    """Return the names of the object categories in the order of their annotation numbers.

    Raises:
      MissingDataError, DataError: as for `load_vrd`.
    """
    row = DATA_SETS["vrd"]
    path = row.locate(ARCHIVE)
    with opened_archive(path, row.remedy) as archive, refusing(path, row.remedy):
        return _object_names(archive)


def _object_names(archive: Archive) -> list[str]:
    categories = _read_table(archive, OBJECTS_FILE)
    if not isinstance(categories, list) or not all(isinstance(c, str) for c in categories):
        raise TypeError(f"{OBJECTS_FILE} is not a list of names")
    return categories


def _read_table(archive: Archive, name: str) -> Any:
    return parse_json(archive.read(name, MAX_BYTES).decode("utf-8"))


def _relations(part: str, annotations: dict[str, Any], categories: int) -> Relations:
    """Return the relations of all images; equal boxes of a category in an image are one object."""
    rows: dict[tuple[int, ...], int] = {}
    relations = []
    for image, listed in enumerate(annotations.values()):
        for relation in listed:
            subject, other = (
                rows.setdefault((image, *_object(relation[role], categories)), len(rows))
                for role in ("subject", "object")
            )
            predicate = _check_integer(relation["predicate"], len(PREDICATES))
            relations.append((subject, predicate, other))
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
    box = (_check_integer(edge, MAX_SIDE) for edge in (top, bottom, left, right))
    return _check_integer(role["category"], categories), *box


def _check_integer(value: Any, count: int) -> int:
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
        members = {OBJECTS_FILE: "objects.json"}
        members |= {name: name for name in (f"annotations_{part}.json" for part in PARTS)}
        stream = io.BytesIO()
        with zipfile.ZipFile(stream, "w") as archive:
            for name, published in members.items():
                # If every call had its own date, the bytes would differ.
                info = zipfile.ZipInfo(name)
                info.compress_type = zipfile.ZIP_DEFLATED
                archive.writestr(info, source.read(find(source, published), MAX_BYTES))
        return stream.getvalue()

    return {ARCHIVE: make}


DATA_SETS = {
    "vrd": DataSet(
        "Visual Relationship Detection (VRD): relations with bounding boxes in 5,000 images",
        files=(f"{FOLDER}/{ARCHIVE}",),
        owner=OWNER,
        source="json_dataset.zip",
        size_bytes=700_000,
        prepare=file_by_file(vrd_annotations),
    )
}
