"""White points, corrected files and sidecars of photos with matrices of two illuminants."""

import csv
import re
from pathlib import Path

import colour
import numpy as np
import pytest
import tifffile
from PIL import Image

from everlight_data.color.photographs.camera_names import is_same_camera
from everlight_data.color.raw_files import dng
from everlight_data.color.raw_files.camera_profile import (
    IlluminantMatrices,
    new_profile,
    write_profile,
)
from everlight_data.color.raw_files.raw import camera_names, read_raw
from everlight_data.errors import DataError
from everlight_experiments.illuminant.estimate.command import estimate
from everlight_experiments.illuminant.estimate.options import EstimateOptions
from tests.dng_writer import write_dng

WARM = np.array([[0.75, -0.15, -0.05], [-0.42, 1.25, 0.18], [-0.06, 0.2, 0.5]])
DAY = np.array([[0.6941, -0.1164, -0.0857], [-0.3825, 1.1597, 0.2534], [-0.0416, 0.154, 0.6039]])
FORWARD = [
    np.array([[0.60, 0.30, 0.0642], [0.25, 0.85, -0.10], [0.02, -0.10, 0.9049]]),
    np.array([[0.72, 0.20, 0.0442], [0.29, 0.80, -0.09], [0.03, -0.15, 0.9449]]),
]
INDIVIDUAL = np.array([[1.04, 0.08, -0.05], [-0.06, 0.97, 0.04], [0.03, -0.09, 1.05]])
BALANCE = np.array([0.9375, 1, 0.875])
D50, D65 = (0.3457, 0.3585), (0.3127, 0.3290)
KELVIN = 4_000
XY = np.array(colour.temperature.CCT_to_xy_Kang2002(KELVIN))
SHARE = (1 / KELVIN - 1 / 2856) / (1 / 6504 - 1 / 2856)
NEUTRAL = ((1 - SHARE) * WARM + SHARE * DAY) @ colour.xy_to_XYZ(XY)


def matrix_tags(forward=()):
    matrices = {50721: WARM, 50722: DAY, **dict(zip((50964, 50965), forward, strict=False))}
    tags = [(code, dng.SIGNED_RATIONAL, 9, dng.rationals(m)) for code, m in matrices.items()]
    return [*tags, (50778, dng.SHORT, 1, 17), (50779, dng.SHORT, 1, 21)]


def colored_scene(neutral=NEUTRAL):
    """Return tiles whose mean, Gray World's estimate, is neutral."""
    rng = np.random.default_rng(3)
    tiles = rng.uniform(0.1, 0.4, (5, 7, 3))
    tiles *= 0.25 / tiles.mean(axis=(0, 1))
    return tiles.repeat(24, axis=0).repeat(24, axis=1) * neutral / neutral.max()


def write_photo(folder, tags, name="photo.dng", neutral=NEUTRAL):
    return write_dng(
        folder / name, colored_scene(neutral), 512, 16383, model="Made Up", extra_tags=tags
    )


def run(folder, *photos, **options):
    options = {"output": folder / "out", "formats": (), **options}
    return estimate(EstimateOptions(photos, Path("GW"), **options))


def table_of(folder):
    return list(csv.DictReader((folder / "out" / "illuminants.csv").open()))


def test_the_temperature_is_printed_and_in_the_table(tmp_path, capsys):
    run(tmp_path, write_photo(tmp_path, matrix_tags()))
    (printed,) = re.findall(r"white point: (\d+) K, tint ([+-]\d+)", capsys.readouterr().out)
    (row,) = table_of(tmp_path)
    assert abs(int(printed[0]) - KELVIN) < 15
    assert row["temperature, K"] == printed[0]
    assert abs(float(row["tint"])) < 2


def adaptation(source, target):
    """Return Bradford's adaptation of XYZ between two chromaticities by colour-science."""
    whites = [colour.xy_to_XYZ(xy) for xy in (source, target)]
    return colour.adaptation.matrix_chromatic_adaptation_VonKries(*whites, "Bradford")


