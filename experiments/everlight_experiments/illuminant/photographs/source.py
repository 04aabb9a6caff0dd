"""Photographs with known illuminants that a command names, read camera by camera."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import numpy as np

from everlight.checks import Between
from everlight.color.thumbnails import SATURATION
from everlight_data.color.dmcc_thumbnails import scenes_of, thumbnail_files
from everlight_data.color.photographs.camera_images import (
    CameraImages,
    check_edges,
    read_camera_images,
)
from everlight_data.color.photographs.camera_names import NUS8_CAMERAS
from everlight_data.color.photographs.image_groups import read_image_groups
from everlight_data.color.photographs.thumbnail_checks import check_thumbnails
from everlight_data.color.photographs.thumbnails import Saturated, thumbnail_cameras
from everlight_data.color.rendered.rendered_views import render_thumbnails
from everlight_data.color.spectra.library import embedded_library, measured_library
from everlight_data.color.tuning_files.libcamera import read_tuning
from everlight_data.color.tuning_files.module_names import refuse_other_module
from everlight_data.errors import DataError
from everlight_data.names import check_name
from everlight_data.registry import PHOTOGRAPH_SETS
from everlight_data.sets.camera_tuning import Tuning
from everlight_data.sets.constancy_set import ConstancySet
from everlight_experiments.illuminant.config import MIN_IMAGES, RENDERED
from everlight_experiments.illuminant.core.locus_rows import nearest_points
from everlight_experiments.illuminant.core.method_inputs import moments_of
from everlight_experiments.report.cells import counted
from everlight_experiments.run_folder.options import ExperimentOptions

Release = Literal["gehler-shi", "cube-plus", "intel-tau", "nus8", "raspberry-pi-awb", "radiometric"]

MAX_DISTANCE = 0.25
"""Largest median distance of illuminants from their camera's CT curve, in R/G and B/G. Those of
Raspberry Pi's images are up to 0.10 from libcamera's files of their own sensor, and 0.02 to 0.55
from those of others."""

MASKED: dict[Saturated, str] = {
    "highlights": "pixels at 0 (charts) are masked, and, in files that do not mask saturated ones, "
    f"from {SATURATION} of an image's maximum on",
    "plateaus": "pixels at 0 (charts) and at an image's maximum, if several share it, are masked",
    "none": "pixels at 0 (charts) are masked",
}
"""Words for a report on the masks of thumbnails."""


@dataclass(frozen=True)
class ImageOptions(ExperimentOptions):
    """Photographs with known illuminants to read."""

    thumbnails: tuple[Path, ...] = ()
    """Your own images: .npz files of linear thumbnails with their illuminants, each of one or more
    cameras (docs/pages/guide/data.md). Without this and --release, NUS-8's thumbnails are taken."""
    camera: str = ""
    """Camera of all images in --thumbnails, as its raw files name it, where the names of the images
    do not state it."""
    release: Release | None = None
    """Released data set to use in place of thumbnails. It is read from --folder, except
    radiometric, which renders the paper's scenes from the spectra below EVERLIGHT_DATA."""
    folder: Path | None = None
    """Folder with the unpacked files of the release; needed by every release but radiometric."""
    cameras: tuple[str, ...] = ()
    """Names of the cameras to use; by default all."""
    matrices: tuple[Path, ...] = ()
    """Calibration matrices of the cameras, for C5 and CCMNet: DNGs, one by each camera, or the
    cameras.xml of rawspeed or darktable. By default camera_matrices/cameras.xml below
    EVERLIGHT_DATA."""
    tunings: tuple[Path, ...] = ()
    """Tuning files of libcamera for Raspberry Pi, one by each camera: CAMERA.json; for one camera
    any name but that of another module, such as imx219.json for imx708. Estimates get a second row,
    on the file's CT curve, and their errors in mired. The release raspberry-pi-awb brings its
    own."""
    side: Annotated[int, Between(32, 2_000)] = 64
    """Longest side in pixels; larger images are averaged down to it."""
    saturated: Saturated = "highlights"
    """Pixels of thumbnails that are masked as saturated: highlights, from 95% of an image's maximum
    on, but none in files of `illuminant thumbnails`, whose saturated pixels are 0; plateaus, those
    at the maximum where several share it, for images that are scaled to their maximum; or none."""
    groups: Path | None = None
    """File with the scene or session of each image: folds and intervals take whole groups. CSV with
    the columns camera, image and group; or, for one camera, text with a word per image in the order
    of the images. Across cameras only intervals do, and scenes that are tested are in training by
    other cameras. By default images count as independent, except for NUS-8 across cameras, whose
    scenes are found in the images."""

    @property
    def is_across_cameras(self) -> bool:
        """True if each of several cameras is tested by a training on the others."""
        return False

    @property
    def are_scenes_found(self) -> bool:
        """True if NUS-8 is read across cameras: eight of them show each scene."""
        return self.is_across_cameras and self.is_nus8

    @property
    def is_nus8(self) -> bool:
        """True if NUS-8's thumbnails are read, since no other images are named."""
        return not (self.thumbnails or self.release or self.preset == "demo")

    def check_cameras(self, chosen: Sequence[str]) -> None:
        """Refuse options that do not go with the cameras; a run's own settings may have some."""

    def check_counts(self, counts: Mapping[str, int]) -> None:
        """Refuse cameras with too few images, by the number of each camera's.

        Raises:
          DataError: a camera has too few.
        """
        for camera, count in counts.items():
            if not suffices(count):
                raise DataError(
                    f"{camera} has {counted(count, 'image')}; at least {MIN_IMAGES} are needed to "
                    "train and to test. Leave it out by --cameras, add images, or, if all images "
                    "are by one camera, name it by --camera."
                )


