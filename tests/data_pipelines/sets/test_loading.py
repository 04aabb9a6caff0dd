"""Loaders read once per set of arguments within `load_images`, and again after it."""

from everlight_data.image_requests import load_images
from everlight_data.images.digits import load_digits
from everlight_data.registry import IMAGE_SETS
from everlight_data.sets.data_set import DataSet, ImageRequest
from everlight_data.sets.loading import loaded_once, loading_once


def test_equal_requests_are_loaded_once_within_the_context(monkeypatch):
    calls = []

    def digits(request):
        calls.append(request.classes)
        return load_digits()

    monkeypatch.setitem(IMAGE_SETS, "digits", DataSet("", load=digits))
    with loading_once():
        first = load_images(ImageRequest("digits"))
        assert load_images(ImageRequest("digits")) is first
        assert load_images(ImageRequest("digits", classes=5)) is not first
    assert calls == [None, 5]
    assert load_images(ImageRequest("digits")) is not first


def test_an_argument_by_place_by_name_or_by_default_is_one():
    @loaded_once
    def load(side=128, partial=False):
        return object()

    with loading_once():
        assert load() is load(128) is load(partial=False, side=128)
        assert load(64) is not load()