@pytest.mark.parametrize("with_forward", [False, True])
@pytest.mark.parametrize("individual", [np.eye(3), INDIVIDUAL], ids=["equal", "individual"])
def test_colors_are_those_of_the_specifications_equations(tmp_path, with_forward, individual):
    """The DNG specification's CameraToXYZ_D50 in float64, then Bradford's adaptation to sRGB.

    Without forward matrices it is CA · (AB · CC · CM)^-1, with them FM · D · (AB · CC)^-1.
    """
    calibration = np.diag(BALANCE) @ individual
    codes = {50723: individual, 50724: individual}
    tags = [(code, dng.SIGNED_RATIONAL, 9, dng.rationals(cc)) for code, cc in codes.items()]
    tags += [(50727, dng.RATIONAL, 3, dng.rationals(BALANCE))]
    tags += matrix_tags(FORWARD if with_forward else ())
    photo = write_photo(tmp_path, tags, neutral=calibration @ NEUTRAL)
    (result,) = run(tmp_path, photo, formats=("tiff", "dng"))
    linear = tifffile.imread(tmp_path / "out" / "photo.tiff") / 65535
    illuminant = np.asarray(result.estimate.illuminant, float)
    balanced = read_raw(photo).image * (illuminant.max() / illuminant)
    if with_forward:
        reference = np.linalg.solve(calibration, illuminant)
        forward = (1 - SHARE) * FORWARD[0] + SHARE * FORWARD[1]
        to_d50 = forward @ np.diag(1 / reference) @ np.linalg.inv(calibration)
    else:
        to_camera = calibration @ ((1 - SHARE) * WARM + SHARE * DAY)
        to_d50 = adaptation(XY, D50) @ np.linalg.inv(to_camera)
    to_srgb = np.linalg.inv(colour.RGB_COLOURSPACES["sRGB"].matrix_RGB_to_XYZ)
    matrix = to_srgb @ adaptation(D50, D65) @ to_d50 @ np.diag(illuminant)
    matrix /= matrix.sum(axis=1, keepdims=True)
    expected = np.clip(np.clip(balanced, 0, 1) @ matrix.T, 0, 1)
    np.testing.assert_allclose(linear, expected, atol=3e-3)
    copy = read_raw(tmp_path / "out" / "photo.dng")
    np.testing.assert_allclose(copy.as_shot_neutral, illuminant / illuminant[1], rtol=1e-4)
    with tifffile.TiffFile(tmp_path / "out" / "photo.dng") as file:
        tags = file.pages[0].tags
        for name in ("ColorMatrix1", "ColorMatrix2", "CalibrationIlluminant2"):
            assert name in tags
        assert ("ForwardMatrix2" in tags) == with_forward


@pytest.mark.parametrize("forward", [np.zeros((3, 3)), np.ones((3, 3)), 30 * np.eye(3)])
def test_a_forward_matrix_without_inverse_is_left_out(tmp_path, forward):
    pictures = []
    for name, matrices in (("with", [FORWARD[0], forward]), ("without", ())):
        write_photo(tmp_path, matrix_tags(matrices), f"{name}.dng")
        run(tmp_path, tmp_path / f"{name}.dng", formats=("tiff",))
        pictures.append(tifffile.imread(tmp_path / "out" / f"{name}.tiff"))
    np.testing.assert_array_equal(*pictures)


def test_a_given_profile_replaces_the_files_matrices(tmp_path):
    profile = tmp_path / "camera.dcp"
    matrices = [IlluminantMatrices(17, WARM, FORWARD[0]), IlluminantMatrices(21, DAY, FORWARD[1])]
    write_profile(profile, new_profile("Made Up", "everlight", matrices))
    run(tmp_path, write_photo(tmp_path, ()), matrices=profile)
    (row,) = table_of(tmp_path)
    assert abs(int(row["temperature, K"]) - KELVIN) < 15


def test_matrices_of_another_camera_are_refused(tmp_path):
    photo = write_photo(tmp_path, ())
    profile = tmp_path / "other.dcp"
    write_profile(
        profile, new_profile("Own Other", "mine", [IlluminantMatrices(17, WARM, FORWARD[0])])
    )
    other = write_dng(tmp_path / "other.dng", colored_scene(), 512, 16383, DAY, model="Third")
    for path, name in ((profile, "Own Other"), (other, "Third")):
        message = rf"photo\.dng was taken by Made Up, and .*other\.\w+ is of {name}; give"
        with pytest.raises(DataError, match=message):
            run(tmp_path, photo, matrices=path)