class Photographs(NamedTuple):
    """Photographs that the options of a command name."""

    cameras: dict[str, CameraImages]
    """Images by camera."""
    note: str
    """Description of the data for reports."""


def suffices(count: int) -> bool:
    """Return True if a number of images suffices to test a camera, or to train for others."""
    return count >= MIN_IMAGES


def load_cameras(options: ImageOptions) -> Photographs:
    """Return the images by camera, with a note on the data.

    Raises:
      DataError: options contradict each other, a camera is unknown, or one has too few images, none
        with edges, one without usable pixels, or white-balance gains instead of illuminants.
    """
    _check_options(options)
    if options.preset == "demo" or options.release == "radiometric":
        library = embedded_library() if options.preset == "demo" else measured_library()
        chosen = _chosen(options, library.camera_names)
        images = render_thumbnails(library, chosen, RENDERED, options.seed)
        images = {camera: data.averaged(options.side) for camera, data in images.items()}
        images = _with_tunings(options, _grouped(options, images))
        height, width = images[chosen[0]].masks.shape[1:]
        note = f"NOT photographs: {RENDERED} rendered thumbnails ({height}x{width}); {library.note}"
        return Photographs(images, note)
    sets, note = _read_sets(options)
    chosen = _chosen(options, list(sets))
    # All counts are known before the first image is read.
    options.check_counts({camera: len(sets[camera].names) for camera in chosen})
    images = {camera: read_camera_images(sets[camera], options.side) for camera in chosen}
    if options.release:
        longest = max(max(data.masks.shape[1:]) for data in images.values())
        note += f", longest side {longest} pixels; larger images are averaged down"
    for camera, data in images.items():
        check_edges(camera, data)
        if (file := sets[camera].file) is not None:
            check_thumbnails(file, camera, data)
    _refuse_unusable(images)
    # Folds within a single camera take its images as independent.
    if options.groups is None and options.are_scenes_found and len(chosen) > 1:
        scenes = scenes_of(sets)
        images = {name: data._replace(groups=scenes[name]) for name, data in images.items()}
    return Photographs(_with_tunings(options, _grouped(options, images)), note)


def _refuse_unusable(cameras: Mapping[str, CameraImages]) -> None:
    """Refuse images whose pixels are all masked, saturated or black, which have no moments.

    Networks on moments cannot train on them, and select no step by them.
    """
    unusable = [
        f"{camera} {data.names[row]}"
        for camera, data in cameras.items()
        for row in np.flatnonzero(~np.isfinite(moments_of(data)).all(axis=1))
    ]
    if unusable:
        raise DataError(
            f"{counted(len(unusable), 'image')} without a pixel that is neither masked nor "
            f"saturated, the first: {unusable[0]}; leave them out"
        )


