"""Spectra of illuminants, surfaces and cameras against their sources and colour-science."""

import colour
import numpy as np
import pytest

from everlight.color.radiometry import response_table
from everlight_data.color.spectra.library import WAVELENGTHS, embedded_library, measured_library
from everlight_data.errors import DataError, MissingDataError
from tests.data_pipelines.hostile_files.fuzzed_files import spectra as write_spectra


@pytest.fixture(scope="module")
def embedded():
    return embedded_library()


@pytest.fixture(scope="module")
def measured(real_data):
    for name in ("camspec_jiang2013", "sfu_illuminants", "munsell_matte_1269"):
        real_data(name)
    real_data("psychtoolbox_spectra")
    return measured_library()


@pytest.fixture(params=["embedded", "measured"])
def library(request):
    return request.getfixturevalue(request.param)


def test_spectra_are_physical(library):
    illuminants, surfaces = library.illuminants, library.reflectances
    for spectra in (illuminants, surfaces, library.sensitivities):
        assert spectra.shape[-1] == len(WAVELENGTHS) == 65
        assert np.isfinite(spectra).all()
        assert spectra.min() >= 0
    np.testing.assert_array_equal(illuminants.max(1), 1)
    assert np.all(library.sensitivities.max(-1) > 0)
    # One patch of colour-science's set fluoresces a little; none may be in per cent.
    assert surfaces.max() < 1.1
    assert np.median(surfaces) > 0.05


def test_names_and_note_agree_with_the_arrays(library):
    assert len(library.illuminant_names) == len(library.illuminants)
    assert len(set(library.illuminant_names)) == len(library.illuminants)
    assert len(library.camera_names) == len(library.sensitivities)
    for count in (library.illuminants, library.reflectances, library.sensitivities):
        assert str(len(count)) in library.note


def test_red_green_and_blue_peak_in_that_order(library):
    red, green, blue = np.moveaxis(WAVELENGTHS[library.sensitivities.argmax(-1)], 1, 0)
    assert np.all(red > green)
    assert np.all(green > blue)


def test_the_papers_sizes(measured):
    assert measured.sensitivities.shape == (28, 3, 65)
    assert measured.reflectances.shape == (1995, 65)
    assert measured.illuminants.shape == (102, 65)


def test_every_embedded_illuminant_is_there_or_named_as_left_out(embedded):
    complete = [*colour.SDS_ILLUMINANTS, *colour.SDS_LIGHT_SOURCES]
    left_out = set(complete) - set(embedded.illuminant_names)
    assert len(embedded.illuminants) + len(left_out) == len(complete)
    assert "LPS" in left_out
    assert all(name in embedded.note for name in left_out)


@pytest.mark.parametrize("illuminant", ["A", "D65", "FL11", "Kinoton 75P"])
@pytest.mark.parametrize("camera", ["Nikon 5100 (NPL)", "Sigma SDMerill (NPL)"])
def test_camera_responses_equal_color_science(embedded, illuminant, camera):
    shape = colour.SpectralShape(400, 720, 5)

    def align(spectra):
        dark = {"method": "Constant", "left": 0, "right": 0}  # beyond what was measured
        linear = colour.LinearInterpolator
        return spectra.copy().align(shape, interpolator=linear, extrapolator_kwargs=dark)

    source = align((dict(colour.SDS_ILLUMINANTS) | dict(colour.SDS_LIGHT_SOURCES))[illuminant])
    sensitivity = align(colour.MSDS_CAMERA_SENSITIVITIES[camera])
    checker = colour.SDS_COLOURCHECKERS["ColorChecker N Ohta"]
    surfaces = [colour.sd_ones(shape), align(checker["light skin"]), align(checker["purple"])]
    responses = (colour.sd_to_XYZ(s, sensitivity, source, method="Integration") for s in surfaces)
    expected = np.stack([*responses])
    spectra = embedded.illuminants, embedded.reflectances, embedded.sensitivity(camera)
    table = response_table(*spectra)
    index = embedded.illuminant_names.index(illuminant)
    rows = 190 + np.array([list(checker).index(name) for name in ("light skin", "purple")])
    actual = np.vstack([table.illuminants[index], table.surfaces[index, rows]])
    actual, expected = (item[:, ::2] / item[:, 1:2] for item in (actual, expected))
    np.testing.assert_allclose(actual, expected, rtol=1e-5)


