"""Table of all data sets: content, location, publisher and preparation."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from everlight_data.color import s20
from everlight_data.color.spectra_release import (
    CAMERAS_ORIGINAL,
    cameras,
    illuminants,
    munsell,
    psychtoolbox,
)
from everlight_data.color.thumbnails_release import (
    CUBE_FOLDERS,
    NUS_FOLDERS,
    PAIRS,
    cube_thumbnails,
    nus_thumbnails,
)
from everlight_data.errors import DataError, MissingDataError
from everlight_data.facts import vrd, word_vectors
from everlight_data.facts.releases import VECTORS, glove, vrd_annotations, vrd_vectors
from everlight_data.images import cifar100, idx, tiny_imagenet
from everlight_data.images.core50 import FOLDER as CORE50_FOLDER
from everlight_data.images.core50 import MANIFEST as CORE50_MANIFEST
from everlight_data.images.core50 import prepare_core50
from everlight_data.images.core50_release import FRAME_COUNTS, SIDE
from everlight_data.images.tiny_imagenet_release import ORIGINAL as TINY_IMAGENET_ORIGINAL
from everlight_data.images.tiny_imagenet_release import ZIP as TINY_IMAGENET_ZIP
from everlight_data.images.tiny_imagenet_release import tiny_imagenet as tiny_imagenet_files
from everlight_data.locations import data_root
from everlight_data.preparing import Files, Original, Source, copies, prepare_files, read_manifest

Prepare = Callable[[Path, Path, "DataSet", bool], str]
"""Function that prepares a data set and returns a sentence about the result.