def test_the_message_about_another_name_has_an_alias_that_works(tmp_path, monkeypatch):
    """A model alone is known by the list's names; any other name is added to it."""
    folder = tmp_path / "data" / "camera_matrices"
    folder.mkdir(parents=True)
    rows = "".join(
        f'<ColorMatrixRow plane="{plane}">{row}</ColorMatrixRow>'
        for plane, row in enumerate(("1 0 0", "0 1 0", "0 0 1"))
    )
    camera = '<Camera make="Canon" model="EOS 550D">{}<ColorMatrices><ColorMatrix planes="3">'
    listed = f"<Cameras>{camera}{rows}</ColorMatrix></ColorMatrices></Camera></Cameras>"
    (folder / "cameras.xml").write_text(listed.format(""))
    monkeypatch.setenv("EVERLIGHT_DATA", str(tmp_path / "data"))
    profile = tmp_path / "canon.dcp"
    write_profile(
        profile, new_profile("Canon EOS 550D", "", [IlluminantMatrices(17, WARM, FORWARD[0])])
    )
    photo = write_dng(tmp_path / "a.dng", colored_scene(), 512, 16383, DAY, model="EOS 550D")
    run(tmp_path, photo, matrices=profile)
    photo = write_dng(tmp_path / "b.dng", colored_scene(), 512, 16383, DAY, model="Kiss")
    with pytest.raises(DataError, match="is of Canon EOS 550D; give --matrices") as caught:
        run(tmp_path, photo, matrices=profile)
    (alias,) = re.findall("<Aliases>.*</Aliases>", str(caught.value))
    (folder / "cameras.xml").write_text(listed.format(alias))
    run(tmp_path, photo, matrices=profile)
    other = tmp_path / "kiss.dcp"
    write_profile(other, new_profile("Kiss 2", "", [IlluminantMatrices(17, WARM, FORWARD[0])]))
    with pytest.raises(DataError, match="<Alias>Kiss 2</Alias>"):
        run(tmp_path, photo, matrices=other)
    assert table_of(tmp_path)[0]["temperature, K"]


def test_matrices_serve_an_alias_and_a_photo_without_a_name(tmp_path, monkeypatch):
    """The list cameras.xml names both, as it does Canon EOS 600D and EOS REBEL T3i."""
    folder = tmp_path / "data" / "camera_matrices"
    folder.mkdir(parents=True)
    (folder / "cameras.xml").write_text(
        '<Cameras><Camera make="Made" model="Up"><Aliases><Alias>Other</Alias></Aliases>'
        '<ColorMatrices><ColorMatrix planes="3">'
        + "".join(
            f'<ColorMatrixRow plane="{place}">{" ".join(map(str, row))}</ColorMatrixRow>'
            for place, row in enumerate(np.int64(1e4 * DAY))
        )
        + "</ColorMatrix></ColorMatrices></Camera></Cameras>"
    )
    profile = tmp_path / "camera.dcp"
    write_profile(
        profile, new_profile("Made Other", "mine", [IlluminantMatrices(17, WARM, FORWARD[0])])
    )
    photo = write_photo(tmp_path, ())
    pixels = np.uint16(65535 * np.clip(colored_scene(), 0, 1))
    tifffile.imwrite(tmp_path / "picture.tiff", pixels, photometric="rgb")
    run(tmp_path, tmp_path / "picture.tiff", matrices=profile)
    with pytest.raises(DataError, match="is of Made Other"):
        run(tmp_path, photo, matrices=profile)
    monkeypatch.setenv("EVERLIGHT_DATA", str(tmp_path / "data"))
    run(tmp_path, photo, matrices=profile)
    assert table_of(tmp_path)[0]["temperature, K"]


@pytest.mark.parametrize(
    ("make", "model", "name"),
    [
        ("OLYMPUS IMAGING CORP.", "E-PL6", "Olympus E-PL6"),
        ("NIKON CORPORATION", "NIKON D5200", "Nikon D5200"),
        ("RICOH IMAGING COMPANY, LTD.", "PENTAX K-1", "Pentax K-1"),
        ("SONY", "SLT-A57", "Sony SLT-A57"),
    ],
)
def test_adobes_names_are_those_of_the_maker(tmp_path, make, model, name):
    """Left: Exif as the cameras write it. Right: UniqueCameraModel of Adobe's DNG Converter."""
    path = tmp_path / "photo.tiff"
    tags = [(271, "s", 0, make, True), (272, "s", 0, model, True)]
    tifffile.imwrite(path, np.zeros((8, 8), np.uint16), extratags=tags)
    assert any(is_same_camera(stated, name) for stated in camera_names(path))