def _with_tunings(
    options: ImageOptions, images: Mapping[str, CameraImages]
) -> dict[str, CameraImages]:
    """Return the images with the tuning files that the options name."""
    tuned = dict(images)
    for path in options.tunings:
        is_only = len(options.tunings) == len(images) == 1
        camera = next(iter(images)) if is_only else path.stem
        if camera not in images:
            raise DataError(
                f"{path} is named after no camera of {', '.join(images)}; name each of --tunings "
                "CAMERA.json"
            )
        refuse_other_module(path, camera, "the images' camera")
        tuning = read_tuning(path)
        tuning.needed_curve()
        tuning.needed_matrices()
        print(_tuning_in_words(tuning, camera, images[camera]))
        tuned[camera] = images[camera]._replace(tuning=tuning)
    return tuned


def _tuning_in_words(tuning: Tuning, camera: str, images: CameraImages) -> str:
    """Return how far a camera's illuminants are from the CT curve that is taken for its own.

    Raises:
      DataError: the file has no curve, or one that cannot be the camera's.
    """
    points = nearest_points(tuning.needed_curve(), images.illuminants)
    distance = float(np.median(np.abs(points.distance)))
    if distance > MAX_DISTANCE:
        raise DataError(
            f"{tuning.path} cannot be the tuning file of {camera}: half of its images' illuminants "
            f"are more than {distance:.2f} from the CT curve in R/G and B/G; give its own file, or "
            "leave out --tunings"
        )
    return (
        f"tuning file of {camera}: {tuning.path}; the median illuminant of the images is "
        f"{distance:.3f} from its CT curve, in R/G and B/G"
    )


def _grouped(options: ImageOptions, images: Mapping[str, CameraImages]) -> dict[str, CameraImages]:
    """Return the images with the groups that the options name."""
    if options.groups is None:
        return dict(images)
    names = {camera: data.names for camera, data in images.items()}
    groups = read_image_groups(options.groups, names)
    return {camera: data._replace(groups=groups[camera]) for camera, data in images.items()}


def _check_options(options: ImageOptions) -> None:
    if (options.release in (None, "radiometric")) != (options.folder is None):
        raise DataError(
            "--release and --folder belong together: the name of the set, and its folder; "
            "radiometric is rendered and has no folder"
        )
    if options.release and options.thumbnails:
        raise DataError("--thumbnails and --release are two sets; give one")
    if options.saturated != "highlights" and (options.release or options.preset == "demo"):
        raise DataError(
            "--saturated is for --thumbnails; a release states its sensor's level, and demo is "
            "rendered"
        )
    if options.camera and not options.thumbnails:
        raise DataError("--camera names the camera of --thumbnails; give the files too")
    if options.camera and options.cameras:
        raise DataError("--camera names all images' camera, and --cameras selects; give one")
    if options.preset == "demo" and (options.release or options.thumbnails):
        raise DataError("--preset demo renders its own images; leave out the data or --preset")


def _chosen(options: ImageOptions, known: Sequence[str]) -> Sequence[str]:
    """Return the names of the cameras to use."""
    for camera in options.cameras:
        check_name("camera", camera, known)
    chosen = options.cameras or known
    options.check_cameras(chosen)
    return chosen


def _read_sets(options: ImageOptions) -> tuple[dict[str, ConstancySet], str]:
    if options.release and options.folder:
        sets = PHOTOGRAPH_SETS[options.release](options.folder)
        return sets, f"{options.release} as released"
    files, names = options.thumbnails, ", ".join(file.name for file in options.thumbnails)
    sets = thumbnail_cameras(files or thumbnail_files(), options.camera, options.saturated)
    if not files:
        sets, names = {name: sets[name] for name in sets if name in NUS8_CAMERAS}, "NUS-8"
    return sets, f"linear thumbnails: {names}; {MASKED[options.saturated]}"
