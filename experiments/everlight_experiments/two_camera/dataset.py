"""Every method that sees one image, on any set of photographs with known lights.

    everlight two_camera dataset --thumbnails mine.npz
    everlight two_camera dataset --release cube-plus --folder DIR
    everlight two_camera dataset --thumbnails a.npz b.npz --split cross-camera
    everlight two_camera dataset --release radiometric --cameras "Canon 600D"

Without either the NUS-8 thumbnails below EVERLIGHT_DATA are taken; `--preset demo` needs no data. A
thumbnails file has `images_u16` or `images`, `illuminant_rgb` and `names`; the releases are those
of `everlight_data.color.constancy_sets`, as they come unpacked.

In folds, two thirds of a camera's images teach and the third is asked. Across cameras, all images
of the other cameras teach. What a net or regression chooses, it chooses on 15% of the images that
teach.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from everlight.checks import Between
from everlight.models.illuminant_training import TrainingSettings
from everlight_data.color.constancy_sets import RELEASES, SATURATION, ConstancySet, thumbnail_set
from everlight_data.color.nus import CAMERAS, THUMBNAILS_SOURCE
from everlight_data.color.quasi_real import FOLDS
from everlight_data.color.spectra import (
    EMBEDDED_CAMERAS,
    SpectralLibrary,
    embedded_library,
    measured_library,
)
from everlight_data.errors import DataError
from everlight_data.files import read_text, refusing
from everlight_data.locations import locate
from everlight_data.matlab import read_mat
from everlight_experiments.common.checkpoint import Checkpoints, checksums_of
from everlight_experiments.common.progress import progress
from everlight_experiments.common.report import write_report
from everlight_experiments.common.run_folder import RunFolder
from everlight_experiments.common.settings import Count, Preset, RunSettings, check_name, in_words
from everlight_experiments.two_camera import CITATION
from everlight_experiments.two_camera.dataset_report import DatasetResults, report_sections
from everlight_experiments.two_camera.image_methods import (
    Keep,
    Lights,
    check_learners,
    compare_on_images,
    learners,
)
from everlight_experiments.two_camera.image_sets import (
    ImageSet,
    draw_folds,
    render_thumbnails,
    shrink_images,
)
from everlight_experiments.two_camera.tables import Comparison

Split = Literal["folds", "cross-camera"]
Release = Literal["gehler-shi", "cube-plus", "intel-tau", "nus8", "radiometric"]

CAMERA_SECONDS, SECONDS = 260.0, 0.1
"""Of processor time, for a camera and for each of its images of 64x64 pixels; measured at the
preset small: 284 s for 198 images, 438 s for 1,707."""
RENDERED = 162
"""Scenes of the radiometric set, each by every camera."""
LEAST_IMAGES = 45
"""Of a camera: two thirds of them, less the validation part, must determine 20 numbers."""
TRAINING = {
    "demo": TrainingSettings(1_000, 128, validate_every=50),
    "small": TrainingSettings(4_000, 128, validate_every=50),
    "paper": TrainingSettings(20_000, 128, validate_every=50),
}


@dataclass(frozen=True)
class DatasetRun(RunSettings):
    """Compare single-image methods on any photographs with known illuminants (table 2)."""

    preset: Preset = "small"
    """Configuration to run: demo renders images of two cameras, small trains 4,000 steps, paper
    20,000."""
    thumbnails: tuple[Path, ...] = ()
    """Your own images: .npz files of linear thumbnails with their illuminants, each of one or more
    cameras (docs/guide/data.md). Without this and --release, NUS-8's thumbnails are taken."""
    release: Release | None = None
    """Released data set to use in place of thumbnails. It is read from --folder, except
    radiometric, which renders the paper's scenes from the spectra below EVERLIGHT_DATA."""
    folder: Path | None = None
    """Folder with the unpacked files of the release; needed by every release but radiometric."""
    cameras: tuple[str, ...] = ()
    """Names of the cameras to use; by default all."""
    split: Split = "folds"
    """Cross-validation: three folds within each camera, or each camera held out in turn."""
    folds: Path | None = None
    """File with the fold, 1 to 3, of each image of one camera in the order of the images' names:
    text, or MATLAB with `indices`. Without it the folds are random, from --seed."""
    side: Annotated[int, Between(32, 2_000)] = 64
    """Longest side in pixels; larger images are averaged down to it."""
    methods: tuple[str, ...] | None = None
    """Learned methods to run, such as SIIE or 'APAP (GW)'; by default all. Estimators, networks
    and regressions on colour moments always run."""
    seeds: Count = 3
    """Number of trainings per network, each with its own initialization and validation images."""


class CameraImages(NamedTuple):
    """One camera's images in the order of their names."""

    images: Float[np.ndarray, "n h w 3"]
    masks: Float[np.ndarray, "n h w"]
    illuminants: Float[np.ndarray, "n 3"]
    names: tuple[str, ...]