def test_without_matrices_there_is_no_temperature(tmp_path, capsys):
    run(tmp_path, write_photo(tmp_path, ()))
    assert "white point" not in capsys.readouterr().out
    (row,) = table_of(tmp_path)
    assert row["temperature, K"] == row["tint"] == ""


def test_sidecars_lie_beside_the_raw_files(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    photos = [write_photo(folder, matrix_tags(), name) for name in ("a.dng", "b.dng")]
    before = [photo.read_bytes() for photo in photos]
    Image.fromarray(np.zeros((30, 30, 3), np.uint8)).save(folder / "notes.jpg")
    run(tmp_path, folder, sidecars=("adobe", "rawtherapee"))
    names = {path.name for path in folder.iterdir()}
    kinds = {f"{stem}.{end}" for stem in "ab" for end in ("xmp", "dng.pp3", "dng")}
    assert names == kinds | {"notes.jpg"}
    assert [photo.read_bytes() for photo in photos] == before
    (stated,) = re.findall(r'crs:Temperature="(\d+)"', (folder / "a.xmp").read_text())
    assert abs(int(stated) - KELVIN) < 15


def test_an_existing_sidecar_is_named_before_anything_is_written(tmp_path):
    photo = write_photo(tmp_path, matrix_tags())
    sidecar = tmp_path / "photo.dng.xmp"
    sidecar.write_text("mine")
    with pytest.raises(DataError, match=r"photo\.dng\.xmp exists .*--sidecar-folder"):
        run(tmp_path, photo, sidecars=("rawtherapee", "darktable"))
    assert sidecar.read_text() == "mine"
    assert not (tmp_path / "photo.dng.pp3").exists()
    assert not (tmp_path / "out").exists()
    run(tmp_path, photo, sidecars=("darktable",), sidecar_folder=tmp_path / "sidecars")
    assert (tmp_path / "sidecars" / "photo.dng.xmp").is_file()


@pytest.mark.parametrize("names", ["a", "ab"])
def test_an_estimate_without_a_sidecar_is_complete(tmp_path, capsys, names):
    """Without matrices adobe has no temperature; the row, picture and other sidecar are written."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for name in names:
        write_photo(folder, (), f"{name}.dng")
    results = run(tmp_path, folder, sidecars=("rawtherapee", "adobe"), formats=("png",))
    printed, rows = capsys.readouterr().err, table_of(tmp_path)
    assert len(results) == len(rows) == len(names)
    assert "NO ESTIMATE" not in printed
    assert printed.count("no sidecar for adobe: it needs") == len(names)
    assert all("no sidecar for adobe" in row["warnings"] for row in rows)
    assert (tmp_path / "out" / "a.png").is_file()
    assert not (folder / "a.xmp").exists()


def test_the_same_command_can_be_repeated(tmp_path):
    photo = write_photo(tmp_path, matrix_tags())
    for _ in range(2):
        run(tmp_path, photo, sidecars=("rawtherapee", "darktable"))
    assert len(table_of(tmp_path)) == 1


def test_a_folder_of_sidecars_without_a_kind_is_refused():
    with pytest.raises(DataError, match="--sidecar-folder is the folder of sidecars; give --side"):
        EstimateOptions((Path("a.dng"),), Path("GW"), sidecar_folder=Path("b"))


def test_two_files_that_darktable_would_read_are_refused():
    with pytest.raises(DataError, match="darktable would read Adobe's file too"):
        EstimateOptions((Path("a.dng"),), Path("GW"), sidecars=("adobe", "darktable"))


def test_a_picture_has_no_sidecar(tmp_path, capsys):
    path = tmp_path / "photo.tiff"
    pixels = np.uint16(65535 * np.clip(colored_scene(), 0, 1))
    tifffile.imwrite(path, pixels, photometric="rgb")
    run(tmp_path, path, sidecars=("adobe",), formats=("dng",))
    assert not (tmp_path / "photo.xmp").exists()
    printed = capsys.readouterr().err
    assert "no sidecar for adobe: only raw files have one" in printed
    assert "no dng: only raw files have one" in printed