def test_measured_spectra_keep_their_values_on_the_shared_grid(measured, real_data):
    stored = np.load(real_data("camspec_jiang2013/camspec.npz"))
    every_other = np.isin(WAVELENGTHS, stored["wavelengths_nm"])
    remote = np.isin(stored["wavelengths_nm"], WAVELENGTHS)
    assert remote.sum() == 33
    actual, reference = (
        measured.sensitivities[..., every_other],
        stored["sensitivities"][..., remote],
    )
    np.testing.assert_allclose(actual, reference, rtol=1e-6)
    illuminants = np.load(real_data("sfu_illuminants/measured_with_sources.illum.npy"))
    # The range is 380 to 780 nm by 4: every fifth sample lies on every fourth of ours.
    actual, reference = measured.illuminants[:, ::4], illuminants[:, 5:86:5]
    correlation = [np.corrcoef(a, b)[0, 1] for a, b in zip(actual, reference, strict=True)]
    np.testing.assert_allclose(correlation, 1, atol=1e-9)


def test_surfaces_are_drawn_by_seed_without_repetition(measured):
    first, same, other = (measured_library(50, seed).reflectances for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, same)
    assert not np.array_equal(first, other)
    full = measured_library(2116).reflectances
    assert full.shape == (2116, 65)
    assert all(any(np.array_equal(row, one) for one in full) for row in first)


@pytest.mark.parametrize("count", [-1, 0, 2117])
def test_a_count_of_surfaces_that_there_is_not_is_refused(measured, count):
    with pytest.raises(DataError, match=f"reflectance_count={count}; give 1 to 2116"):
        measured_library(count)


def test_an_unknown_camera_is_answered_with_the_nearest(measured, embedded):
    with pytest.raises(DataError, match=r"no camera 'Nikon D5'; did you mean .*'Nikon D50'"):
        measured.sensitivity("Nikon D5")
    with pytest.raises(DataError, match=r"no camera '\?\?\?'\. There are 'Nikon 5100 "):
        embedded.sensitivity("???")


def test_missing_sets_are_named(tmp_path, monkeypatch):
    monkeypatch.setenv("EVERLIGHT_DATA", str(tmp_path))
    with pytest.raises(MissingDataError, match=r"camspec\.npz does not exist.*Jiang"):
        measured_library()


DAMAGES = {
    "not finite": lambda values: np.where(values == values.max(), np.nan, values),
    "nowhere above 0": lambda values: 0 * values,
    "spectral values differ": lambda values: values[..., ::2],
    "no spectra": lambda values: values[0],
}


@pytest.mark.parametrize("reason", DAMAGES)
def test_spectra_that_are_none_are_refused(tmp_path, monkeypatch, rng, reason):
    _, read = write_spectra(tmp_path, rng)
    monkeypatch.setenv("EVERLIGHT_DATA", str(tmp_path))
    assert len(read().reflectances) == 1
    path = tmp_path / "munsell_matte_1269" / "munsell380_800_1nm.npz"
    with np.load(path) as stored:
        arrays = dict(stored)
    np.savez(path, **arrays | {"reflectance": DAMAGES[reason](arrays["reflectance"])})
    with pytest.raises(DataError, match=rf"munsell380_800_1nm\.npz is damaged .*{reason}"):
        read()
    np.savez(path, **arrays | {"wavelengths_nm": arrays["wavelengths_nm"][::-1]})
    with pytest.raises(DataError, match=r"munsell.*wavelengths do not increase"):
        read()
