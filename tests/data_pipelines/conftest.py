"""Fixtures: real data, and the folder where a test prepares its own."""

import pytest

from everlight_data.locations import data_root


@pytest.fixture(scope="module")
def at_hand():
    """`at_hand("s20_two_camera/...")` is real data, wherever a test makes EVERLIGHT_DATA point."""
    outside = data_root()

    def find(relative):
        if outside is None or not (outside / relative).exists():
            pytest.skip(f"{relative} is needed below EVERLIGHT_DATA")
        return outside / relative

    return find


@pytest.fixture
def root(tmp_path, monkeypatch):
    place = tmp_path / "data"
    monkeypatch.setenv("EVERLIGHT_DATA", str(place))
    return place
