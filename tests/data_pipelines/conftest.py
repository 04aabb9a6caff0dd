"""A fixture: the folder where a test prepares data sets."""

import pytest


@pytest.fixture
def root(tmp_path, monkeypatch):
    place = tmp_path / "data"
    monkeypatch.setenv("EVERLIGHT_DATA", str(place))
    return place