def run_dataset(
    settings: DatasetRun, training: Mapping[Preset, TrainingSettings] = TRAINING
) -> Path:
    """Runs it all; returns the report's path."""
    folder = RunFolder("two_camera", "dataset", settings)
    cameras, note = load_cameras(settings)
    sets = (in_three_folds if settings.split == "folds" else across_cameras)(cameras, settings)
    optimizer = training[settings.preset]
    seeds = range(settings.seed, settings.seed + settings.seeds)
    asked = asdict(optimizer) | {"seeds": settings.seeds, "seed": settings.seed}
    for data in sets.values():
        check_learners(data, settings.methods)
    compared, arrays = {}, {}
    print(expected_duration(sets), flush=True)
    bar = progress("two_camera dataset", len(sets), 0, "camera")
    for camera, data in sets.items():
        content = (data.images, data.masks, data.illuminants, *data.folds)
        facts = asked | {
            "data": checksums_of(*content),
            "camera": data.camera,
            "taken_by": checksums_of(np.array(data.taken_by, dtype=np.str_)),
            "learners": sorted(learners(data)),
        }
        found = folder.read_unit(camera, facts)
        if found is None:
            checkpoints = Checkpoints(folder.checkpoints / camera)
            keep = _keeping(folder, camera, facts)
            outcome = compare_on_images(data, seeds, optimizer, checkpoints, keep, settings.methods)
            found = {"truth": outcome.truth, **outcome.estimates}
            folder.save_unit(camera, facts, **found)
        truth = found.pop("truth")
        compared[camera] = Comparison(found, truth)
        for name, errors in compared[camera].errors().items():
            folder.log(camera=camera, method=name, mean_error=np.nanmean(errors, axis=(1, 2)))
            arrays[f"{camera}/{name}"] = errors
        bar.update()
    bar.close()
    folder.save_results(**arrays)
    teaching = {
        "folds": f"{FOLDS} folds of each camera; statistics within a fold, averaged over folds",
        "cross-camera": "each camera is tested by methods trained on all others",
    }
    summary = [
        ("Paper", CITATION),
        ("Data", note),
        ("Protocol", teaching[settings.split]),
        ("Folds", str(settings.folds or f"drawn by seed {settings.seed}")),
        (
            "Selection rule",
            "held-out selection: step and augmentation on 15% of the training images",
        ),
        ("Seeds", f"{settings.seeds} per network, from {settings.seed}"),
        ("Training of networks", in_words(optimizer)),
        ("Duration", folder.duration()),
    ]
    title = f"Illuminant estimation from one image: {', '.join(sets)} ({settings.split})"
    results = DatasetResults(sets, compared, settings.split, note)
    first, sections = report_sections(folder.path, results)
    return write_report(folder.path, title, summary, sections, first)


def _keeping(folder: RunFolder, camera: str, facts: dict) -> Keep:
    """Each method's lights are a unit of the run."""

    def keep(name: str, lights: Callable[[], Lights]) -> Lights:
        unit = f"{camera}-{name}"
        found = folder.read_unit(unit, facts)
        if found is None:
            found = {"lights": lights()}
            folder.save_unit(unit, facts, **found)
        return found["lights"]

    return keep


def expected_duration(sets: Mapping[str, ImageSet]) -> str:
    """About how long a run takes, by the images and pixels from which each camera's methods learn;
    what was finished before is not left out."""
    images = sum(len(data.images) for data in sets.values())
    pixels = sum(data.masks.size for data in sets.values())
    minutes = round((CAMERA_SECONDS * len(sets) + SECONDS * pixels / 64**2) / 60)
    return (
        f"{len(sets)} cameras, {images:,} images to learn from: about {minutes:,} minutes of "
        "processor time, of which DMCC, SIIE, C5 and FFCC, at the end of each camera, take most; "
        "--methods chooses among those that learn"
    )


def load_cameras(settings: DatasetRun) -> tuple[dict[str, CameraImages], str]:
    """Images by camera, and which they are.

    Raises:
      DataError: options that do not go together, no such camera, or too few images of one.
    """
    if (settings.release in (None, "radiometric")) != (settings.folder is None):
        raise DataError(
            "--release and --folder belong together: which set, and where it lies; radiometric is "
            "rendered, and has no folder"
        )
    if settings.release and settings.thumbnails:
        raise DataError("--thumbnails and --release are two sets; give one")
    if settings.preset == "demo":
        if settings.release or settings.thumbnails:
            raise DataError("--preset demo renders its own images; leave the data or --preset away")
        cameras, note = _rendered(embedded_library(), EMBEDDED_CAMERAS, settings.seed)
    elif settings.release == "radiometric":
        library = measured_library()
        for camera in settings.cameras:
            check_name("camera", camera, list(library.camera_names))
        chosen = settings.cameras or library.camera_names
        cameras, note = _rendered(library, chosen, settings.seed)
    else:
        sets, note = _sets(settings)
        cameras = {}
        for camera in settings.cameras or sets:
            check_name("camera", camera, list(sets))
            cameras[camera] = _shrunk(sets[camera], settings.side)
    for camera, data in cameras.items():
        if len(data.names) < LEAST_IMAGES:
            raise DataError(
                f"{camera} has {len(data.names)} images; {LEAST_IMAGES} are needed to learn from "
                "and to be asked. Leave it out by --cameras, or add images."
            )
    if settings.split == "cross-camera" and len(cameras) < 2:
        raise DataError("--split cross-camera needs two cameras or more; give more --thumbnails")
    if settings.folds and (len(cameras) > 1 or settings.split == "cross-camera"):
        raise DataError("--folds are those of one camera; name it by --cameras")
    return cameras, note