Its arguments are the source, the destination folder, the data set, and whether an incomplete source
is allowed.
"""


class DataSet(NamedTuple):
    """Description of a data set and of the files that its loader needs."""

    description: str
    folder: str
    """Path below EVERLIGHT_DATA."""
    files: tuple[str, ...]
    """Names of the files and folders that the loaders need."""
    owner: str
    """Publisher of the data set and place of publication."""
    source: str
    """Files to download from the publisher."""
    bytes: int | None
    """Size of the prepared files, or of the release if it is read as published; None if unknown."""
    prepare: Prepare | None = None
    """Preparation function; None if the release is read as published."""
    original: Original | None = None
    """Size and hash of the source, if it is a single file and they are known."""
    alternatives: tuple[str, ...] = ()
    """Paths below EVERLIGHT_DATA that loaders read in place of `files`."""

    def missing(self, root: Path) -> list[str]:
        """Return the files that are missing; none if one of the alternatives exists."""
        if any((root / place).exists() for place in self.alternatives):
            return []
        return [name for name in self.files if not (root / self.folder / name).exists()]

    def altered(self, root: Path) -> list[str]:
        """Return the files whose size differs from the manifest's.

        Raises:
          DataError: the manifest is damaged.
        """
        folder = root / self.folder
        noted = {name: entry.get("bytes") for name, entry in read_manifest(folder).items()}
        return [
            name
            for name in self.files
            if name in noted and (folder / name).is_file()
            if (folder / name).stat().st_size != noted[name]
        ]

    def state(self, root: Path | None) -> str:
        """Return the state of the data set: present, missing, incomplete or altered.

        Args:
          root: folder of the data sets; None if there is none.

        Raises:
          DataError: the data set's manifest is damaged.
        """
        missing = self.files if root is None else self.missing(root)
        if len(missing) == len(self.files):
            return "missing"
        if missing:
            return f"incomplete, {', '.join(missing)} missing"
        altered = self.altered(root)
        if altered:
            return f"altered since it was prepared: {', '.join(altered)}; prepare it again"
        return "present"


def file_by_file(recipe: Callable[[Source], Files]) -> Prepare:
    """Return a preparation function that makes the files of a recipe one by one."""

    def prepare(source: Path, folder: Path, data: DataSet, partial: bool) -> str:
        if partial:
            raise DataError(
                "--partial works for core50 only; every other data set must be complete"
            )
        way_out = f"Download {data.source} again: {data.owner}."
        made = prepare_files(source, folder, recipe, way_out, data.bytes or 0, data.original)
        return f"created {', '.join(made)}" if made else "already prepared, nothing to do"

    return prepare


def _core50(source: Path, folder: Path, data: DataSet, partial: bool) -> str:
    manifest = prepare_core50(source, folder, partial)
    aside = ", ".join(f"{count:,} {name}" for name, count in manifest.aside.items())
    return (
        f"{len(manifest.frame):,} of {FRAME_COUNTS.sum():,} frames, "
        f"{len(set(manifest.object.tolist()))} objects in "
        f"{len(set(manifest.session.tolist()))} sessions; ignored files: {aside}"
    )


_DMCC = "shuwei666/DMCC-Cross-sensor-color-constancy on GitHub"
_S20_FILES = {
    s20.ARCHIVE: Original(
        171_339, "5218924cc2197aaff71658481aac960205f78f9e4f5ace6693daf551a94b332b"
    ),
    s20.FOLDS: Original(848, "751ae22b9a1a8c14dcf203c466a96bb53638e62737c73930fc22c51682d035e9"),
}
_S20_BYTES = 100_000_000
"""Size limit of a file of S20; the largest one is the augmented metadata."""

DATA_SETS: dict[str, DataSet] = {
    "cameras": DataSet(
        "28 camera sensitivities, 400 to 720 nm in steps of 10 nm",
        "camspec_jiang2013",
        ("camspec.npz",),
        "Jiang et al. 2013, camera spectral sensitivity database (gujinwei.org/research/camspec)",
        "camspec_database.txt",
        20_000,
        file_by_file(cameras),
        CAMERAS_ORIGINAL,
    ),
    "illuminants": DataSet(
        "102 illuminant spectra, 380 to 780 nm in steps of 4 nm",
        "sfu_illuminants",
        ("measured_with_sources.illum.npy",),
        "Barnard et al. 2002, SFU colour constancy data (cs.sfu.ca/~colour/data)",
        "measured_with_sources.illum, or .illum.gz",
        83_000,
        file_by_file(illuminants),
    ),
    "munsell": DataSet(
        "1,269 Munsell matte reflectances, 380 to 800 nm in steps of 1 nm",
        "munsell_matte_1269",
        ("munsell380_800_1nm.npz",),
        "University of Eastern Finland, spectral color research group",
        "munsell380_800_1.asc, .asc.gz or .mat (MATLAB 5)",
        1_400_000,
        file_by_file(munsell),
    ),
    "psychtoolbox": DataSet(
        "Vrhel, Nickerson, Krinov and Macbeth reflectances",
        "psychtoolbox_spectra",
        ("psychtoolbox_spectra.npz",),
        "Psychtoolbox (psychtoolbox.org; Debian's package psychtoolbox-3-common)",
        "the folder PsychColorimetricMatFiles",
        500_000,
        file_by_file(psychtoolbox),
    ),
    "s20": DataSet(
        "S20: illuminants, transforms and folds of 162 image pairs of a phone's two cameras",
        "s20_two_camera",
        (s20.ARCHIVE, s20.FOLDS),
        "SamsungLabs/two-camera-white-balance on GitHub, CC BY-NC-SA 4.0",
        f"the repository's folder data, optionally with {s20.AUGMENTED_ARCHIVE}, linked there",
        200_000,
        file_by_file(copies(_S20_BYTES, _S20_FILES, (s20.AUGMENTED_ARCHIVE, s20.AUGMENTED_FOLDS))),
    ),
    "nus-thumbnails": DataSet(
        "NUS-8: 1,853 linear 64x64 thumbnails by eight cameras, with illuminants",
        "nus8_64x64",
        (*(f"{camera}.npz" for camera in NUS_FOLDERS), PAIRS),
        _DMCC,
        "the repository, or its folder dataset",
        40_000_000,
        file_by_file(nus_thumbnails),
    ),
    "cube-plus-thumbnails": DataSet(
        "Cube+: 1,707 linear 64x64 thumbnails by a Canon 550D, with illuminants",
        "cube_plus_64x64",
        tuple(f"{camera}.npz" for camera in CUBE_FOLDERS),
        _DMCC,
        "the repository, or its folder dataset",
        37_000_000,
        file_by_file(cube_thumbnails),
    ),
    "nus8": DataSet(
        "NUS-8: the official release, 16-bit PNG, for paper two-camera --preset nus-paper",
        "nus8",
        ("NikonD5200", "Canon1DsMkIII"),
        "Cheng, Prasad and Brown 2014",
        "PNG, ground truth and CHECKER archives of both cameras, unpacked",
        None,
    ),
    "cifar100": DataSet(
        "CIFAR-100: 50,000 training and 10,000 test images of 32x32",
        cifar100.FOLDER,
        cifar100.MEMBERS,
        "Krizhevsky 2009, cs.toronto.edu/~kriz/cifar.html",
        cifar100.ARCHIVE,
        187_000_000,
        file_by_file(cifar100.cifar100_files),
        alternatives=(cifar100.ARCHIVE, cifar100.PREPARED),
    ),
    "tiny-imagenet": DataSet(
        "Tiny-ImageNet at 32x32: 250 training and 50 test images per class, 200 classes",
        tiny_imagenet.FOLDER,
        (*tiny_imagenet.TRAIN_FILES, tiny_imagenet.TEST_FILE, tiny_imagenet.CLASSES_FILE),
        "Stanford CS231n (cs231n.stanford.edu), research use",
        TINY_IMAGENET_ZIP,
        60_000_000,
        file_by_file(tiny_imagenet_files),
        TINY_IMAGENET_ORIGINAL,
    ),
    "fashion-mnist": DataSet(
        "Fashion-MNIST: 60,000 training and 10,000 test images of 28x28",
        "fashion_mnist",
        tuple(f"{file}.gz" for file in idx.FILES),
        "Xiao et al. 2017 (github.com/zalandoresearch/fashion-mnist), MIT",
        "its four .gz files, or these unpacked",
        31_000_000,
        alternatives=(f"fashion_mnist/{idx.FILES[0]}",),
    ),
    "mnist": DataSet(
        "MNIST: 60,000 training and 10,000 test images of 28x28",
        "mnist",
        tuple(f"{file}.gz" for file in idx.FILES),
        "LeCun et al. 1998 (yann.lecun.com/exdb/mnist) or a mirror",
        "its four .gz files, or these unpacked",
        12_000_000,
        alternatives=(f"mnist/{idx.FILES[0]}",),
    ),
    "imagenet": DataSet(
        "ImageNet (ILSVRC 2012): <wnid>/*.JPEG in the folders train and val",
        "imagenet",
        ("train", "val"),
        "image-net.org",
        "tasks 1 and 2, unpacked; val images sorted into class folders by the ground truth",
        144_000_000_000,
    ),
    "core50": DataSet(
        "CORe50: 164,866 frames (128x128) of 50 objects in 11 sessions",
        CORE50_FOLDER,
        (CORE50_MANIFEST, f"images_{SIDE}.npy"),
        "vlomonaco.github.io/core50",
        "core50_128x128.zip, or the folder with its files",
        8_104_000_000,
        _core50,
    ),
    "vrd": DataSet(
        "Visual Relationship Detection (VRD): relations with bounding boxes in 5,000 images",
        "vrd_spo_facts",
        (vrd.ARCHIVE.rpartition("/")[2],),
        "Lu et al. 2016 (cs.stanford.edu/people/ranjaykrishna/vrd)",
        "json_dataset.zip",
        1_000_000,
        file_by_file(vrd_annotations),
    ),
    "vrd-vectors": DataSet(
        "word2vec vectors of VRD's words; prepare vrd first",
        "vrd_spo_facts",
        (VECTORS,),
        "Mikolov et al. 2013 (code.google.com/archive/p/word2vec)",
        "GoogleNews-vectors-negative300.bin, unpacked",
        400_000,
        file_by_file(vrd_vectors),
    ),
    "glove": DataSet(
        "GloVe 6B word vectors of 50 dimensions, for the procedural facts",
        word_vectors.GLOVE.rpartition("/")[0],
        (word_vectors.GLOVE.rpartition("/")[2],),
        "Stanford NLP (nlp.stanford.edu/projects/glove), PDDL",
        "glove.6B.zip, or glove.6B.50d.txt from it",
        7_000_000,
        file_by_file(glove),
    ),
    "raw": DataSet(
        "camera raw file with a colour chart, for tests",
        "raw_samples",
        ("colorchart.dng",),
        "syoyo/tinydngloader on GitHub, MIT",
        "colorchart.dng",
        4_000_000,
        file_by_file(
            copies(
                10_000_000,
                {
                    "colorchart.dng": Original(
                        3_906_864,
                        "592dba160b03770752667847f60ef07e9d96c17bf841e78e2b0cb5cbc5616edd",
                    )
                },
            )
        ),
    ),
}


def prepare_data_set(name: str, source: Path, partial: bool = False) -> tuple[Path, str]:
    """Prepare a data set below EVERLIGHT_DATA; return its folder and a sentence about the result.

    An interrupted preparation continues.

    Args:
      name: name of a row of `DATA_SETS`.
      source: the publisher's file, or the folder with it.
      partial: prepare an incomplete release too.

    Raises:
      MissingDataError: EVERLIGHT_DATA is not set, or the source does not exist.
      DataError: the data set needs no preparation, or the source is incomplete or damaged.
    """
    data, root = DATA_SETS[name], data_root()
    if data.prepare is None:
        raise DataError(
            f"{name} needs no preparation: put {data.source} ({data.owner}) at "
            f"EVERLIGHT_DATA/{data.folder}"
        )
    if root is None:
        raise MissingDataError(
            "EVERLIGHT_DATA is not set. Set EVERLIGHT_DATA=<folder> to the folder of the data "
            f"sets; {name} is prepared in <folder>/{data.folder}."
        )
    if not source.exists():
        raise MissingDataError(
            f"{source} does not exist. Download {data.source} from: {data.owner}."
        )
    folder = root / data.folder
    return folder, data.prepare(source, folder, data, partial)