def _sets(settings: DatasetRun) -> tuple[dict[str, ConstancySet], str]:
    if settings.release and settings.folder:
        sets = RELEASES[settings.release](settings.folder)
        return sets, f"{settings.release} as released, averaged down to {settings.side} pixels"
    files, kept = settings.thumbnails, None
    if not files:
        folder = locate("nus8_64x64", THUMBNAILS_SOURCE, "37 MB")
        files, kept = tuple(folder / f"{camera}.npz" for camera in CAMERAS), CAMERAS
    sets = {}
    for file in files:
        for camera, each in thumbnail_set(file).items():
            if camera in sets:
                raise DataError(f"{file} has images of {camera}, as another file has; give one")
            if kept is None or camera in kept:
                sets[camera] = each
    names = "NUS-8" if kept else ", ".join(file.name for file in files)
    return sets, (
        f"linear thumbnails: {names}; masked are what is 0 (charts) and pixels from {SATURATION} "
        "of an image's maximum on"
    )


def _shrunk(camera: ConstancySet, side: int) -> CameraImages:
    # In the set's own order, in which published folds number the images.
    images, masks = shrink_images(camera, camera.names, side)
    return CameraImages(images, masks, camera.illuminants, tuple(camera.names))


def _rendered(
    library: SpectralLibrary, cameras: Sequence[str], seed: int
) -> tuple[dict[str, CameraImages], str]:
    names = tuple(f"{index:04}" for index in range(RENDERED))
    rendered = {
        camera: CameraImages(images, np.ones(images.shape[:3], np.float32), lights, names)
        for camera, (images, lights) in render_thumbnails(library, cameras, RENDERED, seed).items()
    }
    return rendered, f"NOT photographs: {RENDERED} rendered thumbnails (32x48); {library.note}"


def in_three_folds(
    cameras: Mapping[str, CameraImages], settings: DatasetRun
) -> dict[str, ImageSet]:
    """Each camera's images, without the one or two that make folds of unequal size."""
    lights = {camera: data.illuminants for camera, data in cameras.items()}
    sets = {}
    for camera, data in cameras.items():
        if settings.folds is None:
            folds = draw_folds(len(data.names), settings.seed)
        else:
            folds = read_folds(settings.folds, len(data.names))
        kept = np.sort(np.concatenate(folds))
        sets[camera] = ImageSet(
            data.images[kept],
            data.masks[kept],
            data.illuminants[kept],
            [np.searchsorted(kept, fold) for fold in folds],
            lights,
            _note(camera, data, len(kept)),
            camera,
        )
    return sets


def across_cameras(cameras: Mapping[str, CameraImages], _: DatasetRun) -> dict[str, ImageSet]:
    """All cameras' images on one canvas; asked is one camera, and the others teach."""
    canvas = np.max([data.masks.shape[1:] for data in cameras.values()], axis=0)

    def padded(values: np.ndarray) -> np.ndarray:
        wider = [(0, canvas[axis] - values.shape[1 + axis]) for axis in (0, 1)]
        return np.pad(values, [(0, 0), *wider, *[(0, 0)] * (values.ndim - 3)])

    images = np.concatenate([padded(data.images) for data in cameras.values()])
    masks = np.concatenate([padded(data.masks) for data in cameras.values()])
    illuminants = np.concatenate([data.illuminants for data in cameras.values()])
    lights = {camera: data.illuminants for camera, data in cameras.items()}
    taken_by = [camera for camera, data in cameras.items() for _ in data.names]
    sets, start = {}, 0
    for camera, data in cameras.items():
        rows = np.arange(start, start := start + len(data.names))
        note = _note(camera, data, len(rows))
        sets[camera] = ImageSet(images, masks, illuminants, [rows], lights, note, camera, taken_by)
    return sets


def _note(camera: str, data: CameraImages, kept: int) -> str:
    left = len(data.names) - kept
    return f"{camera}: {kept} images" + (f", {left} left out for equal folds" if left else "")


def read_folds(path: Path, count: int) -> list[Int[np.ndarray, "k"]]:
    """Three sets of test images of equal size from a published split; the last of others go.

    Raises:
      MissingDataError: no such file.
      DataError: it does not say one of three folds of every image.
    """
    way_out = "It has each image's fold, 1 to 3, in the order of the images' names."
    if path.suffix == ".mat":
        (parts,) = read_mat(path, ["indices"])
    else:
        text = read_text(path, way_out)
        with refusing(path, way_out):
            parts = np.array(text.split(), int)
    parts = parts.ravel()
    folds = [np.flatnonzero(parts == part) for part in range(1, FOLDS + 1)]
    size = min(map(len, folds))
    if len(parts) != count or sum(map(len, folds)) < count or not size:
        raise DataError(f"{path} has {len(parts)} entries for {count} images. {way_out}")
    return [fold[:size] for fold in folds]
